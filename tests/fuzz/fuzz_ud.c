/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams of anybody at a UD QP: packets are decoded, and what is accepted is delivered.
 * Whatever the bytes: decoding uses none beyond those given, encoding what was decoded gives
 * the same packet, and nothing but the memory of receives is written, as the completion says.
 *
 * An input: a byte of options, then packets, each of which begins with a byte of changes and
 * two bytes of length. */
#include "base/crc32c.h"
#include "input.h"
#include "must.h"
#include "ud/carrier.h"
#include "udp/packet.h"

#include <arpa/inet.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	OPT_SRQ = 1,
	OPT_SMALL = 2, /* receives of 100 bytes, not of 5000 */
	OPT_PIECES = 4, /* ... in three pieces */
	OPT_RTR = 8,
	OPT_GROUP = 16, /* the QP is in the group ff12::77 */
	CHANGE_TO = 1, /* the packet is for the QP */
	CHANGE_QKEY = 2, /* its Q_Key is right */
	CHANGE_GROUP = 4, /* it is for that group */
	QKEY = 0x1234567,
	RECVS = 4,
	SLOT = 8192, /* of a receive; the rest of it must stay as it is */
};

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t mem[RECVS][SLOT];
	uint32_t len; /* of each receive */
	unsigned posted, done;
} v;

static void open_once(void)
{
	struct ibv_device **list;

	if (v.ctx)
		return;
	list = ibv_get_device_list(NULL);
	MUST(list && list[0]);
	v.ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	MUST(v.ctx);
	v.pd = ibv_alloc_pd(v.ctx);
	v.cq = ibv_create_cq(v.ctx, 64, NULL, NULL, 0);
	v.mr = ibv_reg_mr(v.pd, v.mem, sizeof(v.mem), IBV_ACCESS_LOCAL_WRITE);
	MUST(v.cq && v.mr);
}

static void qp_make(uint8_t options)
{
	struct ibv_qp_init_attr a = { .cap = { 1, RECVS, 1, 3, 0 },
				      .send_cq = v.cq,
				      .recv_cq = v.cq,
				      .qp_type = IBV_QPT_UD };
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = RECVS, .max_sge = 3 } };

	if (options & OPT_SRQ)
		a.srq = v.srq = ibv_create_srq(v.pd, &sa);
	v.qp = ibv_create_qp(v.pd, &a);
	MUST(v.qp);
}

static void qp_end(uint8_t options)
{
	MUST(!ibv_destroy_qp(v.qp));
	if (options & OPT_SRQ)
		MUST(!ibv_destroy_srq(v.srq));
}

static void to_state(enum ibv_qp_state s)
{
	struct ibv_qp_attr a = { .qp_state = s, .port_num = 1, .qkey = QKEY };

	MUST(!ibv_modify_qp(v.qp, &a,
			    IBV_QP_STATE |
				    (s == IBV_QPS_INIT ? IBV_QP_PKEY_INDEX | IBV_QP_PORT |
								 IBV_QP_QKEY :
							 0) |
				    (s == IBV_QPS_RTS ? IBV_QP_SQ_PSN : 0)));
}

static void post(unsigned i, uint8_t options)
{
	struct ibv_sge s[3];
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = s, .num_sge = 1 }, *bad;
	uint32_t cut = options & OPT_PIECES ? 33 : v.len;

	s[0] = (struct ibv_sge){ (uintptr_t)v.mem[i], cut, v.mr->lkey };
	if (options & OPT_PIECES) {
		s[1] = (struct ibv_sge){ (uintptr_t)v.mem[i] + cut, 9, v.mr->lkey };
		s[2] = (struct ibv_sge){ (uintptr_t)v.mem[i] + cut + 9, v.len - cut - 9,
					 v.mr->lkey };
		wr.num_sge = 3;
	}
	MUST(!(options & OPT_SRQ ? ibv_post_srq_recv(v.srq, &wr, &bad) :
				   ibv_post_recv(v.qp, &wr, &bad)));
	v.posted++;
}

static bool untouched(const uint8_t *p, size_t n)
{
	return !n || (p[0] == 0xee && !memcmp(p, p + 1, n - 1));
}

