/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel backend: the device node, what the kernel's errors become, what its
 * events do. */
#include "tests/t.h"

#include "cm/fake_test.h"
#include "cm/kernel/fake_test.h"

#include <semaphore.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* ---- errors ------------------------------------------------------------------------- */

static void versions(void)
{
	static const int good[] = { 3, 4, 0 }, bad[] = { 1, 2, 5 };
	struct rdma_event_channel *ch;
	unsigned i;

	for (i = 0; i < 3; i++) {
		fk_reset();
		fk.version = bad[i];
		CHECK_NULL(rdma_create_event_channel(), EPERM);
		fk.version = good[i]; /* a failure is not remembered */
		ch = rdma_create_event_channel();
		if (CHECK(ch))
			rdma_destroy_event_channel(ch);
	}
}

static int real_open(const char *path, int flags)
{
	return open(path, flags);
}

static int null_node(struct kernel_node *out)
{
	struct stat st;

	if (stat("/dev/null", &st))
		return -errno;
	out->abi = 4;
	out->dev = st.st_rdev;
	strcpy(out->name, "rdma_cm");
	return 0;
}

static int no_node(struct kernel_node *out)
{
	(void)out;
	return -ENOENT;
}

static void put_file(const char *root, const char *path, const char *text)
{
	char full[300], *slash;
	int fd;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		mkdir(full, 0700);
		*slash = '/';
	}
	if (!text)
		return;
	if (text[0] == '/') {
		CHECK_EQ(symlink(text, full), 0);
		return;
	}
	fd = open(full, O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0 && write(fd, text, strlen(text)) > 0);
	close(fd);
}

static void *make_node(void *root)
{
	put_file(root, "/dev/char/1:3", "/dev/null");
	return NULL;
}

/* /dev/null stands for the node: a character device whose number is known. */
static void device_node(void)
{
	char root[] = "/tmp/kernel_test.XXXXXX", cmd[100];
	struct kernel_sys sys = { root, real_open, fk_write, null_node, 50 };
	struct stat st;
	uint64_t start;
	pthread_t t;
	int fd;

	REQUIRE(mkdtemp(root));
	fk_reset();
	kernel_sys = &sys;
	REQUIRE_EQ(kernel_node_find(), 0);
	CHECK_EQ(kernel_node_open(), -ENOENT); /* not even /dev/char */
	put_file(root, "/dev/char/", NULL);
	CHECK_EQ(kernel_node_open(), -ENOENT); /* after waiting */
	sys.node_wait_ms = 10000;
	start = t_now_ms();
	pthread_create(&t, NULL, make_node, root);
	fd = kernel_node_open();
	CHECK(fd >= 0 && t_now_ms() - start < 9000);
	close(fd);
	pthread_join(t, NULL);
	/* A node of this name with another number is not ours. */
	put_file(root, "/dev/infiniband/rdma_cm", "/dev/zero");
	fd = kernel_node_open();
	CHECK(fd >= 0);
	CHECK(!fstat(fd, &st) && st.st_rdev == makedev(1, 3));
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);

	sys.chardev = no_node;
	kernel_node_forget();
	CHECK_EQ(kernel_node_find(), 0);
	CHECK_EQ(kernel_abi(), 4); /* nobody knows */
	put_file(root, "/sys/class/infiniband_ucma/abi_version", "3\n");
	kernel_node_forget();
	CHECK_EQ(kernel_node_find(), 0);
	CHECK_EQ(kernel_abi(), 3);
	put_file(root, "/sys/class/misc/rdma_cm/abi_version", "5\n");
	kernel_node_forget();
	CHECK_EQ(kernel_node_find(), -EPERM);
	snprintf(cmd, sizeof(cmd), "rm -r %s", root);
	CHECK_EQ(system(cmd), 0);
	fk_reset();
}

