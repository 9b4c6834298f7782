/* SPDX-License-Identifier: BSD-2-Clause */
/* A message of two pieces, and its answer. */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <rdma/rdma_verbs.h>

static struct rdma_cm_id *endpoint(int flags, const char *service)
{
	struct rdma_addrinfo hints = { .ai_flags = flags,
				       .ai_port_space = RDMA_PS_TCP };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 2, .max_recv_sge = 2,
			 .max_inline_data = 16 },
		.sq_sig_all = 1,
	};
	struct rdma_addrinfo *res;
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo("127.0.0.1", service, &hints, &res))
		err(1, "rdma_getaddrinfo");
	if (rdma_create_ep(&id, res, NULL, &attr))
		err(1, "rdma_create_ep");
	rdma_freeaddrinfo(res);
	return id;
}

/* What rdma_get_send_comp or rdma_get_recv_comp answered. */
static void done(int n, struct ibv_wc *wc)
{
	if (n < 0)
		err(1, "rdma_get_*_comp");
	if (wc->status)
		errx(1, "%s", ibv_wc_status_str(wc->status));
}

static void *server(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;
	char buf[64];
	struct ibv_mr *mr;
	struct ibv_wc wc;

	if (rdma_get_request(listener, &id))
		err(1, "rdma_get_request");
	mr = rdma_reg_msgs(id, buf, sizeof(buf));
	if (!mr)
		err(1, "rdma_reg_msgs");
	/* Before the accept: the message may come at once. */
	if (rdma_post_recv(id, NULL, buf, sizeof(buf), mr))
		err(1, "rdma_post_recv");
	if (rdma_accept(id, NULL))
		err(1, "rdma_accept");

	done(rdma_get_recv_comp(id, &wc), &wc);
	printf("server: %.*s\n", (int)wc.byte_len, buf);

	if (rdma_post_send(id, NULL, "thanks", 6, NULL, IBV_SEND_INLINE))
		err(1, "rdma_post_send");
	done(rdma_get_send_comp(id, &wc), &wc);

	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	return NULL;
}

static void client(struct rdma_cm_id *id)
{
	char text[2][8] = { "hello, ", "world" }, answer[64];
	struct ibv_mr *text_mr = rdma_reg_msgs(id, text, sizeof(text));
	struct ibv_mr *mr = rdma_reg_msgs(id, answer, sizeof(answer));
	struct ibv_sge piece[2];
	struct ibv_wc wc;

	if (!text_mr || !mr)
		err(1, "rdma_reg_msgs");
	if (rdma_post_recv(id, NULL, answer, sizeof(answer), mr))
		err(1, "rdma_post_recv");
	if (rdma_connect(id, NULL))
		err(1, "rdma_connect");

	piece[0] = (struct ibv_sge){ (uintptr_t)text[0], 7,
				     text_mr->lkey };
	piece[1] = (struct ibv_sge){ (uintptr_t)text[1], 5,
				     text_mr->lkey };
	if (rdma_post_sendv(id, NULL, piece, 2, 0))
		err(1, "rdma_post_sendv");
	done(rdma_get_send_comp(id, &wc), &wc);
	done(rdma_get_recv_comp(id, &wc), &wc);
	printf("client: %.*s\n", (int)wc.byte_len, answer);

	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_dereg_mr(text_mr);
}

int main(void)
{
	struct rdma_cm_id *listener, *id;
	char service[8];
	pthread_t thread;

	listener = endpoint(RAI_PASSIVE, "0");
	if (rdma_listen(listener, 1))
		err(1, "rdma_listen");
	snprintf(service, sizeof(service), "%u",
		 ntohs(rdma_get_src_port(listener)));
	pthread_create(&thread, NULL, server, listener);

	id = endpoint(0, service);
	client(id);
	rdma_destroy_ep(id);
	pthread_join(thread, NULL);
	rdma_destroy_ep(listener);
	return 0;
}
