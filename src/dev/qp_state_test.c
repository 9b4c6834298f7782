/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/t.h"

#include "dev/fake_datagrams.h"

enum { S = IBV_QPS_ERR + 1 };
#define ALL_BITS 26 /* attributes of the verbs that have names, IBV_QP_STATE first */

/* The rules once more, in the words of the manual page and of the specification's
 * table of transitions, independent of the code: a line per transition and group of
 * types, what it needs, what else it takes. */
static const struct {
	const char *types, *from, *to, *needs, *takes;
} lines[] = {
	{ "rc uc xs xr", "reset", "init", "pkey port access", "" },
	{ "ud", "reset", "init", "pkey port qkey", "" },
	{ "rc uc xs xr", "init", "init", "", "pkey port access" },
	{ "ud", "init", "init", "", "pkey port qkey" },
	{ "rc xr", "init", "rtr", "av mtu dest rqpsn destreads rnrtimer", "alt access pkey" },
	{ "uc xs", "init", "rtr", "av mtu dest rqpsn", "alt access pkey" },
	{ "ud", "init", "rtr", "", "pkey qkey" },
	{ "rc", "rtr", "rts", "timeout retry rnrretry sqpsn reads",
	  "cur alt access rnrtimer mig" },
	{ "xs", "rtr", "rts", "timeout retry rnrretry sqpsn reads", "cur alt access mig" },
	{ "xr", "rtr", "rts", "timeout sqpsn", "cur alt access rnrtimer mig" },
	{ "uc", "rtr", "rts", "sqpsn", "cur alt access mig" },
	{ "ud", "rtr", "rts", "sqpsn", "cur qkey" },
	{ "rc xr", "rts sqd", "rts", "", "cur alt access rnrtimer mig" },
	{ "uc xs", "rts sqd", "rts", "", "cur alt access mig" },
	{ "ud", "rts sqd", "rts", "", "cur qkey" },
	{ "rc uc ud xs xr", "rts", "sqd", "", "notify" },
	{ "rc", "sqd", "sqd", "",
	  "port av timeout retry rnrretry reads destreads alt access pkey rnrtimer mig" },
	{ "xs", "sqd", "sqd", "",
	  "port av timeout retry rnrretry reads alt access pkey mig" },
	{ "xr", "sqd", "sqd", "",
	  "port av timeout destreads alt access pkey rnrtimer mig" },
	{ "uc", "sqd", "sqd", "", "av alt access pkey mig" },
	{ "ud", "sqd", "sqd", "", "pkey qkey" },
	{ "uc", "sqe", "rts", "", "cur access" },
	{ "ud", "sqe", "rts", "", "cur qkey" },
	{ "rc uc ud xs xr", "reset init rtr rts sqd err", "reset", "", "" },
	{ "rc uc ud xs xr", "init rtr rts sqd err", "err", "", "" },
	{ "uc ud", "sqe", "reset err", "", "" },
};

static const struct {
	const char *name;
	int bit;
} bits[] = {
	{ "cur", IBV_QP_CUR_STATE },
	{ "notify", IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ "access", IBV_QP_ACCESS_FLAGS },
	{ "pkey", IBV_QP_PKEY_INDEX },
	{ "port", IBV_QP_PORT },
	{ "qkey", IBV_QP_QKEY },
	{ "av", IBV_QP_AV },
	{ "mtu", IBV_QP_PATH_MTU },
	{ "timeout", IBV_QP_TIMEOUT },
	{ "retry", IBV_QP_RETRY_CNT },
	{ "rnrretry", IBV_QP_RNR_RETRY },
	{ "rqpsn", IBV_QP_RQ_PSN },
	{ "reads", IBV_QP_MAX_QP_RD_ATOMIC },
	{ "alt", IBV_QP_ALT_PATH },
	{ "rnrtimer", IBV_QP_MIN_RNR_TIMER },
	{ "sqpsn", IBV_QP_SQ_PSN },
	{ "destreads", IBV_QP_MAX_DEST_RD_ATOMIC },
	{ "mig", IBV_QP_PATH_MIG_STATE },
	{ "dest", IBV_QP_DEST_QPN },
};

