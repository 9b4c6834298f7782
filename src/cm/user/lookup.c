/* SPDX-License-Identifier: BSD-2-Clause */
/* Ids of type UD have no connection: the active side asks for the QP behind a port, the
 * passive one answers (sidr.h). A wire of datagrams (wire.h) brings both, and may lose
 * either: the request is repeated until it is answered, or until a connection request
 * would be given up. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
	FIRST_MS = 100,	  /* to the first repeat; doubled for each one that follows */
	REFUSALS = 5,	  /* a server that makes a new listener has none for a moment: */
	REFUSED_MS = 10,  /* after 10, 20, 40, 80, 160 ms its absence is believed */
	ENDED = 3,	  /* likewise, that a process which had the request has ended */
};

static const char *peer_str(struct user_id *u, char buf[PORT_ADDR_STR])
{
	return sa_str((struct sockaddr *)&u->dst, buf);
}

/* ---- what is sent ---------------------------------------------------------------- */

/* A peer who could guess it could answer in the other's place. */
static uint64_t random_id(void)
{
	uint64_t v;

	if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != sizeof(v))
		v = user_now() * 0x9e3779b97f4a7c15u ^ (uintptr_t)&v;
	return v;
}

static void set_gids(struct user_id *u) REQUIRES(u->lock)
{
	cm_dev->gid_from_addr((struct sockaddr *)&u->src, &u->conn.local_gid);
	cm_dev->gid_from_addr((struct sockaddr *)&u->dst, &u->conn.remote_gid);
}

void user_sidr_req_build(struct user_id *u, const struct cm_conn_param *p)
{
	struct sidr_req r = {
		.id = random_id(),
		.ps = (uint16_t)u->ps,
		.src_port = sa_port((struct sockaddr *)&u->src),
		.dst_port = sa_port((struct sockaddr *)&u->dst),
	};

	lock_assert_held(&u->lock);
	set_gids(u);
	memcpy(r.src_addr, u->conn.local_gid.raw, 16);
	memcpy(r.dst_addr, u->conn.remote_gid.raw, 16);
	r.ipv6 = !IN6_IS_ADDR_V4MAPPED((struct in6_addr *)u->conn.remote_gid.raw);
	memcpy(r.priv, p->private_data, p->private_data_len);
	sidr_req_encode(u->req->frame, &r);
	u->req->len = SIDR_REQ_LEN;
	u->req->sidr_id = r.id;
	u->conn.local_qpn = p->qp_num & 0xffffff;
}

void user_sidr_rep_build(struct user_id *u, const struct cm_conn_param *p,
			 uint8_t buf[SIDR_REP_LEN])
{
	struct sidr_rep r = {
		.id = u->req->sidr_id,
		.ps = (uint16_t)u->ps,
		.status = SIDR_OK,
		.qpn = p->qp_num & 0xffffff,
		.qkey = RDMA_UDP_QKEY,
	};

	lock_assert_held(&u->lock);
	memcpy(r.priv, p->private_data, p->private_data_len);
	u->conn.local_qpn = r.qpn;
	sidr_rep_encode(buf, &r);
}

void user_sidr_rej_build(struct user_id *u, uint16_t reason, const void *data, uint8_t len,
			 uint8_t buf[SIDR_REP_LEN])
{
	struct sidr_rep r = {
		.id = u->req->sidr_id,
		.ps = (uint16_t)u->ps,
		.status = reason == CM_REJ_NO_LISTENER ? SIDR_NO_SERVICE : SIDR_REJECTED,
	};

	lock_assert_held(&u->lock);
	if (len)
		memcpy(r.priv, data, len);
	sidr_rep_encode(buf, &r);
}

/* The addresses are those of the datagram that it came in. */
void user_sidr_req_parse(struct user_id *u, const struct sidr_req *r)
{
	lock_assert_held(&u->lock);
	sa_set_port((struct sockaddr *)&u->dst, r->src_port);
	set_gids(u);
	u->req->sidr_id = r->id;
	u->req->priv_len = SIDR_PRIV_REQ;
	memcpy(u->req->priv, r->priv, SIDR_PRIV_REQ);
}

/* ---- the active side ------------------------------------------------------------- */

static void set_repeat(struct user_id *u) REQUIRES(u->lock)
{
	uint64_t most = conf_get()->cm_retry_ms, now = user_now();
	uint64_t ms = (uint64_t)FIRST_MS << (u->repeats < 16 ? u->repeats : 16);

	if (ms > most)
		ms = most;
	if (now + ms * MSEC < u->give_up_at)
		user_timer_set(u, ms);
	else
		user_timer_give_up(u);
}

void user_sidr_sent(struct user_id *u)
{
	lock_assert_held(&u->lock);
	u->sent_at = user_now();
	u->req_acked = false;
	u->retries = 0;
	u->repeats = 0;
	user_step(u, ST_REQ_SENT);
	set_repeat(u);
}

void user_sidr_wait(struct user_id *u)
{
	lock_assert_held(&u->lock);
	u->req_acked = true;
	u->retries = 0;
}

static void answered(struct user_id *u, enum user_step step) REQUIRES(u->lock)
{
	user_step(u, step);
	user_timer_stop(u);
	user_wire_close(u);
}

static void refused(struct user_id *u, const struct sidr_rep *r) REQUIRES(u->lock)
{
	char a[PORT_ADDR_STR];

	log_info("request to %s: refused, status %u", peer_str(u, a), r->status);
	answered(u, ST_FAIL);
	user_post_ud(u, RDMA_CM_EVENT_UNREACHABLE, r->status, r, NULL);
}

void user_sidr_reply(struct user_id *u, const struct sidr_rep *r)
{
	struct ibv_ah_attr ah;
	char a[PORT_ADDR_STR];
	int ret;

	lock_assert_held(&u->lock);
	if (r->status != SIDR_OK) {
		refused(u, r);
		return;
	}
	ret = user_ah_attr(u, &u->conn.remote_gid, &ah);
	if (!ret && u->qkey && r->qkey != u->qkey)
		ret = log_refuse(EINVAL, "request to %s: its QP has Q_Key 0x%x, ours 0x%x",
				 peer_str(u, a), r->qkey, u->qkey);
	if (ret) {
		answered(u, ST_FAIL);
		user_post(u, RDMA_CM_EVENT_ADDR_ERROR, ret);
		return;
	}
	answered(u, ST_ANSWER);
	u->conn.remote_qpn = r->qpn;
	free(u->req);
	u->req = NULL;
	user_post_ud(u, RDMA_CM_EVENT_ESTABLISHED, 0, r, &ah);
}

void user_sidr_refused(struct user_id *u)
{
	/* The kernel's CM is there without listeners, and says so itself. */
	struct sidr_rep r = { .status = u->req_acked ? SIDR_REJECTED : SIDR_NO_SERVICE };

	lock_assert_held(&u->lock);
	if (u->wire && u->retries < (u->req_acked ? ENDED : REFUSALS))
		user_timer_set(u, REFUSED_MS << u->retries++);
	else
		refused(u, &r);
}

void user_sidr_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (user_now() >= u->give_up_at) {
		user_unreachable(u, ETIMEDOUT);
		return;
	}
	if (u->repeats < UINT8_MAX)
		u->repeats++;
	set_repeat(u);
	u->wire->ops->repeat(u);
}
