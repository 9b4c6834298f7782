/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/share.h"
#include "dev/verbs.h"
#include "dev/wqe.h"
#include "tests/t.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define RW (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct dev_ctx *ctx;
static struct dev_pd *pd;

/* As another process sees it. */
static const struct share_table *theirs;

static const struct share_key *row(uint32_t key)
{
	return &theirs->key[share_key_index(theirs, key)];
}

static void others_only_read(void)
{
	void *p;

	REQUIRE(share_fd() >= 0);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, share_fd(), 0) == MAP_FAILED);
	CHECK_EQ(errno, EPERM);
	CHECK(write(share_fd(), "x", 1) < 0);
	CHECK(ftruncate(share_fd(), 0) < 0);
	CHECK(fcntl(share_fd(), F_ADD_SEALS, F_SEAL_GROW) < 0);
	p = mmap(NULL, sizeof(*theirs), PROT_READ, MAP_SHARED, share_fd(), 0);
	REQUIRE(p != MAP_FAILED);
	CHECK(mprotect(p, 4096, PROT_READ | PROT_WRITE) < 0);
	theirs = p;
	CHECK_EQ(theirs->version, SHARE_VERSION);
}

static void keys_come_and_go(void)
{
	char buf[256];
	struct dev_mr *mr, *local;
	const struct share_key *k;
	uint32_t key;

	REQUIRE(mr_reg(pd, buf, sizeof(buf), (uintptr_t)buf, RW, &mr) == 0);
	key = mr->mr.rkey;
	k = row(key);
	CHECK_EQ(atomic_load(&k->key), key);
	CHECK(k->addr == (uintptr_t)buf && k->iova == k->addr && k->len == sizeof(buf));
	CHECK_EQ(k->access, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | SHARE_REGION);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
		 0);
	CHECK_EQ(mr->mr.rkey, key);
	CHECK_EQ(atomic_load(&k->key), key);
	CHECK_EQ(k->access, IBV_ACCESS_REMOTE_READ | SHARE_REGION);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, 64, 0), 0);
	CHECK(mr->mr.rkey != key);
	CHECK_EQ(atomic_load(&k->key), mr->mr.rkey);
	CHECK_EQ(k->len, 64);
	mr_dereg(mr);
	CHECK_EQ(atomic_load(&k->key), 0);
	/* What nobody else may use is only of use to fetch what we send. */
	REQUIRE(mr_reg(pd, buf, sizeof(buf), (uintptr_t)buf, IBV_ACCESS_LOCAL_WRITE, &local) ==
		0);
	k = row(local->mr.lkey);
	CHECK_EQ(atomic_load(&k->key), local->mr.lkey);
	CHECK_EQ(k->access, SHARE_REGION);
	key = local->mr.lkey;
	CHECK(share_has_region(key) && !share_has_region(key ^ 1) && !share_has_region(0));
	mr_dereg(local);
	CHECK(!share_has_region(key));
	REQUIRE(mr_alloc_null(pd, &local) == 0);
	CHECK(!share_has_region(local->mr.lkey));
	mr_dereg(local);
}

/* How far the owner's mapping of the table can be accessed: that which is writable. */
static off_t accessible_end(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to, off;
	off_t end = -1;
	char line[512], perm[5];

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, "anyrdma keys") &&
		    sscanf(line, "%lx-%lx %4s %lx", &from, &to, perm, &off) == 4 &&
		    perm[1] == 'w')
			end = (off_t)(off + (to - from));
	if (f)
		fclose(f);
	return end;
}

enum { MANY = 5000 };

static void the_file_grows(void)
{
	static struct dev_mr *mr[MANY];
	struct stat before, after;
	static char buf[64];

	REQUIRE(fstat(share_fd(), &before) == 0);
	CHECK_EQ(accessible_end(), t_page_up(before.st_size));
	for (unsigned i = 0; i < MANY; i++)
		REQUIRE(mr_reg(pd, buf, sizeof(buf), (uintptr_t)buf, RW, &mr[i]) == 0);
	REQUIRE(fstat(share_fd(), &after) == 0);
	CHECK(after.st_size > before.st_size);
	CHECK_EQ(accessible_end(), t_page_up(after.st_size));
	for (unsigned i = 0; i < MANY; i++)
		CHECK_EQ(atomic_load(&row(mr[i]->mr.rkey)->key), mr[i]->mr.rkey);
	for (unsigned i = 0; i < MANY; i++)
		mr_dereg(mr[i]);
}

static uint64_t waited_value, waited_mask;
static uint32_t key_when_waited;
static const struct share_key *watched;

static void waits(uint64_t value, uint64_t mask)
{
	waited_value = value;
	waited_mask = mask;
	if (watched)
		key_when_waited = atomic_load(&watched->key);
}

/* First the entry is taken back, then its users are waited for. */
static void users_are_waited_for(void)
{
	struct dev_mr *mr;
	uint64_t share_id;
	uint32_t key;
	char buf[64];

	share_set_wait(waits);
	REQUIRE(mr_reg(pd, buf, sizeof(buf), (uintptr_t)buf, RW, &mr) == 0);
	key = mr->mr.rkey;
	watched = row(key);
	key_when_waited = key;
	mr_dereg(mr);
	CHECK_EQ(key_when_waited, 0);
	CHECK_EQ(waited_value & waited_mask, (uint64_t)key << 32);
	CHECK_EQ(waited_mask, 0xffffffff00000000u);
	watched = NULL;
	share_id = share_qp_new();
	share_qp_wait(share_id);
	CHECK_EQ(waited_value, (uint32_t)share_id);
	CHECK_EQ(waited_mask, 0xffffffffu);
	waited_mask = 0;
	share_qp_wait(0);
	CHECK_EQ(waited_mask, 0);
	share_qp_free(share_id);
	share_set_wait(NULL);
}

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool waits, go;
} stopped = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false };

