/* SPDX-License-Identifier: BSD-2-Clause */
/* The attributes of ibv_modify_qp(), state by state: which are required, which are
 * optional, which values are refused; and what ibv_query_qp() returns afterwards. */
#include "side.h"

static struct side x, y;
static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC };

enum {
	TO_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	TO_RTR = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	TO_RTR_RC = TO_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	TO_RTS = IBV_QP_SQ_PSN,
	TO_RTS_RC = TO_RTS | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		    IBV_QP_MAX_QP_RD_ATOMIC,
	/* Alternate paths may stand in the mask but not have a value: they are left
	 * out of these and have a case of their own. */
	IN_RTS = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE,
	IN_SQD = IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE,
	IN_SQD_RC = IN_SQD | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
		    IBV_QP_MIN_RNR_TIMER,
	ATTRIBUTES = 21, /* named bits of a mask that every kernel knows */
};

/* A line per transition: what it needs and what else it takes. [0] RC, [1] UC. */
static const struct {
	enum ibv_qp_state from, to;
	int needs[2], takes[2];
} transitions[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, { TO_INIT, TO_INIT }, { 0, 0 } },
	{ IBV_QPS_INIT, IBV_QPS_INIT, { 0, 0 }, { TO_INIT, TO_INIT } },
	{ IBV_QPS_INIT, IBV_QPS_RTR, { TO_RTR_RC, TO_RTR },
	  { IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX } },
	{ IBV_QPS_RTR, IBV_QPS_RTS, { TO_RTS_RC, TO_RTS },
	  { IN_RTS | IBV_QP_MIN_RNR_TIMER, IN_RTS } },
	{ IBV_QPS_RTS, IBV_QPS_RTS, { 0, 0 }, { IN_RTS | IBV_QP_MIN_RNR_TIMER, IN_RTS } },
	{ IBV_QPS_RTS, IBV_QPS_SQD, { 0, 0 },
	  { IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY } },
	{ IBV_QPS_SQD, IBV_QPS_SQD, { 0, 0 }, { IN_SQD_RC, IN_SQD } },
	{ IBV_QPS_SQD, IBV_QPS_RTS, { 0, 0 }, { IN_RTS | IBV_QP_MIN_RNR_TIMER, IN_RTS } },
};

/* Good values for everything. */
static struct ibv_qp_attr good(const struct side *s, enum ibv_qp_state state)
{
	return (struct ibv_qp_attr){
		.qp_state = state,
		.cur_qp_state = conf_qp_state(s->qp),
		.path_mtu = IBV_MTU_256,
		.path_mig_state = IBV_MIG_MIGRATED,
		.rq_psn = 0x654321,
		.sq_psn = 0x123456,
		.dest_qp_num = 0x4567,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = dev.gid, .sgid_index = dev.gid_index,
				      .hop_limit = 7, .traffic_class = 32 } },
		.max_rd_atomic = 2,
		.max_dest_rd_atomic = 3,
		.min_rnr_timer = 5,
		.port_num = 1,
		.timeout = 18,
		.retry_cnt = 6,
		.rnr_retry = 5,
	};
}

static int needs(const struct side *s, enum ibv_qp_state from, enum ibv_qp_state to)
{
	for (unsigned i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++)
		if (transitions[i].from == from && transitions[i].to == to)
			return transitions[i].needs[s->qp->qp_type == IBV_QPT_UC];
	return 0;
}

static int step(struct side *s, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = good(s, to);

	return ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | needs(s, conf_qp_state(s->qp), to));
}

/* From RESET by the straight way. */
static void bring(struct side *s, enum ibv_qp_state to)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
						 IBV_QPS_SQD };

	EQ(to_state(s, IBV_QPS_RESET), 0);
	if (to == IBV_QPS_RESET)
		return;
	EQ(step(s, IBV_QPS_INIT), 0);
	if (to == IBV_QPS_ERR) {
		EQ(to_state(s, IBV_QPS_ERR), 0);
		return;
	}
	for (int i = 1; i < 4 && way[i - 1] != to; i++)
		EQ(step(s, way[i]), 0);
	EQ(conf_qp_state(s->qp), to);
}

static struct side of_type(int t)
{
	return side_with(1, (struct side_opt){ .type = types[t] });
}

/* ---- masks ------------------------------------------------------------------------ */

