/* SPDX-License-Identifier: BSD-2-Clause */
/* Parameters of connect and accept, QP creation, and refused arguments. The fake
 * device serves 16 remote reads at once and starts 12. */
#include "tests/t.h"

#include "cm/fake_test.h"

static struct rdma_event_channel *ch;

enum { FF = 0xFF };

/* ---- depths ---------------------------------------------------------------------- */

struct depths {
	bool null;	      /* no parameters at all */
	uint8_t resp, init;   /* given */
	int err;	      /* expected errno, or 0 and: */
	uint8_t want_resp, want_init;
};

static const struct depths connect_rows[] = {
	{ true, 0, 0, 0, 16, 12 },
	{ false, FF, FF, 0, 16, 12 },
	{ false, 0, 0, 0, 0, 0 },
	{ false, 3, 4, 0, 3, 4 },
	{ false, 16, 12, 0, 16, 12 },
	{ false, 17, 0, EINVAL, 0, 0 },
	{ false, 0, 13, EINVAL, 0, 0 },
};

/* The request asked for 40 and 2. */
static const struct depths accept_rows[] = {
	{ true, 0, 0, 0, 16, 2 },
	{ false, FF, FF, 0, 16, 2 },
	{ false, 5, FF, 0, 5, 2 },
	{ false, 0, 12, 0, 0, 12 },
	{ false, 40, 2, EINVAL, 0, 0 },
};

static struct ibv_qp_init_attr small_qp(void)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC };

	a.cap.max_send_wr = 4;
	a.cap.max_recv_wr = 5;
	return a;
}

static void check_row(const struct depths *d, int r, const char *what, unsigned i)
{
	if (r != (d->err ? -1 : 0))
		diag("%s row %u: %d, errno %d", what, i, r, errno);
	if (d->err) {
		CHECK_EQ(r, -1);
		CHECK_EQ(errno, d->err);
		return;
	}
	CHECK_EQ(r, 0);
	CHECK_EQ(fb.param.responder_resources, d->want_resp);
	CHECK_EQ(fb.param.initiator_depth, d->want_init);
	CHECK_EQ(fb.param.retry_count, d->null ? 7 : 5);
	CHECK_EQ(fb.param.rnr_retry_count, 7); /* given: 9 */
	CHECK_EQ(fb.param.flow_control, d->null ? 0 : 1);
}

static struct rdma_conn_param row_param(const struct depths *d)
{
	return (struct rdma_conn_param){
		.responder_resources = d->resp,
		.initiator_depth = d->init,
		.retry_count = 5,
		.rnr_retry_count = 9,
		.flow_control = 1,
		.qp_num = 0x1234567,
	};
}

static void connect_depths(void)
{
	struct ibv_qp_init_attr attr = small_qp();
	struct rdma_conn_param p;
	struct rdma_cm_id *id;
	unsigned i;

	for (i = 0; i < sizeof(connect_rows) / sizeof(connect_rows[0]); i++) {
		id = fake_id(ch, RDMA_PS_TCP);
		attr = small_qp();
		REQUIRE_EQ(rdma_create_qp(id, NULL, &attr), 0);
		p = row_param(&connect_rows[i]);
		check_row(&connect_rows[i],
			  rdma_connect(id, connect_rows[i].null ? NULL : &p),
			  "connect", i);
		if (!connect_rows[i].err)
			CHECK_EQ(fb.param.qp_num, id->qp->qp_num);
		rdma_destroy_qp(id);
		CHECK_EQ(rdma_destroy_id(id), 0);
	}
}

static struct rdma_cm_id *child_of(struct rdma_cm_id *listener, uint8_t resp,
				   uint8_t init)
{
	struct rdma_cm_event *ev = NULL;
	struct rdma_cm_id *child;

	fake_request(listener, resp, init);
	if (rdma_get_cm_event(ch, &ev))
		abort();
	child = ev->id;
	rdma_ack_cm_event(ev);
	return child;
}