static void waits_long(uint64_t value, uint64_t mask)
{
	(void)value;
	(void)mask;
	pthread_mutex_lock(&stopped.lock);
	stopped.waits = true;
	pthread_cond_broadcast(&stopped.cond);
	while (!stopped.go)
		pthread_cond_wait(&stopped.cond, &stopped.lock);
	pthread_mutex_unlock(&stopped.lock);
}

static void *deregisters(void *mr)
{
	mr_dereg(mr);
	return NULL;
}

/* Who deregisters waits for a process that is stopped, alone; and windows, which are
 * taken back where nobody may wait, no other process uses. */
static void others_do_not_wait(void)
{
	struct dev_qp qp = { .pd = pd, .id = 5 };
	struct wqe w = { .opcode = IBV_WR_BIND_MW, .bind_len = 64,
			 .bind_access = IBV_ACCESS_REMOTE_WRITE };
	struct dev_mr *mr, *used;
	struct dev_mw *mw;
	pthread_t th;
	char buf[64];

	share_set_wait(waits_long);
	REQUIRE(mr_reg(pd, buf, sizeof(buf), (uintptr_t)buf, RW | IBV_ACCESS_MW_BIND, &used) == 0);
	REQUIRE(mr_reg(pd, buf, sizeof(buf), (uintptr_t)buf,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &mr) == 0);
	REQUIRE(pthread_create(&th, NULL, deregisters, used) == 0);
	pthread_mutex_lock(&stopped.lock);
	while (!stopped.waits)
		pthread_cond_wait(&stopped.cond, &stopped.lock);
	pthread_mutex_unlock(&stopped.lock);
	REQUIRE(mw_alloc(pd, IBV_MW_TYPE_2, &mw) == 0);
	w.imm_or_rkey = mw->mw.rkey;
	w.rkey = ibv_inc_rkey(mw->mw.rkey);
	w.raddr = (uintptr_t)buf;
	w.bind_lkey = used->mr.lkey;
	CHECK_EQ(mw_execute(&qp, &w), IBV_WC_MW_BIND_ERR); /* it is going */
	w.bind_lkey = mr->mr.lkey;
	CHECK_EQ(mw_execute(&qp, &w), IBV_WC_SUCCESS);
	CHECK_EQ(atomic_load(&row(w.rkey)->key), 0);
	CHECK_EQ(mw_invalidate(&qp, w.rkey), 0);
	mw_dealloc(mw);
	pthread_mutex_lock(&stopped.lock);
	stopped.go = true;
	pthread_cond_broadcast(&stopped.cond);
	pthread_mutex_unlock(&stopped.lock);
	pthread_join(th, NULL);
	mr_dereg(mr);
	share_set_wait(NULL);
}

static void entries_of_qps(void)
{
	struct dev_qp qp = { .qp = { .qp_type = IBV_QPT_RC, .state = IBV_QPS_RTR },
			     .attr = { .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
				       .rq_psn = 7 },
			     .pd = pd,
			     .id = 5 };
	uint64_t share_id = share_qp_new(), again;
	const struct share_qp *d;

	REQUIRE(share_id);
	d = &theirs->qp[share_qp_index(share_id)];
	lock_init(&qp.lock);
	lock_get(&qp.lock);
	share_qp_bind_locked(&qp, share_id);
	CHECK_EQ(d->word, (share_id >> 32 << 32) | SHARE_WRITE | SHARE_ANNOUNCE);
	qp.comm_est_sent = true;
	share_qp_update_locked(&qp);
	CHECK_EQ(d->word, (share_id >> 32 << 32) | SHARE_WRITE);
	CHECK(d->psn == 7 && d->pd == (uintptr_t)pd);
	qp.qp.state = IBV_QPS_RTS;
	qp.attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
	share_qp_update_locked(&qp);
	CHECK_EQ(d->word, (share_id >> 32 << 32) | SHARE_WRITE | SHARE_READ | SHARE_SEND);
	share_qp_close_locked(&qp);
	CHECK_EQ(d->word, share_id >> 32 << 32);
	qp.qp.state = IBV_QPS_ERR;
	share_qp_update_locked(&qp);
	CHECK_EQ(d->word, share_id >> 32 << 32);
	qp.qp.state = IBV_QPS_RTS;
	qp.qp.qp_type = IBV_QPT_UC;
	share_qp_update_locked(&qp);
	CHECK_EQ(d->word, share_id >> 32 << 32);
	share_qp_unbind_locked(&qp);
	CHECK_EQ(qp.share_id, 0);
	lock_put(&qp.lock);
	lock_fini(&qp.lock);
	share_qp_free(share_id);
	/* Who still has the old one finds it closed. */
	again = share_qp_new();
	CHECK(share_qp_index(again) == share_qp_index(share_id) && again != share_id);
	share_qp_free(again);
}

int main(int argc, char **argv)
{
	setenv("ANYRDMA_TRANSPORT", "shm", 1);
	t_init(argc, argv);
	if (device_open(device_get(0), &ctx) || pd_alloc(ctx, &pd))
		return 1;
	T_RUN(others_only_read);
	T_RUN(keys_come_and_go);
	T_RUN(the_file_grows);
	T_RUN(users_are_waited_for);
	T_RUN(others_do_not_wait);
	T_RUN(entries_of_qps);
	CHECK_EQ(pd_dealloc(pd), 0);
	device_close(ctx);
	return t_done();
}