static void every_required_attribute(void)
{
	open_device();
	for (int t = 0; t < 2; t++) {
		x = of_type(t);
		for (unsigned i = 0; i < 4; i++) {
			int need = transitions[i].needs[t];

			bring(&x, transitions[i].from);
			for (int b = 1; b < ATTRIBUTES; b++) {
				struct ibv_qp_attr attr = good(&x, transitions[i].to);

				if (!(need & 1 << b))
					continue;
				EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE | (need & ~(1 << b))),
				   EINVAL);
				EQ(conf_qp_state(x.qp), transitions[i].from);
			}
		}
		side_free(&x);
	}
	close_device();
}

static void every_other_attribute(void)
{
	open_device();
	for (int t = 0; t < 2; t++) {
		x = of_type(t);
		for (unsigned i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
			int all = transitions[i].needs[t] | transitions[i].takes[t];

			for (int b = 1; b < ATTRIBUTES; b++) {
				struct ibv_qp_attr attr;
				int bit = 1 << b;
				int want = all & bit ? 0 : EINVAL;

				if (bit == IBV_QP_ALT_PATH)
					continue;
				if (conf_qp_state(x.qp) != transitions[i].from)
					bring(&x, transitions[i].from);
				attr = good(&x, transitions[i].to);
				if (ibv_modify_qp(x.qp, &attr, IBV_QP_STATE |
						  transitions[i].needs[t] | bit) != want)
					FAIL("type %d, %d -> %d: attribute 0x%x is%s wanted",
					     types[t], transitions[i].from, transitions[i].to,
					     bit, want ? " not" : "");
				EQ(conf_qp_state(x.qp),
				   want ? transitions[i].from : transitions[i].to);
			}
		}
		side_free(&x);
	}
	close_device();
}

static void every_other_transition(void)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						    IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR };
	/* Row: from; column: to, by enum ibv_qp_state. */
	static const char *const legal[] = { "xx.....", "xxx...x", "x..x..x", "x..xx.x",
					     "x..xx.x", "", "x.....x" };

	open_device();
	for (int t = 0; t < 2; t++) {
		x = of_type(t);
		for (unsigned i = 0; i < 6; i++)
			for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++) {
				struct ibv_qp_attr attr;
				bool ok = legal[states[i]][to] == 'x';

				bring(&x, states[i]);
				attr = good(&x, to);
				if (!ibv_modify_qp(x.qp, &attr, IBV_QP_STATE |
						   needs(&x, states[i], to)) != ok)
					FAIL("type %d: %d -> %d is%s legal", types[t],
					     states[i], to, ok ? "" : " not");
				EQ(conf_qp_state(x.qp), ok ? to : (int)states[i]);
			}
		side_free(&x);
	}
	close_device();
}

static void state_out_of_range(void)
{
	struct ibv_qp_attr attr = { .qp_state = (enum ibv_qp_state)9 };

	side_alone(&x);
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE), EINVAL);
	side_alone_free(&x);
}

/* ---- values ----------------------------------------------------------------------- */

#define REFUSED(to, field, value)                                                \
	do {                                                                     \
		enum ibv_qp_state was_ = conf_qp_state(x.qp);                    \
		struct ibv_qp_attr attr_ = good(&x, to);                         \
		attr_.field = value;                                             \
		EQ(ibv_modify_qp(x.qp, &attr_, IBV_QP_STATE | needs(&x, was_, to)), EINVAL); \
		EQ(conf_qp_state(x.qp), was_);                                   \
	} while (0)

static void values_of_init(void)
{
	side_alone(&x);
	REFUSED(IBV_QPS_INIT, port_num, 0);
	REFUSED(IBV_QPS_INIT, port_num, 77);
	EQ(step(&x, IBV_QPS_INIT), 0);
	side_alone_free(&x);
}

/* On Ethernet every address has a global route. */
static void addresses(void)
{
	open_device();
	for (int t = 0; t < 2; t++) {
		x = of_type(t);
		bring(&x, IBV_QPS_INIT);
		REFUSED(IBV_QPS_RTR, ah_attr.is_global, 0);
		REFUSED(IBV_QPS_RTR, ah_attr.port_num, 0);
		REFUSED(IBV_QPS_RTR, ah_attr.port_num, 77);
		EQ(step(&x, IBV_QPS_RTR), 0);
		side_free(&x);
	}
	close_device();
}

static void values_of_rtr(void)
{
	struct ibv_device_attr da;

	open_device();
	OK(ibv_query_device(dev.ctx, &da));
	x = side(1);
	bring(&x, IBV_QPS_INIT);
	REFUSED(IBV_QPS_RTR, path_mtu, 6);
	REFUSED(IBV_QPS_RTR, max_dest_rd_atomic, da.max_qp_rd_atom + 1);
	EQ(step(&x, IBV_QPS_RTR), 0);
	side_free(&x);
	close_device();
}

