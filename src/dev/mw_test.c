/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows below the transport: when they are carried out, what may have
 * gone by then, and users that are busy when one is taken away. */
#include "tests/t.h"

#include "dev/fake_transport.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define REGION (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

static uint8_t mem[4096];

static int64_t poll_id(struct rig *r, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(r->scq, 1, &wc) != 1)
		return -1;
	CHECK_EQ(wc.status, status);
	return (int64_t)wc.wr_id;
}

static struct ibv_mr *region(struct rig *r)
{
	return ibv_reg_mr(r->pd, mem, sizeof(mem), REGION);
}

static struct ibv_send_wr bind_wr(struct ibv_mw *mw, struct ibv_mr *mr, uint64_t id,
				  size_t off, size_t len)
{
	struct ibv_send_wr wr = { .wr_id = id,
				  .opcode = IBV_WR_BIND_MW,
				  .send_flags = IBV_SEND_SIGNALED };

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)mem + off, len,
							  REMOTE };
	return wr;
}

static int post(struct rig *r, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(r->qp, &wr, &bad);
}

static int post_inv(struct rig *r, uint64_t id, uint32_t rkey, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = id,
				  .opcode = IBV_WR_LOCAL_INV,
				  .send_flags = IBV_SEND_SIGNALED | flags,
				  .invalidate_rkey = rkey };

	return post(r, wr);
}

static enum ibv_wc_status run(struct rig *r, bool reads)
{
	struct dev_qp *qp = to_qp(r->qp);
	enum ibv_wc_status status;

	lock_get(&qp->lock);
	status = sq_run_local_locked(qp, reads);
	lock_put(&qp->lock);
	return status;
}

static int get(struct rig *r, uint32_t key, size_t off, size_t len, unsigned access)
{
	struct mr_range range = { key, (uintptr_t)mem + off, len };
	struct dev_qp *qp = to_qp(r->qp);
	struct mr_ref ref;
	int ret = mr_get_remote(qp->pd, qp, &range, access, &ref);

	if (ret)
		return ret;
	CHECK(ref.ptr == mem + off);
	mr_put(ref.slot);
	return 0;
}

