/* SPDX-License-Identifier: BSD-2-Clause */
/* Which wire is tried when, with two wires that only remember what they were asked for:
 * in this program they stand for wire_shm.c and wire_tcp.c. */
#include "tests/t.h"

#include "cm/user/pair_test.h"

static struct {
	char calls[200];    /* "shm" and "tcp" for connect, "-" for close, in order */
	bool no_shm;	    /* can_connect of the first one says no */
	int shm_fails, tcp_fails; /* what listen answers */
	int listening;
	struct user_wire wire;
	struct user_wire_listener listener[2];
} fake;

extern const struct user_wire_ops user_wire_shm, user_wire_tcp;

static void remember(const char *what)
{
	strcat(strcat(fake.calls, " "), what);
}

static bool shm_can_connect(const struct user_id *u)
{
	(void)u;
	return !fake.no_shm;
}

static bool tcp_can_connect(const struct user_id *u)
{
	(void)u;
	return true;
}

static void connect_by(struct user_id *u, const struct user_wire_ops *ops)
{
	CHECK(!u->wire);
	CHECK(u->deadline >= u->give_up_at - MSEC);
	fake.wire = (struct user_wire){ .ops = ops, .id = u };
	u->wire = &fake.wire;
	remember(ops->name);
}

static void shm_connect(struct user_id *u)
{
	connect_by(u, &user_wire_shm);
}

static void tcp_connect(struct user_id *u)
{
	connect_by(u, &user_wire_tcp);
}

static void fake_close(struct user_id *u)
{
	u->wire = NULL;
	remember("-");
}

static enum user_todo fake_poll(struct user_id *u)
{
	(void)u;
	return TODO_NOTHING;
}

static int shm_listen(struct user_id *u, struct user_wire_listener **out)
{
	if (fake.shm_fails)
		return -fake.shm_fails;
	fake.listener[0] = (struct user_wire_listener){ .ops = &user_wire_shm, .id = u };
	*out = &fake.listener[0];
	fake.listening++;
	remember("shm");
	return 0;
}

static int tcp_listen(struct user_id *u, struct user_wire_listener **out)
{
	if (fake.tcp_fails)
		return -fake.tcp_fails;
	fake.listener[1] = (struct user_wire_listener){ .ops = &user_wire_tcp, .id = u };
	*out = &fake.listener[1];
	fake.listening++;
	remember("tcp");
	return 0;
}

static void fake_unlisten(struct user_wire_listener *l)
{
	(void)l;
	fake.listening--;
}

const struct user_wire_ops user_wire_shm = {
	.name = "shm",
	.can_connect = shm_can_connect,
	.connect = shm_connect,
	.close = fake_close,
	.poll = fake_poll,
	.listen = shm_listen,
	.unlisten = fake_unlisten,
};

const struct user_wire_ops user_wire_tcp = {
	.name = "tcp",
	.can_connect = tcp_can_connect,
	.connect = tcp_connect,
	.close = fake_close,
	.poll = fake_poll,
	.listen = tcp_listen,
	.unlisten = fake_unlisten,
};

enum { PORT = 20070 };

/* An id that has begun to connect. */
static struct cm_id *connecting(struct cm_channel *ch)
{
	struct cm_id *id = routed(ch, PORT);

	fake.calls[0] = 0;
	CHECK_EQ(be->connect(id, &conn_param), 0);
	return id;
}

static void report(struct cm_id *id, enum user_wire_failure why)
{
	struct user_id *u = to_user(id);

	lock_get(&u->lock);
	if (CHECK(u->wire))
		user_wire_failed(u, why);
	lock_put(&u->lock);
}

static void sent(struct cm_id *id)
{
	struct user_id *u = to_user(id);

	lock_get(&u->lock);
	user_req_sent(u, true);
	lock_put(&u->lock);
}

static enum user_state state_of(struct cm_id *id)
{
	struct user_id *u = to_user(id);
	enum user_state s;