static void accept_depths(void)
{
	struct rdma_cm_id *listener = fake_id(ch, RDMA_PS_TCP), *child;
	struct ibv_qp_init_attr attr;
	struct rdma_conn_param p;
	unsigned i;

	for (i = 0; i < sizeof(accept_rows) / sizeof(accept_rows[0]); i++) {
		child = child_of(listener, 40, 2);
		attr = small_qp();
		REQUIRE_EQ(rdma_create_qp(child, NULL, &attr), 0);
		fake_reset();
		p = row_param(&accept_rows[i]);
		check_row(&accept_rows[i],
			  rdma_accept(child, accept_rows[i].null ? NULL : &p),
			  "accept", i);
		if (!accept_rows[i].err) {
			CHECK_STR(fb.calls, " prepare accept");
			CHECK_STR(fv.moves, " INIT RTR RTS");
			CHECK_EQ(fv.attr[IBV_QPS_RTR].max_dest_rd_atomic,
				 accept_rows[i].want_resp);
			CHECK_EQ(fv.attr[IBV_QPS_RTS].max_rd_atomic,
				 accept_rows[i].want_init);
		}
		rdma_destroy_qp(child);
		CHECK_EQ(rdma_destroy_id(child), 0);
	}
	CHECK_EQ(rdma_destroy_id(listener), 0);
}

static void accept_that_fails(void)
{
	struct rdma_cm_id *listener = fake_id(ch, RDMA_PS_TCP);
	struct rdma_cm_id *child = child_of(listener, 1, 1);
	struct ibv_qp_init_attr attr = small_qp();

	CHECK_ERRNO(rdma_accept(child, NULL), EINVAL); /* no QP, no number of one */
	REQUIRE_EQ(rdma_create_qp(child, NULL, &attr), 0);
	fake_reset();
	fb.fail = EINVAL;
	CHECK_ERRNO(rdma_accept(child, NULL), EINVAL);
	CHECK_STR(fv.moves, " ERR");
	fake_reset();
	fv.fail_state = IBV_QPS_RTR;
	CHECK_ERRNO(rdma_accept(child, NULL), ENOSPC);
	CHECK_STR(fb.calls, " prepare"); /* nothing was sent: reject still can */
	fake_reset();
	CHECK_EQ(rdma_reject(child, "no", 2), 0);
	CHECK_EQ(fb.reject_reason, 28);
	CHECK_EQ(fb.reject_len, 2);
	CHECK_EQ(rdma_reject_ece(child, NULL, 9), 0);
	CHECK_EQ(fb.reject_reason, 35);
	CHECK_EQ(fb.reject_len, 0);
	rdma_destroy_qp(child);
	CHECK_EQ(rdma_destroy_id(child), 0);
	CHECK_EQ(rdma_destroy_id(listener), 0);
}

