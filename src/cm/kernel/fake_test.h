/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests: the kernel's end of /dev/infiniband/rdma_cm, in this process. It
 * remembers the bytes of each request, answers as told, and has events as the
 * kernel has them: on the descriptor of their id, counted when fetched. To be
 * included by one file of a program, after tests/t.h and cm/fake_test.h. */
#ifndef ANYRDMA_CM_KERNEL_FAKE_TEST_H
#define ANYRDMA_CM_KERNEL_FAKE_TEST_H

#include "cm/kernel/kernel.h"

#include <sys/eventfd.h>
#include <sys/uio.h>

enum { FK_CMDS = 25, FK_IDS = 64, FK_EVENTS = 64 };

struct fk_id {
	bool used;
	int fd;
	uint64_t uid;
	uint32_t reported;
	uint8_t qp_type;
	bool mc;
	uint32_t owner; /* of a group: its id */
};

struct fk_event {
	uint32_t handle; /* who is charged */
	struct rdma_ucm_event_resp resp;
};

static struct {
	pthread_mutex_t lock;
	/* The newest request of each command: what it said, how often. */
	struct {
		int count, fd;
		uint16_t in, out;
		uint8_t payload[400];
	} got[FK_CMDS];
	int fail[FK_CMDS];  /* errno of this command; -1: a short write */
	int newest;	    /* commands from here on are unknown */
	int version;	    /* of the ABI; 0: netlink does not know */
	int open_error;
	int no_wildcard; /* so many resolutions of wake.c fail */
	int service_error; /* of RESOLVE_IB_SERVICE for an id that exists */
	bool service_answers; /* at once, else the test posts the event */
	bool no_af_ib;
	uint32_t bound_guid, index, port; /* what QUERY says; guid 0: no device */
	uint32_t paths, services;
	struct fk_id ids[FK_IDS];
	struct fk_event events[FK_EVENTS];
	int count_events;
	int alive;	/* kernel ids, groups not counted */
	void (*pause)(void); /* in GET_EVENT, with the event already taken */
	struct ib_uverbs_qp_attr attr;
} fk = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- events ------------------------------------------------------------------ */

static bool fk_token(int fd)
{
	uint64_t one;
	struct iovec iov = { &one, sizeof(one) };

	return preadv2(fd, &iov, 1, -1, RWF_NOWAIT) == (ssize_t)sizeof(one);
}

