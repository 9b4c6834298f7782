/* SPDX-License-Identifier: BSD-2-Clause */
/* peer server|client ADDRESS PORT operator|target: one connection for every operation below. One
 * end (the operator) posts it, the other has the memory and the receives; both say in one line what
 * they saw, so that different devices can be compared:
 *
 *	send: posted, success, alive		(operator)
 *	send: right, alive			(target: its memory, the connection)
 *
 * and first the device they are on. Ends with 1 when an end hears nothing for too long.
 *
 * peer devices: the names of all devices that the libraries have. */
#include <rdma/rdma_cma.h>

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 3000000, SLOT = SIZE + 4096, WAIT_MS = 60000, MANY = 64 };
enum { WR_OP = 1, WR_SAY, WR_HELLO, WR_MESSAGE, WR_WORD };

enum aim {
	AIM_RECEIVE,	/* the target's receive gets the data */
	AIM_MEMORY,	/* the target's memory gets it */
	AIM_READ,	/* the operator's does */
	AIM_NOTHING,	/* must not work */
};

static const struct op {
	const char *name;
	enum ibv_wr_opcode code;
	unsigned len;	/* of one work request */
	unsigned many;	/* how many at once; 0: one */
	enum aim aim;
	bool bad_key, unready, solicited;
} ops[] = {
	{ .name = "send", .code = IBV_WR_SEND,
	  .len = SIZE, .aim = AIM_RECEIVE },
	{ .name = "send_small", .code = IBV_WR_SEND,
	  .len = 5, .aim = AIM_RECEIVE },
	{ .name = "send_empty", .code = IBV_WR_SEND,
	  .len = 0, .aim = AIM_RECEIVE },
	{ .name = "send_solicited", .code = IBV_WR_SEND,
	  .len = 64, .aim = AIM_RECEIVE, .solicited = true },
	{ .name = "write", .code = IBV_WR_RDMA_WRITE,
	  .len = SIZE, .aim = AIM_MEMORY },
	{ .name = "write_small", .code = IBV_WR_RDMA_WRITE,
	  .len = 5, .aim = AIM_MEMORY },
	{ .name = "write_empty", .code = IBV_WR_RDMA_WRITE,
	  .len = 0, .aim = AIM_MEMORY },
	{ .name = "read", .code = IBV_WR_RDMA_READ,
	  .len = SIZE, .aim = AIM_READ },
	{ .name = "read_small", .code = IBV_WR_RDMA_READ,
	  .len = 5, .aim = AIM_READ },
	{ .name = "read_empty", .code = IBV_WR_RDMA_READ,
	  .len = 0, .aim = AIM_READ },
	{ .name = "sends", .code = IBV_WR_SEND,
	  .len = 20011, .aim = AIM_RECEIVE, .many = MANY },
	{ .name = "writes", .code = IBV_WR_RDMA_WRITE,
	  .len = 20011, .aim = AIM_MEMORY, .many = MANY },
	{ .name = "reads", .code = IBV_WR_RDMA_READ,
	  .len = 20011, .aim = AIM_READ, .many = MANY },
	{ .name = "send_with_immediate", .code = IBV_WR_SEND_WITH_IMM,
	  .len = 64, .aim = AIM_RECEIVE },
	{ .name = "write_with_immediate", .code = IBV_WR_RDMA_WRITE_WITH_IMM,
	  .len = 64, .aim = AIM_RECEIVE },
	{ .name = "fetch_and_add", .code = IBV_WR_ATOMIC_FETCH_AND_ADD,
	  .len = 8, .aim = AIM_MEMORY },
	{ .name = "compare_and_swap", .code = IBV_WR_ATOMIC_CMP_AND_SWP,
	  .len = 8, .aim = AIM_MEMORY },
	{ .name = "send_without_receive", .code = IBV_WR_SEND,
	  .len = 64, .aim = AIM_NOTHING, .unready = true },
	{ .name = "write_with_bad_key", .code = IBV_WR_RDMA_WRITE,
	  .len = 64, .aim = AIM_NOTHING, .bad_key = true },
	{ .name = "read_with_bad_key", .code = IBV_WR_RDMA_READ,
	  .len = 64, .aim = AIM_NOTHING, .bad_key = true },
};

