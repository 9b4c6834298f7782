/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/t.h"

#include "dev/fake_transport.h"
#include "dev/poll.h"

#include <poll.h>
#include <sched.h>

static bool readable(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, 0) == 1;
}

static int push(struct rig *r, struct ibv_cq *cq, uint64_t id, bool solicited,
		enum ibv_wc_status status)
{
	struct dev_qp *qp = to_qp(r->qp);
	struct cqe e = { .wc = { .wr_id = id, .status = status }, .qp = qp };
	int ret;

	lock_get(&qp->lock);
	ret = cq_push(to_cq(cq), &e, solicited);
	lock_put(&qp->lock);
	return ret;
}

static int ok_push(struct rig *r, uint64_t id)
{
	return push(r, r->scq, id, false, IBV_WC_SUCCESS);
}

static int64_t poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	return ibv_poll_cq(cq, 1, &wc) == 1 ? (int64_t)wc.wr_id : -1;
}

static void order_over_the_edge_of_the_ring(void)
{
	struct ibv_wc wc[8];
	uint64_t in = 0, out = 0;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .cqe = 5 }));
	CHECK_EQ(r.scq->cqe, 5);
	for (int round = 0; round < 20; round++) {
		int n;

		for (int i = 0; i < 5; i++)
			CHECK_EQ(ok_push(&r, in++), 0);
		n = ibv_poll_cq(r.scq, 3, wc);
		CHECK_EQ(n, 3);
		n += ibv_poll_cq(r.scq, 8, wc + 3);
		CHECK_EQ(n, 5);
		for (int i = 0; i < n; i++)
			CHECK_EQ(wc[i].wr_id, out++);
	}
	CHECK_EQ(ibv_poll_cq(r.scq, 1, wc), 0);
	rig_down(&r);
}

/* 0: nothing, 1: one event, fetched and acknowledged. */
static int take_event(struct rig *r, struct ibv_cq *want)
{
	struct ibv_cq *cq;
	void *context;

	if (!readable(r->ch->fd))
		return 0;
	if (ibv_get_cq_event(r->ch, &cq, &context))
		return -1;
	CHECK(cq == want);
	ibv_ack_cq_events(cq, 1);
	return 1;
}

static void arming(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	ok_push(&r, 1);
	CHECK_EQ(take_event(&r, r.scq), 0);
	CHECK_EQ(ibv_req_notify_cq(r.scq, 0), 0);
	CHECK_EQ(take_event(&r, r.scq), 1); /* nobody was told of it */
	CHECK_EQ(ibv_req_notify_cq(r.scq, 0), 0);
	CHECK_EQ(take_event(&r, r.scq), 0); /* now it is not for what was there */
	ok_push(&r, 2);
	ok_push(&r, 3);
	CHECK_EQ(take_event(&r, r.scq), 1);
	CHECK_EQ(take_event(&r, r.scq), 0); /* one event per arm */
	/* Armed again before the event was fetched: two events. */
	ibv_req_notify_cq(r.scq, 0);
	ok_push(&r, 4);
	ibv_req_notify_cq(r.scq, 0);
	ok_push(&r, 5);
	CHECK_EQ(take_event(&r, r.scq), 1);
	CHECK_EQ(take_event(&r, r.scq), 1);
	CHECK_EQ(take_event(&r, r.scq), 0);
	rig_down(&r);
}

/* Of what came while the CQ was not armed, arming tells; polled or forgotten completions count as
 * little as those that made an event before. */
