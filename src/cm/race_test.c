/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads against each other: getters, migrators, posters and destroyers. What
 * was posted arrives once or dies with its id, in order per id, and no channel
 * stays readable. */
#include "tests/t.h"

#include "cm/fake_test.h"

enum { IDS = 8, CHANNELS = 4, GETTERS = 4, MIGRATORS = 2 };

static struct rdma_event_channel *chans[CHANNELS];
static struct rdma_cm_id *ids[IDS];
static atomic_ulong got, wrong;
static atomic_bool stop;

/* Ids are on any channel at any time, so getters look at all in turn. An id's
 * events may be fetched by two getters at once: a bitmap notes arrival, order is
 * checked by the single-getter case. */
static unsigned char *seen[IDS];
static unsigned per_id;

static void note(struct rdma_cm_event *ev)
{
	unsigned i = (unsigned)(uintptr_t)ev->id->context;

	if (ev->param.arg >= per_id ||
	    __atomic_exchange_n(&seen[i][ev->param.arg], 1, __ATOMIC_RELAXED))
		atomic_fetch_add(&wrong, 1);
	atomic_fetch_add(&got, 1);
}

static void *getter(void *arg)
{
	unsigned at = (unsigned)(uintptr_t)arg;
	struct rdma_cm_event *ev;
	struct pollfd p[CHANNELS];
	int i;

	for (i = 0; i < CHANNELS; i++)
		p[i] = (struct pollfd){ .fd = chans[i]->fd, .events = POLLIN };
	while (!atomic_load(&stop)) {
		if (poll(p, CHANNELS, 1) <= 0)
			continue;
		for (i = 0; i < CHANNELS; i++) {
			while (!rdma_get_cm_event(chans[(at + i) % CHANNELS], &ev)) {
				note(ev);
				rdma_ack_cm_event(ev);
			}
		}
	}
	return NULL;
}

/* Each migrator has ids of its own: no two calls on one id at once. */
static void *migrator(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg, n = me, i;

	while (!atomic_load(&stop)) {
		for (i = me; i < IDS; i += MIGRATORS)
			if (rdma_migrate_id(ids[i], chans[n++ * 7 % CHANNELS]))
				atomic_fetch_add(&wrong, 1);
	}
	return NULL;
}

static void *poster(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg, k;

	for (k = 0; k < per_id; k++)
		rdma_write_cm_event(ids[i], RDMA_CM_EVENT_USER, 0, k);
	return NULL;
}

static void nothing_is_lost_while_ids_move(void)
{
	pthread_t get[GETTERS], mig[MIGRATORS], post[IDS];
	unsigned i;

	/* Two migrators never rest, so each event takes long on a machine of two CPUs. */
	per_id = 40000 / IDS / t_scaled(1);
	for (i = 0; i < CHANNELS; i++) {
		chans[i] = rdma_create_event_channel();
		REQUIRE(chans[i]);
		fake_nonblock(chans[i], true);
	}
	for (i = 0; i < IDS; i++) {
		seen[i] = calloc(1, per_id);
		ids[i] = fake_id(chans[i % CHANNELS], RDMA_PS_TCP);
		ids[i]->context = (void *)(uintptr_t)i;
	}
	for (i = 0; i < GETTERS; i++)
		pthread_create(&get[i], NULL, getter, (void *)(uintptr_t)i);
	for (i = 0; i < MIGRATORS; i++)
		pthread_create(&mig[i], NULL, migrator, (void *)(uintptr_t)i);
	for (i = 0; i < IDS; i++)
		pthread_create(&post[i], NULL, poster, (void *)(uintptr_t)i);
	for (i = 0; i < IDS; i++)
		pthread_join(post[i], NULL);
	CHECK(T_WAIT(atomic_load(&got) == (unsigned long)per_id * IDS, 20000));
	atomic_store(&stop, true);
	for (i = 0; i < MIGRATORS; i++)
		pthread_join(mig[i], NULL);
	for (i = 0; i < GETTERS; i++)
		pthread_join(get[i], NULL);
	CHECK_EQ(atomic_load(&got), (unsigned long)per_id * IDS);
	CHECK_EQ(atomic_load(&wrong), 0);
	for (i = 0; i < CHANNELS; i++)
		CHECK(!fake_readable(chans[i]));
	for (i = 0; i < IDS; i++) {
		CHECK_EQ(rdma_destroy_id(ids[i]), 0);
		free(seen[i]);
	}
	for (i = 0; i < CHANNELS; i++)
		rdma_destroy_event_channel(chans[i]);
}