/* Local work waits for its turn, and is stepped over when a repeat goes back. */
static void in_order(void)
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct rig r;
	uint32_t key;

	REQUIRE(rig_up(&r, (struct rig_opt){ .max_wr = 8 }));
	rig_rts(&r);
	mr = region(&r);
	mw = ibv_alloc_mw(r.pd, IBV_MW_TYPE_2);
	REQUIRE(mr && mw);
	key = ibv_inc_rkey(mw->rkey);
	CHECK_EQ(rig_send(&r, 1, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(post(&r, bind_wr(mw, mr, 2, 64, 64)), 0);
	CHECK_EQ(rig_send(&r, 3, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(run(&r, false), IBV_WC_SUCCESS); /* a send is before it */
	CHECK_EQ(get(&r, key, 64, 64, IBV_ACCESS_REMOTE_READ), -ENOENT);
	to_qp(r.qp)->sq.next++;
	CHECK_EQ(run(&r, false), IBV_WC_SUCCESS);
	CHECK_EQ(get(&r, key, 64, 64, IBV_ACCESS_REMOTE_READ), 0);
	CHECK_EQ(to_qp(r.qp)->sq.next, 2);
	CHECK_EQ(poll_id(&r, IBV_WC_SUCCESS), -1); /* the send is not answered yet */
	to_qp(r.qp)->sq.next = 1;
	CHECK_EQ(run(&r, false), IBV_WC_SUCCESS); /* not bound twice: that would fail */
	CHECK_EQ(to_qp(r.qp)->sq.next, 2);
	to_qp(r.qp)->sq.next = 0;
	rig_finish(&r, 3);
	for (int64_t i = 1; i <= 3; i++)
		CHECK_EQ(poll_id(&r, IBV_WC_SUCCESS), i);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	rig_down(&r);
}

static void fence_waits_for_reads(void)
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct rig r;
	uint32_t key;

	REQUIRE(rig_up(&r, (struct rig_opt){ .max_wr = 8 }));
	rig_rts(&r);
	mr = region(&r);
	mw = ibv_alloc_mw(r.pd, IBV_MW_TYPE_2);
	key = ibv_inc_rkey(mw->rkey);
	CHECK_EQ(post(&r, bind_wr(mw, mr, 1, 0, 64)), 0);
	CHECK_EQ(post_inv(&r, 2, key, IBV_SEND_FENCE), 0);
	CHECK_EQ(run(&r, true), IBV_WC_SUCCESS);
	CHECK_EQ(poll_id(&r, IBV_WC_SUCCESS), 1);
	CHECK_EQ(poll_id(&r, IBV_WC_SUCCESS), -1);
	CHECK_EQ(get(&r, key, 0, 64, REMOTE), 0);
	CHECK_EQ(run(&r, false), IBV_WC_SUCCESS);
	CHECK_EQ(poll_id(&r, IBV_WC_SUCCESS), 2);
	CHECK_EQ(get(&r, key, 0, 64, REMOTE), -ENOENT);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	rig_down(&r);
}

/* Windows and regions are named by key: either may have gone before the turn of
 * the bind has come, and its memory may be somebody else's. */
static void gone_before_its_turn(void)
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct rig r;

	for (int what = 0; what < 3; what++) {
		REQUIRE(rig_up(&r, (struct rig_opt){ .max_wr = 8 }));
		rig_rts(&r);
		mr = region(&r);
		mw = ibv_alloc_mw(r.pd, IBV_MW_TYPE_2);
		CHECK_EQ(post(&r, bind_wr(mw, mr, 1, 0, 64)), 0);
		if (what == 0)
			CHECK_EQ(ibv_dealloc_mw(mw), 0);
		if (what == 1)
			CHECK_EQ(ibv_dereg_mr(mr), 0);
		if (what == 2)
			CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
					      mr->addr, mr->length, 0),
				 0);
		CHECK_EQ(run(&r, false), IBV_WC_MW_BIND_ERR);
		CHECK_EQ(to_qp(r.qp)->sq.next, 0); /* the transport reports it */
		if (what != 0)
			CHECK_EQ(ibv_dealloc_mw(mw), 0);
		if (what != 1)
			CHECK_EQ(ibv_dereg_mr(mr), 0);
		rig_down(&r);
	}
}

/* Another QP with the number of one that is gone is another QP. */
static void number_is_no_identity(void)
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct rig r;
	uint32_t key;
	struct dev_qp twin;

	REQUIRE(rig_up(&r, (struct rig_opt){ .max_wr = 8 }));
	rig_rts(&r);
	mr = region(&r);
	mw = ibv_alloc_mw(r.pd, IBV_MW_TYPE_2);
	key = ibv_inc_rkey(mw->rkey);
	CHECK_EQ(post(&r, bind_wr(mw, mr, 1, 0, 64)), 0);
	CHECK_EQ(run(&r, false), IBV_WC_SUCCESS);
	memset(&twin, 0, sizeof(twin));
	twin.pd = to_qp(r.qp)->pd;
	twin.qp.qp_num = r.qp->qp_num;
	twin.id = to_qp(r.qp)->id + 1;
	CHECK_EQ(mw_invalidate(&twin, key), -EINVAL);
	CHECK_EQ(mw_invalidate(to_qp(r.qp), key), 0);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	rig_down(&r);
}

static void busy(void)
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .max_wr = 8 }));
	rig_rts(&r);
	mr = region(&r);
	mw = ibv_alloc_mw(r.pd, IBV_MW_TYPE_2);
	CHECK_EQ(ibv_dealloc_pd(r.pd), EBUSY);
	CHECK_EQ(post(&r, bind_wr(mw, mr, 1, 0, 64)), 0);
	CHECK_EQ(run(&r, false), IBV_WC_SUCCESS);
	CHECK_EQ(ibv_dereg_mr(mr), EBUSY);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
		 IBV_REREG_MR_ERR_CMD);
	CHECK_EQ(errno, EBUSY);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	errno = 0;
	CHECK(!ibv_alloc_mw(r.pd, (enum ibv_mw_type)3) && errno == EINVAL);
	rig_down(&r);
}