static const struct {
	const char *name;
	enum ibv_qp_type type;
} types[] = {
	{ "rc", IBV_QPT_RC },	    { "uc", IBV_QPT_UC },	{ "ud", IBV_QPT_UD },
	{ "xs", IBV_QPT_XRC_SEND }, { "xr", IBV_QPT_XRC_RECV },
};
#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

static const char *const states[S] = { "reset", "init", "rtr", "rts",
				       "sqd",	"sqe",	"err" };

static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += n)
		if ((p == text || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
			return true;
	return false;
}

static int mask_of(const char *words)
{
	int mask = 0;

	for (int i = 0; i < N(bits); i++)
		if (has_word(words, bits[i].name))
			mask |= bits[i].bit;
	return mask;
}

/* Whether the lines have the transition, and its masks. */
static bool rule(int type, int from, int to, int *needs, int *takes)
{
	for (int i = 0; i < N(lines); i++)
		if (has_word(lines[i].types, types[type].name) &&
		    has_word(lines[i].from, states[from]) &&
		    has_word(lines[i].to, states[to])) {
			*needs = mask_of(lines[i].needs);
			*takes = mask_of(lines[i].takes) | IBV_QP_STATE;
			return true;
		}
	*needs = *takes = 0;
	return false;
}

static int verdict(bool legal, int needs, int takes, int mask)
{
	return legal && (mask & needs) == needs && !(mask & ~(needs | takes)) ? 0 : -EINVAL;
}

static uint32_t any(void)
{
	static uint32_t x = 1;

	return x = x * 1664525 + 1013904223;
}

/* Every single attribute missing, every single one added, and mixtures. */
static void table_of(int type)
{
	for (int from = 0; from < S; from++)
		for (int to = 0; to < S; to++) {
			int needs, takes;
			bool legal = rule(type, from, to, &needs, &takes);

#define SAYS(mask) \
	CHECK_EQ(qp_state_check(types[type].type, from, to, mask), \
		 verdict(legal, needs, takes, mask))
			SAYS(0);
			SAYS(needs);
			SAYS(needs | IBV_QP_STATE);
			SAYS(needs | takes);
			for (int b = 0; b < ALL_BITS; b++) {
				SAYS(needs | 1 << b);
				SAYS(needs & ~(1 << b));
				SAYS((needs | takes) & ~(1 << b));
				SAYS(needs | takes | 1 << b);
			}
			for (int i = 0; i < 200; i++) {
				int few = (int)(any() & any() & any()) & ((1 << ALL_BITS) - 1);

				SAYS((needs | takes) ^ few);
				SAYS(needs ^ few);
			}
#undef SAYS
		}
}

static void table_rc(void)
{
	table_of(0);
}

static void table_uc(void)
{
	table_of(1);
}

static void table_ud(void)
{
	table_of(2);
}

static void table_xrc(void)
{
	table_of(3);
	table_of(4);
}

static void outside_the_table(void)
{
	enum ibv_qp_state none = (enum ibv_qp_state) - 1;

	CHECK_EQ(qp_state_check(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_UNKNOWN, IBV_QP_STATE),
		 -EINVAL);
	CHECK_EQ(qp_state_check(IBV_QPT_RC, IBV_QPS_RESET, none, 0), -EINVAL);
	CHECK_EQ(qp_state_check(IBV_QPT_RC, none, IBV_QPS_RESET, 0), -EINVAL);
	CHECK_EQ(qp_state_check(IBV_QPT_RAW_PACKET, IBV_QPS_RESET, IBV_QPS_RESET, 0), -EINVAL);
	CHECK_EQ(qp_state_check((enum ibv_qp_type)0, IBV_QPS_RESET, IBV_QPS_RESET, 0), -EINVAL);
}

/* ---- the same rules through ibv_modify_qp ---------------------------------------- */

/* What the shortest way takes. */
static int way_mask(enum ibv_qp_type type, enum ibv_qp_state to)
{
	bool uc = type == IBV_QPT_UC, ud = type == IBV_QPT_UD;

	if (to == IBV_QPS_INIT)
		return ud ? UD_INIT_MASK : INIT_MASK;
	if (to == IBV_QPS_RTR)
		return ud ? IBV_QP_STATE : uc ? UC_RTR_MASK : RTR_MASK;
	if (to == IBV_QPS_RTS)
		return ud ? UD_RTS_MASK : uc ? UC_RTS_MASK : RTS_MASK;
	return IBV_QP_STATE;
}

static void way_to(struct rig *r, enum ibv_qp_state to)
{
	CHECK_EQ(rig_to(r, to, way_mask(r->qp->qp_type, to)), 0);
}

/* An error of the send queue. */
static void fail_send(struct rig *r)
{
	struct ibv_ah *ah = ud_ah(r->pd);
	struct ibv_wc wc;

	CHECK_EQ(ud_send(r, ah, 1, IBV_SEND_SIGNALED), 0);
	qp_fail_send(to_qp(r->qp), to_qp(r->qp)->sq.done, IBV_WC_LOC_PROT_ERR, "test");
	CHECK_EQ(ibv_poll_cq(r->scq, 1, &wc), 1);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
}

/* Brings the QP to a state by the shortest way. */
static void bring(struct rig *r, int to)
{
	way_to(r, IBV_QPS_RESET);
	if (to == IBV_QPS_RESET)
		return;
	way_to(r, IBV_QPS_INIT);
	if (to == IBV_QPS_RTR || (to >= IBV_QPS_RTS && to <= IBV_QPS_SQE))
		way_to(r, IBV_QPS_RTR);
	if (to >= IBV_QPS_RTS && to <= IBV_QPS_SQE)
		way_to(r, IBV_QPS_RTS);
	if (to == IBV_QPS_SQD || to == IBV_QPS_ERR)
		way_to(r, to);
	if (to == IBV_QPS_SQE)
		fail_send(r);
	CHECK_EQ(r->qp->state, to);
}

/* A refused call changes nothing; an accepted one leads where it says. Alternate
 * paths are refused everywhere, for their value's sake. */
static void try(struct rig *r, int type, int from, int to, int mask)
{
	struct ibv_qp_attr a = rig_attr(to), was, is;
	struct ibv_qp_init_attr init;
	int needs, takes, want;
	bool legal = rule(type, from, to, &needs, &takes);

	memset(&was, 0, sizeof(was)); /* padding takes part in the comparison */
	memset(&is, 0, sizeof(is));
	if (r->qp->state != (enum ibv_qp_state)from)
		bring(r, from);
	a.cur_qp_state = from;
	want = -verdict(legal, needs, takes, mask);
	if (!want && (mask & IBV_QP_ALT_PATH))
		want = EINVAL;
	ibv_query_qp(r->qp, &was, 0, &init);
	CHECK_EQ(ibv_modify_qp(r->qp, &a, mask | IBV_QP_STATE), want);
	ibv_query_qp(r->qp, &is, 0, &init);
	CHECK_EQ(is.qp_state, want ? from : to);
	if (want)
		CHECK(!memcmp(&was, &is, sizeof(is)));
	if (!want && from != to)
		bring(r, from);
}

static void calls_of(int type)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = types[type].type }));
	for (int from = 0; from < S; from++)
		for (int to = 0; to < S; to++) {
			int needs, takes;

			if (from == IBV_QPS_SQE && types[type].type == IBV_QPT_RC)
				continue; /* it never gets there */
			rule(type, from, to, &needs, &takes);
			try(&r, type, from, to, needs);
			try(&r, type, from, to, (needs | takes) & ~IBV_QP_ALT_PATH);
			for (int b = 1; b < ALL_BITS; b++) {
				try(&r, type, from, to, needs | 1 << b);
				try(&r, type, from, to, needs & ~(1 << b));
			}
		}
	rig_down(&r);
}