/* A completion says what was written, and the rest is as it was. */
static void check_done(const struct ibv_wc *wc, uint8_t options)
{
	const uint8_t *m = v.mem[wc->wr_id];

	MUST(wc->wr_id < RECVS);
	if (wc->status == IBV_WC_LOC_LEN_ERR || wc->status == IBV_WC_WR_FLUSH_ERR) {
		MUST(options & OPT_SMALL);
		MUST(untouched(m, SLOT));
		return;
	}
	MUST(wc->status == IBV_WC_SUCCESS);
	MUST(wc->byte_len >= UD_GRH && wc->byte_len <= UD_GRH + UD_PAYLOAD_MAX);
	MUST(untouched(m + wc->byte_len, SLOT - wc->byte_len));
	MUST((wc->wc_flags & ~IBV_WC_WITH_IMM) == IBV_WC_GRH);
	MUST(m[0] >> 4 == 6 || (untouched(m, 0) && m[20] == 0x45));
}

static void same_again(const uint8_t *p, size_t n, const struct ud_head *h, unsigned flags,
		       const uint8_t *payload)
{
	uint8_t out[PACKET_MAX];
	size_t k = packet_head_put(out, h), tail;

	memcpy(out + k, payload, h->len);
	k += h->len;
	tail = packet_tail_put(out + k, h, flags);
	MUST(k + tail == n);
	if (flags & PACKET_CRC) {
		uint32_t crc = crc32c(CRC32C_INIT, out, n - 8);

		crc32c_put(out + n - 8, crc32c(crc, out + n - 4, 4));
	}
	out[2] = p[2]; /* the membership bit of the P_Key */
	MUST(!memcmp(out, p, n));
}

static void packet_in(const uint8_t *p, size_t n, uint8_t change)
{
	static const uint8_t group[16] = { 0xff, 0x12, [15] = 0x77 };
	const uint8_t *payload = NULL;
	unsigned flags = 0;
	struct ud_head h;

	if (packet_decode(p, n, &h, &flags, &payload))
		return;
	MUST(payload >= p && payload + h.len <= p + n);
	same_again(p, n, &h, flags, payload);
	memcpy(&h.sgid, group, 16);
	if (!(flags & PACKET_GROUP))
		MUST(inet_pton(AF_INET6, "::ffff:203.0.113.7", &h.dgid) == 1);
	if (change & CHANGE_TO)
		h.dst_qpn = v.qp->qp_num;
	if (change & CHANGE_QKEY)
		h.qkey = QKEY;
	if (change & CHANGE_GROUP) {
		h.dst_qpn = UD_MCAST_QPN;
		memcpy(&h.dgid, group, 16);
	}
	ud_deliver(&h, payload, h.dst_qpn == UD_MCAST_QPN ? to_cq(v.cq) : NULL);
}

static void drain(uint8_t options)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(v.cq, 1, &wc) == 1) {
		check_done(&wc, options);
		v.done++;
	}
	MUST(v.done <= v.posted);
}

/* A copy of exactly n bytes: a sanitizer sees a byte too many. */
static void one_packet(struct input *in)
{
	uint8_t change = input_u8(in), *p;
	size_t n = (size_t)input_u8(in) << 8;

	n = (n | input_u8(in)) % (PACKET_MAX + 2);
	p = malloc(n ? n : 1);
	MUST(p);
	input_get(in, p, n);
	packet_in(p, n, change);
	free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };
	uint8_t options = input_u8(&in);
	union ibv_gid g = { .raw = { 0xff, 0x12, [15] = 0x77 } };

	open_once();
	qp_make(options);
	v.len = options & OPT_SMALL ? 100 : 5000;
	memset(v.mem, 0xee, sizeof(v.mem));
	v.posted = v.done = 0;
	to_state(IBV_QPS_INIT);
	to_state(IBV_QPS_RTR);
	if (!(options & OPT_RTR))
		to_state(IBV_QPS_RTS);
	if (options & OPT_GROUP)
		MUST(!ibv_attach_mcast(v.qp, &g, 0));
	for (unsigned i = 0; i < RECVS; i++)
		post(i, options);
	for (unsigned i = 0; i < 16 && in.at < in.end; i++)
		one_packet(&in);
	drain(options);
	if (options & OPT_GROUP)
		MUST(!ibv_detach_mcast(v.qp, &g, 0));
	qp_end(options);
	return 0;
}