/* Fields of a few bits: what does not fit them. */
static void values_that_do_not_fit(void)
{
	side_alone(&x);
	bring(&x, IBV_QPS_INIT);
	REFUSED(IBV_QPS_RTR, path_mtu, 0);
	REFUSED(IBV_QPS_RTR, dest_qp_num, 0x1000000);
	REFUSED(IBV_QPS_RTR, min_rnr_timer, 32);
	REFUSED(IBV_QPS_RTR, ah_attr.sl, 16);
	EQ(step(&x, IBV_QPS_RTR), 0);
	REFUSED(IBV_QPS_RTS, retry_cnt, 8);
	REFUSED(IBV_QPS_RTS, rnr_retry, 8);
	EQ(step(&x, IBV_QPS_RTS), 0);
	side_alone_free(&x);
}

static void values_of_rts(void)
{
	struct ibv_device_attr da;

	open_device();
	OK(ibv_query_device(dev.ctx, &da));
	x = side(1);
	bring(&x, IBV_QPS_RTR);
	REFUSED(IBV_QPS_RTS, timeout, 32);
	REFUSED(IBV_QPS_RTS, max_rd_atomic, da.max_qp_init_rd_atom + 1);
	EQ(step(&x, IBV_QPS_RTS), 0);
	side_free(&x);
	close_device();
}

static void mtu_above_the_ports(void)
{
	open_device();
	if (dev.port.active_mtu == IBV_MTU_4096)
		SKIP("the port has the largest MTU");
	x = side(1);
	bring(&x, IBV_QPS_INIT);
	REFUSED(IBV_QPS_RTR, path_mtu, dev.port.active_mtu + 1);
	side_free(&x);
	close_device();
}

/* The application says where it believes the QP is. */
static void current_state(void)
{
	struct ibv_qp_attr attr;

	side_alone(&x);
	bring(&x, IBV_QPS_RTR);
	attr = good(&x, IBV_QPS_RTS);
	attr.cur_qp_state = IBV_QPS_SQD;
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE | TO_RTS_RC), EINVAL);
	attr.cur_qp_state = IBV_QPS_RTR;
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE | TO_RTS_RC), 0);
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	attr.cur_qp_state = IBV_QPS_SQD;
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
	side_alone_free(&x);
}

/* No Ethernet device has them. */
static void alternate_paths(void)
{
	struct ibv_qp_attr attr;
	struct ibv_device_attr da;

	open_device();
	OK(ibv_query_device(dev.ctx, &da));
	CHECK(!(da.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG));
	x = side(1);
	bring(&x, IBV_QPS_INIT);
	attr = good(&x, IBV_QPS_RTR);
	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_port_num = 1;
	attr.alt_timeout = 14;
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE | TO_RTR_RC | IBV_QP_ALT_PATH), EINVAL);
	EQ(step(&x, IBV_QPS_RTR), 0);
	side_free(&x);
	close_device();
}

static void migration_states(void)
{
	struct ibv_qp_attr attr;

	side_alone(&x);
	bring(&x, IBV_QPS_RTS);
	attr = good(&x, IBV_QPS_RTS);
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_PATH_MIG_STATE), 0); /* as it is */
	attr.path_mig_state = IBV_MIG_REARM;
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_PATH_MIG_STATE), EINVAL);
	attr.path_mig_state = IBV_MIG_ARMED;
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_PATH_MIG_STATE), EINVAL);
	side_alone_free(&x);
}

/* ---- queries ---------------------------------------------------------------------- */