static void arming_tells_of_what_came(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	ok_push(&r, 1);
	CHECK_EQ(ibv_req_notify_cq(r.scq, 1), 0); /* it is not solicited */
	CHECK_EQ(take_event(&r, r.scq), 0);
	CHECK_EQ(push(&r, r.scq, 2, true, IBV_WC_SUCCESS), 0);
	CHECK_EQ(take_event(&r, r.scq), 1);
	CHECK_EQ(poll_one(r.scq), 1);
	CHECK_EQ(push(&r, r.scq, 3, true, IBV_WC_SUCCESS), 0);
	ok_push(&r, 4);
	CHECK_EQ(ibv_req_notify_cq(r.scq, 1), 0);
	CHECK_EQ(take_event(&r, r.scq), 1); /* for the third */
	CHECK_EQ(ibv_req_notify_cq(r.scq, 0), 0);
	CHECK_EQ(take_event(&r, r.scq), 0);
	for (int i = 2; i <= 4; i++)
		CHECK_EQ(poll_one(r.scq), i);
	ok_push(&r, 5);
	CHECK_EQ(take_event(&r, r.scq), 1);
	/* Not polled since that event: it will be found by the poll that the event asks for. */
	ok_push(&r, 6);
	CHECK_EQ(ibv_req_notify_cq(r.scq, 0), 0);
	CHECK_EQ(take_event(&r, r.scq), 0);
	CHECK_EQ(poll_one(r.scq), 5);
	CHECK_EQ(poll_one(r.scq), 6);
	CHECK_EQ(ibv_req_notify_cq(r.scq, 0), 0);
	CHECK_EQ(take_event(&r, r.scq), 0);
	ok_push(&r, 7);
	ok_push(&r, 8);
	CHECK_EQ(take_event(&r, r.scq), 1);
	cq_forget_qp(to_cq(r.scq), to_qp(r.qp));
	CHECK_EQ(ibv_req_notify_cq(r.scq, 0), 0);
	CHECK_EQ(take_event(&r, r.scq), 0);
	ok_push(&r, 9);
	CHECK_EQ(take_event(&r, r.scq), 1);
	rig_down(&r);
}

/* A carrier without a descriptor: what has come, and the poll group has not seen yet. */
struct inbox {
	struct poll_source src;
	struct rig *r;
	int waiting;
};

static bool inbox_progress(struct poll_source *s, bool by_thread)
{
	struct inbox *in = container_of(s, struct inbox, src);
	bool moved = in->waiting;

	(void)by_thread;
	for (; in->waiting; in->waiting--)
		CHECK_EQ(push(in->r, in->r->rcq, (uint64_t)in->waiting, false, IBV_WC_SUCCESS),
			 0);
	return moved;
}

static void inbox_lease(struct poll_source *s, bool leased)
{
	(void)s;
	(void)leased;
}

static void arming_when_something_has_come(void)
{
	struct inbox in = { .src = { .fd = -1,
				     .progress = inbox_progress,
				     .lease = inbox_lease } };
	struct rig r;
	int polls = 0;

	REQUIRE(rig_up(&r, (struct rig_opt){ .cqe = 4 }));
	in.r = &r;
	REQUIRE_EQ(poll_add(to_cq(r.rcq), &in.src), 0);
	in.waiting = 2;
	CHECK_EQ(ibv_req_notify_cq(r.rcq, 0), 0);
	CHECK_EQ(take_event(&r, r.rcq), 1); /* for both */
	CHECK_EQ(ibv_req_notify_cq(r.rcq, 0), 0);
	CHECK_EQ(take_event(&r, r.rcq), 0);
	CHECK_EQ(poll_one(r.rcq), 2);
	CHECK_EQ(poll_one(r.rcq), 1);
	/* Once armed it is another's to bring what comes, or who found it with the poll
	 * before he sleeps would be woken for nothing; unless he does not sleep. */
	in.waiting = 1;
	CHECK_EQ(poll_one(r.rcq), -1);
	CHECK_EQ(take_event(&r, r.rcq), 0);
	while (poll_one(r.rcq) != 1 && polls < 100)
		polls++;
	CHECK(polls < 100);
	CHECK_EQ(take_event(&r, r.rcq), 1);
	poll_del(&in.src);
	rig_down(&r);
}

static void solicited_only(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	ibv_req_notify_cq(r.rcq, 1);
	push(&r, r.rcq, 1, false, IBV_WC_SUCCESS);
	CHECK_EQ(take_event(&r, r.rcq), 0);
	push(&r, r.rcq, 2, true, IBV_WC_SUCCESS);
	CHECK_EQ(take_event(&r, r.rcq), 1);
	ibv_req_notify_cq(r.rcq, 1);
	push(&r, r.rcq, 3, false, IBV_WC_WR_FLUSH_ERR); /* errors count as solicited */
	CHECK_EQ(take_event(&r, r.rcq), 1);
	/* "any" is not taken back by "solicited". */
	ibv_req_notify_cq(r.rcq, 0);
	ibv_req_notify_cq(r.rcq, 1);
	push(&r, r.rcq, 4, false, IBV_WC_SUCCESS);
	CHECK_EQ(take_event(&r, r.rcq), 1);
	rig_down(&r);
}

