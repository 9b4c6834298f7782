/* SPDX-License-Identifier: BSD-2-Clause */
/* datagrams server|client ADDRESS GROUP PORT [WORDS]: over a network that may lose, reorder,
 * double and spoil packets. The client makes many exchanges of the connection manager at once,
 * of which some are refused; then it sends numbered datagrams with checksums to the server,
 * which answers each, and some to a group that the server has joined; then it asks the server
 * what it saw. The server runs until it is killed. The client ends with 0, and one line, when:
 *
 *  - every exchange had its one result, with its private data, and the server one request;
 *  - what came is as it was sent, and some of everything came;
 *  - nothing came twice, unless WORDS has "duplicate"; and nothing came out of order, unless
 *    it has "reorder". What WORDS names must have been seen, "loss" too. */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	EXCHANGES = 30,
	DATAGRAMS = 3000,
	EACH_FOR_GROUP = 8, /* so many to the server for one to the group */
	WINDOW = 32,	    /* datagrams without an answer */
	LOST_MS = 30,	    /* as long without an answer: they are lost */
	DEADLINE_S = 200,
	RECEIVES = 256,
	SLOT = 1100, /* of memory, for a receive or a send */
	LONGEST = 1024,
	GRH = 40,
	QKEY = 0x01234567,
	GROUP_QPN = 0xffffff,
	EXTERNAL = 0x1000, /* QP numbers of exchanges without a QP */
};

enum kind { QUESTION, ANSWER, TO_GROUP, KINDS };

struct head {
	uint32_t kind, number, len, sum;
};

/* What was received of a kind. */
struct seen {
	uint32_t received, bad, twice, most, back;
};

/* Private data of a request. */
enum asks { ASK_NUMBER = 'n', ASK_REFUSAL = 'r', ASK_DATA = 'd', ASK_END = 'e' };
struct ask {
	uint8_t what, number;
	uint8_t fill[100];
};

/* ... and of the answer to ASK_END. */
struct report {
	struct seen seen[KINDS];
	uint32_t requests_twice;
};

static struct rdma_event_channel *ch;
static struct rdma_cm_id *data; /* has the QP */
static struct ibv_mr *mr;
static uint8_t memory[(RECEIVES + WINDOW) * SLOT];
static uint8_t times[KINDS][DATAGRAMS];
static uint32_t last[KINDS];
static struct report report;
static uint64_t deadline;

static void fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	exit(1);
}

#define MUST(c)                                                                  \
	do {                                                                     \
		if (!(c))                                                        \
			fail("%s: %m", #c);                                      \
	} while (0)

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void fill(uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 13);
}

static bool is_filled(const uint8_t *p, size_t len, uint32_t seed)
{
	uint8_t want[256];

	fill(want, len, seed);
	return !memcmp(p, want, len);
}

static uint32_t sum_of(const struct head *h, const uint8_t *bytes)
{
	uint32_t sum = 2166136261u ^ h->kind ^ h->number << 3 ^ h->len << 16;

	for (uint32_t i = 0; i < h->len; i++)
		sum = (sum ^ bytes[i]) * 16777619u;
	return sum;
}

/* ---- datagrams ------------------------------------------------------------------- */

static void post_recv(uint64_t slot)
{
	MUST(!rdma_post_recv(data, (void *)(uintptr_t)slot, memory + slot * SLOT,
			     GRH + LONGEST, mr));
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = WINDOW, .max_recv_wr = RECEIVES,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	data = id;
	MUST(!rdma_create_qp(id, NULL, &attr));
	MUST(mr = rdma_reg_msgs(id, memory, sizeof(memory)));
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_recv(i);
}

static void put(enum kind kind, uint32_t number, struct ibv_ah *ah, uint32_t qpn)
{
	static unsigned slots;
	uint8_t *p = memory + (RECEIVES + slots++ % WINDOW) * SLOT;
	struct head h = { kind, number, (number * 37 + kind) % (LONGEST - sizeof(h)), 0 };
	struct ibv_sge sge = { (uintptr_t)p, (uint32_t)sizeof(h) + h.len, mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = htonl(number),
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
	};
	struct ibv_wc wc;

	fill(p + sizeof(h), h.len, number);
	h.sum = sum_of(&h, p + sizeof(h));
	memcpy(p, &h, sizeof(h));
	MUST(!ibv_post_send(data->qp, &wr, &bad));
	while (ibv_poll_cq(data->send_cq, 1, &wc) == 0)
		if (now_ms() > deadline)
			fail("a send does not complete");
	if (wc.status)
		fail("a send: %s", ibv_wc_status_str(wc.status));
}

