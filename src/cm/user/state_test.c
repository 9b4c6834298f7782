/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/user/user.h"
#include "tests/t.h"

/* The whole table, one character a cell, rows and columns in the order of
 * state.h: '.' refused, else the state's letter ('A' is IDLE). Written from the
 * reference, not from the code. */
static const char *const want[US_COUNT] = {
	/*		       bind, resolve_addr .. removal, destroy */
	[US_IDLE] =	      "BC......G....K..............T",
	[US_BOUND] =	      ".C......G..................ST",
	[US_ADDR_QUERY] =     "..DB.......................ST",
	[US_ADDR_RESOLVED] =  "....E..F...................ST",
	[US_ROUTE_QUERY] =    ".....FD....................ST",
	[US_ROUTE_RESOLVED] = ".........H.................ST",
	[US_LISTEN] =	      ".....................G.....ST",
	[US_CONNECTING] =     "..........I........RRH.....ST",
	[US_AWAIT_REP] =      "...........HJ..P..RRRI.....ST",
	[US_REP_RCVD] =	      "................M.RQRJ.....ST",
	[US_REQ_RCVD] =	      "..............LP..R.RK..R..ST",
	[US_REP_SENT] =	      ".................MQR.LO..R.ST",
	[US_ESTABLISHED] =    "...................Q.NO.O..ST",
	[US_DREQ_SENT] =      ".....................NOQQQ.ST",
	[US_DREQ_RCVD] =      ".....................QOQO..ST",
	[US_DATAGRAM] =	      ".....................P.....ST",
	[US_TIMEWAIT] =	      ".....................QQQQ.RST",
	[US_CLOSED] =	      ".....................R..R..ST",
	[US_REMOVED] =	      "............................T",
	[US_DEAD] =	      ".............................",
};

static void every_cell(void)
{
	struct user_id u;

	for (int s = 0; s < US_COUNT; s++) {
		REQUIRE_EQ(strlen(want[s]), ST_COUNT);
		for (int e = 0; e < ST_COUNT; e++) {
			int to = want[s][e] == '.' ? -1 : want[s][e] - 'A';

			if (!CHECK_EQ(user_state_next((enum user_state)s, (enum user_step)e), to))
				diag("%s, %s", user_state_str((enum user_state)s),
				     user_step_str((enum user_step)e));
			memset(&u, 0, sizeof(u));
			u.state = (enum user_state)s;
			CHECK_EQ(user_step(&u, (enum user_step)e), to < 0 ? -EINVAL : 0);
			CHECK_EQ(u.state, to < 0 ? s : to);
		}
	}
}

static void outside_the_table(void)
{
	CHECK_EQ(user_state_next(US_COUNT, ST_BIND), -1);
	CHECK_EQ(user_state_next(US_IDLE, ST_COUNT), -1);
	CHECK_EQ(user_state_next((enum user_state)-1, (enum user_step)-1), -1);
	CHECK_STR(user_state_str(US_COUNT), "?");
}

static void names_are_distinct(void)
{
	for (int a = 0; a < US_COUNT; a++)
		for (int b = 0; b < a; b++)
			CHECK(strcmp(user_state_str((enum user_state)a),
				     user_state_str((enum user_state)b)) != 0);
	for (int a = 0; a < ST_COUNT; a++)
		for (int b = 0; b < a; b++)
			CHECK(strcmp(user_step_str((enum user_step)a),
				     user_step_str((enum user_step)b)) != 0);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(every_cell);
	T_RUN(outside_the_table);
	T_RUN(names_are_distinct);
	return t_done();
}
