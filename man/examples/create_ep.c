/* SPDX-License-Identifier: BSD-2-Clause */
/* Two endpoints: a thread that listens, and one that connects. */
#include <arpa/inet.h>
#include <err.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

static struct rdma_cm_id *endpoint(int flags, const char *service)
{
	struct rdma_addrinfo hints = { .ai_flags = flags,
				       .ai_port_space = RDMA_PS_TCP };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_addrinfo *res;
	struct rdma_cm_id *id;
	int ret;

	ret = rdma_getaddrinfo("127.0.0.1", service, &hints, &res);
	if (ret)
		errx(1, "rdma_getaddrinfo: %s", gai_strerror(ret));
	if (rdma_create_ep(&id, res, NULL, &attr))
		err(1, "rdma_create_ep");
	rdma_freeaddrinfo(res);
	return id;
}

static void *server(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;

	if (rdma_get_request(listener, &id)) /* id has a QP */
		err(1, "rdma_get_request");
	if (rdma_accept(id, NULL))
		err(1, "rdma_accept");
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	return NULL;
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

	id = endpoint(0, service); /* resolved, with a QP */
	if (rdma_connect(id, NULL))
		err(1, "rdma_connect");
	printf("connected\n");
	if (rdma_disconnect(id))
		err(1, "rdma_disconnect");
	printf("disconnected\n");

	rdma_destroy_ep(id);
	pthread_join(thread, NULL);
	rdma_destroy_ep(listener);
	return 0;
}
