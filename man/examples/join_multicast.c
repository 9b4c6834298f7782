/* SPDX-License-Identifier: BSD-2-Clause */
/* One id is in the group; another one sends to it. */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <rdma/rdma_verbs.h>

static void check(int ret, const char *call)
{
	if (ret)
		err(1, "%s", call);
}

enum { GRH = 40 }; /* what a UD receive begins with */

/* An id on this host's loopback interface, with a QP. */
static struct rdma_cm_id *make(struct sockaddr_in *group)
{
	struct sockaddr_in src = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP),
	      "rdma_create_id");
	check(rdma_resolve_addr(id, (struct sockaddr *)&src,
				(struct sockaddr *)group, 2000),
	      "rdma_resolve_addr");
	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	return id;
}

int main(void)
{
	struct sockaddr_in group = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(0xef010203), /* 239.1.2.3 */
	};
	struct rdma_cm_join_mc_attr_ex only = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
			     RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = (struct sockaddr *)&group,
	};
	struct rdma_cm_id *member = make(&group), *sender = make(&group);
	char in[GRH + 64], out[] = "to all";
	struct ibv_mr *in_mr, *out_mr;
	struct rdma_ud_param *ud;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	in_mr = rdma_reg_msgs(member, in, sizeof(in));
	out_mr = rdma_reg_msgs(sender, out, sizeof(out));
	if (!in_mr || !out_mr)
		err(1, "rdma_reg_msgs");
	check(rdma_post_recv(member, NULL, in, sizeof(in), in_mr),
	      "rdma_post_recv");
	check(rdma_join_multicast(member, (struct sockaddr *)&group,
				  NULL),
	      "rdma_join_multicast");
	check(rdma_join_multicast_ex(sender, &only, NULL),
	      "rdma_join_multicast_ex");

	ud = &sender->event->param.ud; /* of MULTICAST_JOIN */
	ah = ibv_create_ah(sender->pd, &ud->ah_attr);
	if (!ah)
		err(1, "ibv_create_ah");
	check(rdma_post_ud_send(sender, NULL, out, sizeof(out), out_mr,
				0, ah, ud->qp_num),
	      "rdma_post_ud_send");
	if (rdma_get_recv_comp(member, &wc) < 0)
		err(1, "rdma_get_recv_comp");
	printf("member: %s\n", in + GRH);

	check(rdma_leave_multicast(member, (struct sockaddr *)&group),
	      "rdma_leave_multicast");
	ibv_destroy_ah(ah);
	rdma_destroy_qp(sender);
	rdma_destroy_qp(member);
	rdma_dereg_mr(out_mr);
	rdma_dereg_mr(in_mr);
	rdma_destroy_id(sender);
	rdma_destroy_id(member);
	return 0;
}