	lock_get(&u->lock);
	s = u->state;
	lock_put(&u->lock);
	return s;
}

static bool has_wire(struct cm_id *id)
{
	struct user_id *u = to_user(id);
	bool it;

	lock_get(&u->lock);
	it = u->wire;
	lock_put(&u->lock);
	return it;
}

static void in_order_of_preference(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = connecting(ch);

	CHECK_STR(fake.calls, " shm");
	report(id, WIRE_NO_LISTENER);
	CHECK_STR(fake.calls, " shm - tcp");
	id_free(id);
	CHECK_STR(fake.calls, " shm - tcp -");

	fake.no_shm = true;
	id = connecting(ch);
	CHECK_STR(fake.calls, " tcp");
	id_free(id);
	fake.no_shm = false;
	cm_channel_free(ch);
}

/* The listener's process ended: it may have a successor, to be found like it. */
static void peer_ended(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = connecting(ch);

	sent(id);
	CHECK_EQ(state_of(id), US_AWAIT_REP);
	report(id, WIRE_PEER_ENDED);
	CHECK_STR(fake.calls, " shm - shm");
	CHECK_EQ(state_of(id), US_CONNECTING);
	CHECK(!to_user(id)->req_acked);
	id_free(id);
	cm_channel_free(ch);
}

/* After a pause all of them are tried, from the first on. */
static void busy(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = connecting(ch);

	report(id, WIRE_NO_LISTENER);
	report(id, WIRE_BUSY);
	CHECK(T_WAIT(has_wire(id), 5000));
	CHECK_STR(fake.calls, " shm - tcp - shm");
	id_free(id);
	CHECK(silent(ch));
	cm_channel_free(ch);
}

/* The last one finds nobody either: a few more times, then REJECTED. */
static void no_listener(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = connecting(ch);
	int attempts = 0;

	while (T_WAIT(has_wire(id) || state_of(id) == US_CLOSED, 5000) && has_wire(id)) {
		report(id, WIRE_NO_LISTENER);
		report(id, WIRE_NO_LISTENER);
		attempts++;
	}
	CHECK_EQ(attempts, 9);
	CHECK(want(ch, RDMA_CM_EVENT_REJECTED, CM_REJ_NO_LISTENER));
	id_free(id);
	cm_channel_free(ch);
}

static void listens_on_all(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *lis;

	fake.calls[0] = 0;
	lis = listener(ch, 1);
	CHECK_STR(fake.calls, " tcp shm");
	CHECK_EQ(fake.listening, 2);
	id_free(lis);
	CHECK_EQ(fake.listening, 0);

	fake.shm_fails = EMFILE; /* it has the other one */
	lis = listener(ch, 1);
	CHECK_EQ(fake.listening, 1);
	id_free(lis);
	CHECK_EQ(fake.listening, 0);
	fake.shm_fails = 0;
	cm_channel_free(ch);
}

static void cannot_listen(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = id_new(ch, NULL);
	struct sockaddr_in a = loop_addr(0);

	fake.tcp_fails = EADDRINUSE;
	CHECK_EQ(be->bind(id, (struct sockaddr *)&a), 0);
	CHECK_EQ(be->listen(id, 1), -EADDRINUSE);
	CHECK_EQ(fake.listening, 0);
	fake.tcp_fails = 0;
	CHECK_EQ(be->listen(id, 1), 0);
	CHECK_EQ(fake.listening, 2);
	id_free(id);
	CHECK_EQ(fake.listening, 0);
	cm_channel_free(ch);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	cm_dev = &device;
	if (be->init())
		return 1;
	T_RUN(in_order_of_preference);
	T_RUN(peer_ended);
	T_RUN(busy);
	T_RUN(no_listener);
	T_RUN(listens_on_all);
	T_RUN(cannot_listen);
	T_RUN(nothing_left);
	return t_done();
}
