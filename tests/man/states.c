/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_cm(7), "States of an id": which call is accepted in which state. Every call is made
 * once in every state, on ids without a QP, whose moves would be one more reason to refuse. */
#include "t.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

enum state {
	IDLE,
	BOUND, /* to the wildcard: without a device */
	ADDR_RESOLVED,
	ROUTE_RESOLVED,
	LISTENING,
	CONNECTING,
	RESPONDED,
	REQUESTED,
	ACCEPTED,
	ESTABLISHED,
	DISCONNECTING,
	PEER_LEFT,
	OVER,
	STATES,
};

static const char *const state_names[STATES] = {
	"idle", "bound", "address resolved", "route resolved", "listening", "connecting",
	"responded", "requested", "accepted", "established", "disconnecting",
	"disconnected by the peer", "over",
};

/* Two sides on channels of their own; id is the one in the wanted state. */
struct world {
	struct rdma_event_channel *here, *there;
	struct rdma_cm_id *listener, *active, *passive, *id;
};

static struct rdma_conn_param param(void)
{
	struct rdma_conn_param p = { .qp_num = 0x1234, .responder_resources = 1,
				     .initiator_depth = 1 };

	return p;
}

static void must(bool good, const char *what)
{
	if (good)
		return;
	diag("%s: %s", what, strerror(errno));
	exit(1);
}

static void expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type,
		   struct rdma_cm_id **id)
{
	struct rdma_cm_event *ev;

	must(!rdma_get_cm_event(ch, &ev), "rdma_get_cm_event");
	if (ev->event != type) {
		diag("%s, not %s", rdma_event_str(ev->event), rdma_event_str(type));
		exit(1);
	}
	if (id)
		*id = ev->id;
	rdma_ack_cm_event(ev);
}

static struct sockaddr_in loopback(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	return a;
}

static void listen_there(struct world *w)
{
	struct sockaddr_in any = { .sin_family = AF_INET };

	must(!rdma_create_id(w->there, &w->listener, NULL, RDMA_PS_TCP) &&
		     !rdma_bind_addr(w->listener, (struct sockaddr *)&any) &&
		     !rdma_listen(w->listener, 8), "a listener");
}

