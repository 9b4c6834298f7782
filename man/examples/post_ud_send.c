/* SPDX-License-Identifier: BSD-2-Clause */
/* A datagram to the QP behind a port. */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <rdma/rdma_verbs.h>

static void check(int ret, const char *call)
{
	if (ret)
		err(1, "%s", call);
}

enum { GRH = 40 }; /* what a UD receive begins with */

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};

	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

static void *server(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;
	struct rdma_conn_param param = { 0 };
	char buf[GRH + 64];
	struct ibv_mr *mr;
	struct ibv_wc wc;

	check(rdma_get_request(listener, &id), "rdma_get_request");
	make_qp(id);
	mr = rdma_reg_msgs(id, buf, sizeof(buf));
	if (!mr)
		err(1, "rdma_reg_msgs");
	check(rdma_post_recv(id, NULL, buf, sizeof(buf), mr),
	      "rdma_post_recv");
	param.qp_num = id->qp->qp_num;
	check(rdma_accept(id, &param), "rdma_accept");

	if (rdma_get_recv_comp(id, &wc) < 0)
		err(1, "rdma_get_recv_comp");
	printf("server: %.*s\n", (int)wc.byte_len - GRH, buf + GRH);
	rdma_destroy_qp(id);
	rdma_dereg_mr(mr);
	rdma_destroy_id(id);
	return NULL;
}

static void client(struct sockaddr_in *dst)
{
	char text[] = "hello";
	struct rdma_ud_param *ud;
	struct rdma_cm_id *id;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP),
	      "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)dst, 2000),
	      "rdma_resolve_addr");
	check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
	make_qp(id);
	mr = rdma_reg_msgs(id, text, sizeof(text));
	if (!mr)
		err(1, "rdma_reg_msgs");
	check(rdma_connect(id, NULL), "rdma_connect");

	ud = &id->event->param.ud; /* where the server's QP is */
	ah = ibv_create_ah(id->pd, &ud->ah_attr);
	if (!ah)
		err(1, "ibv_create_ah");
	check(rdma_post_ud_send(id, NULL, text, 5, mr, 0, ah,
				ud->qp_num),
	      "rdma_post_ud_send");
	if (rdma_get_send_comp(id, &wc) < 0)
		err(1, "rdma_get_send_comp");

	rdma_destroy_qp(id);
	ibv_destroy_ah(ah);
	rdma_dereg_mr(mr);
	rdma_destroy_id(id);
}

int main(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct rdma_cm_id *listener;
	pthread_t thread;

	check(rdma_create_id(NULL, &listener, NULL, RDMA_PS_UDP),
	      "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&addr),
	      "rdma_bind_addr");
	check(rdma_listen(listener, 1), "rdma_listen");
	addr.sin_port = rdma_get_src_port(listener);
	pthread_create(&thread, NULL, server, listener);
	client(&addr);
	pthread_join(thread, NULL);
	rdma_destroy_id(listener);
	return 0;
}
