/* SPDX-License-Identifier: BSD-2-Clause */
/* Events: what fetching does to an id, and who waits for which ack. */
#include "tests/t.h"

#include "cm/fake_test.h"

#include <sys/mman.h>
#include <sys/wait.h>

static struct rdma_event_channel *ch;

static struct rdma_cm_event *get(struct rdma_event_channel *from)
{
	struct rdma_cm_event *ev = NULL;

	CHECK_EQ(rdma_get_cm_event(from, &ev), 0);
	return ev;
}

static void get_type(struct rdma_event_channel *from, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = get(from);

	REQUIRE(ev);
	CHECK_STR(rdma_event_str(ev->event), rdma_event_str(type));
	CHECK_EQ(rdma_ack_cm_event(ev), 0);
}

/* ---- strings ------------------------------------------------------------------- */

static void names_are_the_enumerators(void)
{
	CHECK_STR(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED),
		  "RDMA_CM_EVENT_ADDR_RESOLVED");
	CHECK_STR(rdma_event_str(15), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
	CHECK_STR(rdma_event_str(17), "RDMA_CM_EVENT_ADDRINFO_ERROR");
	CHECK_STR(rdma_event_str(RDMA_CM_EVENT_USER), "UNKNOWN EVENT");
	CHECK_STR(rdma_event_str(RDMA_CM_EVENT_INTERNAL), "UNKNOWN EVENT");
	CHECK_STR(rdma_event_str((enum rdma_cm_event_type)-1), "UNKNOWN EVENT");
	CHECK_STR(rdma_event_str(20), "UNKNOWN EVENT");
}

/* ---- applying -------------------------------------------------------------------- */