static void opening_fails(void)
{
	struct rdma_cm_id *id;
	int n = 0;
	struct ibv_context **list;

	fk_reset();
	fk.open_error = EACCES;
	CHECK_NULL(rdma_create_event_channel(), EACCES);
	CHECK_ERRNO(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), EACCES);
	/* What needs no channel works. */
	list = rdma_get_devices(&n);
	CHECK(list && n == 1);
	rdma_free_devices(list);
	fk.open_error = 0;
	CHECK_EQ(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

/* Each call fails as its command does, with the kernel's errno or with ENODATA. */
static void every_command_fails(void)
{
	static const int errnos[] = { ENXIO, EACCES, EINVAL, -1 };
	struct rdma_event_channel *ch = channel(), *to = rdma_create_event_channel();
	struct rdma_cm_id *id = routed(ch, RDMA_PS_TCP), *other;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct rdma_conn_param p = { .qp_num = 1 };
	struct rdma_cm_event *ev;
	int i, mask;

	CHECK_ERRNO(rdma_establish(id), EINVAL); /* and the kernel is not asked */
	CHECK_EQ(fk_count(CMD(ACCEPT)), 0);
	fk_event(handle(id), EV(CONNECT_RESPONSE), 0);
	fetch_ack(ch, EV(CONNECT_RESPONSE));
#define FAILS(cmd, call) (fk.fail[cmd] = errnos[i], CHECK_ERRNO(call, want), fk.fail[cmd] = 0)
	for (i = 0; i < 4; i++) {
		int want = errnos[i] < 0 ? ENODATA : errnos[i];

		FAILS(CMD(CREATE_ID), rdma_create_id(ch, &other, NULL, RDMA_PS_TCP));
		FAILS(CMD(CREATE_ID), rdma_create_id(NULL, &other, NULL, RDMA_PS_TCP));
		FAILS(CMD(BIND), rdma_bind_addr(id, fake_addr()));
		FAILS(CMD(QUERY), rdma_bind_addr(id, fake_addr()));
		FAILS(CMD(RESOLVE_ADDR), rdma_resolve_addr(id, NULL, fake_addr(), 1));
		FAILS(CMD(RESOLVE_ROUTE), rdma_resolve_route(id, 1));
		FAILS(CMD(LISTEN), rdma_listen(id, 1));
		FAILS(CMD(CONNECT), rdma_connect(id, &p));
		FAILS(CMD(ACCEPT), rdma_accept(id, &p));
		FAILS(CMD(ACCEPT), rdma_establish(id));
		FAILS(CMD(REJECT), rdma_reject(id, NULL, 0));
		FAILS(CMD(DISCONNECT), rdma_disconnect(id));
		FAILS(CMD(INIT_QP_ATTR), rdma_init_qp_attr(id, &attr, &mask));
		FAILS(CMD(SET_OPTION), rdma_set_option(id, 0, 0, &i, 1));
		FAILS(CMD(NOTIFY), rdma_notify(id, IBV_EVENT_COMM_EST));
		FAILS(CMD(JOIN_MCAST), rdma_join_multicast(id, fake_addr(), NULL));
		FAILS(CMD(MIGRATE_ID), rdma_migrate_id(id, to));
		FAILS(CMD(GET_EVENT), rdma_get_cm_event(ch, &ev));
		FAILS(CMD(DESTROY_ID), rdma_destroy_id(id)); /* and it lives on */
	}
	CHECK_EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(to);
	end(ch);
}

/* The application takes the channel away under its id. */
static void closed_channel(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);

	fk_event(handle(id), EV(ADDR_CHANGE), 0);
	rdma_destroy_event_channel(ch);
	CHECK_ERRNO(rdma_listen(id, 1), EBADF);
	CHECK_EQ(rdma_destroy_id(id), 0);
	memset(fk.ids, 0, sizeof(fk.ids));
	fk.alive = fk.count_events = 0;
}

