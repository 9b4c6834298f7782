/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/user/user.h"
#include "tests/t.h"

/* The answer of a standard peer with these depths; ours were 4 (serving) and 3. */
static struct user_conn answered(uint16_t ird, uint16_t ord)
{
	struct user_id u = { .conn = { .responder_resources = 4, .initiator_depth = 3 } };
	struct mpa_frame out = { .reply = true, .rev = MPA_REV }, f;
	uint8_t buf[MPA_FRAME_MAX], priv_len;
	const uint8_t *priv;
	uint16_t reason;
	int len = mpa_plain_encode(buf, sizeof(buf), &out, ird, ord, 0);

	CHECK(len > 0 && mpa_decode(buf, (size_t)len, &f) == len);
	CHECK_EQ(user_rep_parse(&u, &f, &priv, &priv_len, &reason), USER_REPLY_REP);
	CHECK_EQ(priv_len, 0);
	return u.conn;
}

/* Linux siw names all that it can do (128), whatever was asked for. */
static void standard_peer_with_deep_queues(void)
{
	struct user_conn c = answered(128, 128);

	CHECK_EQ(c.responder_resources, 4);
	CHECK_EQ(c.initiator_depth, 3);
}

static void standard_peer_with_shallow_queues(void)
{
	struct user_conn c = answered(2, 1);

	CHECK_EQ(c.responder_resources, 1);
	CHECK_EQ(c.initiator_depth, 2);
	CHECK(c.reads);
	c = answered(0, 0);
	CHECK_EQ(c.responder_resources, 0);
	CHECK_EQ(c.initiator_depth, 0);
	CHECK(!c.reads);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(standard_peer_with_deep_queues);
	T_RUN(standard_peer_with_shallow_queues);
	return t_done();
}