/* 100,000 windows come and go, and as many as promised are there at once. */
static void numbers(void)
{
	static struct ibv_mw *mw[DEV_MAX_MW];
	struct ibv_device_attr attr;
	struct rig r;
	int n = 0;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	for (int i = 0; i < 100000; i++) {
		mw[0] = ibv_alloc_mw(r.pd, i % 2 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		REQUIRE(mw[0]);
		ibv_dealloc_mw(mw[0]);
	}
	CHECK_EQ(ibv_query_device(r.ctx, &attr), 0);
	CHECK_EQ(attr.max_mw, DEV_MAX_MW);
	while (n < DEV_MAX_MW && (mw[n] = ibv_alloc_mw(r.pd, IBV_MW_TYPE_2)))
		n++;
	CHECK_EQ(n, DEV_MAX_MW);
	CHECK(!ibv_alloc_mw(r.pd, IBV_MW_TYPE_1) && errno == ENOMEM);
	CHECK(mw[0]->rkey >> 8 != mw[n - 1]->rkey >> 8);
	while (n)
		ibv_dealloc_mw(mw[--n]);
	rig_down(&r);
}

/* ---- users against invalidation ------------------------------------------------ */

static struct rig race;
static _Atomic uint32_t race_key;
static atomic_bool race_stop;
static atomic_ulong race_hits;

static void *race_user(void *arg)
{
	struct mr_ref ref;

	(void)arg;
	while (!atomic_load(&race_stop)) {
		struct mr_range r = { atomic_load(&race_key), (uintptr_t)mem, 64 };

		if (mr_get_remote(to_pd(race.pd), to_qp(race.qp), &r,
				  IBV_ACCESS_REMOTE_WRITE, &ref))
			continue;
		memset((uint8_t *)ref.ptr + (intptr_t)arg, 1, 8);
		mr_put(ref.slot);
		atomic_fetch_add(&race_hits, 1);
	}
	return NULL;
}

/* After an invalidation nobody writes: what is cleared then stays so. */
static void invalidation_waits_for_users(void)
{
	static const uint8_t zero[64];
	pthread_t thread[2];
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	REQUIRE(rig_up(&race, (struct rig_opt){ .max_wr = 8 }));
	rig_rts(&race);
	mr = region(&race);
	mw = ibv_alloc_mw(race.pd, IBV_MW_TYPE_2);
	for (intptr_t i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, race_user, (void *)(i * 8));
	for (unsigned i = 0; i < 3000 || !atomic_load(&race_hits); i++) {
		uint32_t key = ibv_inc_rkey(mw->rkey);

		REQUIRE(!post(&race, bind_wr(mw, mr, 1, 0, 64)));
		REQUIRE(run(&race, false) == IBV_WC_SUCCESS);
		atomic_store(&race_key, key);
		if (i % 8 == 0)
			sched_yield();
		REQUIRE(!post_inv(&race, 2, key, 0));
		REQUIRE(run(&race, false) == IBV_WC_SUCCESS);
		memset(mem, 0, 64);
		CHECK(!memcmp(mem, zero, 64));
		CHECK_EQ(poll_id(&race, IBV_WC_SUCCESS), 1);
		CHECK_EQ(poll_id(&race, IBV_WC_SUCCESS), 2);
		mw->rkey = key;
	}
	atomic_store(&race_stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	CHECK(atomic_load(&race_hits) > 0);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	rig_down(&race);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(in_order);
	T_RUN(fence_waits_for_reads);
	T_RUN(gone_before_its_turn);
	T_RUN(number_is_no_identity);
	T_RUN(busy);
	T_RUN(numbers);
	T_RUN(invalidation_waits_for_users);
	return t_done();
}