static void overrun(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .cqe = 3 }));
	for (uint64_t i = 0; i < 3; i++)
		CHECK_EQ(ok_push(&r, i), 0);
	CHECK_EQ(ok_push(&r, 3), -EOVERFLOW);
	CHECK_EQ(ok_push(&r, 4), -EOVERFLOW);
	CHECK_EQ(rig_event(&r), IBV_EVENT_CQ_ERR);
	CHECK_EQ(rig_event(&r), IBV_EVENT_QP_FATAL);
	CHECK_EQ(rig_event(&r), IBV_EVENT_QP_FATAL);
	CHECK_EQ(rig_event(&r), -1);
	/* Nothing was overwritten, and the CQ stays broken. */
	for (int64_t i = 0; i < 3; i++)
		CHECK_EQ(poll_one(r.scq), i);
	CHECK_EQ(ok_push(&r, 5), -EOVERFLOW);
	CHECK_EQ(poll_one(r.scq), -1);
	rig_down(&r);
}

static void resize(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .cqe = 4 }));
	for (uint64_t i = 0; i < 3; i++)
		ok_push(&r, i);
	CHECK_EQ(poll_one(r.scq), 0);
	ok_push(&r, 3);
	ok_push(&r, 4);
	CHECK_EQ(ibv_resize_cq(r.scq, 3), EINVAL);
	CHECK_EQ(ibv_resize_cq(r.scq, 0), EINVAL);
	CHECK_EQ(ibv_resize_cq(r.scq, DEV_MAX_CQE + 1), EINVAL);
	CHECK_EQ(ibv_resize_cq(r.scq, 9), 0);
	CHECK_EQ(r.scq->cqe, 9);
	for (uint64_t i = 5; i < 10; i++)
		CHECK_EQ(ok_push(&r, i), 0);
	CHECK_EQ(ok_push(&r, 10), -EOVERFLOW);
	for (int64_t i = 1; i < 10; i++)
		CHECK_EQ(poll_one(r.scq), i);
	rig_down(&r);
}

static void creation(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK(!ibv_create_cq(r.ctx, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(r.ctx, DEV_MAX_CQE + 1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(r.ctx, 1, NULL, NULL, 1) && errno == EINVAL);
	CHECK(!ibv_create_cq(r.ctx, 1, NULL, NULL, -1) && errno == EINVAL);
	rig_down(&r);
}

static struct {
	atomic_bool fetched, destroying, destroyed;
} acks;

static void *ack_later(void *arg)
{
	struct rig *r = arg;
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(r->ch, &cq, &context))
		return NULL;
	atomic_store(&acks.fetched, true);
	while (!atomic_load(&acks.destroying))
		sched_yield();
	for (int i = 0; i < 1000; i++) {
		CHECK(!atomic_load(&acks.destroyed));
		sched_yield();
	}
	ibv_ack_cq_events(cq, 1);
	return cq;
}

static void destroy_waits_for_acks_and_drops_the_rest(void)
{
	pthread_t thread;
	struct ibv_cq *cq;
	void *got;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	cq = ibv_create_cq(r.ctx, 4, NULL, r.ch, 0);
	ibv_req_notify_cq(cq, 0);
	push(&r, cq, 1, false, IBV_WC_SUCCESS);
	pthread_create(&thread, NULL, ack_later, &r);
	while (!atomic_load(&acks.fetched))
		sched_yield();
	/* One more, which nobody fetches. */
	ibv_req_notify_cq(cq, 0);
	push(&r, cq, 2, false, IBV_WC_SUCCESS);
	atomic_store(&acks.destroying, true);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	atomic_store(&acks.destroyed, true);
	pthread_join(thread, &got);
	CHECK(got == cq);
	CHECK(!readable(r.ch->fd));
	rig_down(&r);
}

static void extended_poll(void)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr pa = { 0 };
	struct ibv_cq_ex *ex;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	a.wc_flags |= IBV_WC_EX_WITH_FLOW_TAG;
	CHECK(!ibv_create_cq_ex(r.ctx, &a) && errno == EOPNOTSUPP);
	a.wc_flags = IBV_WC_STANDARD_FLAGS;
	ex = ibv_create_cq_ex(r.ctx, &a);
	REQUIRE(ex);
	CHECK_EQ(ibv_start_poll(ex, &pa), ENOENT);
	push(&r, ibv_cq_ex_to_cq(ex), 7, false, IBV_WC_SUCCESS);
	push(&r, ibv_cq_ex_to_cq(ex), 8, false, IBV_WC_GENERAL_ERR);
	CHECK_EQ(ibv_start_poll(ex, &pa), 0);
	CHECK_EQ(ex->wr_id, 7);
	CHECK_EQ(ex->status, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_next_poll(ex), 0);
	CHECK_EQ(ex->wr_id, 8);
	CHECK_EQ(ex->status, IBV_WC_GENERAL_ERR);
	push(&r, ibv_cq_ex_to_cq(ex), 9, false, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_next_poll(ex), 0); /* it came after ibv_start_poll() */
	CHECK_EQ(ex->wr_id, 9);
	CHECK_EQ(ibv_next_poll(ex), ENOENT);
	push(&r, ibv_cq_ex_to_cq(ex), 10, false, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_next_poll(ex), 0); /* the same after ENOENT */
	CHECK_EQ(ex->wr_id, 10);
	CHECK_EQ(ibv_next_poll(ex), ENOENT);
	ibv_end_poll(ex);
	CHECK_EQ(ibv_start_poll(ex, &pa), ENOENT);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
	rig_down(&r);
}