/* Books one; false if it is not as it was sent. */
static bool book(const struct ibv_wc *wc, const uint8_t *p, struct head *h,
		 uint32_t kinds)
{
	struct seen *seen;

	if (wc->byte_len < GRH + sizeof(*h))
		return false;
	memcpy(h, p + GRH, sizeof(*h));
	if (h->kind >= KINDS || !(kinds >> h->kind & 1) || h->number >= DATAGRAMS ||
	    h->len != wc->byte_len - GRH - sizeof(*h) ||
	    h->sum != sum_of(h, p + GRH + sizeof(*h)) ||
	    wc->wc_flags != (IBV_WC_GRH | IBV_WC_WITH_IMM) ||
	    ntohl(wc->imm_data) != h->number)
		return false;
	seen = &report.seen[h->kind];
	seen->received++;
	if (times[h->kind][h->number]++)
		seen->twice++;
	if (times[h->kind][h->number] > seen->most)
		seen->most = times[h->kind][h->number];
	if (h->number < last[h->kind])
		seen->back++;
	else
		last[h->kind] = h->number;
	return true;
}

/* ---- the server ------------------------------------------------------------------ */

static void join_group(const char *text, uint32_t flags);

static void answer_datagrams(void)
{
	static struct ibv_ah *back;
	struct ibv_wc wc;
	struct head h;

	while (data && ibv_poll_cq(data->recv_cq, 1, &wc) == 1) {
		uint8_t *p = memory + wc.wr_id * SLOT;

		if (wc.status)
			fail("a receive: %s", ibv_wc_status_str(wc.status));
		if (!book(&wc, p, &h, 1 << QUESTION | 1 << TO_GROUP)) {
			report.seen[QUESTION].bad++;
		} else if (h.kind == QUESTION) {
			if (!back)
				MUST(back = ibv_create_ah_from_wc(
					     data->pd, &wc, (void *)p, data->port_num));
			put(ANSWER, h.number, back, wc.src_qp);
		}
		post_recv(wc.wr_id);
	}
}

static struct rdma_conn_param private(const void *p, size_t len)
{
	return (struct rdma_conn_param){ .private_data = p,
					 .private_data_len = (uint8_t)len };
}

static void answer_request(struct rdma_cm_event *ev, const char *group)
{
	static uint8_t asked[256][256];
	struct rdma_cm_id *id = ev->id;
	struct rdma_conn_param param;
	struct ask ask;
	uint8_t text[100];

	if (ev->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		fail("server: %s", rdma_event_str(ev->event));
	memcpy(&ask, ev->param.ud.private_data, sizeof(ask));
	MUST(!rdma_ack_cm_event(ev));
	if (!is_filled(ask.fill, sizeof(ask.fill), ask.number))
		report.seen[QUESTION].bad++;
	report.requests_twice += asked[ask.what][ask.number]++;
	fill(text, sizeof(text), ask.number + 1000u);
	param = private(text, sizeof(text));
	switch (ask.what) {
	case ASK_REFUSAL:
		MUST(!rdma_reject(id, text, sizeof(text)));
		return;
	case ASK_DATA:
		make_qp(id);
		join_group(group, RDMA_MC_JOIN_FLAG_FULLMEMBER);
		break;
	case ASK_END:
		param = private(&report, sizeof(report));
		break;
	default:
		param.qp_num = EXTERNAL + ask.number;
		break;
	}
	MUST(!rdma_accept(id, &param));
}

static struct sockaddr *address(const char *text, const char *port)
{
	static struct sockaddr_storage ss;
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST }, *ai;

	MUST(!getaddrinfo(text, port, &hints, &ai));
	memset(&ss, 0, sizeof(ss));
	memcpy(&ss, ai->ai_addr, ai->ai_addrlen);
	freeaddrinfo(ai);
	return (struct sockaddr *)&ss;
}

/* The next event of the channel, or NULL after so long. */
static struct rdma_cm_event *next_event(int ms)
{
	struct pollfd fd = { .fd = ch->fd, .events = POLLIN };
	struct rdma_cm_event *ev;