static void query_along_the_way(void)
{
	struct ibv_qp_attr attr;

	open_device();
	for (int t = 0; t < 2; t++) {
		x = of_type(t);
		conf_qp_query(x.qp, &attr);
		EQ(attr.qp_state, IBV_QPS_RESET);
		EQ(step(&x, IBV_QPS_INIT), 0);
		conf_qp_query(x.qp, &attr);
		EQ(attr.qp_state, IBV_QPS_INIT);
		EQ(attr.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
		EQ(attr.pkey_index, 0);
		EQ(attr.port_num, 1);
		EQ(step(&x, IBV_QPS_RTR), 0);
		conf_qp_query(x.qp, &attr);
		EQ(attr.qp_state, IBV_QPS_RTR);
		EQ(attr.path_mtu, IBV_MTU_256);
		EQ(attr.dest_qp_num, 0x4567);
		EQ(attr.rq_psn, 0x654321);
		EQ(attr.ah_attr.is_global, 1);
		EQ(attr.ah_attr.port_num, 1);
		EQ(attr.ah_attr.grh.sgid_index, dev.gid_index);
		EQ(attr.ah_attr.grh.traffic_class, 32);
		CHECK(!memcmp(&attr.ah_attr.grh.dgid, &dev.gid, sizeof(dev.gid)));
		EQ(step(&x, IBV_QPS_RTS), 0);
		conf_qp_query(x.qp, &attr);
		EQ(attr.qp_state, IBV_QPS_RTS);
		EQ(attr.sq_psn, 0x123456);
		EQ(attr.path_mig_state, IBV_MIG_MIGRATED);
		EQ(attr.sq_draining, 0);
		if (types[t] == IBV_QPT_RC) {
			EQ(attr.max_dest_rd_atomic, 3);
			EQ(attr.min_rnr_timer, 5);
			EQ(attr.max_rd_atomic, 2);
			EQ(attr.timeout, 18);
			EQ(attr.retry_cnt, 6);
			EQ(attr.rnr_retry, 5);
		}
		side_free(&x);
	}
	close_device();
}

static void query_what_it_was_made_of(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	open_device();
	for (int sig = 0; sig < 2; sig++) {
		x = side_with(1, (struct side_opt){ .type = types[sig], .wr = 30, .sge = 2,
						    .inline_data = 32, .sig_all = sig });
		OK(ibv_query_qp(x.qp, &attr, IBV_QP_CAP, &init));
		EQ(init.qp_type, types[sig]);
		EQ(init.sq_sig_all, sig);
		CHECK(init.send_cq == x.cq && init.recv_cq == x.cq && !init.srq);
		CHECK(init.cap.max_send_wr >= 30 && init.cap.max_recv_wr >= 30);
		CHECK(init.cap.max_send_sge >= 2 && init.cap.max_recv_sge >= 1);
		CHECK(init.cap.max_inline_data >= 32);
		side_free(&x);
	}
	close_device();
}

/* A reset QP remembers nothing; one in ERR still says where it was. */
static void query_after_the_end(void)
{
	struct ibv_qp_attr attr;

	side_alone(&x);
	bring(&x, IBV_QPS_RTS);
	EQ(to_state(&x, IBV_QPS_ERR), 0);
	conf_qp_query(x.qp, &attr);
	EQ(attr.qp_state, IBV_QPS_ERR);
	EQ(attr.dest_qp_num, 0x4567);
	EQ(to_state(&x, IBV_QPS_RESET), 0);
	conf_qp_query(x.qp, &attr);
	EQ(attr.qp_state, IBV_QPS_RESET);
	side_alone_free(&x);
}

/* Attributes that change while the QP works. */
static void changes_in_rts(void)
{
	struct ibv_qp_attr attr;

	side_pair(&x, &y);
	attr = good(&x, IBV_QPS_RTS);
	attr.min_rnr_timer = 19;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS), 0);
	conf_qp_query(x.qp, &attr);
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.min_rnr_timer, 19);
	EQ(attr.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	exchange(&x, &y, 3);
	side_pair_free(&x, &y);
}

/* ---- draining --------------------------------------------------------------------- */

static void wait_drained(void)
{
	struct pollfd p = { .fd = dev.ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	AT("waiting for the queue to drain");
	CHECK(poll(&p, 1, conf_ms(CONF_WAIT)) == 1);
	OK(ibv_get_async_event(dev.ctx, &ev));
	EQ(ev.event_type, IBV_EVENT_SQ_DRAINED);
	CHECK(ev.element.qp == x.qp);
	ibv_ack_async_event(&ev);
}

static int drain(bool notify)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = notify };

	return ibv_modify_qp(x.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

static void put(uint64_t id, uint32_t len)
{
	OK(conf_send(x.qp, id, &x.b, 0, len));
}

static void draining_of(enum ibv_qp_type type)
{
	struct side_opt o = { .type = type };
	struct ibv_qp_attr attr;

	side_pair_with(&x, &y, o, o);
	for (int i = 0; i < 10; i++) {
		for (int k = 0; k < 3; k++)
			OK(conf_recv(y.qp, 20 + k, &y.b, 0, 1000));
		put(1, 1000);
		put(2, 1000);
		EQ(drain(true), 0);
		conf_qp_query(x.qp, &attr);
		EQ(attr.qp_state, IBV_QPS_SQD);
		wait_drained();
		conf_qp_query(x.qp, &attr);
		EQ(attr.sq_draining, 0);
		put(3, 1000); /* is taken and waits */
		attr = good(&x, IBV_QPS_SQD);
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
		EQ(to_state(&x, IBV_QPS_RTS), 0);
		for (int k = 1; k <= 3; k++)
			conf_wc_ok(x.cq, k);
		for (int k = 0; k < 3; k++)
			conf_wc_ok(y.cq, 20 + k);
	}
	side_pair_free(&x, &y);
}

static void draining_rc(void)
{
	draining_of(IBV_QPT_RC);
}

static void draining_uc(void)
{
	draining_of(IBV_QPT_UC);
}

/* In SQD nothing new leaves, and receiving goes on. */
static void drained_queue_is_silent(void)
{
	side_pair(&x, &y);
	EQ(drain(true), 0);
	wait_drained();
	OK(conf_recv(y.qp, 20, &y.b, 0, 1000));
	OK(conf_recv(x.qp, 21, &x.b, 0, 1000));
	put(1, 1000);
	OK(conf_send(y.qp, 2, &y.b, 5000, 100));
	conf_wc_ok(y.cq, 2);
	conf_wc_ok(x.cq, 21);
	conf_wc_none(x.cq, CONF_QUIET);
	conf_wc_none(y.cq, 0);
	EQ(to_state(&x, IBV_QPS_RTS), 0);
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 20);
	EQ(drain(false), 0);
	EQ(to_state(&x, IBV_QPS_ERR), 0);
	CHECK(!conf_readable(dev.ctx->async_fd));
	side_pair_free(&x, &y);
}