/* In private data, big-endian. */
struct where {
	uint64_t addr;
	uint32_t rkey;
} __attribute__((packed));

static unsigned many(const struct op *op)
{
	return op->many ? op->many : 1;
}

static size_t total(const struct op *op)
{
	return (size_t)op->len * many(op);
}

static struct {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct where peer;
	bool over; /* disconnected, or a receive was flushed */
} c;
static struct rdma_cm_event *early; /* the next request, when it came before the end of the last */
static uint8_t *memory; /* SLOT for data, SLOT for receives */

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void pattern(uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7 + i / 251 + 1);
}

static bool right(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != (uint8_t)(i * 7 + i / 251 + 1))
			return false;
	return true;
}

/* ---- connection ------------------------------------------------------------------------ */

static struct rdma_cm_event *event(enum rdma_cm_event_type type)
{
	struct pollfd p = { .fd = c.ch->fd, .events = POLLIN };
	struct rdma_cm_event *ev = early;

	early = NULL;
	if (!ev && (poll(&p, 1, WAIT_MS) != 1 || rdma_get_cm_event(c.ch, &ev))) {
		printf("no %s\n", rdma_event_str(type));
		exit(1);
	}
	if (ev->event != type) {
		printf("%s (%d) instead of %s\n", rdma_event_str(ev->event), ev->status,
		       rdma_event_str(type));
		exit(1);
	}
	return ev;
}

static void post_recv(unsigned wr_id, size_t off, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)memory + off, len, c.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(c.id->qp, &wr, &bad))
		die("ibv_post_recv");
}

/* QP, memory, receives: for the greeting, the target's for the operation, for the word at
 * the end. */
static struct rdma_conn_param prepare(const struct op *op, bool operates, struct where *mine)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = MANY + 4, .max_recv_wr = MANY + 4, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	if (rdma_create_qp(c.id, NULL, &attr))
		die("rdma_create_qp");
	memset(memory, 0, 2 * SLOT);
	c.mr = ibv_reg_mr(c.id->pd, memory, 2 * SLOT, IBV_ACCESS_LOCAL_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_ATOMIC);
	if (!c.mr)
		die("ibv_reg_mr");
	if (operates != (op->aim == AIM_READ))
		pattern(memory, total(op));
	post_recv(WR_HELLO, 2 * SLOT - 128, 64);
	for (unsigned i = 0; !operates && op->aim == AIM_RECEIVE && i < many(op); i++)
		post_recv(WR_MESSAGE, SLOT + (size_t)i * op->len, op->len ? op->len : 64);
	if (operates || !op->unready)
		post_recv(WR_WORD, 2 * SLOT - 64, 64);
	mine->addr = htobe64((uintptr_t)memory);
	mine->rkey = htobe32(c.mr->rkey);
	return (struct rdma_conn_param){
		.private_data = mine,
		.private_data_len = sizeof(*mine),
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = 7,
		.rnr_retry_count = 0,
	};
}

static void take_peer(struct rdma_cm_event *ev)
{
	if (ev->param.conn.private_data_len < sizeof(c.peer)) {
		printf("%u bytes of private data\n", ev->param.conn.private_data_len);
		exit(1);
	}
	memcpy(&c.peer, ev->param.conn.private_data, sizeof(c.peer));
	rdma_ack_cm_event(ev);
}

