/* SPDX-License-Identifier: BSD-2-Clause */
/* Fixture of the programs about the connection manager and datagrams: a listener of
 * RDMA_PS_UDP on one channel, clients on another. Each call fails the case when it cannot be
 * done; those that return an int return what the library did. */
#ifndef ANYRDMA_TESTS_CM_UD_H
#define ANYRDMA_TESTS_CM_UD_H

#include "conf.h"

enum {
	PUBLIC_QKEY = 0x01234567, /* of all QPs that ids of RDMA_PS_UDP make */
	REQUEST_MOST = 180,
	ANSWER_MOST = 136,
	NO_LISTENER = 1, /* status of UNREACHABLE */
	REFUSED = 2,
	GRH = 40,
};

static struct rdma_event_channel *ach, *lch;
static struct rdma_cm_id *listener;
static uint8_t data[256];

static inline struct rdma_cm_id *ud_id(struct rdma_event_channel *ch, int ps)
{
	struct rdma_cm_id *id = NULL;

	if (conf_iwarp())
		SKIP("iWARP has no datagrams");
	OK(rdma_create_id(ch, &id, NULL, ps));
	return id;
}

static inline void begin(int family)
{
	conf_sa addr = conf_addr(family, 0);

	conf_pattern(data, sizeof(data), 3);
	lch = conf_channel();
	ach = conf_channel();
	listener = ud_id(lch, RDMA_PS_UDP);
	OK(rdma_bind_addr(listener, SA(addr)));
	OK(rdma_listen(listener, 8));
}

static inline void end(void)
{
	if (listener)
		OK(rdma_destroy_id(listener));
	conf_quiet(ach, 0);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(lch);
}

static inline struct rdma_cm_id *resolved_to(conf_sa dst)
{
	struct rdma_cm_id *id = ud_id(ach, RDMA_PS_UDP);

	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
	conf_expect(ach, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(id, 2000));
	conf_expect(ach, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static inline struct rdma_cm_id *resolved(void)
{
	return resolved_to(conf_listen_addr(listener));
}

static inline void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .cap = CONF_CAP(16, 16, 1),
					 .qp_type = IBV_QPT_UD };

	OK(rdma_create_qp(id, NULL, &attr));
	MUST(id->qp);
}

static inline int request(struct rdma_cm_id *id, size_t len)
{
	struct rdma_conn_param param = { .private_data = data, .private_data_len = len };

	return rdma_connect(id, &param);
}

/* The next request; the answer needs it. */
static inline struct rdma_cm_id *requested(void)
{
	return conf_request(lch);
}

static inline struct rdma_cm_id *connecting(void)
{
	struct rdma_cm_id *id = resolved();

	make_qp(id);
	OK(request(id, 0));
	return id;
}

static inline int answer(struct rdma_cm_id *id, size_t len)
{
	struct rdma_conn_param param = { .private_data = data, .private_data_len = len };

	return rdma_accept(id, &param);
}

static inline void is_padded(const struct rdma_ud_param *ud, size_t len, size_t most)
{
	EQ(ud->private_data_len, most);
	CHECK(!memcmp(ud->private_data, data, len));
	CONF_MSG_ZERO((const uint8_t *)ud->private_data + len, most - len);
}

static inline void unreachable(struct rdma_cm_id *id, int status, size_t len)
{
	struct rdma_cm_event *ev =
		conf_get_status(ach, id, RDMA_CM_EVENT_UNREACHABLE, status);

	is_padded(&ev->param.ud, len, ANSWER_MOST);
	EQ(ev->param.ud.qp_num, 0);
	EQ(ev->param.ud.qkey, 0);
	CONF_MSG_ZERO(&ev->param.ud.ah_attr, sizeof(ev->param.ud.ah_attr));
	OK(rdma_ack_cm_event(ev));
}

#endif