/* Must be the first to want the device. */
static void a_shortage_does_not_lose_the_device(void)
{
	struct rdma_cm_id *id;

	REQUIRE_EQ(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	fv.fail_open = EMFILE;
	CHECK_ERRNO(rdma_bind_addr(id, fake_addr()), EMFILE);
	CHECK_EQ(rdma_bind_addr(id, fake_addr()), 0);
	CHECK(id->verbs != NULL);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void addr_resolved_attaches_the_device(void)
{
	struct rdma_cm_id *id, *other;

	REQUIRE_EQ(rdma_create_id(ch, &id, (void *)1, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_resolve_addr(id, NULL, fake_addr(), 100), 0);
	CHECK_EQ(rdma_get_dst_port(id), htons(7471));
	CHECK(!id->verbs && !id->pd);
	fake_post(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK(!id->verbs);
	get_type(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs && id->pd && id->port_num == 1);
	CHECK_EQ(rdma_get_src_port(id), htons(4711));
	other = fake_id(ch, RDMA_PS_TCP);
	CHECK(other->verbs == id->verbs && other->pd == id->pd);
	CHECK_EQ(fv.pds, 1);
	CHECK_EQ(rdma_destroy_id(other), 0);
	CHECK_EQ(fv.pds, 1);
	CHECK_EQ(rdma_destroy_id(id), 0);
	CHECK_EQ(fv.pds, 0);
	CHECK_EQ(fv.opened, 1);
}

static void addr_resolved_without_a_device_is_an_error(void)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	REQUIRE_EQ(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	fb.unbound = true;
	fake_post(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	ev = get(ch);
	CHECK_EQ(ev->event, RDMA_CM_EVENT_ADDR_ERROR);
	CHECK_EQ(ev->status, -ENODEV);
	rdma_ack_cm_event(ev);
	fb.unbound = false;
	fb.query_fails = EIO;
	fake_post(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	ev = get(ch);
	CHECK_EQ(ev->event, RDMA_CM_EVENT_ADDR_ERROR);
	CHECK_EQ(ev->status, -EIO);
	rdma_ack_cm_event(ev);
	fb.query_fails = 0;
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void route_resolved_fills_the_path(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct ibv_sa_path_rec *rec;
	int i;

	for (i = 0; i < 2; i++) { /* the second time replaces the first */
		fake_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
		get_type(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	}
	REQUIRE_EQ(id->route.num_paths, 1);
	rec = id->route.path_rec;
	CHECK_EQ(ntohl(rec->flow_label), 0x123456);
	CHECK_EQ(rec->hop_limit, 0x40);
	CHECK_EQ(rec->reversible, 1);
	CHECK_EQ(rec->mtu, IBV_MTU_1024);
	CHECK_EQ(rec->mtu_selector, 2);
	CHECK_EQ(rec->preference, 0x2B);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void request_makes_a_child(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP), *child;
	struct rdma_cm_event *ev;

	id->context = &ch;
	CHECK_EQ(rdma_listen(id, 0), 0);
	fake_request(id, 5, 6);
	ev = get(ch);
	child = ev->id;
	CHECK(child && child != id && ev->listen_id == id);
	CHECK(child->context == &ch && child->channel == ch && child->verbs);
	CHECK(child->ps == RDMA_PS_TCP && child->qp_type == IBV_QPT_RC && !child->qp);
	CHECK_EQ(child->route.num_paths, 1);
	CHECK_EQ(ev->param.conn.private_data_len, CM_PRIV_REQ);
	CHECK(!memcmp(ev->param.conn.private_data, "hello\0\0", 7));
	/* The event is the listener's: the child goes without its ack. */
	CHECK_EQ(rdma_destroy_id(child), 0);
	CHECK_EQ(rdma_ack_cm_event(ev), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void request_that_fails_is_swallowed(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);

	fake_request(id, 1, 1);
	fake_post(id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
	fb.query_fails = EIO;
	get_type(ch, RDMA_CM_EVENT_ADDR_CHANGE);
	fb.query_fails = 0;
	CHECK_EQ(fb.ids, 1);
	CHECK_EQ(rdma_destroy_id(id), 0); /* counted as acknowledged */
}

static struct ibv_qp_init_attr qp_attr(void)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC };

	a.cap.max_send_wr = 4;
	a.cap.max_recv_wr = 5;
	return a;
}

static void response_moves_the_qp(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = qp_attr();

	fake_post(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	get_type(ch, RDMA_CM_EVENT_CONNECT_RESPONSE); /* no QP: as it is */

	REQUIRE_EQ(rdma_create_qp(id, NULL, &attr), 0);
	fake_reset();
	fake_post(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	CHECK_STR(fv.moves, "");
	get_type(ch, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_STR(fv.moves, " INIT RTR RTS");
	CHECK_STR(fb.calls, " establish");
	CHECK_EQ(fv.attr[IBV_QPS_RTR].max_dest_rd_atomic, 3);
	CHECK_EQ(fv.attr[IBV_QPS_RTS].max_rd_atomic, 4);
	rdma_destroy_qp(id);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void response_that_fails_ends_the_connection(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_event *ev;

	REQUIRE_EQ(rdma_create_qp(id, NULL, &attr), 0);
	fake_reset();
	fv.fail_state = IBV_QPS_RTS;
	fake_post(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	ev = get(ch);
	CHECK_EQ(ev->event, RDMA_CM_EVENT_CONNECT_ERROR);
	CHECK_EQ(ev->status, -ENOSPC);
	rdma_ack_cm_event(ev);
	CHECK_STR(fv.moves, " INIT RTR ERR");
	CHECK_STR(fb.calls, " abandon");
	/* What follows from our own giving up is nobody's business. */
	fake_post(id, RDMA_CM_EVENT_REJECTED, 28);
	fake_post(id, RDMA_CM_EVENT_DISCONNECTED, 0);
	fake_post(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	get_type(ch, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	rdma_destroy_qp(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void rejected_moves_the_qp_to_err(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = qp_attr();

	REQUIRE_EQ(rdma_create_qp(id, NULL, &attr), 0);
	fake_reset();
	fake_post(id, RDMA_CM_EVENT_DISCONNECTED, 0);
	get_type(ch, RDMA_CM_EVENT_DISCONNECTED);
	CHECK_STR(fv.moves, "");
	fake_post(id, RDMA_CM_EVENT_REJECTED, 28);
	get_type(ch, RDMA_CM_EVENT_REJECTED);
	CHECK_STR(fv.moves, " ERR");
	rdma_destroy_qp(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void user_events(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct rdma_cm_event *ev;

	CHECK_ERRNO(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 1), EINVAL);
	CHECK_ERRNO(rdma_write_cm_event(id, RDMA_CM_EVENT_INTERNAL, 0, 1), EINVAL);
	CHECK_EQ(rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 9, 0x1122334455667788), 0);
	ev = get(ch);
	CHECK_EQ(ev->event, RDMA_CM_EVENT_USER);
	CHECK_EQ(ev->status, 9);
	CHECK_EQ(ev->param.arg, 0x1122334455667788);
	rdma_ack_cm_event(ev);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

/* ---- waiting for acks ------------------------------------------------------------- */

struct call {
	pthread_t thread;
	struct rdma_cm_id *id;
	struct rdma_event_channel *to;
	int ret;
	atomic_bool done;
};

static void *destroy_thread(void *arg)
{
	struct call *c = arg;

	c->ret = rdma_destroy_id(c->id);
	atomic_store(&c->done, true);
	return NULL;
}

static void *migrate_thread(void *arg)
{
	struct call *c = arg;

	c->ret = rdma_migrate_id(c->id, c->to);
	atomic_store(&c->done, true);
	return NULL;
}

static void start(struct call *c, void *(*fn)(void *))
{
	atomic_store(&c->done, false);
	pthread_create(&c->thread, NULL, fn, c);
}

static int finish(struct call *c)
{
	pthread_join(c->thread, NULL);
	return c->ret;
}

/* The id is in its wait: the backend's object is gone. */
static bool destroying(struct rdma_cm_id *id)
{
	bool gone;

	lock_get(&to_id(id)->apply);
	gone = to_id(id)->be_gone;
	lock_put(&to_id(id)->apply);
	return gone;
}

/* A destroy comes between the fetch of an event and what it does to the id: the
 * event was never there, and the destroy does not wait for the application. */
static void destroy_overtakes_a_fetch(void)
{
	enum rdma_cm_event_type types[] = { RDMA_CM_EVENT_ADDR_RESOLVED,
					    RDMA_CM_EVENT_ESTABLISHED,
					    RDMA_CM_EVENT_CONNECT_REQUEST };
	struct cm_event *ev;
	unsigned i;

	fb.children_dropped = 0;
	for (i = 0; i < 3; i++) {
		struct call c = { .id = fake_id(ch, RDMA_PS_TCP) };

		if (types[i] == RDMA_CM_EVENT_CONNECT_REQUEST)
			fake_request(c.id, 1, 1);
		else
			fake_post(c.id, types[i], 0);
		REQUIRE_EQ(to_id(c.id)->be->event_get(to_channel(ch), &ev), 0);
		start(&c, destroy_thread);
		REQUIRE(T_WAIT(destroying(c.id), 5000));
		CHECK(!cm_event_apply(ev));
		CHECK_EQ(finish(&c), 0);
	}
	CHECK_EQ(fb.children_dropped, 1);
}

static void destroy_drops_undelivered_events(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP), *other;
	int i;

	other = fake_id(ch, RDMA_PS_TCP);
	fake_nonblock(ch, true);
	for (i = 0; i < 10; i++)
		fake_post(i == 4 ? other : id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
	fake_request(id, 1, 1);
	fb.children_dropped = 0;
	CHECK_EQ(rdma_destroy_id(id), 0);
	CHECK_EQ(fb.children_dropped, 1);
	get_type(ch, RDMA_CM_EVENT_ADDR_CHANGE);
	CHECK(!fake_readable(ch));
	struct rdma_cm_event *ev;
	CHECK_ERRNO(rdma_get_cm_event(ch, &ev), EAGAIN);
	CHECK_EQ(rdma_destroy_id(other), 0);
	fake_nonblock(ch, false);
}

static void destroy_waits_for_acks(void)
{
	struct rdma_cm_event *a, *b;
	struct call c = { .id = fake_id(ch, RDMA_PS_TCP) };

	fake_post(c.id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
	fake_post(c.id, RDMA_CM_EVENT_DISCONNECTED, 0);
	a = get(ch);
	b = get(ch);
	start(&c, destroy_thread);
	CHECK(T_WAIT(destroying(c.id), 5000));
	CHECK(!atomic_load(&c.done));
	rdma_ack_cm_event(b); /* in any order */
	CHECK(!atomic_load(&c.done));
	CHECK(a->id == c.id); /* the id is alive */
	rdma_ack_cm_event(a);
	CHECK_EQ(finish(&c), 0);
}

static void destroy_of_a_listener_waits_for_requests(void)
{
	struct call c = { .id = fake_id(ch, RDMA_PS_TCP) };
	struct rdma_cm_event *ev;
	struct rdma_cm_id *child;

	fake_request(c.id, 1, 1);
	ev = get(ch);
	child = ev->id;
	CHECK_EQ(rdma_destroy_id(child), 0);
	start(&c, destroy_thread);
	CHECK(T_WAIT(destroying(c.id), 5000));
	CHECK(!atomic_load(&c.done));
	rdma_ack_cm_event(ev);
	CHECK_EQ(finish(&c), 0);
}

/* stderr of the library, as far as it has been written. */
static int log_fd = -1;

static bool logged(const char *what)
{
	char buf[8192];
	ssize_t n = pread(log_fd, buf, sizeof(buf) - 1, 0);

	buf[n > 0 ? n : 0] = 0;
	return strstr(buf, what) != NULL;
}

static void a_long_wait_is_logged(void)
{
	struct call c = { .id = fake_id(ch, RDMA_PS_TCP) };
	struct rdma_cm_event *ev;
	char text[64];

	fake_post(c.id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
	ev = get(ch);
	start(&c, destroy_thread);
	snprintf(text, sizeof(text), "thread %d fetched ", gettid());
	CHECK(T_WAIT(logged("rdma_destroy_id of id"), 5000));
	CHECK(logged("RDMA_CM_EVENT_ADDR_CHANGE"));
	CHECK(logged(text));
	rdma_ack_cm_event(ev);
	CHECK_EQ(finish(&c), 0);
}

/* ---- migrating --------------------------------------------------------------------- */

static void migrate_moves_events_in_order(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP), *other;
	struct rdma_event_channel *to = rdma_create_event_channel();
	struct rdma_cm_event *ev;
	unsigned i;

	REQUIRE(to);
	other = fake_id(ch, RDMA_PS_TCP);
	for (i = 0; i < 6; i++) {
		rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, i);
		rdma_write_cm_event(other, RDMA_CM_EVENT_USER, 0, 100 + i);
	}
	CHECK_EQ(rdma_migrate_id(id, to), 0);
	CHECK(id->channel == to);
	for (i = 0; i < 6; i++) {
		ev = get(to);
		CHECK(ev->id == id && ev->param.arg == i);
		rdma_ack_cm_event(ev);
		ev = get(ch);
		CHECK(ev->id == other && ev->param.arg == 100 + i);
		rdma_ack_cm_event(ev);
	}
	CHECK(!fake_readable(ch) && !fake_readable(to));
	CHECK_EQ(rdma_migrate_id(id, to), 0); /* to where it is */
	rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 7);
	CHECK(fake_readable(to) && !fake_readable(ch));
	CHECK_EQ(rdma_destroy_id(id), 0);
	CHECK_EQ(rdma_destroy_id(other), 0);
	CHECK(!fake_readable(to));
	rdma_destroy_event_channel(to);
}

static void migrate_waits_for_what_was_fetched_before(void)
{
	struct rdma_event_channel *to = rdma_create_event_channel();
	struct call c = { .id = fake_id(ch, RDMA_PS_TCP), .to = to };
	struct rdma_cm_event *old, *new;

	fake_post(c.id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
	fake_post(c.id, RDMA_CM_EVENT_USER, 0);
	old = get(ch);
	start(&c, migrate_thread);
	/* An event that comes after the move and is acknowledged at once must not
	 * stand in for the one before. */
	new = get(to);
	CHECK_EQ(new->event, RDMA_CM_EVENT_USER);
	rdma_ack_cm_event(new);
	CHECK(!atomic_load(&c.done));
	rdma_ack_cm_event(old);
	CHECK_EQ(finish(&c), 0);
	CHECK_EQ(rdma_destroy_id(c.id), 0);
	rdma_destroy_event_channel(to);
}

static void migrate_between_sync_and_async(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct rdma_event_channel *private;
	int fd;

	rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 1);
	CHECK_EQ(rdma_migrate_id(id, NULL), 0);
	private = id->channel;
	CHECK(private != ch && to_id(id)->sync && fake_readable(private));
	CHECK_ERRNO(rdma_migrate_id(id, NULL), EINVAL);
	CHECK_ERRNO(rdma_migrate_id(id, private), EINVAL);
	/* A blocking call leaves the other event where it was. */
	fake_post(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK_EQ(rdma_resolve_addr(id, NULL, fake_addr(), 10), 0);
	REQUIRE(id->event);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(fake_readable(private));
	fd = private->fd;
	CHECK_EQ(rdma_migrate_id(id, ch), 0);
	CHECK(!id->event && !to_id(id)->sync && id->channel == ch);
	CHECK_ERRNO(fcntl(fd, F_GETFD), EBADF);
	get_type(ch, RDMA_CM_EVENT_USER);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

/* ---- the end of a channel, and forks ------------------------------------------------ */

static void channel_destroyed_before_its_ids(void)
{
	struct rdma_event_channel *gone = rdma_create_event_channel();
	struct rdma_cm_id *id = fake_id(gone, RDMA_PS_TCP);
	struct rdma_cm_event *ev;
	int fd = gone->fd;

	fake_post(id, RDMA_CM_EVENT_USER, 0);
	ev = get(gone);
	fake_post(id, RDMA_CM_EVENT_USER, 0);
	rdma_destroy_event_channel(gone);
	CHECK_ERRNO(fcntl(fd, F_GETFD), EBADF);
	fake_post(id, RDMA_CM_EVENT_USER, 0);
	rdma_ack_cm_event(ev);
	CHECK_EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(NULL);
}

static int in_child(struct rdma_cm_id *id, struct rdma_cm_id *sync,
		    struct rdma_cm_event *ev)
{
	struct rdma_cm_event *got;

	CHECK_ERRNO(rdma_get_cm_event(ch, &got), ENODEV);
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, fake_addr(), 1), ENODEV);
	CHECK_ERRNO(rdma_migrate_id(id, NULL), ENODEV);
	CHECK_ERRNO(rdma_connect(id, NULL), ENODEV);
	CHECK_EQ(rdma_destroy_id(id), 0); /* does not wait for the ack */
	CHECK_EQ(rdma_ack_cm_event(ev), 0);
	CHECK_EQ(rdma_destroy_id(sync), 0);
	rdma_destroy_event_channel(ch);
	return t_.bad ? 1 : 0;
}

static void a_forked_child_has_nothing(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP), *sync = fake_id(NULL, RDMA_PS_TCP);
	struct rdma_cm_event *ev;
	int status = -1;
	pid_t pid;

	fake_post(id, RDMA_CM_EVENT_USER, 0);
	fake_post(id, RDMA_CM_EVENT_DISCONNECTED, 0);
	ev = get(ch);
	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(in_child(id, sync, ev));
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	rdma_ack_cm_event(ev);
	CHECK(fake_readable(ch));
	get_type(ch, RDMA_CM_EVENT_DISCONNECTED);
	CHECK_EQ(rdma_destroy_id(id), 0);
	CHECK_EQ(rdma_destroy_id(sync), 0);
}

/* The order in which rping ends: its thread comes back for another event. */
static void destroyed_channel_is_a_bad_descriptor(void)
{
	struct rdma_event_channel *old = rdma_create_event_channel();
	struct rdma_event_channel *other;
	struct rdma_cm_event *ev;

	REQUIRE(old);
	rdma_destroy_event_channel(old);
	CHECK_ERRNO(rdma_get_cm_event(old, &ev), EBADF);
	other = rdma_create_event_channel();
	REQUIRE(other);
	CHECK_ERRNO(rdma_get_cm_event(old, &ev), EBADF);
	rdma_destroy_event_channel(other);
}

int main(int argc, char **argv)
{
	char env[64];

	log_fd = memfd_create("log", 0);
	snprintf(env, sizeof(env), "info:/proc/self/fd/%d", log_fd);
	setenv("ANYRDMA_LOG", env, 1);
	fake_init(argc, argv);
	ch = rdma_create_event_channel();
	T_RUN(names_are_the_enumerators);
	T_RUN(a_shortage_does_not_lose_the_device);
	T_RUN(addr_resolved_attaches_the_device);
	T_RUN(addr_resolved_without_a_device_is_an_error);
	T_RUN(route_resolved_fills_the_path);
	T_RUN(request_makes_a_child);
	T_RUN(request_that_fails_is_swallowed);
	T_RUN(response_moves_the_qp);
	T_RUN(response_that_fails_ends_the_connection);
	T_RUN(rejected_moves_the_qp_to_err);
	T_RUN(user_events);
	T_RUN(destroy_overtakes_a_fetch);
	T_RUN(destroy_drops_undelivered_events);
	T_RUN(destroy_waits_for_acks);
	T_RUN(destroy_of_a_listener_waits_for_requests);
	T_RUN(a_long_wait_is_logged);
	T_RUN(migrate_moves_events_in_order);
	T_RUN(migrate_waits_for_what_was_fetched_before);
	T_RUN(migrate_between_sync_and_async);
	T_RUN(channel_destroyed_before_its_ids);
	T_RUN(destroyed_channel_is_a_bad_descriptor);
	T_RUN(a_forked_child_has_nothing);
	rdma_destroy_event_channel(ch);
	return fake_done();
}