	if (poll(&fd, 1, ms) != 1)
		return NULL;
	MUST(!rdma_get_cm_event(ch, &ev));
	return ev;
}

static void server(const char *addr, const char *group, const char *port)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(ch, &id, NULL, RDMA_PS_UDP));
	MUST(!rdma_bind_addr(id, address(addr, port)));
	MUST(!rdma_listen(id, 2 * EXCHANGES));
	printf("ready\n");
	fflush(stdout);
	while (now_ms() < deadline) {
		ev = next_event(data ? 1 : 100);
		if (ev)
			answer_request(ev, group);
		answer_datagrams();
	}
	fail("nobody has ended this server");
}

/* ---- the client ------------------------------------------------------------------ */

/* The group's member is an id of its own: that of the QP is past the states that join. */
static void join_group(const char *text, uint32_t flags)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
			     RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = flags,
		.addr = address(text, NULL),
	};
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP));
	MUST(!rdma_resolve_addr(id, NULL, rdma_get_peer_addr(data), 20000));
	id->qp = data->qp;
	MUST(!rdma_join_multicast_ex(id, &attr, NULL));
	MUST(data->context = ibv_create_ah(data->pd, &id->event->param.ud.ah_attr));
}

static struct rdma_cm_id *resolved(const char *addr, const char *port)
{
	static const enum rdma_cm_event_type want[] = { RDMA_CM_EVENT_ADDR_RESOLVED,
							RDMA_CM_EVENT_ROUTE_RESOLVED };
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(ch, &id, NULL, RDMA_PS_UDP));
	for (int i = 0; i < 2; i++) {
		MUST(!(i ? rdma_resolve_route(id, 20000) :
			   rdma_resolve_addr(id, NULL, address(addr, port), 20000)));
		MUST(ev = next_event(60000));
		if (ev->event != want[i])
			fail("%s, status %d", rdma_event_str(ev->event), ev->status);
		MUST(!rdma_ack_cm_event(ev));
	}
	return id;
}

static void ask(struct rdma_cm_id *id, enum asks what, unsigned number)
{
	struct ask a = { .what = (uint8_t)what, .number = (uint8_t)number };
	struct rdma_conn_param param = private(&a, sizeof(a));

	fill(a.fill, sizeof(a.fill), number);
	MUST(!rdma_connect(id, &param));
}

static struct rdma_cm_event *result(void)
{
	struct rdma_cm_event *ev;
	int left = (int)(deadline - now_ms());

	if (left <= 0 || !(ev = next_event(left)))
		fail("an exchange does not end");
	return ev;
}

/* Many at once, every third of which is refused. */
static void exchanges(const char *addr, const char *port)
{
	struct rdma_cm_id *id[EXCHANGES];
	struct rdma_cm_event *ev;

	for (unsigned i = 0; i < EXCHANGES; i++)
		id[i] = resolved(addr, port);
	for (unsigned i = 0; i < EXCHANGES; i++) {
		id[i]->context = (void *)(uintptr_t)i;
		ask(id[i], i % 3 ? ASK_NUMBER : ASK_REFUSAL, i);
	}
	for (unsigned n = 0; n < EXCHANGES; n++) {
		unsigned i;

		ev = result();
		i = (unsigned)(uintptr_t)ev->id->context;
		if (i % 3 ? ev->event != RDMA_CM_EVENT_ESTABLISHED || ev->status :
			    ev->event != RDMA_CM_EVENT_UNREACHABLE || ev->status != 2)
			fail("exchange %u: %s, status %d", i, rdma_event_str(ev->event),
			     ev->status);
		if (ev->param.ud.qp_num != (i % 3 ? EXTERNAL + i : 0) ||
		    !is_filled(ev->param.ud.private_data, 100, i + 1000))
			fail("exchange %u: another answer than was given", i);
		MUST(!rdma_ack_cm_event(ev));
	}
	if ((ev = next_event(0)))
		fail("one more event: %s", rdma_event_str(ev->event));
	for (unsigned i = 0; i < EXCHANGES; i++)
		MUST(!rdma_destroy_id(id[i]));
}