static void ignored_overrun(void)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 3,
					 .wc_flags = IBV_WC_STANDARD_FLAGS,
					 .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					 .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_cq_ex *ex;
	struct ibv_cq *cq;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	ex = ibv_create_cq_ex(r.ctx, &a);
	REQUIRE(ex);
	cq = ibv_cq_ex_to_cq(ex);
	for (uint64_t i = 0; i < 8; i++)
		CHECK_EQ(push(&r, cq, i, false, IBV_WC_SUCCESS), 0);
	for (int64_t i = 5; i < 8; i++)
		CHECK_EQ(poll_one(cq), i);
	CHECK_EQ(poll_one(cq), -1);
	CHECK_EQ(rig_event(&r), -1);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	rig_down(&r);
}

/* The work request of a completion that was lost counts as polled. */
static void lost_completions_free_their_slots(void)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 2,
					 .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					 .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct dev_qp *qp;
	struct ibv_cq *cq;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(r.ctx, &a));
	qp = to_qp(r.qp);
	for (uint32_t i = 0; i < 4; i++) {
		struct cqe e = { .qp = qp, .frees = CQE_FREES_SQ, .sq_upto = i + 1 };

		lock_get(&qp->lock);
		CHECK_EQ(cq_push(to_cq(cq), &e, false), 0);
		lock_put(&qp->lock);
	}
	CHECK_EQ(atomic_load(&qp->sq.free), 2);
	atomic_store(&qp->sq.free, 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	rig_down(&r);
}

static int moderate(struct ibv_cq *cq, uint16_t count, uint16_t period)
{
	struct ibv_modify_cq_attr a = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					.moderate = { count, period } };

	return ibv_modify_cq(cq, &a);
}

/* Arms and pushes. The number of events so far: none, if we were fast enough. */
static int push_held(struct rig *r, int n, unsigned period_us)
{
	uint64_t begin = loop_now();
	int came;

	while (poll_one(r->scq) != -1)
		; /* what is left would count */
	ibv_req_notify_cq(r->scq, 0);
	for (int i = 0; i < n; i++)
		ok_push(r, 0);
	came = take_event(r, r->scq);
	CHECK(!came || loop_now() - begin >= period_us * 1000ull);
	return came;
}