static void open_client(const struct op *op, bool operates, struct sockaddr *to)
{
	struct rdma_conn_param param;
	struct where mine;

	if (rdma_create_id(c.ch, &c.id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(c.id, NULL, to, 5000))
		die("rdma_resolve_addr");
	rdma_ack_cm_event(event(RDMA_CM_EVENT_ADDR_RESOLVED));
	if (rdma_resolve_route(c.id, 5000))
		die("rdma_resolve_route");
	rdma_ack_cm_event(event(RDMA_CM_EVENT_ROUTE_RESOLVED));
	param = prepare(op, operates, &mine);
	if (rdma_connect(c.id, &param))
		die("rdma_connect");
	take_peer(event(RDMA_CM_EVENT_ESTABLISHED));
}

static void open_server(const struct op *op, bool operates)
{
	struct rdma_cm_event *ev = event(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param param;
	struct where mine;

	c.id = ev->id;
	take_peer(ev);
	param = prepare(op, operates, &mine);
	if (rdma_accept(c.id, &param))
		die("rdma_accept");
	rdma_ack_cm_event(event(RDMA_CM_EVENT_ESTABLISHED));
}

/* ---- completions ------------------------------------------------------------------------ */

static void look_for_the_end(void)
{
	struct pollfd p = { .fd = c.ch->fd, .events = POLLIN };
	struct rdma_cm_event *ev;

	if (poll(&p, 1, 1) != 1)
		return;
	if (rdma_get_cm_event(c.ch, &ev))
		die("rdma_get_cm_event");
	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		early = ev;
		return;
	}
	if (ev->event == RDMA_CM_EVENT_DISCONNECTED && ev->id == c.id)
		c.over = true;
	rdma_ack_cm_event(ev);
}

/* The next completion of the CQ, or none: the connection is over, and nothing came after that for
 * a while. */
static bool completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t end = now_ms() + WAIT_MS, quiet = 0;

	for (;;) {
		if (ibv_poll_cq(cq, 1, wc) == 1)
			return true;
		if (c.over && !quiet)
			quiet = now_ms() + 300;
		if (quiet && now_ms() > quiet)
			return false;
		if (now_ms() > end) {
			printf("nothing happens\n");
			exit(1);
		}
		if (!c.over)
			look_for_the_end();
	}
}

/* A receive of this number; false: there will be none. */
static bool received(unsigned wr_id, struct ibv_wc *wc)
{
	while (completion(c.id->recv_cq, wc)) {
		if (wc->status) {
			c.over = true;
			return false;
		}
		if (wc->wr_id == wr_id)
			return true;
	}
	return false;
}