/* ---- order: one getter per event at a time ------------------------------------------ */

static void order_survives_the_moves(void)
{
	struct rdma_event_channel *a = rdma_create_event_channel();
	struct rdma_event_channel *b = rdma_create_event_channel();
	struct rdma_cm_id *id = fake_id(a, RDMA_PS_TCP);
	struct rdma_cm_event *ev;
	pthread_t post;
	unsigned k;

	/* Each move takes all that wait along, so the time grows with the square. */
	per_id = t_rounds(4000, 20000) / t_scaled(1);
	ids[0] = id;
	pthread_create(&post, NULL, poster, NULL);
	for (k = 0; k < per_id; k++) {
		if (k % 3 == 0)
			CHECK_EQ(rdma_migrate_id(id, id->channel == a ? b : a), 0);
		REQUIRE_EQ(rdma_get_cm_event(id->channel, &ev), 0);
		if (ev->param.arg != k) {
			CHECK_EQ(ev->param.arg, k);
			k = per_id;
		}
		rdma_ack_cm_event(ev);
	}
	pthread_join(post, NULL);
	CHECK(!fake_readable(a) && !fake_readable(b));
	CHECK_EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(a);
	rdma_destroy_event_channel(b);
}

/* ---- destroy against fetch, apply and ack -------------------------------------------- */

static void *applier(void *arg)
{
	struct rdma_event_channel *ch = arg;
	struct rdma_cm_event *ev;
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };

	while (!atomic_load(&stop)) {
		if (poll(&p, 1, 1) <= 0)
			continue;
		while (!rdma_get_cm_event(ch, &ev)) {
			if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
				struct rdma_cm_id *child = ev->id;

				rdma_ack_cm_event(ev);
				rdma_destroy_id(child);
				continue;
			}
			/* Reading the id: it must be alive until the ack. */
			if (ev->id->ps != RDMA_PS_TCP)
				atomic_fetch_add(&wrong, 1);
			rdma_ack_cm_event(ev);
		}
	}
	return NULL;
}

static void destroy_meets_fetch(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct ibv_qp_init_attr attr;
	struct rdma_cm_id *id;
	pthread_t get[2];
	unsigned i, rounds = 3000 / t_scaled(1);

	fake_nonblock(ch, true);
	atomic_store(&stop, false);
	for (i = 0; i < 2; i++)
		pthread_create(&get[i], NULL, applier, ch);
	for (i = 0; i < rounds; i++) {
		REQUIRE_EQ(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
		fake_post(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
		fake_request(id, 1, 1);
		fake_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
		fake_post(id, RDMA_CM_EVENT_REJECTED, 8);
		CHECK_EQ(rdma_destroy_id(id), 0);
	}
	/* A QP that is taken away while an event wants to move it. */
	for (i = 0; i < rounds; i++) {
		id = fake_id(ch, RDMA_PS_TCP);
		memset(&attr, 0, sizeof(attr));
		attr.qp_type = IBV_QPT_RC;
		fb.calls[0] = fv.moves[0] = 0;
		REQUIRE_EQ(rdma_create_qp(id, NULL, &attr), 0);
		fv.moves[0] = 0;
		fake_post(id, RDMA_CM_EVENT_REJECTED, 8);
		rdma_destroy_qp(id);
		CHECK_EQ(rdma_destroy_id(id), 0);
	}
	atomic_store(&stop, true);
	for (i = 0; i < 2; i++)
		pthread_join(get[i], NULL);
	CHECK_EQ(atomic_load(&wrong), 0);
	CHECK(!fake_readable(ch));
	rdma_destroy_event_channel(ch);
}

int main(int argc, char **argv)
{
	setenv("T_TIMEOUT", "390", 0); /* as tests/meson.build allows */
	fake_init(argc, argv);
	T_RUN(nothing_is_lost_while_ids_move);
	T_RUN(order_survives_the_moves);
	T_RUN(destroy_meets_fetch);
	return fake_done();
}