static void device_matching(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id;

	REQUIRE_EQ(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	fk.bound_guid = 78; /* no such device */
	CHECK_ERRNO(rdma_bind_addr(id, fake_addr()), ENODEV);
	fk.bound_guid = 77;
	fk.index = 5; /* the right GUID on another device */
	CHECK_ERRNO(rdma_bind_addr(id, fake_addr()), ENODEV);
	fk.bound_guid = fk.port = fk.index = 0; /* the wildcard address */
	CHECK_EQ(rdma_bind_addr(id, fake_addr()), 0);
	CHECK(!id->verbs);
	/* An old kernel does not tell an index. */
	fk.bound_guid = 77;
	fk.port = 1;
	fk.index = UINT32_MAX;
	CHECK_EQ(rdma_bind_addr(id, fake_addr()), 0);
	CHECK(id->verbs);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

/* ---- events ---------------------------------------------------------------------------- */

static void every_event(void)
{
	static const enum rdma_cm_event_type types[] = {
		EV(ADDR_ERROR), EV(ROUTE_ERROR), EV(CONNECT_ERROR), EV(UNREACHABLE),
		EV(REJECTED), EV(ESTABLISHED), EV(DISCONNECTED), EV(DEVICE_REMOVAL),
		EV(ADDR_CHANGE), EV(TIMEWAIT_EXIT), EV(ADDRINFO_ERROR),
	};
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct rdma_ucm_event_resp resp = {
		.status = (uint32_t)-28,
		.param.conn = { .private_data = "bye", .private_data_len = 148 },
	};
	struct rdma_cm_event *ev;
	unsigned i;

	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		resp.event = types[i];
		fk_post(handle(id), &resp);
		ev = fetch(ch, types[i]);
		if (!ev)
			continue;
		CHECK(ev->id == id && !ev->listen_id);
		CHECK_EQ(ev->status, -28);
		if (types[i] == EV(REJECTED))
			CHECK_STR(ev->param.conn.private_data, "bye");
		rdma_ack_cm_event(ev);
	}
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

static void datagram_events(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_UDP);
	struct rdma_ucm_event_resp resp = {
		.event = EV(ESTABLISHED),
		.param.ud = { .qp_num = 0x42, .qkey = 0x1234567, .private_data = "ud",
			      .private_data_len = 136,
			      .ah_attr = { .is_global = 1, .port_num = 1 } },
	};
	struct rdma_cm_event *ev;

	fk_post(handle(id), &resp);
	ev = fetch(ch, EV(ESTABLISHED));
	REQUIRE(ev);
	CHECK_EQ(ev->param.ud.qp_num, 0x42);
	CHECK_EQ(ev->param.ud.qkey, 0x1234567);
	CHECK_EQ(ev->param.ud.private_data_len, 136);
	CHECK_STR(ev->param.ud.private_data, "ud");
	CHECK_EQ(ev->param.ud.ah_attr.is_global, 1);
	rdma_ack_cm_event(ev);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

/* Queries that answer an event fail: so does what it announces. */
static void events_whose_queries_fail(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct rdma_ucm_event_resp req = { .event = 0 };
	struct rdma_cm_event *ev;

	fk.fail[CMD(QUERY)] = ENXIO;
	fk_event(handle(id), EV(ADDR_RESOLVED), 0);
	ev = fetch(ch, EV(ADDR_ERROR));
	REQUIRE(ev);
	CHECK_EQ(ev->status, -ENXIO);
	rdma_ack_cm_event(ev);
	fk_event(handle(id), EV(ROUTE_RESOLVED), 0);
	fetch_ack(ch, EV(ROUTE_ERROR));
	/* A child that cannot be: nobody hears of it, and the kernel's id goes. */
	fk_request(handle(id), &req);
	fk_event(handle(id), EV(ADDR_CHANGE), 0);
	fetch_ack(ch, EV(ADDR_CHANGE));
	CHECK_EQ(fk.alive, 1);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

/* The kernel moves a waiting request with its listener, but not the child. */
static void listener_moves_with_a_request(void)
{
	struct rdma_event_channel *ch = channel(), *b = rdma_create_event_channel(),
				  *c = rdma_create_event_channel();
	struct rdma_cm_id *lis = fake_id(ch, RDMA_PS_TCP);
	struct rdma_ucm_event_resp req = { .event = 0 };
	struct rdma_cm_event *ev;
	uint32_t kid, refused;

	kid = fk_request(handle(lis), &req);
	refused = fk_request(handle(lis), &req);
	CHECK_EQ(rdma_migrate_id(lis, b), 0);
	CHECK_EQ(rdma_migrate_id(lis, c), 0);
	CHECK_EQ(fk.ids[kid].fd, ch->fd);
	ev = fetch(c, EV(CONNECT_REQUEST));
	REQUIRE(ev);
	CHECK_EQ(fk.ids[kid].fd, c->fd);
	CHECK_EQ(rdma_reject(ev->id, NULL, 0), 0);
	CHECK_EQ(rdma_destroy_id(ev->id), 0);
	rdma_ack_cm_event(ev);
	/* Found as well when it is to go. */
	fk.fail[CMD(QUERY)] = ENXIO;
	fk_event(handle(lis), EV(ADDR_CHANGE), 0);
	fetch_ack(c, EV(ADDR_CHANGE));
	CHECK(!fk.ids[refused].used);
	CHECK_EQ(rdma_destroy_id(lis), 0);
	rdma_destroy_event_channel(b);
	rdma_destroy_event_channel(c);
	end(ch);
}

/* A listener, which goes by way of a descriptor of its own: nothing of what waits
 * depends on the old channel any more. */
static void listener_moves_for_good(void)
{
	struct rdma_event_channel *ch = channel(), *to = rdma_create_event_channel();
	struct rdma_cm_id *lis = fake_id(ch, RDMA_PS_TCP);
	struct rdma_ucm_event_resp req = { .event = 0 };
	struct rdma_cm_event *ev;
	uint32_t kid[3];
	int i, old = ch->fd;

	CHECK_EQ(rdma_listen(lis, 3), 0);
	for (i = 0; i < 2; i++) {
		req.param.conn.qp_num = 100 + (uint32_t)i;
		kid[i] = fk_request(handle(lis), &req);
	}
	CHECK_EQ(rdma_migrate_id(lis, to), 0);
	CHECK_EQ(fk_count(CMD(MIGRATE_ID)), 4);
	CHECK(!fake_readable(ch) && fake_readable(to));
	for (i = 0; i < 2; i++)
		CHECK_EQ(fk.ids[kid[i]].fd, to->fd);
	CHECK_EQ(fk.ids[handle(lis)].fd, to->fd);
	/* One that came while the listener was on its way. */
	kid[2] = fk_request(handle(lis), &req);
	fk.ids[kid[2]].fd = to_kernel(to_id(lis))->halfway;
	rdma_destroy_event_channel(ch);
	CHECK_EQ(open("/dev/null", O_RDONLY), old); /* as if it were somebody's */
	for (i = 0; i < 3; i++) {
		ev = fetch(to, EV(CONNECT_REQUEST));
		REQUIRE(ev);
		CHECK_EQ(handle(ev->id), kid[i]);
		CHECK_EQ(fk.ids[kid[i]].fd, to->fd);
		CHECK(ev->listen_id == lis && ev->id->channel == to);
		CHECK_EQ(rdma_destroy_id(ev->id), 0);
		rdma_ack_cm_event(ev);
	}
	close(old);
	CHECK(!fake_readable(to));
	CHECK_EQ(rdma_destroy_id(lis), 0);
	end(to);
}

/* It cannot: it stays, and so does what waits. */
static void listener_that_cannot_move(void)
{
	struct rdma_event_channel *ch = channel(), *to = rdma_create_event_channel();
	struct rdma_cm_id *lis = fake_id(ch, RDMA_PS_TCP);
	struct rdma_ucm_event_resp req = { .event = 0 };
	struct rdma_cm_event *ev;

	CHECK_EQ(rdma_listen(lis, 3), 0);
	fk_request(handle(lis), &req);
	fk.open_error = EMFILE;
	CHECK_ERRNO(rdma_migrate_id(lis, to), EMFILE);
	fk.open_error = 0;
	fk.fail[CMD(MIGRATE_ID)] = ENXIO;
	CHECK_ERRNO(rdma_migrate_id(lis, to), ENXIO);
	fk.fail[CMD(MIGRATE_ID)] = 0;
	CHECK(lis->channel == ch && fake_readable(ch));
	ev = fetch(ch, EV(CONNECT_REQUEST));
	REQUIRE(ev);
	CHECK_EQ(rdma_destroy_id(ev->id), 0);
	rdma_ack_cm_event(ev);
	CHECK_EQ(rdma_destroy_id(lis), 0);
	rdma_destroy_event_channel(to);
	end(ch);
}

static void strange_uids(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP), *next;
	struct rdma_ucm_event_resp resp = { .event = 0 };
	uint64_t uid = to_kernel(to_id(id))->uid, stale;
	struct rdma_cm_event *ev;
	uint32_t h = handle(id), child;

	/* Of an id that is gone, whose place another one has. */
	stale = uid;
	CHECK_EQ(rdma_destroy_id(id), 0);
	id = fake_id(ch, RDMA_PS_TCP);
	h = handle(id);
	uid = to_kernel(to_id(id))->uid;
	CHECK(uid != stale);
	fk.ids[h].uid = stale;
	fk_event(h, EV(ESTABLISHED), 0);
	fk.ids[h].uid = 0xDEADBEEF00000001;
	fk_event(h, EV(ESTABLISHED), 0);
	fk.ids[h].uid = 0x7FFFFFFF;
	child = fk_request(h, &resp); /* its child goes */
	fk.ids[h].uid = uid;
	fk_event(h, EV(TIMEWAIT_EXIT), 0);
	fetch_ack(ch, EV(TIMEWAIT_EXIT));
	CHECK(!fk.ids[child].used);

	/* uid 0, of old kernels: the handle decides, and only for one event. */
	fk.ids[h].uid = 0;
	fk_event(h, EV(DISCONNECTED), 0);
	fk_event(h, EV(ESTABLISHED), 0);
	ev = fetch(ch, EV(ESTABLISHED));
	REQUIRE(ev);
	CHECK(ev->id == id);
	rdma_ack_cm_event(ev);
	fk.ids[h].uid = uid;
	fk.ids[h].reported -= 3; /* those that found nobody: the kernel would not */
	REQUIRE_EQ(rdma_create_id(ch, &next, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_destroy_id(next), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

static atomic_int paused;
static sem_t go_on;

static void pause_there(void)
{
	atomic_store(&paused, 1);
	sem_wait(&go_on);
	sem_post(&go_on); /* from then on it is open */
}

static void *fetch_and_ack(void *arg)
{
	struct rdma_cm_event *ev = NULL;
	intptr_t type = -1;

	if (!rdma_get_cm_event(arg, &ev)) {
		type = ev->event;
		rdma_ack_cm_event(ev);
	}
	return (void *)type;
}

static void *destroy(void *id)
{
	return (void *)(intptr_t)rdma_destroy_id(id);
}

/* An event that a thread has from the kernel but did not look at yet keeps the
 * id until then; the application never sees it. */
static void destroy_waits_for_an_event_in_flight(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP), *other = fake_id(ch, RDMA_PS_TCP);
	pthread_t getter, destroyer;
	void *type, *r;

	atomic_store(&paused, 0);
	sem_init(&go_on, 0, 0);
	fk.pause = pause_there;
	fk_event(handle(id), EV(DISCONNECTED), 0);
	pthread_create(&getter, NULL, fetch_and_ack, ch);
	REQUIRE(T_WAIT(atomic_load(&paused), 2000));
	pthread_create(&destroyer, NULL, destroy, id);
	CHECK(T_WAIT(fk_count(CMD(DESTROY_ID)) == 2,
		     2000));
	CHECK_EQ(pthread_tryjoin_np(destroyer, &r), EBUSY);
	sem_post(&go_on);
	pthread_join(destroyer, &r);
	CHECK_EQ((intptr_t)r, 0);
	fk_event(handle(other), EV(ADDR_CHANGE), 0);
	pthread_join(getter, &type);
	CHECK_EQ((intptr_t)type, EV(ADDR_CHANGE));
	CHECK_EQ(rdma_destroy_id(other), 0);
	end(ch);
}

/* ---- synchronous ids ----------------------------------------------------------------- */

/* What the answer was not: seen by poll(), taken by a later get. */
static void other_events_wait(void)
{
	struct rdma_cm_id *id;
	struct rdma_cm_event *ev;

	fk_reset();
	REQUIRE_EQ(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(id, fake_addr()), 0);
	fk_event(handle(id), EV(TIMEWAIT_EXIT), 0);
	fk_event(handle(id), EV(ADDR_CHANGE), 0);
	fk_event(handle(id), EV(ROUTE_RESOLVED), 0);
	CHECK_EQ(rdma_resolve_route(id, 1000), 0);
	CHECK(fake_readable(id->channel));
	fake_nonblock(id->channel, true);
	ev = fetch(id->channel, EV(TIMEWAIT_EXIT));
	REQUIRE(ev);
	rdma_ack_cm_event(ev);
	CHECK(fake_readable(id->channel));
	fetch_ack(id->channel, EV(ADDR_CHANGE));
	CHECK(!fake_readable(id->channel));
	CHECK_ERRNO(rdma_get_cm_event(id->channel, &ev), EAGAIN);
	/* One that nobody takes does not hold up the end. */
	fk_event(handle(id), EV(ADDR_CHANGE), 0);
	fk_event(handle(id), EV(ROUTE_RESOLVED), 0);
	CHECK_EQ(rdma_resolve_route(id, 1000), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
	CHECK_EQ(fk.alive, 0);
}

static void child_of_a_synchronous_listener(void)
{
	struct rdma_cm_id *lis, *child;
	struct rdma_ucm_event_resp req = { .event = 0 };
	uint32_t kid;

	fk_reset();
	REQUIRE_EQ(rdma_create_id(NULL, &lis, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(lis, fake_addr()), 0);
	CHECK_EQ(rdma_listen(lis, 1), 0);
	kid = fk_request(handle(lis), &req);
	REQUIRE_EQ(rdma_get_request(lis, &child), 0);
	CHECK(child->channel != lis->channel);
	SIZES(CMD(MIGRATE_ID), 16, 4);
	CHECK_EQ(FK_U32(CMD(MIGRATE_ID), 8), kid);
	CHECK_EQ(FK_U32(CMD(MIGRATE_ID), 12), lis->channel->fd);
	CHECK_EQ(fk.ids[kid].fd, child->channel->fd);
	CHECK_EQ(rdma_destroy_id(child), 0);

	/* It cannot move: the kernel's id goes, the listener stays. */
	fk_request(handle(lis), &req);
	fk_event(handle(lis), EV(ADDR_CHANGE), 0);
	fk.fail[CMD(MIGRATE_ID)] = EMFILE;
	CHECK_ERRNO(rdma_get_request(lis, &child), EINVAL); /* that is the next event */
	CHECK_EQ(fk.alive, 1);
	CHECK_EQ(rdma_destroy_id(lis), 0);
	CHECK_EQ(fk.alive, 0);
}

/* ---- an old kernel: last, for from here on we know what it cannot ------------------ */

static void user_events_of_an_old_kernel(void)
{
	struct rdma_event_channel *ch = channel(), *to = rdma_create_event_channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct rdma_cm_event *ev;

	fk.newest = 23;
	fake_nonblock(ch, true);
	CHECK(!fake_readable(ch));
	CHECK_EQ(rdma_write_cm_event(id, EV(USER), 1, 10), 0);
	CHECK_EQ(rdma_write_cm_event(id, EV(USER), 2, 20), 0);
	CHECK(fake_readable(ch));
	ev = fetch(ch, EV(USER));
	REQUIRE(ev);
	CHECK_EQ(ev->param.arg, 10);
	rdma_ack_cm_event(ev);
	CHECK(fake_readable(ch));
	CHECK_EQ(rdma_migrate_id(id, to), 0);
	CHECK(!fake_readable(ch) && fake_readable(to));
	ev = fetch(to, EV(USER));
	REQUIRE(ev);
	CHECK_EQ(ev->param.arg, 20);
	rdma_ack_cm_event(ev);
	CHECK(!fake_readable(to));
	CHECK_ERRNO(rdma_get_cm_event(ch, &ev), EAGAIN);
	fk.no_wildcard = 1; /* iWARP: an address of the host's does it */
	CHECK_EQ(rdma_write_cm_event(id, EV(USER), 3, 30), 0);
	CHECK(fake_readable(to));
	CHECK_EQ(rdma_destroy_id(id), 0);
	CHECK(!fake_readable(to));
	rdma_destroy_event_channel(to);
	end(ch);
}

static void *fetch_user(void *arg)
{
	struct rdma_cm_event *ev = NULL;

	rdma_get_cm_event(arg, &ev);
	return ev;
}

/* Getters that sleep in the kernel wake up for what is not the kernel's. */
static void sleeping_getters_of_an_old_kernel(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	int before = fk.got[CMD(GET_EVENT)].count, i;
	pthread_t t[2];
	void *ev;

	fk.newest = 23;
	for (i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, fetch_user, ch);
	CHECK(T_WAIT(fk_count(CMD(GET_EVENT)) ==
		     before + 2, 2000));
	for (i = 0; i < 2; i++)
		CHECK_EQ(rdma_write_cm_event(id, EV(USER), i, 0), 0);
	for (i = 0; i < 2; i++) {
		pthread_join(t[i], &ev);
		if (CHECK(ev))
			rdma_ack_cm_event(ev);
	}
	CHECK(!fake_readable(ch));
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	printf("# errors are expected: requests that cannot be taken are lost\n");
	T_RUN(versions);
	T_RUN(device_node);
	T_RUN(opening_fails);
	T_RUN(every_command_fails);
	T_RUN(closed_channel);
	T_RUN(device_matching);
	T_RUN(every_event);
	T_RUN(datagram_events);
	T_RUN(events_whose_queries_fail);
	T_RUN(listener_moves_with_a_request);
	T_RUN(listener_moves_for_good);
	T_RUN(listener_that_cannot_move);
	T_RUN(strange_uids);
	T_RUN(destroy_waits_for_an_event_in_flight);
	T_RUN(other_events_wait);
	T_RUN(child_of_a_synchronous_listener);
	T_RUN(user_events_of_an_old_kernel);
	T_RUN(sleeping_getters_of_an_old_kernel);
	return fake_done();
}
