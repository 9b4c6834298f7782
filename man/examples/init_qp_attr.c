/* SPDX-License-Identifier: BSD-2-Clause */
/* QPs that the application makes and moves itself. */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

static void check(int ret, const char *call)
{
	if (ret)
		err(1, "%s", call);
}

static void move(struct rdma_cm_id *id, struct ibv_qp *qp,
		 enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	check(rdma_init_qp_attr(id, &attr, &mask), "rdma_init_qp_attr");
	attr.qp_state = state;
	if (ibv_modify_qp(qp, &attr, mask))
		errx(1, "ibv_modify_qp to state %d", state);
}

static struct ibv_qp *make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp;

	attr.send_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	attr.recv_cq = attr.send_cq;
	qp = attr.send_cq ? ibv_create_qp(id->pd, &attr) : NULL;
	if (!qp)
		err(1, "ibv_create_qp");
	return qp;
}

static void free_qp(struct ibv_qp *qp)
{
	struct ibv_cq *cq = qp->send_cq;

	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
}

static void handle(struct rdma_cm_event *event, struct ibv_qp **qp)
{
	struct rdma_conn_param param = { .responder_resources = 1,
					 .initiator_depth = 1 };
	struct rdma_cm_id *id = event->id;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		qp[0] = make_qp(id);
		param.qp_num = qp[0]->qp_num;
		check(rdma_connect(id, &param), "rdma_connect");
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST: /* moves, then the reply */
		qp[1] = make_qp(id);
		move(id, qp[1], IBV_QPS_INIT);
		move(id, qp[1], IBV_QPS_RTR);
		move(id, qp[1], IBV_QPS_RTS);
		param.qp_num = qp[1]->qp_num;
		check(rdma_accept(id, &param), "rdma_accept");
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE: /* not ESTABLISHED */
		move(id, qp[0], IBV_QPS_INIT);
		move(id, qp[0], IBV_QPS_RTR);
		move(id, qp[0], IBV_QPS_RTS);
		check(rdma_establish(id), "rdma_establish");
		break;
	default:
		break;
	}
}

int main(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener, *client, *server = NULL;
	struct rdma_cm_event *event;
	struct ibv_qp *qp[2] = { NULL, NULL };
	int established = 0;

	if (!channel)
		err(1, "rdma_create_event_channel");
	check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&addr),
	      "rdma_bind_addr");
	check(rdma_listen(listener, 1), "rdma_listen");
	addr.sin_port = rdma_get_src_port(listener);
	check(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_resolve_addr(client, NULL,
				(struct sockaddr *)&addr, 2000),
	      "rdma_resolve_addr");

	while (!established) {
		check(rdma_get_cm_event(channel, &event),
		      "rdma_get_cm_event");
		printf("%s\n", rdma_event_str(event->event));
		handle(event, qp);
		if (event->listen_id)
			server = event->id;
		established = event->event == RDMA_CM_EVENT_ESTABLISHED;
		rdma_ack_cm_event(event);
	}

	free_qp(qp[0]);
	free_qp(qp[1]);
	rdma_destroy_id(server);
	rdma_destroy_id(client);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
	return 0;
}
