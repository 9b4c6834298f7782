/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous ids: which event answers which call. */
#include "tests/asleep.h"
#include "tests/t.h"

#include "cm/fake_test.h"

#include <signal.h>

static struct rdma_cm_id *sync_id(enum rdma_port_space ps)
{
	return fake_id(NULL, ps);
}

#define EVENT(name) RDMA_CM_EVENT_##name

/* What a call makes of an event that is already there; the event is then in
 * id->event. */
static const struct {
	const char *call;
	enum rdma_cm_event_type event;
	int status;
	int err; /* errno of the call; 0: it succeeds */
} answers[] = {
	{ "addr", EVENT(ADDR_RESOLVED), 0, 0 },
	{ "addr", EVENT(ADDR_ERROR), -ETIMEDOUT, ETIMEDOUT },
	{ "addr", EVENT(DEVICE_REMOVAL), 0, ENODEV },
	{ "route", EVENT(ROUTE_RESOLVED), 0, 0 },
	{ "route", EVENT(ROUTE_ERROR), -ENODEV, ENODEV },
	{ "connect", EVENT(CONNECT_RESPONSE), 0, 0 },
	{ "connect", EVENT(ESTABLISHED), 0, 0 },
	{ "connect", EVENT(REJECTED), 28, ECONNREFUSED },
	{ "connect", EVENT(UNREACHABLE), -ETIMEDOUT, ETIMEDOUT },
	{ "connect", EVENT(UNREACHABLE), 2, ECONNREFUSED },
	{ "connect", EVENT(CONNECT_ERROR), -EINVAL, EINVAL },
	{ "connect", EVENT(DISCONNECTED), 0, ECONNRESET },
	{ "accept", EVENT(ESTABLISHED), 0, 0 },
	{ "accept", EVENT(REJECTED), 28, ECONNREFUSED },
	{ "accept", EVENT(UNREACHABLE), -ETIMEDOUT, ETIMEDOUT },
	{ "disconnect", EVENT(DISCONNECTED), 0, 0 },
	{ "disconnect", EVENT(DISCONNECTED), -ETIMEDOUT, ETIMEDOUT },
	{ "disconnect", EVENT(TIMEWAIT_EXIT), 0, 0 },
	{ "addrinfo", EVENT(ADDRINFO_ERROR), -ENOENT, ENOENT },
};

static int call(struct rdma_cm_id *id, const char *name)
{
	struct rdma_conn_param p = { .qp_num = 5 };
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST };

	if (!strcmp(name, "addr"))
		return rdma_resolve_addr(id, NULL, fake_addr(), 10);
	if (!strcmp(name, "route"))
		return rdma_resolve_route(id, 10);
	if (!strcmp(name, "connect"))
		return rdma_connect(id, &p);
	if (!strcmp(name, "accept"))
		return rdma_accept(id, &p);
	if (!strcmp(name, "disconnect"))
		return rdma_disconnect(id);
	return rdma_resolve_addrinfo(id, "127.0.0.1", "1", &hints);
}

static void each_call_takes_its_answer(void)
{
	struct rdma_cm_id *id;
	unsigned i;
	int r;

	for (i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		id = sync_id(RDMA_PS_TCP);
		/* Something else comes first, and stays. */
		fake_post(id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
		fake_post(id, answers[i].event, answers[i].status);
		errno = 0;
		r = call(id, answers[i].call);
		if (r != (answers[i].err ? -1 : 0) || errno != answers[i].err)
			diag("row %u: %s with %s: %d, errno %d", i, answers[i].call,
			     rdma_event_str(answers[i].event), r, errno);
		CHECK_EQ(r, answers[i].err ? -1 : 0);
		CHECK_EQ(r ? errno : 0, answers[i].err);
		CHECK(id->event && id->event->event == answers[i].event);
		CHECK(fake_readable(id->channel));
		CHECK_EQ(rdma_destroy_id(id), 0);
	}
}

static void other_events_wait_in_order(void)
{
	struct rdma_cm_id *id = sync_id(RDMA_PS_TCP);
	struct rdma_cm_event *ev;
	uint64_t i;

	rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 0);
	rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 1);
	fake_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 2);
	fake_post(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 3);
	CHECK_EQ(call(id, "addr"), 0);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_EQ(call(id, "route"), 0); /* finds what came before */
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	for (i = 0; i < 4; i++) {
		REQUIRE_EQ(rdma_get_cm_event(id->channel, &ev), 0);
		CHECK_EQ(ev->param.arg, i);
		rdma_ack_cm_event(ev);
	}
	CHECK(!fake_readable(id->channel));
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void nonblocking_starts_and_says_eagain(void)
{
	struct rdma_cm_id *id = sync_id(RDMA_PS_TCP);

	fake_nonblock(id->channel, true);
	rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 0);
	fake_reset();
	CHECK_ERRNO(call(id, "addr"), EAGAIN);
	CHECK_STR(fb.calls, " resolve_addr");
	CHECK(!id->event && fake_readable(id->channel));
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void refused_calls_do_not_wait(void)
{
	struct rdma_cm_id *id = sync_id(RDMA_PS_TCP);

	fb.fail = EADDRNOTAVAIL;
	CHECK_ERRNO(call(id, "addr"), EADDRNOTAVAIL);
	CHECK_ERRNO(call(id, "connect"), EADDRNOTAVAIL);
	fb.fail = 0;
	CHECK_EQ(rdma_destroy_id(id), 0);
}