static void calls_rc(void)
{
	calls_of(0);
}

static void calls_uc(void)
{
	calls_of(1);
}

static void calls_ud(void)
{
	calls_of(2);
}

static void walk_and_query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(r.qp->state, IBV_QPS_RESET);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, RTS_MASK), EINVAL);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), EINVAL);
	rig_rts(&r);
	CHECK_EQ(fake.listen, 1);
	CHECK_EQ(fake.attach, 1);
	CHECK_EQ(fake.kick, 1);
	CHECK_EQ(ibv_query_qp(r.qp, &a, 0, &init), 0);
	CHECK_EQ(a.qp_state, IBV_QPS_RTS);
	CHECK_EQ(a.dest_qp_num, 0x1234);
	CHECK_EQ(a.timeout, 14);
	CHECK_EQ(a.cap.max_send_wr, 4);
	CHECK_EQ(a.cap.max_send_sge, 2);
	CHECK(a.cap.max_inline_data >= 64);
	CHECK(init.send_cq == r.scq && init.recv_cq == r.rcq);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, RTR_MASK), EINVAL);
	CHECK_EQ(r.qp->state, IBV_QPS_RTS);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK_EQ(fake.stop, 1);
	CHECK_EQ(r.qp->state, IBV_QPS_ERR);
	CHECK_EQ(rig_to(&r, IBV_QPS_RESET, IBV_QP_STATE), 0);
	CHECK_EQ(fake.detach, 1);
	ibv_query_qp(r.qp, &a, 0, &init);
	CHECK_EQ(a.dest_qp_num, 0);
	rig_rts(&r);
	CHECK_EQ(fake.attach, 2);
	rig_down(&r);
	CHECK_EQ(fake.detach, 2);
}