static void resolve(struct world *w, enum state to)
{
	struct sockaddr_in dst = loopback(ntohs(rdma_get_src_port(w->listener)));

	must(!rdma_create_id(w->here, &w->active, NULL, RDMA_PS_TCP) &&
		     !rdma_resolve_addr(w->active, NULL, (struct sockaddr *)&dst, 2000),
	     "rdma_resolve_addr");
	expect(w->here, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	if (to == ADDR_RESOLVED)
		return;
	must(!rdma_resolve_route(w->active, 2000), "rdma_resolve_route");
	expect(w->here, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
}

/* From "route resolved" on. */
static void connect_until(struct world *w, enum state to)
{
	struct rdma_conn_param p = param();

	must(!rdma_connect(w->active, &p), "rdma_connect");
	expect(w->there, RDMA_CM_EVENT_CONNECT_REQUEST, &w->passive);
	if (to == CONNECTING || to == REQUESTED)
		return;
	if (to == OVER) {
		must(!rdma_reject(w->passive, NULL, 0), "rdma_reject");
		expect(w->here, RDMA_CM_EVENT_REJECTED, NULL);
		return;
	}
	must(!rdma_accept(w->passive, &p), "rdma_accept");
	expect(w->here, RDMA_CM_EVENT_CONNECT_RESPONSE, NULL);
	if (to == RESPONDED || to == ACCEPTED)
		return;
	must(!rdma_establish(w->active), "rdma_establish");
	expect(w->there, RDMA_CM_EVENT_ESTABLISHED, NULL);
	if (to == ESTABLISHED)
		return;
	must(!rdma_disconnect(w->active), "rdma_disconnect");
	expect(w->there, RDMA_CM_EVENT_DISCONNECTED, NULL);
}

static void make(struct world *w, enum state to)
{
	struct sockaddr_in any = { .sin_family = AF_INET };

	memset(w, 0, sizeof(*w));
	w->here = rdma_create_event_channel();
	w->there = rdma_create_event_channel();
	must(w->here && w->there, "rdma_create_event_channel");
	listen_there(w);
	if (to == LISTENING) {
		w->id = w->listener;
	} else if (to == IDLE || to == BOUND) {
		must(!rdma_create_id(w->here, &w->active, NULL, RDMA_PS_TCP),
		     "rdma_create_id");
		must(to == IDLE || !rdma_bind_addr(w->active, (struct sockaddr *)&any),
		     "rdma_bind_addr");
	} else {
		resolve(w, to);
		if (to > LISTENING)
			connect_until(w, to);
	}
	if (to == REQUESTED || to == ACCEPTED || to == PEER_LEFT)
		w->id = w->passive;
	else if (to != LISTENING)
		w->id = w->active;
}

static void end(struct world *w)
{
	if (w->active)
		rdma_destroy_id(w->active);
	if (w->passive)
		rdma_destroy_id(w->passive);
	rdma_destroy_id(w->listener);
	rdma_destroy_event_channel(w->here);
	rdma_destroy_event_channel(w->there);
}

/* ---- the calls ------------------------------------------------------------------- */

static int call_bind(struct rdma_cm_id *id)
{
	struct sockaddr_in a = loopback(0);

	return rdma_bind_addr(id, (struct sockaddr *)&a);
}

static int call_resolve_addr(struct rdma_cm_id *id)
{
	struct sockaddr_in a = loopback(7471);

	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 2000);
}

static int call_resolve_route(struct rdma_cm_id *id)
{
	return rdma_resolve_route(id, 2000);
}

static int call_listen(struct rdma_cm_id *id)
{
	return rdma_listen(id, 1);
}

static int call_connect(struct rdma_cm_id *id)
{
	struct rdma_conn_param p = param();

	return rdma_connect(id, &p);
}

static int call_accept(struct rdma_cm_id *id)
{
	struct rdma_conn_param p = param();

	return rdma_accept(id, &p);
}

static int call_reject(struct rdma_cm_id *id)
{
	return rdma_reject(id, NULL, 0);
}

static int call_notify(struct rdma_cm_id *id)
{
	return rdma_notify(id, IBV_EVENT_COMM_EST);
}

static int init_attr(struct rdma_cm_id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	return rdma_init_qp_attr(id, &attr, &mask);
}

static int call_attr_init(struct rdma_cm_id *id)
{
	return init_attr(id, IBV_QPS_INIT);
}

static int call_attr_rtr(struct rdma_cm_id *id)
{
	return init_attr(id, IBV_QPS_RTR);
}

static int call_attr_rts(struct rdma_cm_id *id)
{
	return init_attr(id, IBV_QPS_RTS);
}

static int call_tos(struct rdma_cm_id *id)
{
	uint8_t tos = 1;

	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
}

static int call_afonly(struct rdma_cm_id *id)
{
	int on = 1;

	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on));
}

/* A letter for each state: accepted, refused with EINVAL, or E for EISCONN. */
static const struct {
	const char *name;
	int (*call)(struct rdma_cm_id *id);
	const char *want;
} calls[] = {
	{ "rdma_bind_addr", call_bind, "a------------" },
	{ "rdma_resolve_addr", call_resolve_addr, "aa-----------" },
	{ "rdma_resolve_route", call_resolve_route, "--a----------" },
	{ "rdma_listen", call_listen, "aa-----------" },
	{ "rdma_connect", call_connect, "---a---------" },
	{ "rdma_accept", call_accept, "-------a-----" },
	{ "rdma_reject", call_reject, "-----aaaa----" },
	{ "rdma_establish", rdma_establish, "------a------" },
	{ "rdma_notify", call_notify, "--------aE---" },
	{ "rdma_disconnect", rdma_disconnect, "-----aaaaaaaa" },
	{ "rdma_init_qp_attr for INIT", call_attr_init, "--aa-aaaaaaaa" },
	{ "rdma_init_qp_attr for RTR", call_attr_rtr, "------aaaa---" },
	{ "rdma_init_qp_attr for RTS", call_attr_rts, "------aaaa---" },
	{ "RDMA_OPTION_ID_TOS", call_tos, "aaaaaaaaaaaaa" },
	{ "RDMA_OPTION_ID_AFONLY", call_afonly, "aa-----------" },
};

static char letter(int ret)
{
	if (!ret)
		return 'a';
	return errno == EINVAL ? '-' : errno == EISCONN ? 'E' : '?';
}

int main(int argc, char **argv)
{
	char got[STATES + 1] = "";
	struct world w;
	int err;

	t_init(argc, argv);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		for (enum state s = 0; s < STATES; s++) {
			make(&w, s);
			got[s] = letter(calls[i].call(w.id));
			err = errno;
			if (got[s] != calls[i].want[s])
				diag("%s: %c, errno %d", state_names[s], got[s], err);
			end(&w);
		}
		ok(!strcmp(got, calls[i].want), "%s", calls[i].name);
	}
	return t_done();
}