static void external_qp(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct rdma_conn_param p = { .qp_num = 0xAB123456, .srq = 7 };
	struct ibv_ece ece = { .vendor_id = 3, .options = 4 }, none = { 0 };

	CHECK_ERRNO(rdma_connect(id, NULL), EINVAL);
	CHECK_ERRNO(rdma_set_local_ece(id, &none), EINVAL);
	CHECK_EQ(rdma_set_local_ece(id, &ece), 0);
	CHECK_EQ(rdma_connect(id, &p), 0);
	CHECK_EQ(fb.param.qp_num, 0x123456);
	CHECK_EQ(fb.param.srq, 1);
	CHECK(fb.param.ece.vendor_id == 3 && fb.param.ece.options == 4);
	fake_reset();
	CHECK_EQ(rdma_establish(id), 0);
	CHECK_STR(fb.calls, " establish");
	CHECK_EQ(rdma_disconnect(id), 0);
	CHECK_EQ(rdma_get_remote_ece(id, &ece), 0);
	CHECK(ece.vendor_id == 0 && ece.options == 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void private_data(void)
{
	static const uint8_t data[255] = { 1 };
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct rdma_conn_param p = { .private_data = data, .private_data_len = 255,
				     .qp_num = 1 };

	CHECK_EQ(rdma_connect(id, &p), 0); /* the limit is the backend's */
	CHECK_EQ(fb.param.private_data_len, 255);
	to_id(id)->connect_blob = calloc(1, 36);
	to_id(id)->connect_blob_len = 36;
	CHECK_ERRNO(rdma_connect(id, &p), EINVAL); /* 291 bytes */
	p.private_data = NULL;
	CHECK_EQ(rdma_connect(id, &p), 0);
	CHECK_EQ(fb.param.private_data_len, 36);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

/* ---- QPs --------------------------------------------------------------------------- */

static void qp_with_everything_missing(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = small_qp();

	fake_reset();
	REQUIRE_EQ(rdma_create_qp(id, NULL, &attr), 0);
	CHECK_STR(fb.calls, " qp_created");
	CHECK_STR(fv.moves, " INIT");
	CHECK(id->send_cq && id->recv_cq && id->send_cq != id->recv_cq);
	CHECK(id->send_cq_channel && id->recv_cq_channel &&
	      id->send_cq_channel != id->recv_cq_channel);
	CHECK(id->send_cq->cq_context == id && id->recv_cq->cq_context == id);
	CHECK_EQ(id->send_cq->cqe, 4);
	CHECK_EQ(id->recv_cq->cqe, 5);
	CHECK(attr.send_cq == id->send_cq && attr.recv_cq == id->recv_cq);
	CHECK_EQ(attr.cap.max_inline_data, 123);
	CHECK(id->pd == id->qp->pd);
	CHECK_ERRNO(rdma_create_qp(id, NULL, &attr), EINVAL); /* one at a time */
	CHECK_ERRNO(rdma_establish(id), EINVAL);
	fake_reset();
	CHECK_EQ(rdma_disconnect(id), 0);
	CHECK_STR(fv.moves, " ERR");
	CHECK_STR(fb.calls, " disconnect");
	rdma_destroy_qp(id);
	rdma_destroy_qp(id); /* harmless */
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void qp_of_a_datagram_id_is_ready(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_UDP);
	struct ibv_qp_init_attr attr = small_qp();

	CHECK_EQ(id->qp_type, IBV_QPT_UD);
	attr.qp_type = IBV_QPT_UD;
	attr.cap.max_send_wr = 0; /* no send CQ then */
	fake_reset();
	REQUIRE_EQ(rdma_create_qp(id, NULL, &attr), 0);
	CHECK_STR(fv.moves, " INIT RTR RTS");
	CHECK(!id->send_cq && id->recv_cq);
	rdma_destroy_qp(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void qp_that_cannot_be_made(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP), *unbound;
	struct ibv_qp_init_attr attr = small_qp();
	struct ibv_context other;
	struct ibv_pd foreign = { .context = &other };

	CHECK_ERRNO(rdma_create_qp(id, &foreign, &attr), EINVAL);
	fv.fail_cq = 2;
	CHECK_ERRNO(rdma_create_qp(id, NULL, &attr), ENOMEM);
	CHECK(!id->send_cq && !id->recv_cq && !id->qp && !attr.recv_cq);
	fv.fail_state = IBV_QPS_INIT;
	CHECK_ERRNO(rdma_create_qp(id, NULL, &attr), ENOSPC);
	CHECK(!id->send_cq && !id->recv_cq && !id->qp);
	fv.fail_state = -1;
	REQUIRE_EQ(rdma_create_id(ch, &unbound, NULL, RDMA_PS_TCP), 0);
	CHECK_ERRNO(rdma_create_qp(unbound, NULL, &attr), EINVAL);
	CHECK_ERRNO(rdma_create_srq(unbound, NULL, &(struct ibv_srq_init_attr){ 0 }),
		    EINVAL);
	CHECK_EQ(rdma_destroy_id(unbound), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void srq_goes_to_the_qp(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct ibv_srq_init_attr sattr = { .attr.max_wr = 8 };
	struct ibv_srq_init_attr_ex ex = { .attr.max_wr = 8 };
	struct ibv_qp_init_attr attr = small_qp();
	struct rdma_conn_param p = { 0 };

	CHECK_ERRNO(rdma_create_srq_ex(id, &ex), EINVAL); /* no type */
	REQUIRE_EQ(rdma_create_srq(id, NULL, &sattr), 0);
	CHECK_EQ(sattr.attr.max_wr, 16);
	REQUIRE_EQ(rdma_create_qp(id, NULL, &attr), 0);
	CHECK(id->srq && id->qp->srq == id->srq && attr.srq == id->srq);
	CHECK_EQ(rdma_connect(id, &p), 0);
	CHECK_EQ(fb.param.srq, 1);
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	CHECK(!id->srq);
	rdma_destroy_srq(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

/* ---- multicast ------------------------------------------------------------------------ */

static void multicast(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_UDP);
	struct rdma_cm_join_mc_attr_ex ex = { .comp_mask = 4, .addr = fake_addr() };
	struct ibv_qp_init_attr attr = small_qp();
	struct rdma_cm_event *got;
	struct cm_event *ev;

	CHECK_ERRNO(rdma_join_multicast_ex(id, NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_join_multicast_ex(id, &ex, NULL), ENOTSUP);
	ex.comp_mask = RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	CHECK_ERRNO(rdma_join_multicast_ex(id, &ex, NULL), EINVAL);
	ex.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	CHECK_ERRNO(rdma_join_multicast_ex(id, &ex, NULL), EINVAL);
	ex.comp_mask = 3;
	ex.join_flags = 2;
	CHECK_ERRNO(rdma_join_multicast_ex(id, &ex, NULL), EINVAL);
	CHECK_ERRNO(rdma_leave_multicast(id, fake_addr()), EADDRNOTAVAIL);

	fb.fail = EOPNOTSUPP;
	CHECK_ERRNO(rdma_join_multicast(id, fake_addr(), NULL), EOPNOTSUPP);
	fb.fail = 0;
	CHECK_ERRNO(rdma_leave_multicast(id, fake_addr()), EADDRNOTAVAIL);

	attr.qp_type = IBV_QPT_UD;
	REQUIRE_EQ(rdma_create_qp(id, NULL, &attr), 0);
	CHECK_EQ(rdma_join_multicast(id, fake_addr(), &ex), 0);
	ev = cm_event_new(to_id(id), RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	ev->mcast = fb.mc;
	cm_event_post(ev);
	REQUIRE_EQ(rdma_get_cm_event(ch, &got), 0);
	CHECK_EQ(got->event, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(got->param.ud.private_data == &ex);
	CHECK_EQ(fv.attached, 1);
	CHECK_EQ(rdma_ack_cm_event(got), 0);
	CHECK_EQ(rdma_leave_multicast(id, fake_addr()), 0);
	CHECK_EQ(fv.attached, 0);
	CHECK_EQ(rdma_join_multicast(id, fake_addr(), NULL), 0); /* freed with the id */
	rdma_destroy_qp(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static struct rdma_cm_id *with_qp(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_UDP);
	struct ibv_qp_init_attr attr = small_qp();

	attr.qp_type = IBV_QPT_UD;
	CHECK_EQ(rdma_create_qp(id, NULL, &attr), 0);
	return id;
}

static struct cm_event *joined_event(struct rdma_cm_id *id, uint8_t group)
{
	struct cm_event *ev = cm_event_new(to_id(id), RDMA_CM_EVENT_MULTICAST_JOIN, 0);

	ev->mcast = fb.mc;
	ev->pub.param.ud.ah_attr.grh.dgid.raw[15] = group;
	return ev;
}

/* Joins, and fetches the event. */
static void joined(struct rdma_cm_id *id, uint8_t group)
{
	struct rdma_cm_event *got;

	CHECK_EQ(rdma_join_multicast(id, fake_addr(), NULL), 0);
	cm_event_post(joined_event(id, group));
	CHECK_EQ(rdma_get_cm_event(ch, &got), 0);
	CHECK_EQ(got->event, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK_EQ(rdma_ack_cm_event(got), 0);
}

/* One group, two entries: the QP is in it until the second one is left. */
static void group_joined_twice(void)
{
	struct rdma_cm_id *id = with_qp();

	joined(id, 1);
	joined(id, 1);
	CHECK_EQ(fv.attached, 2); /* as the fake counts */
	CHECK_EQ(rdma_leave_multicast(id, fake_addr()), 0);
	CHECK_EQ(fv.attached, 2);
	CHECK_EQ(rdma_leave_multicast(id, fake_addr()), 0);
	CHECK_EQ(fv.attached, 1);
	CHECK_ERRNO(rdma_leave_multicast(id, fake_addr()), EADDRNOTAVAIL);
	fv.attached = 0;
	joined(id, 1);
	joined(id, 2);
	CHECK_EQ(rdma_leave_multicast(id, fake_addr()), 0); /* another group */
	CHECK_EQ(fv.attached, 1);
	rdma_destroy_qp(id); /* and with it what it was attached to */
	CHECK_EQ(rdma_leave_multicast(id, fake_addr()), 0);
	CHECK_EQ(fv.attached, 1);
	fv.attached = 0;
	CHECK_EQ(rdma_destroy_id(id), 0);
}

/* Left before its event was fetched, or before it was applied: nothing is attached. */
static void left_before_the_event(void)
{
	struct rdma_cm_id *id = with_qp();
	struct cm_event *ev;
	struct pollfd p = { ch->fd, POLLIN, 0 };

	CHECK_EQ(rdma_join_multicast(id, fake_addr(), NULL), 0);
	cm_event_post(joined_event(id, 1));
	CHECK_EQ(rdma_leave_multicast(id, fake_addr()), 0);
	CHECK_EQ(poll(&p, 1, 0), 0);
	CHECK_EQ(fv.attached, 0);

	CHECK_EQ(rdma_join_multicast(id, fake_addr(), NULL), 0);
	ev = joined_event(id, 1);
	fb.mc->left = true; /* by a thread that waits for this event's acknowledgement */
	cm_event_post(ev);
	CHECK_EQ(cm_event_dequeue(to_channel(ch), &ev), 0);
	CHECK(cm_event_apply(ev));
	CHECK_EQ(fv.attached, 0);
	cm_event_ack(ev);
	rdma_destroy_qp(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

/* No event follows: a synchronous id does not wait for one. */
static void ud_disconnect(void)
{
	struct rdma_cm_id *id = fake_id(NULL, RDMA_PS_UDP);

	CHECK_EQ(rdma_disconnect(id), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

/* ---- arguments ------------------------------------------------------------------------ */

static void null_ids(void)
{
	struct ibv_qp_attr qa;
	struct ibv_ece ece;
	int mask;

	CHECK_ERRNO(rdma_destroy_id(NULL), EINVAL);
	CHECK_ERRNO(rdma_migrate_id(NULL, ch), EINVAL);
	CHECK_ERRNO(rdma_bind_addr(NULL, fake_addr()), EINVAL);
	CHECK_ERRNO(rdma_resolve_addr(NULL, NULL, fake_addr(), 1), EINVAL);
	CHECK_ERRNO(rdma_resolve_route(NULL, 1), EINVAL);
	CHECK_ERRNO(rdma_listen(NULL, 1), EINVAL);
	CHECK_ERRNO(rdma_get_request(NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_connect(NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_accept(NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_reject(NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(rdma_reject_ece(NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(rdma_establish(NULL), EINVAL);
	CHECK_ERRNO(rdma_notify(NULL, IBV_EVENT_COMM_EST), EINVAL);
	CHECK_ERRNO(rdma_disconnect(NULL), EINVAL);
	CHECK_ERRNO(rdma_create_qp(NULL, NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_create_qp_ex(NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_create_srq(NULL, NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_create_srq_ex(NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_init_qp_attr(NULL, &qa, &mask), EINVAL);
	CHECK_ERRNO(rdma_set_option(NULL, 0, 0, &mask, 4), EINVAL);
	CHECK_ERRNO(rdma_join_multicast(NULL, fake_addr(), NULL), EINVAL);
	CHECK_ERRNO(rdma_leave_multicast(NULL, fake_addr()), EINVAL);
	CHECK_ERRNO(rdma_set_local_ece(NULL, &ece), EINVAL);
	CHECK_ERRNO(rdma_get_remote_ece(NULL, &ece), EINVAL);
	CHECK_ERRNO(rdma_write_cm_event(NULL, RDMA_CM_EVENT_USER, 0, 0), EINVAL);
	CHECK_ERRNO(rdma_resolve_addrinfo(NULL, "a", NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_query_addrinfo(NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_ack_cm_event(NULL), EINVAL);
	CHECK_ERRNO(rdma_get_cm_event(NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_get_cm_event(ch, NULL), EINVAL);
	rdma_destroy_qp(NULL);
	rdma_destroy_srq(NULL);
	rdma_free_devices(NULL);
	rdma_freeaddrinfo(NULL);
}

static void bad_addresses_and_states(void)
{
	struct sockaddr_storage ss = { .ss_family = AF_UNIX };
	struct ibv_qp_attr qa = { .qp_state = IBV_QPS_INIT };
	struct rdma_conn_param p = { .qp_num = 1 };
	struct rdma_cm_id *id;
	int mask;

	CHECK_ERRNO(rdma_create_id(ch, NULL, NULL, RDMA_PS_TCP), EINVAL);
	CHECK_ERRNO(rdma_create_id(ch, &id, NULL, (enum rdma_port_space)0x106F), EINVAL);
	REQUIRE_EQ(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_ERRNO(rdma_bind_addr(id, NULL), EINVAL);
	CHECK_ERRNO(rdma_bind_addr(id, (struct sockaddr *)&ss), EINVAL);
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, NULL, 1), EINVAL);
	CHECK_ERRNO(rdma_resolve_addr(id, (struct sockaddr *)&ss, fake_addr(), 1), EINVAL);
	CHECK_ERRNO(rdma_resolve_route(id, 1000), EINVAL);
	CHECK_ERRNO(rdma_connect(id, &p), EINVAL);
	CHECK_ERRNO(rdma_accept(id, &p), EINVAL);
	CHECK_ERRNO(rdma_disconnect(id), EINVAL);
	CHECK_ERRNO(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
	CHECK_ERRNO(rdma_init_qp_attr(id, &qa, &mask), EINVAL);
	CHECK_ERRNO(rdma_set_option(id, 0, 0, NULL, 4), EFAULT);
	CHECK_EQ(rdma_get_src_port(id), 0);
	CHECK_EQ(rdma_bind_addr(id, fake_addr()), 0);
	CHECK_ERRNO(rdma_resolve_route(id, 0), EINVAL);
	CHECK_EQ(rdma_init_qp_attr(id, &qa, &mask), 0);
	fb.fail = ENOSYS;
	CHECK_ERRNO(rdma_set_option(id, 0, 99, &mask, 4), ENOSYS);
	CHECK_ERRNO(rdma_listen(id, 0), ENOSYS);
	fb.fail = 0;
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void devices(void)
{
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct ibv_context **list;
	int n = -1;

	list = rdma_get_devices(&n);
	REQUIRE(list);
	CHECK_EQ(n, 1);
	CHECK(list[0] == id->verbs && !list[1]);
	rdma_free_devices(list);
	list = rdma_get_devices(NULL);
	CHECK(list != NULL);
	rdma_free_devices(list);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

int main(int argc, char **argv)
{
	fake_init(argc, argv);
	ch = rdma_create_event_channel();
	T_RUN(connect_depths);
	T_RUN(accept_depths);
	T_RUN(accept_that_fails);
	T_RUN(external_qp);
	T_RUN(private_data);
	T_RUN(qp_with_everything_missing);
	T_RUN(qp_of_a_datagram_id_is_ready);
	T_RUN(qp_that_cannot_be_made);
	T_RUN(srq_goes_to_the_qp);
	T_RUN(multicast);
	T_RUN(group_joined_twice);
	T_RUN(left_before_the_event);
	T_RUN(ud_disconnect);
	T_RUN(null_ids);
	T_RUN(bad_addresses_and_states);
	T_RUN(devices);
	rdma_destroy_event_channel(ch);
	return fake_done();
}