/* While work is under way there is no way back: a request that the peer does not
 * take yet keeps the queue draining. */
static void no_way_back_while_draining(void)
{
	struct ibv_qp_attr attr;

	side_pair(&x, &y);
	exchange(&x, &y, 9); /* so that what follows leaves at once */
	rarely_not_ready(&y);
	put(1, 1000);	     /* receiver not ready */
	conf_settle(); /* a thread that was at this QP has begun it for us */
	EQ(drain(true), 0);
	conf_qp_query(x.qp, &attr);
	EQ(attr.sq_draining, 1);
	EQ(to_state(&x, IBV_QPS_RTS), EINVAL);
	EQ(to_state(&x, IBV_QPS_SQD), EINVAL);
	EQ(conf_qp_state(x.qp), IBV_QPS_SQD);
	OK(conf_recv(y.qp, 20, &y.b, 0, 1000));
	wait_drained();
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 20);
	EQ(to_state(&x, IBV_QPS_RTS), 0);
	exchange(&x, &y, 1);
	side_pair_free(&x, &y);
}

/* ---- posting ---------------------------------------------------------------------- */

static void posting_by_state(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	open_device();
	for (int t = 0; t < 2; t++) {
		x = of_type(t);
		sge = conf_sge(&x.b, 0, 10);
		wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
		EQ(conf_post(x.qp, &wr), EINVAL);
		EQ(conf_recv(x.qp, 2, &x.b, 0, 10), EINVAL);
		EQ(step(&x, IBV_QPS_INIT), 0);
		EQ(conf_post(x.qp, &wr), EINVAL);
		EQ(conf_recv(x.qp, 3, &x.b, 0, 10), 0);
		EQ(step(&x, IBV_QPS_RTR), 0);
		EQ(conf_post(x.qp, &wr), EINVAL);
		EQ(conf_recv(x.qp, 4, &x.b, 0, 10), 0);
		EQ(to_state(&x, IBV_QPS_ERR), 0);
		conf_wc_is(x.cq, 3, IBV_WC_WR_FLUSH_ERR);
		conf_wc_is(x.cq, 4, IBV_WC_WR_FLUSH_ERR);
		EQ(conf_post(x.qp, &wr), 0);
		conf_wc_is(x.cq, 1, IBV_WC_WR_FLUSH_ERR);
		EQ(conf_recv(x.qp, 5, &x.b, 0, 10), 0);
		conf_wc_is(x.cq, 5, IBV_WC_WR_FLUSH_ERR);
		side_free(&x);
	}
	close_device();
}

static const struct conf_case cases[] = {
	CASE(every_required_attribute),
	CASE(every_other_attribute),
	CASE(every_other_transition),
	CASE(state_out_of_range),
	CASE(values_of_init),
	CASE(addresses),
	CASE(values_of_rtr),
	CASE(values_that_do_not_fit),
	CASE(values_of_rts),
	CASE(mtu_above_the_ports),
	CASE(current_state),
	CASE(alternate_paths),
	CASE(migration_states),
	CASE(query_along_the_way),
	CASE(query_what_it_was_made_of),
	CASE(query_after_the_end),
	CASE(changes_in_rts),
	CASE(draining_rc),
	CASE(draining_uc),
	CASE(drained_queue_is_silent),
	CASE(no_way_back_while_draining),
	CASE(posting_by_state),
};

CONF_MAIN(cases)