static void refused_attach_stays_in_init(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, INIT_MASK), 0);
	fake.attach_ret = -EMFILE;
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, RTR_MASK), EMFILE);
	CHECK_EQ(r.qp->state, IBV_QPS_INIT);
	CHECK(to_qp(r.qp)->tr == NULL);
	fake.attach_ret = 0;
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, RTR_MASK), 0);
	rig_down(&r);
}

/* What made_by_cm means for listening is for the transport to say. */
static void made_by_cm_is_left_to_the_transport(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	to_qp(r.qp)->made_by_cm = true;
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, INIT_MASK), 0);
	CHECK_EQ(fake.listen, 1);
	rig_down(&r);
}

/* Each wrong value alone is refused and leaves the state as it was. */
static void values(void)
{
	struct rig r;
	struct ibv_qp_attr a;

#define REFUSED(to, mask, field, value) \
	do { \
		enum ibv_qp_state was = r.qp->state; \
		a = rig_attr(to); \
		a.field = value; \
		CHECK_EQ(ibv_modify_qp(r.qp, &a, mask), EINVAL); \
		CHECK_EQ(r.qp->state, was); \
	} while (0)
	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	REFUSED(IBV_QPS_INIT, INIT_MASK, port_num, 0);
	REFUSED(IBV_QPS_INIT, INIT_MASK, port_num, 2);
	REFUSED(IBV_QPS_INIT, INIT_MASK, pkey_index, 1);
	REFUSED(IBV_QPS_INIT, INIT_MASK, qp_access_flags, 0x10000);
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, INIT_MASK), 0);
	REFUSED(IBV_QPS_RTR, RTR_MASK, ah_attr.is_global, 0);
	REFUSED(IBV_QPS_RTR, RTR_MASK, ah_attr.port_num, 0);
	REFUSED(IBV_QPS_RTR, RTR_MASK, ah_attr.port_num, 3);
	REFUSED(IBV_QPS_RTR, RTR_MASK, ah_attr.sl, 16);
	REFUSED(IBV_QPS_RTR, RTR_MASK, ah_attr.grh.dgid, (union ibv_gid){ 0 });
	REFUSED(IBV_QPS_RTR, RTR_MASK, ah_attr.grh.sgid_index, 255);
	REFUSED(IBV_QPS_RTR, RTR_MASK, path_mtu, 0);
	REFUSED(IBV_QPS_RTR, RTR_MASK, path_mtu, gid_active_mtu(0) + 1);
	REFUSED(IBV_QPS_RTR, RTR_MASK, dest_qp_num, 0x1000000);
	REFUSED(IBV_QPS_RTR, RTR_MASK, max_dest_rd_atomic, DEV_MAX_RD_ATOM + 1);
	REFUSED(IBV_QPS_RTR, RTR_MASK, min_rnr_timer, 32);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, RTR_MASK), 0);
	REFUSED(IBV_QPS_RTS, RTS_MASK, timeout, 32);
	REFUSED(IBV_QPS_RTS, RTS_MASK, retry_cnt, 8);
	REFUSED(IBV_QPS_RTS, RTS_MASK, rnr_retry, 8);
	REFUSED(IBV_QPS_RTS, RTS_MASK, max_rd_atomic, DEV_MAX_RD_ATOM + 1);
	REFUSED(IBV_QPS_RTS, RTS_MASK | IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_INIT);
	a = rig_attr(IBV_QPS_RTS);
	CHECK_EQ(ibv_modify_qp(r.qp, &a, RTS_MASK | IBV_QP_ALT_PATH), EINVAL);
	a.path_mig_state = IBV_MIG_REARM;
	CHECK_EQ(ibv_modify_qp(r.qp, &a, RTS_MASK | IBV_QP_PATH_MIG_STATE), EINVAL);
	a.path_mig_state = IBV_MIG_ARMED;
	CHECK_EQ(ibv_modify_qp(r.qp, &a, RTS_MASK | IBV_QP_PATH_MIG_STATE), EINVAL);
	a.path_mig_state = IBV_MIG_MIGRATED;
	a.cur_qp_state = IBV_QPS_RTR;
	CHECK_EQ(ibv_modify_qp(r.qp, &a, RTS_MASK | IBV_QP_CUR_STATE), 0);
	rig_down(&r);