static void fk_queue_locked(uint32_t handle, const struct rdma_ucm_event_resp *resp)
{
	uint64_t one = 1;
	struct fk_event *e = &fk.events[fk.count_events++];

	e->handle = handle;
	e->resp = *resp;
	if (write(fk.ids[handle].fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

/* Queues an event for a kernel id, as the kernel fills it in. */
static T_UNUSED void fk_post(uint32_t handle, struct rdma_ucm_event_resp *resp)
{
	pthread_mutex_lock(&fk.lock);
	resp->uid = fk.ids[handle].uid;
	if (resp->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		resp->id = fk.ids[handle].mc ? fk.ids[handle].owner : handle;
	fk_queue_locked(handle, resp);
	pthread_mutex_unlock(&fk.lock);
}

static T_UNUSED void fk_event(uint32_t handle, uint32_t type, int status)
{
	struct rdma_ucm_event_resp resp = { .event = type, .status = (uint32_t)status };

	fk_post(handle, &resp);
}

static void fk_drop_events_locked(uint32_t handle)
{
	int i, n = 0;

	for (i = 0; i < fk.count_events; i++) {
		if (fk.events[i].handle != handle)
			fk.events[n++] = fk.events[i];
		else
			fk_token(fk.ids[handle].fd);
	}
	fk.count_events = n;
}

static int fk_get_event(int fd, struct rdma_ucm_event_resp *out)
{
	struct fk_id *id;
	uint64_t token;
	int i;

	if (read(fd, &token, sizeof(token)) != sizeof(token))
		return -errno;
	pthread_mutex_lock(&fk.lock);
	for (i = 0; i < fk.count_events; i++)
		if (fk.ids[fk.events[i].handle].fd == fd)
			break;
	if (i == fk.count_events)
		abort();
	*out = fk.events[i].resp;
	id = &fk.ids[fk.events[i].handle];
	id->reported++;
	if (id->mc)
		fk.ids[id->owner].reported++;
	memmove(&fk.events[i], &fk.events[i + 1],
		(size_t)(--fk.count_events - i) * sizeof(fk.events[0]));
	pthread_mutex_unlock(&fk.lock);
	if (fk.pause)
		fk.pause();
	return 0;
}

/* ---- ids ------------------------------------------------------------------------ */

static uint32_t fk_new_locked(int fd, uint64_t uid, uint8_t qp_type)
{
	uint32_t i;

	for (i = 1; i < FK_IDS; i++) {
		if (fk.ids[i].used)
			continue;
		fk.ids[i] = (struct fk_id){ .used = true, .fd = fd, .uid = uid,
					    .qp_type = qp_type };
		return i;
	}
	abort();
}

/* A connection request: the kernel's id of the child. */
static T_UNUSED uint32_t fk_request(uint32_t listener, struct rdma_ucm_event_resp *resp)
{
	pthread_mutex_lock(&fk.lock);
	resp->event = RDMA_CM_EVENT_CONNECT_REQUEST;
	resp->id = fk_new_locked(fk.ids[listener].fd, 0, fk.ids[listener].qp_type);
	fk.alive++;
	pthread_mutex_unlock(&fk.lock);
	fk_post(listener, resp);
	return resp->id;
}

static int fk_find(int fd, uint32_t handle)
{
	if (handle >= FK_IDS || !fk.ids[handle].used)
		return -ENOENT;
	return fk.ids[handle].fd == fd ? 0 : -EINVAL;
}

static int fk_destroy(int fd, uint32_t handle, bool mc, uint32_t *reported)
{
	int r, i;

	pthread_mutex_lock(&fk.lock);
	r = fk_find(fd, handle);
	if (!r) {
		fk_drop_events_locked(handle);
		for (i = 0; i < FK_IDS; i++)
			if (fk.ids[i].mc && fk.ids[i].owner == handle && !mc)
				fk.ids[i].used = fk.ids[i].mc = false;
		fk.ids[handle].used = false;
		*reported = fk.ids[handle].reported;
		fk.alive -= !mc;
	}
	pthread_mutex_unlock(&fk.lock);
	return r;
}

static int fk_migrate(int to, const struct rdma_ucm_migrate_id *p)
{
	struct rdma_ucm_migrate_resp *resp = (void *)(uintptr_t)p->response;
	uint64_t one = 1;
	int r, i;

	pthread_mutex_lock(&fk.lock);
	r = fk_find((int)p->fd, p->id);
	for (i = 0; !r && i < fk.count_events; i++)
		if (fk.events[i].handle == p->id &&
		    (!fk_token((int)p->fd) || write(to, &one, sizeof(one)) < 0))
			abort();
	if (!r) {
		fk.ids[p->id].fd = to;
		resp->events_reported = fk.ids[p->id].reported;
	}
	pthread_mutex_unlock(&fk.lock);
	return r;
}

/* ---- queries ---------------------------------------------------------------------- */

static void fk_sin(void *addr, uint32_t ip, uint16_t port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(ip),
	};

	memcpy(addr, &sin, sizeof(sin));
}

static int fk_query(const struct rdma_ucm_query *q, size_t room)
{
	uint8_t *out = (void *)(uintptr_t)q->response;
	struct rdma_ucm_query_addr_resp *a = (void *)out;
	uint32_t n;

	switch (q->option) {
	case RDMA_USER_CM_QUERY_ADDR:
		a->node_guid = fk.bound_guid;
		a->port_num = (uint8_t)fk.port;
		a->pkey = 0xFFFF;
		a->src_size = a->dst_size = 16;
		fk_sin(&a->src_addr, 0x0A000001, 4711);
		fk_sin(&a->dst_addr, 0x0A000002, 7471);
		if (fk.index != UINT32_MAX)
			a->ibdev_index = fk.index;
		return 0;
	case RDMA_USER_CM_QUERY_GID:
		memset((uint8_t *)&a->src_addr + 8, 0xA1, 16);
		memset((uint8_t *)&a->dst_addr + 8, 0xB2, 16);
		return 0;
	case RDMA_USER_CM_QUERY_PATH:
		n = (uint32_t)((room - 8) / 72);
		memset(out + 8, 0x11, 72 * (n < fk.paths ? n : fk.paths));
		memcpy(out, &fk.paths, 4);
		return 0;
	case KERNEL_QUERY_IB_SERVICE:
		n = (uint32_t)((room - 8) / 176);
		memset(out + 8, 0x22, 176 * (n < fk.services ? n : fk.services));
		memcpy(out, &fk.services, 4);
		return 0;
	}
	return -ENOSYS;
}

static void fk_query_route(const struct rdma_ucm_query *q)
{
	struct rdma_ucm_query_route_resp *a = (void *)(uintptr_t)q->response;

	a->node_guid = fk.bound_guid;
	a->port_num = (uint8_t)fk.port;
	fk_sin(&a->src_addr, 0x0A000001, 4711);
	fk_sin(&a->dst_addr, 0x0A000002, 7471);
	memset(a->ib_route[0].sgid, 0xA1, 16);
	memset(a->ib_route[0].dgid, 0xB2, 16);
	a->ib_route[0].pkey = 0xFFFF;
	a->ib_route[0].flow_label = htonl(0x12345);
	a->ib_route[0].hop_limit = 64;
	a->ib_route[0].mtu = IBV_MTU_1024;
	a->ib_route[0].mtu_selector = 2;
	a->num_paths = fk.paths;
}

/* ---- the device node ---------------------------------------------------------------- */

/* Both commands begin with response and uid; the id's place differs. */
static void fk_join(int fd, const struct rdma_ucm_join_mcast *p, size_t id_at)
{
	uint32_t handle;

	pthread_mutex_lock(&fk.lock);
	handle = fk_new_locked(fd, p->uid, 0);
	fk.ids[handle].mc = true;
	memcpy(&fk.ids[handle].owner, (const char *)p + id_at, 4);
	*(uint32_t *)(uintptr_t)p->response = handle;
	pthread_mutex_unlock(&fk.lock);
}

static int fk_answer(int fd, uint32_t cmd, const void *p, size_t out)
{
	const struct rdma_ucm_create_id *create = p;
	const struct rdma_ucm_destroy_id *destroy = p;
	const struct rdma_ucm_accept *accept = p;
	uint32_t handle, *resp32;
	int r;

	switch (cmd) {
	case RDMA_USER_CM_CMD_CREATE_ID:
		resp32 = (void *)(uintptr_t)create->response;
		pthread_mutex_lock(&fk.lock);
		*resp32 = fk_new_locked(fd, create->uid, create->qp_type);
		fk.alive++;
		pthread_mutex_unlock(&fk.lock);
		return 0;
	case RDMA_USER_CM_CMD_DESTROY_ID:
	case RDMA_USER_CM_CMD_LEAVE_MCAST:
		return fk_destroy(fd, destroy->id, cmd == RDMA_USER_CM_CMD_LEAVE_MCAST,
				  (void *)(uintptr_t)destroy->response);
	case RDMA_USER_CM_CMD_BIND:
		return fk.no_af_ib ? -EINVAL : 0;
	case RDMA_USER_CM_CMD_RESOLVE_ADDR:
	case RDMA_USER_CM_CMD_RESOLVE_IP:
		memcpy(&handle, (const char *)p +
		       (cmd == RDMA_USER_CM_CMD_RESOLVE_IP ? 56 : 0), 4);
		if (fk.ids[handle].uid == KERNEL_UID_WAKE && fk.no_wildcard-- > 0)
			return -ENODEV;
		if (fk.ids[handle].uid == KERNEL_UID_WAKE)
			fk_event(handle, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
		return 0;
	case RDMA_USER_CM_CMD_QUERY_ROUTE:
		fk_query_route(p);
		return 0;
	case RDMA_USER_CM_CMD_QUERY:
		return fk_query(p, out);
	case RDMA_USER_CM_CMD_ACCEPT:
		if (accept->conn_param.valid)
			fk.ids[accept->id].uid = accept->uid;
		return 0;
	case RDMA_USER_CM_CMD_INIT_QP_ATTR:
		memcpy((void *)(uintptr_t)destroy->response, &fk.attr, sizeof(fk.attr));
		return 0;
	case RDMA_USER_CM_CMD_GET_EVENT:
		return fk_get_event(fd, (void *)(uintptr_t)destroy->response);
	case RDMA_USER_CM_CMD_JOIN_MCAST:
	case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
		fk_join(fd, p, cmd == RDMA_USER_CM_CMD_JOIN_MCAST ? 16 : 44);
		return 0;
	case RDMA_USER_CM_CMD_MIGRATE_ID:
		return fk_migrate(fd, p);
	case KERNEL_CMD_RESOLVE_IB_SERVICE:
		memcpy(&handle, p, 4);
		r = fk_find(fd, handle);
		if (!r && !fk.service_error && fk.service_answers)
			fk_event(handle, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0);
		return r ? r : -fk.service_error;
	}
	return 0;
}

static ssize_t fk_write(int fd, const void *buf, size_t len)
{
	struct rdma_ucm_cmd_hdr hdr;
	const char *p = (const char *)buf + sizeof(hdr);
	int r;

	memcpy(&hdr, buf, sizeof(hdr));
	if (fcntl(fd, F_GETFD) < 0)
		return -1; /* EBADF */
	if (hdr.in + sizeof(hdr) != len || (int)hdr.cmd >= fk.newest) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&fk.lock);
	fk.got[hdr.cmd].count++;
	fk.got[hdr.cmd].fd = fd;
	fk.got[hdr.cmd].in = hdr.in;
	fk.got[hdr.cmd].out = hdr.out;
	memcpy(fk.got[hdr.cmd].payload, p, hdr.in);
	pthread_mutex_unlock(&fk.lock);
	r = fk.fail[hdr.cmd];
	if (r == -1)
		return (ssize_t)len - 1;
	r = r ? -r : fk_answer(fd, hdr.cmd, p, hdr.out);
	if (!r)
		return (ssize_t)len;
	errno = -r;
	return -1;
}

static int fk_open(const char *path, int flags)
{
	(void)path, (void)flags;
	if (fk.open_error) {
		errno = fk.open_error;
		return -1;
	}
	return eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
}

static int fk_chardev(struct kernel_node *out)
{
	if (!fk.version)
		return -EPROTONOSUPPORT;
	out->abi = fk.version;
	strcpy(out->name, "rdma_cm");
	return 0;
}

static const struct kernel_sys fk_sys = { "/nonexistent", fk_open, fk_write, fk_chardev, 50 };

static T_UNUSED int fk_count(int cmd)
{
	int n;

	pthread_mutex_lock(&fk.lock);
	n = fk.got[cmd].count;
	pthread_mutex_unlock(&fk.lock);
	return n;
}

/* A field of the newest request of a command, at its offset in the payload. */
#define FK_U8(cmd, off) (fk.got[cmd].payload[off])
#define FK_U16(cmd, off) fk_field(cmd, off, 2)
#define FK_U32(cmd, off) fk_field(cmd, off, 4)
#define FK_U64(cmd, off) fk_field(cmd, off, 8)

static T_UNUSED uint64_t fk_field(int cmd, size_t off, size_t len)
{
	uint64_t v = 0;

	memcpy(&v, fk.got[cmd].payload + off, len);
	return v;
}

/* A kernel of today, with one device that every id is bound to. */
static T_UNUSED void fk_reset(void)
{
	memset(fk.got, 0, sizeof(fk.got));
	memset(fk.fail, 0, sizeof(fk.fail));
	fk.newest = FK_CMDS;
	fk.version = 4;
	fk.open_error = fk.service_error = fk.no_wildcard = 0;
	fk.no_af_ib = false;
	fk.bound_guid = 77;
	fk.index = 4;
	fk.port = 1;
	fk.paths = 1;
	fk.services = 1;
	fk.service_answers = false;
	fk.pause = NULL;
	memset(&fk.attr, 0, sizeof(fk.attr));
	kernel_sys = &fk_sys;
	kernel_node_forget();
	kernel_probe_forget();
	cm_backend_use(&cm_backend_kernel);
}

/* ---- helpers -------------------------------------------------------------------- */

#define CMD(name) RDMA_USER_CM_CMD_##name
#define EV(name) RDMA_CM_EVENT_##name
/* Of the newest request: the sizes that its header says. */
#define SIZES(cmd, in_, out_) \
	(CHECK_EQ(fk.got[cmd].in, in_), CHECK_EQ(fk.got[cmd].out, out_))

static T_UNUSED uint32_t handle(struct rdma_cm_id *id)
{
	return to_kernel(to_id(id))->handle;
}

static T_UNUSED struct rdma_event_channel *channel(void)
{
	struct rdma_event_channel *ch;

	fk_reset();
	ch = rdma_create_event_channel();
	if (!ch)
		abort();
	return ch;
}

/* Fetches an event of this type; NULL (and a failed check) if it is another. */
static T_UNUSED struct rdma_cm_event *fetch(struct rdma_event_channel *ch,
					    enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = NULL;

	if (!CHECK_EQ(rdma_get_cm_event(ch, &ev), 0) || !CHECK_EQ(ev->event, type))
		return NULL;
	return ev;
}

static T_UNUSED void fetch_ack(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = fetch(ch, type);

	if (ev)
		rdma_ack_cm_event(ev);
}

static T_UNUSED struct rdma_cm_id *routed(struct rdma_event_channel *ch,
					  enum rdma_port_space ps)
{
	struct rdma_cm_id *id = fake_id(ch, ps);

	CHECK_EQ(rdma_resolve_addr(id, NULL, fake_addr(), 2000), 0);
	fk_event(handle(id), EV(ADDR_RESOLVED), 0);
	fetch_ack(ch, EV(ADDR_RESOLVED));
	CHECK_EQ(rdma_resolve_route(id, 3000), 0);
	fk_event(handle(id), EV(ROUTE_RESOLVED), 0);
	fetch_ack(ch, EV(ROUTE_RESOLVED));
	return id;
}

static T_UNUSED void end(struct rdma_event_channel *ch)
{
	rdma_destroy_event_channel(ch);
	CHECK_EQ(fk.alive, 0);
	CHECK_EQ(fk.count_events, 0);
	memset(fk.ids, 0, sizeof(fk.ids));
	fk.alive = fk.count_events = 0;
}

#endif