static void moderation_by_count(void)
{
	struct rig r;
	int came;

	REQUIRE(rig_up(&r, (struct rig_opt){ .cqe = 64 }));
	CHECK_EQ(moderate(r.scq, 4, UINT16_MAX), 0);
	for (int round = 0; round < 3; round++) {
		came = push_held(&r, 3, UINT16_MAX);
		ok_push(&r, 0);
		CHECK_EQ(came + take_event(&r, r.scq), 1);
		for (int i = 0; i < 5; i++) /* not armed: not counted */
			ok_push(&r, 0);
	}
	/* Switching it off lets go what was held back. */
	came = push_held(&r, 1, UINT16_MAX);
	CHECK_EQ(moderate(r.scq, 0, 0), 0);
	CHECK_EQ(came + take_event(&r, r.scq), 1);
	ibv_req_notify_cq(r.scq, 0);
	ok_push(&r, 0);
	CHECK_EQ(take_event(&r, r.scq), 1);
	/* Without a period the count alone would wait for ever. */
	CHECK_EQ(moderate(r.scq, 4, 0), 0);
	ibv_req_notify_cq(r.scq, 0);
	ok_push(&r, 0);
	CHECK_EQ(take_event(&r, r.scq), 1);
	rig_down(&r);
}

static void moderation_by_time(void)
{
	struct ibv_modify_cq_attr bad = { .attr_mask = IBV_CQ_ATTR_RESERVED };
	uint64_t begin;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .cqe = 64 }));
	CHECK_EQ(ibv_modify_cq(r.scq, &bad), EOPNOTSUPP);
	CHECK_EQ(moderate(r.scq, 1000, 20000), 0);
	for (int i = 0; i < 3; i++) {
		begin = loop_now();
		if (push_held(&r, 2, 20000))
			continue;
		CHECK(T_WAIT(readable(r.ch->fd), 5000));
		CHECK(loop_now() - begin >= 20 * MSEC);
		CHECK_EQ(take_event(&r, r.scq), 1);
	}
	/* Destroyed with the timer running. */
	CHECK_EQ(moderate(r.scq, 1000, UINT16_MAX), 0);
	ibv_req_notify_cq(r.scq, 0);
	ok_push(&r, 1);
	rig_down(&r);
}

static void parent_domains(void)
{
	struct ibv_parent_domain_init_attr pa = { 0 };
	struct ibv_td_init_attr ta = { 0 };
	struct ibv_cq_init_attr_ex a = { .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_td *td;
	struct ibv_pd *parent;
	struct ibv_cq_ex *ex;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	td = ibv_alloc_td(r.ctx, &ta);
	REQUIRE(td);
	pa.td = td;
	CHECK(!ibv_alloc_parent_domain(r.ctx, &pa) && errno == EINVAL); /* no PD */
	pa.pd = r.pd;
	pa.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	CHECK(!ibv_alloc_parent_domain(r.ctx, &pa) && errno == EOPNOTSUPP);
	pa.comp_mask = 0;
	parent = ibv_alloc_parent_domain(r.ctx, &pa);
	REQUIRE(parent);
	a.parent_domain = r.pd;
	CHECK(!ibv_create_cq_ex(r.ctx, &a) && errno == EINVAL); /* a plain PD */
	a.parent_domain = parent;
	ex = ibv_create_cq_ex(r.ctx, &a);
	REQUIRE(ex);
	CHECK_EQ(ibv_dealloc_td(td), EBUSY);
	CHECK_EQ(ibv_dealloc_pd(parent), EBUSY);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
	CHECK_EQ(ibv_dealloc_pd(parent), 0);
	CHECK_EQ(ibv_dealloc_td(td), 0);
	rig_down(&r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(order_over_the_edge_of_the_ring);
	T_RUN(arming);
	T_RUN(arming_tells_of_what_came);
	T_RUN(arming_when_something_has_come);
	T_RUN(solicited_only);
	T_RUN(overrun);
	T_RUN(resize);
	T_RUN(creation);
	T_RUN(destroy_waits_for_acks_and_drops_the_rest);
	T_RUN(extended_poll);
	T_RUN(ignored_overrun);
	T_RUN(lost_completions_free_their_slots);
	T_RUN(moderation_by_count);
	T_RUN(moderation_by_time);
	T_RUN(parent_domains);
	return t_done();
}