#undef REFUSED
}

static struct ibv_qp *make(struct rig *r, struct ibv_qp_init_attr a)
{
	a.send_cq = a.send_cq ? a.send_cq : r->scq;
	a.recv_cq = a.recv_cq ? a.recv_cq : r->rcq;
	errno = 0;
	return ibv_create_qp(r->pd, &a);
}

static void creation(void)
{
	struct ibv_qp_init_attr no_cq = { .qp_type = IBV_QPT_RC };
	struct rig r;

#define REFUSED(err, ...) \
	do { \
		CHECK(!make(&r, (struct ibv_qp_init_attr){ __VA_ARGS__ })); \
		CHECK_EQ(errno, err); \
	} while (0)
	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	REFUSED(EOPNOTSUPP, .qp_type = IBV_QPT_RAW_PACKET);
	REFUSED(EINVAL, .qp_type = IBV_QPT_XRC_RECV); /* it has a domain, no PD */
	REFUSED(EINVAL, .qp_type = (enum ibv_qp_type)77);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_send_wr = DEV_MAX_QP_WR + 1);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_recv_wr = DEV_MAX_QP_WR + 1);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_send_sge = DEV_MAX_SGE + 1);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_recv_sge = DEV_MAX_SGE + 1);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_inline_data = DEV_MAX_INLINE + 1);
	CHECK(!ibv_create_qp(r.pd, &no_cq) && errno == EINVAL);
	CHECK_EQ(ibv_destroy_cq(r.scq), EBUSY);
	CHECK_EQ(ibv_destroy_comp_channel(r.ch), EBUSY);
	CHECK_EQ(ibv_dealloc_pd(r.pd), EBUSY);
	rig_down(&r);
#undef REFUSED
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(table_rc);
	T_RUN(table_uc);
	T_RUN(table_ud);
	T_RUN(table_xrc);
	T_RUN(outside_the_table);
	T_RUN(calls_rc);
	T_RUN(calls_uc);
	T_RUN(calls_ud);
	T_RUN(walk_and_query);
	T_RUN(refused_attach_stays_in_init);
	T_RUN(made_by_cm_is_left_to_the_transport);
	T_RUN(values);
	T_RUN(creation);
	return t_done();
}
