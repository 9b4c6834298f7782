/* SPDX-License-Identifier: BSD-2-Clause */
/* The client writes to the server's memory, and reads it back. The
 * server says in the private data of its reply where that is. */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_verbs.h>

struct place {
	uint64_t addr;
	uint32_t rkey;
};

static struct rdma_cm_id *endpoint(int flags, const char *service)
{
	struct rdma_addrinfo hints = { .ai_flags = flags,
				       .ai_port_space = RDMA_PS_TCP };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 2, .max_recv_sge = 2 },
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

static void *server(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;
	static char memory[64];
	struct rdma_conn_param param = {
		.responder_resources = 1, /* one read at a time */
	};
	struct rdma_cm_event *event;
	struct place place;
	struct ibv_mr *mr;

	if (rdma_get_request(listener, &id))
		err(1, "rdma_get_request");
	mr = ibv_reg_mr(id->pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ);
	if (!mr)
		err(1, "ibv_reg_mr");
	place = (struct place){ (uintptr_t)memory, mr->rkey };
	param.private_data = &place;
	param.private_data_len = sizeof(place);
	if (rdma_accept(id, &param))
		err(1, "rdma_accept");

	/* The client ends the connection; its writes are here then. */
	if (rdma_get_cm_event(id->channel, &event))
		err(1, "rdma_get_cm_event");
	rdma_ack_cm_event(event); /* DISCONNECTED */
	rdma_disconnect(id);
	printf("server: %s\n", memory);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	return NULL;
}

static void done(struct rdma_cm_id *id, const char *what)
{
	struct ibv_wc wc;

	if (rdma_get_send_comp(id, &wc) < 0)
		err(1, "rdma_get_send_comp");
	if (wc.status)
		errx(1, "%s: %s", what, ibv_wc_status_str(wc.status));
}

static void client(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .initiator_depth = 1 };
	char out[16] = "written", in[16] = "";
	struct ibv_mr *out_mr = rdma_reg_msgs(id, out, sizeof(out));
	struct ibv_mr *in_mr = rdma_reg_msgs(id, in, sizeof(in));
	struct place p;

	if (!out_mr || !in_mr)
		err(1, "rdma_reg_msgs");
	if (rdma_connect(id, &param))
		err(1, "rdma_connect");
	memcpy(&p, id->event->param.conn.private_data, sizeof(p));

	if (rdma_post_write(id, NULL, out, sizeof(out), out_mr, 0,
			    p.addr, p.rkey))
		err(1, "rdma_post_write");
	done(id, "write");
	if (rdma_post_read(id, NULL, in, sizeof(in), in_mr, 0,
			   p.addr, p.rkey))
		err(1, "rdma_post_read");
	done(id, "read");
	printf("client: %s\n", in);

	rdma_disconnect(id);
	rdma_dereg_mr(in_mr);
	rdma_dereg_mr(out_mr);
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