/* Takes what has come; returns how many answers it was. */
static unsigned take_answers(void)
{
	struct ibv_wc wc;
	struct head h;
	unsigned n = 0;

	while (ibv_poll_cq(data->recv_cq, 1, &wc) == 1) {
		if (wc.status)
			fail("a receive: %s", ibv_wc_status_str(wc.status));
		if (!book(&wc, memory + wc.wr_id * SLOT, &h, 1 << ANSWER))
			report.seen[ANSWER].bad++;
		post_recv(wc.wr_id);
		n++;
	}
	return n;
}

/* Waits until fewer than `most` are on their way, or nothing has come for long. */
static unsigned wait_answers(unsigned out, unsigned most)
{
	uint64_t heard = now_ms();

	while (out >= most && now_ms() < heard + LOST_MS) {
		unsigned n = take_answers();

		if (n)
			heard = now_ms();
		out -= n < out ? n : out;
	}
	return out < most ? out : 0;
}

static void datagrams(const char *addr, const char *group, const char *port)
{
	struct rdma_cm_id *id = resolved(addr, port);
	struct rdma_cm_event *ev;
	struct ibv_ah *ah;
	unsigned out = 0;
	uint32_t qpn;

	make_qp(id);
	ask(id, ASK_DATA, 0);
	ev = result();
	if (ev->event != RDMA_CM_EVENT_ESTABLISHED)
		fail("%s, status %d", rdma_event_str(ev->event), ev->status);
	qpn = ev->param.ud.qp_num;
	MUST(ah = ibv_create_ah(id->pd, &ev->param.ud.ah_attr));
	MUST(!rdma_ack_cm_event(ev));
	join_group(group, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
	for (uint32_t i = 0; i < DATAGRAMS; i++) {
		put(QUESTION, i, ah, qpn);
		if (i % EACH_FOR_GROUP == 0)
			put(TO_GROUP, i / EACH_FOR_GROUP, data->context, GROUP_QPN);
		out = wait_answers(out + 1, WINDOW);
	}
	wait_answers(DATAGRAMS, 1); /* until nothing has come for long */
}

static const char *judge(const struct seen *s, enum kind kind, const char *words)
{
	static const uint32_t sent[KINDS] = { DATAGRAMS, DATAGRAMS,
					      DATAGRAMS / EACH_FOR_GROUP };
	bool doubled = strstr(words, "duplicate");

	if (s->bad)
		return "not as it was sent";
	if (s->received < sent[kind] / 4)
		return "most are lost";
	if (strstr(words, "loss") && s->received - s->twice == sent[kind])
		return "none is lost";
	if (doubled != (s->twice > 0))
		return doubled ? "none came twice" : "came twice";
	/* An answer is doubled, and each of two to a question that was. */
	if (s->most > (doubled ? kind == ANSWER ? 4 : 2 : 1))
		return "came more often than the network doubles";
	if (!strstr(words, "reorder") && s->back)
		return "out of order";
	return NULL;
}

static int client(const char *addr, const char *group, const char *port,
		  const char *words)
{
	static const char *const name[KINDS] = { "to the server", "back",
						 "to the group" };
	struct rdma_cm_event *ev;
	struct report servers;
	int failed = 0;

	exchanges(addr, port);
	datagrams(addr, group, port);
	ask(resolved(addr, port), ASK_END, 0);
	ev = result();
	if (ev->event != RDMA_CM_EVENT_ESTABLISHED)
		fail("%s, status %d", rdma_event_str(ev->event), ev->status);
	memcpy(&servers, ev->param.ud.private_data, sizeof(servers));
	servers.seen[ANSWER] = report.seen[ANSWER];
	for (unsigned i = 0; i < KINDS; i++) {
		const struct seen *s = &servers.seen[i];
		const char *why = judge(s, i, words);

		failed |= why != NULL;
		printf("%s: %u received, %u bad, %u again (%u times at most), %u "
		       "back%s%s; ",
		       name[i], s->received, s->bad, s->twice, s->most, s->back,
		       why ? " WRONG: " : "", why ? why : "");
	}
	if (strstr(words, "reorder") && !servers.seen[QUESTION].back) {
		printf("none was overtaken; ");
		failed = 1;
	}
	printf("%u requests again\n", servers.requests_twice);
	return failed || servers.requests_twice;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	deadline = now_ms() + DEADLINE_S * 1000;
	MUST(ch = rdma_create_event_channel());
	if (!strcmp(argv[1], "server"))
		server(argv[2], argv[3], argv[4]);
	return client(argv[2], argv[3], argv[4], argc > 5 ? argv[5] : "");
}