struct waiter {
	pthread_t thread;
	struct rdma_cm_id *id;
	int ret, err;
	atomic_bool done;
};

static void *waiter_thread(void *arg)
{
	struct waiter *w = arg;

	w->ret = call(w->id, "connect");
	w->err = errno;
	atomic_store(&w->done, true);
	return NULL;
}

static void on_signal(int sig)
{
	(void)sig;
}

static atomic_int waiter_tid;

static void *interrupted_thread(void *arg)
{
	atomic_store(&waiter_tid, gettid());
	return waiter_thread(arg);
}

static void blocks_until_the_event(void)
{
	struct waiter w = { .id = sync_id(RDMA_PS_TCP) };

	pthread_create(&w.thread, NULL, interrupted_thread, &w);
	CHECK(T_WAIT(atomic_load(&waiter_tid) && asleep(getpid(), waiter_tid), 5000));
	fake_post(w.id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	fake_post(w.id, RDMA_CM_EVENT_ESTABLISHED, 0);
	pthread_join(w.thread, NULL);
	CHECK_EQ(w.ret, 0);
	CHECK_EQ(w.id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(rdma_destroy_id(w.id), 0);
}

static void a_signal_interrupts(void)
{
	struct sigaction sa = { .sa_handler = on_signal }; /* without SA_RESTART */
	struct waiter w = { .id = sync_id(RDMA_PS_TCP) };

	sigaction(SIGUSR1, &sa, NULL);
	atomic_store(&waiter_tid, 0);
	pthread_create(&w.thread, NULL, interrupted_thread, &w);
	CHECK(T_WAIT(atomic_load(&waiter_tid) && asleep(getpid(), waiter_tid), 5000));
	/* Again, if it was asleep elsewhere. */
	CHECK(T_WAIT(!pthread_kill(w.thread, SIGUSR1) && atomic_load(&w.done), 5000));
	pthread_join(w.thread, NULL);
	CHECK_EQ(w.ret, -1);
	CHECK_EQ(w.err, EINTR);
	CHECK_EQ(rdma_destroy_id(w.id), 0);
}

/* ---- listeners and endpoints ------------------------------------------------------ */

static void requests_of_a_sync_listener(void)
{
	struct rdma_cm_id *id = sync_id(RDMA_PS_TCP), *child = NULL;
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *async = fake_id(ch, RDMA_PS_TCP);
	struct rdma_conn_param p = { .qp_num = 7, .responder_resources = RDMA_MAX_RESP_RES };

	CHECK_ERRNO(rdma_get_request(async, &child), EINVAL);
	CHECK_ERRNO(rdma_get_request(id, NULL), EINVAL);
	fake_request(id, 40, 2);
	REQUIRE_EQ(rdma_get_request(id, &child), 0);
	CHECK(child->channel != id->channel && to_id(child)->sync);
	CHECK(child->event && child->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!memcmp(child->event->param.conn.private_data, "hello", 6));
	fake_post(child, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK_EQ(rdma_accept(child, &p), 0); /* acks the request */
	CHECK_EQ(fb.param.responder_resources, 16); /* clamped to the device */
	CHECK_EQ(rdma_destroy_id(id), 0);
	CHECK_EQ(rdma_destroy_id(child), 0);
	CHECK_EQ(rdma_destroy_id(async), 0);
	rdma_destroy_event_channel(ch);
}

static void a_listener_meets_something_else(void)
{
	struct rdma_cm_id *id = sync_id(RDMA_PS_TCP), *child = NULL;

	fake_post(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	CHECK_ERRNO(rdma_get_request(id, &child), EINVAL);
	CHECK(!child && id->event && id->event->event == RDMA_CM_EVENT_DEVICE_REMOVAL);
	fake_post(id, RDMA_CM_EVENT_ADDR_CHANGE, 5);
	CHECK_ERRNO(rdma_get_request(id, &child), 5);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void endpoint_children_get_a_qp(void)
{
	struct rdma_addrinfo res = {
		.ai_flags = RAI_PASSIVE,
		.ai_port_space = RDMA_PS_TCP,
		.ai_qp_type = IBV_QPT_RC,
		.ai_src_addr = fake_addr(),
		.ai_src_len = sizeof(struct sockaddr_in),
	};
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD };
	struct rdma_cm_id *id, *child = NULL;

	attr.cap.max_recv_wr = 3;
	REQUIRE_EQ(rdma_create_ep(&id, &res, NULL, &attr), 0);
	CHECK_EQ(attr.qp_type, IBV_QPT_UD); /* the caller's is untouched */
	CHECK_EQ(rdma_listen(id, 0), 0);
	fake_request(id, 1, 1);
	REQUIRE_EQ(rdma_get_request(id, &child), 0);
	CHECK(child->qp && child->qp->qp_type == IBV_QPT_RC);
	CHECK(child->recv_cq && !child->send_cq);
	rdma_destroy_ep(child);

	/* A QP that cannot be made: the peer is told, nothing leaks. */
	fake_reset();
	fv.fail_cq = 1;
	fake_request(id, 1, 1);
	CHECK_ERRNO(rdma_get_request(id, &child), ENOMEM);
	CHECK_STR(fb.calls, " reject");
	CHECK_EQ(fb.reject_reason, 28);
	rdma_destroy_ep(id);
}

/* Answers resolve calls at once, so that an active endpoint can be made. */
static int quick_resolve_addr(struct cm_id *id, const struct sockaddr *src,
			      const struct sockaddr *dst, int ms)
{
	(void)src, (void)dst, (void)ms;
	fake_post(&id->pub, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return 0;
}

static int quick_resolve_route(struct cm_id *id, int ms)
{
	(void)ms;
	fake_post(&id->pub, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return 0;
}

static int quick_connect(struct cm_id *id, const struct cm_conn_param *p)
{
	fb.param = *p;
	fake_post(&id->pub, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	return 0;
}

static void active_endpoint(void)
{
	struct cm_backend quick = fake_backend;
	struct rdma_addrinfo res = {
		.ai_port_space = RDMA_PS_TCP,
		.ai_qp_type = IBV_QPT_RC,
		.ai_dst_addr = fake_addr(),
		.ai_connect = (void *)"HEADER",
		.ai_connect_len = 6,
	};
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD };
	struct rdma_conn_param p = { .private_data = "me", .private_data_len = 2 };
	struct rdma_cm_id *id = NULL, *none = NULL;

	quick.resolve_addr = quick_resolve_addr;
	quick.resolve_route = quick_resolve_route;
	quick.connect = quick_connect;
	cm_backend_use(&quick);
	attr.cap.max_send_wr = 2;
	attr.cap.max_recv_wr = 2;
	REQUIRE_EQ(rdma_create_ep(&id, &res, NULL, &attr), 0);
	CHECK(id->qp && id->qp->qp_type == IBV_QPT_RC && id->context == NULL);
	CHECK_EQ(attr.cap.max_inline_data, 123);
	CHECK_EQ(rdma_connect(id, &p), 0);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(fb.param.private_data_len, 8);
	CHECK(!memcmp(fb.param.private_data, "HEADERme", 8));
	CHECK_EQ(rdma_connect(id, &p), 0); /* the header goes once */
	CHECK_EQ(fb.param.private_data_len, 2);
	rdma_destroy_ep(id);

	attr.send_cq = attr.recv_cq = NULL;
	fv.fail_cq = 2;
	CHECK_ERRNO(rdma_create_ep(&none, &res, NULL, &attr), ENOMEM);
	CHECK(!none);
	CHECK_ERRNO(rdma_create_ep(&none, NULL, NULL, NULL), EINVAL);
	res.ai_port_space = 5;
	CHECK_ERRNO(rdma_create_ep(&none, &res, NULL, NULL), EINVAL);
	rdma_destroy_ep(NULL);
	cm_backend_use(&fake_backend);
}

int main(int argc, char **argv)
{
	fake_init(argc, argv);
	T_RUN(each_call_takes_its_answer);
	T_RUN(other_events_wait_in_order);
	T_RUN(nonblocking_starts_and_says_eagain);
	T_RUN(refused_calls_do_not_wait);
	T_RUN(blocks_until_the_event);
	T_RUN(a_signal_interrupts);
	T_RUN(requests_of_a_sync_listener);
	T_RUN(a_listener_meets_something_else);
	T_RUN(endpoint_children_get_a_qp);
	T_RUN(active_endpoint);
	return fake_done();
}