/* The nth of the operation's. */
static int post(unsigned wr_id, const struct op *op, unsigned n)
{
	size_t off = (size_t)n * op->len;
	struct ibv_sge sge = { (uintptr_t)memory + off, op->len, c.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = op->code,
		.send_flags = IBV_SEND_SIGNALED | (op->solicited ? IBV_SEND_SOLICITED : 0),
		.imm_data = htobe32(0x12345678),
	}, *bad;
	uint32_t rkey = be32toh(c.peer.rkey) ^ (op->bad_key ? 0x5a5a00 : 0);
	enum ibv_wr_opcode code = op->code;

	if (code == IBV_WR_ATOMIC_FETCH_AND_ADD || code == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = be64toh(c.peer.addr);
		wr.wr.atomic.rkey = rkey;
		memcpy(&wr.wr.atomic.compare_add, memory, 8); /* 0 + pattern */
		if (code == IBV_WR_ATOMIC_CMP_AND_SWP) {
			wr.wr.atomic.swap = wr.wr.atomic.compare_add;
			wr.wr.atomic.compare_add = 0;
		}
	} else {
		wr.wr.rdma.remote_addr = be64toh(c.peer.addr) + off;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(c.id->qp, &wr, &bad);
}

/* One byte to the peer. */
static bool say(void)
{
	static const struct op word = { .code = IBV_WR_SEND, .len = 1 };
	struct ibv_wc wc;

	return !post(WR_SAY, &word, 0) && completion(c.id->send_cq, &wc) &&
	       !wc.status;
}

/* Both have heard from each other: what follows does not meet half a connection. The client
 * begins, as iWARP has it. */
static void greet(bool server)
{
	struct ibv_wc wc;

	if ((!server && !say()) || !received(WR_HELLO, &wc) || (server && !say())) {
		printf("the connection ended at once\n");
		exit(1);
	}
}

/* ---- the two ends ------------------------------------------------------------------------- */

/* Posts all of it; an errno, or the first status that is not success. */
static int carry_out(const struct op *op, struct ibv_wc *wc)
{
	int err = 0;

	for (unsigned i = 0; i < many(op) && !err; i++)
		err = post(WR_OP, op, i);
	for (unsigned i = 0; i < many(op) && !err; i++)
		if (!completion(c.id->send_cq, wc))
			return -ENODATA;
		else if (wc->status)
			break;
	return abs(err);
}

static void operate(const struct op *op)
{
	struct ibv_wc wc = { 0 };
	int err = carry_out(op, &wc);

	printf("%s: ", op->name);
	if (err > 0) { /* siw's queue takes nothing more then */
		printf("refused with %s\n", strerrorname_np(err));
		return;
	}
	if (err) {
		printf("posted, never completed");
	} else {
		printf("posted, %s", ibv_wc_status_str(wc.status));
		if (!wc.status && op->aim == AIM_READ)
			printf(", %s", right(memory, total(op)) ? "right" : "wrong");
	}
	/* A word to tell the target to look, one back; neither gets through once it is over. */
	if (!c.over && say() && received(WR_WORD, &wc))
		printf(", alive\n");
	else
		printf(", over\n");
}

/* The target's receives, and what is in them. */
static const char *take_messages(const struct op *op)
{
	const uint8_t *where = op->code == IBV_WR_SEND || op->code == IBV_WR_SEND_WITH_IMM ?
			       memory + SLOT : memory;
	struct ibv_wc wc;

	for (unsigned i = 0; i < many(op); i++)
		if (!received(WR_MESSAGE, &wc))
			return NULL;
		else if (wc.byte_len != op->len)
			return "wrong";
	return right(where, total(op)) ? "right" : "wrong";
}

static void serve(const struct op *op)
{
	const char *data = "";
	struct ibv_wc wc;
	bool got;

	if (op->aim == AIM_RECEIVE)
		data = take_messages(op);
	got = data && received(WR_WORD, &wc);
	if (op->aim == AIM_MEMORY)
		data = right(memory, total(op)) ? "right" : "untouched";
	printf("%s: %s%s%s\n", op->name, data ? data : "", data && data[0] ? ", " : "",
	       got ? "alive" : "over");
	if (got && !say())
		printf("%s: the word was not sent\n", op->name);
}

static void close_all(void)
{
	uint64_t end = now_ms() + WAIT_MS;

	rdma_disconnect(c.id);
	while (!c.over && now_ms() < end)
		look_for_the_end();
	rdma_destroy_qp(c.id);
	ibv_dereg_mr(c.mr);
	if (rdma_destroy_id(c.id))
		die("rdma_destroy_id");
}

static void run(bool server, bool operates, struct sockaddr *addr)
{
	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		c.over = false;
		if (server)
			open_server(&ops[i], operates);
		else
			open_client(&ops[i], operates, addr);
		if (!i)
			printf("device: %s\n", ibv_get_device_name(c.id->verbs->device));
		greet(server);
		if (operates)
			operate(&ops[i]);
		else
			serve(&ops[i]);
		fflush(stdout);
		close_all();
	}
}

static int devices(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context **open = rdma_get_devices(NULL);

	if (!list || !open)
		die("no devices");
	printf("libibverbs:");
	for (int i = 0; list[i]; i++)
		printf(" %s", ibv_get_device_name(list[i]));
	printf("\nlibrdmacm:");
	for (int i = 0; open[i]; i++)
		printf(" %s", ibv_get_device_name(open[i]->device));
	printf("\n");
	rdma_free_devices(open);
	ibv_free_device_list(list);
	return 0;
}

int main(int argc, char **argv)
{
	struct addrinfo *ai;
	struct rdma_cm_id *lis = NULL;
	bool server;

	if (argc == 2 && !strcmp(argv[1], "devices"))
		return devices();
	if (argc != 5 || getaddrinfo(argv[2], argv[3], NULL, &ai)) {
		printf("usage: peer server|client ADDRESS PORT operator|target\n");
		return 1;
	}
	server = !strcmp(argv[1], "server");
	memory = aligned_alloc(4096, (2 * SLOT + 4095) / 4096 * 4096);
	c.ch = rdma_create_event_channel();
	if (!memory || !c.ch)
		die("rdma_create_event_channel");
	if (server && (rdma_create_id(c.ch, &lis, NULL, RDMA_PS_TCP) ||
		       rdma_bind_addr(lis, ai->ai_addr) || rdma_listen(lis, 4)))
		die("rdma_listen");
	run(server, !strcmp(argv[4], "operator"), ai->ai_addr);
	if (lis && rdma_destroy_id(lis))
		die("rdma_destroy_id");
	rdma_destroy_event_channel(c.ch);
	freeaddrinfo(ai);
	return 0;
}
