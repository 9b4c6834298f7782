/* SPDX-License-Identifier: BSD-2-Clause */
/* Groups by verbs alone: who is a member gets a copy of what others send, in the same process
 * and in others, until it leaves or dies. */
#include "../inuse.h"
#include "numbered.h"

#include <arpa/inet.h>
#include <sched.h>
#include <sys/mman.h>

enum { RECVS = 128, GROUPS = 64, MEMBERS = 4, GROUP_QPN = 0xffffff };

static uint16_t ours; /* so that runs beside each other do not meet */

static union ibv_gid group_of(unsigned i)
{
	union ibv_gid g = { 0 };

	ours = ours ? ours : conf_port(0);
	g.raw[10] = g.raw[11] = 0xff;
	g.raw[12] = 239;
	g.raw[13] = (uint8_t)(ours >> 8);
	g.raw[14] = (uint8_t)ours;
	g.raw[15] = (uint8_t)(1 + i);
	return g;
}

static struct ibv_ah *group_ah(struct numbered *n, unsigned i)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_port_attr port;
	struct ibv_ah *ah;

	attr.grh.sgid_index = (uint8_t)conf_gid(n->ctx, &port, &attr.grh.dgid);
	attr.grh.dgid = group_of(i);
	MUST(ah = ibv_create_ah(n->pd, &attr));
	return ah;
}

static int attach(struct numbered *n, unsigned i)
{
	union ibv_gid g = group_of(i);

	return ibv_attach_mcast(n->qp, &g, 0);
}

static int detach(struct numbered *n, unsigned i)
{
	union ibv_gid g = group_of(i);

	return ibv_detach_mcast(n->qp, &g, 0);
}

/* Nothing comes for a while. */
static void quiet(struct numbered *n)
{
	conf_wc_none(n->rcq, 20);
}

/* ---- one process ---------------------------------------------------------------------- */

/* Every member gets one copy, the sender's other QPs too; the sender none. */
static void every_member_but_the_sender(void)
{
	struct numbered n[MEMBERS];
	struct ibv_ah *ah;

	for (int i = 0; i < MEMBERS; i++)
		num_open(&n[i], RECVS);
	for (int i = 0; i < MEMBERS - 1; i++) /* the last one is none */
		OK(attach(&n[i], 0));
	ah = group_ah(&n[0], 0);
	for (uint32_t seq = 0; seq < 50; seq++) {
		num_send_to(&n[0], ah, GROUP_QPN, 0, seq);
		num_await(&n[1]);
		num_await(&n[2]);
	}
	for (int i = 0; i < MEMBERS; i++) {
		quiet(&n[i]);
		EQ(n[i].got, i == 1 || i == 2 ? 50 : 0);
		EQ(n[i].lost, 0);
	}
	/* Who is no member may send. */
	OK(ibv_destroy_ah(ah));
	ah = group_ah(&n[3], 0);
	num_send_to(&n[3], ah, GROUP_QPN, 1, 0);
	for (int i = 0; i < MEMBERS - 1; i++)
		num_await(&n[i]);
	OK(ibv_destroy_ah(ah));
	for (int i = 0; i < MEMBERS; i++) {
		if (i < MEMBERS - 1)
			OK(detach(&n[i], 0));
		num_free(&n[i]);
	}
}

/* The Q_Key counts here, too; and leaving ends it. */
static void leaving_and_keys(void)
{
	struct ibv_qp_attr attr = { .qkey = NUM_QKEY + 1 };
	struct numbered n[2];
	struct ibv_ah *ah;

	for (int i = 0; i < 2; i++) {
		num_open(&n[i], RECVS);
		OK(attach(&n[i], 0));
	}
	ah = group_ah(&n[0], 0);
	num_send_to(&n[0], ah, GROUP_QPN, 0, 0);
	num_await(&n[1]);
	OK(ibv_modify_qp(n[1].qp, &attr, IBV_QP_QKEY));
	num_send_to(&n[0], ah, GROUP_QPN, 0, 1);
	quiet(&n[1]);
	attr.qkey = NUM_QKEY;
	OK(ibv_modify_qp(n[1].qp, &attr, IBV_QP_QKEY));
	num_send_to(&n[0], ah, GROUP_QPN, 0, 2);
	num_await(&n[1]);
	EQ(n[1].next[0], 3);
	OK(detach(&n[1], 0));
	num_send_to(&n[0], ah, GROUP_QPN, 0, 3);
	quiet(&n[1]);
	OK(attach(&n[1], 0));
	num_send_to(&n[0], ah, GROUP_QPN, 0, 4);
	num_await(&n[1]);
	EQ(n[1].next[0], 5);
	OK(ibv_destroy_ah(ah));
	for (int i = 0; i < 2; i++) {
		OK(detach(&n[i], 0));
		num_free(&n[i]);
	}
}

/* More than one socket may join (20 by default), each for the one that wants it. */
static void many_groups(void)
{
	struct ibv_ah *ah[GROUPS];
	struct numbered n[3];

	for (int i = 0; i < 3; i++)
		num_open(&n[i], RECVS);
	for (unsigned g = 0; g < GROUPS; g++) {
		OK(attach(&n[1 + g % 2], g));
		ah[g] = group_ah(&n[0], g);
	}
	for (unsigned round = 0; round < 3; round++)
		for (unsigned g = 0; g < GROUPS; g++) {
			num_send_to(&n[0], ah[g], GROUP_QPN, g % NUM_FLOWS, round);
			num_await(&n[1 + g % 2]);
			EQ(n[1 + g % 2].next[g % NUM_FLOWS], round + 1);
		}
	quiet(&n[1]);
	quiet(&n[2]);
	for (unsigned g = 0; g < GROUPS; g++) {
		OK(detach(&n[1 + g % 2], g));
		num_send_to(&n[0], ah[g], GROUP_QPN, 0, 100 + g);
		OK(ibv_destroy_ah(ah[g]));
	}
	quiet(&n[1]);
	quiet(&n[2]);
	for (int i = 0; i < 3; i++)
		num_free(&n[i]);
}

/* A QP of many groups. */
static void many_groups_of_one_qp(void)
{
	struct numbered n[2];

	num_open(&n[0], RECVS);
	num_open(&n[1], RECVS);
	for (unsigned g = 0; g < GROUPS; g++)
		OK(attach(&n[1], g));
	for (unsigned g = 0; g < GROUPS; g++) {
		struct ibv_ah *ah = group_ah(&n[0], g);

		num_send_to(&n[0], ah, GROUP_QPN, g % NUM_FLOWS, 0);
		num_await(&n[1]);
		OK(ibv_destroy_ah(ah));
	}
	EQ(n[1].got, GROUPS);
	for (unsigned g = 0; g < GROUPS; g++)
		OK(detach(&n[1], g));
	num_free(&n[0]);
	num_free(&n[1]);
}

/* ---- several processes -------------------------------------------------------------------- */

static struct {
	_Atomic uint32_t next[MEMBERS], got[MEMBERS];
	_Atomic bool over;
} *board;

static void start(void)
{
	group_of(0); /* the children's, too */
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	CHECK(board != MAP_FAILED);
}

static void member(struct peer *me, void *who)
{
	unsigned w = (unsigned)(uintptr_t)who;
	struct numbered n;

	num_open(&n, RECVS);
	OK(attach(&n, 0));
	peer_say(me, 'r');
	while (!atomic_load(&board->over)) {
		if (!num_take(&n)) {
			usleep(20); /* there are more of us than processors */
			continue;
		}
		atomic_store(&board->got[w], n.got);
		atomic_store(&board->next[w], n.next[0]);
	}
	OK(detach(&n, 0));
	num_free(&n);
}

/* Is anybody of this network a member by its kernel? */
static bool known_to_the_kernel(unsigned i)
{
	union ibv_gid g = group_of(i);
	char hex[16], line[256];
	bool found = false;
	uint32_t word;
	FILE *f = fopen("/proc/net/igmp", "re");

	memcpy(&word, g.raw + 12, 4);
	snprintf(hex, sizeof(hex), "%08X", word);
	MUST(f);
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, hex) != NULL;
	fclose(f);
	return found;
}

/* All get it; one that dies is no member any more, and the others go on. */
static void members_in_other_processes(void)
{
	struct peer p[MEMBERS];
	struct ibv_ah *ah;
	struct numbered n;
	uint32_t seq = 0;

	start();
	for (uintptr_t i = 0; i < MEMBERS; i++)
		p[i] = peer_start(member, (void *)i);
	num_open(&n, RECVS);
	for (int i = 0; i < MEMBERS; i++)
		peer_hear(&p[i], 'r');
	ah = group_ah(&n, 0);
	for (int left = MEMBERS; left; left--) {
		for (int k = 0; k < 100; k++) {
			num_send_to(&n, ah, GROUP_QPN, 0, seq++);
			for (int i = 0; i < left; i++)
				WAIT_FOR(atomic_load(&board->next[i]) == seq);
		}
		for (int i = 0; i < left; i++)
			EQ(atomic_load(&board->got[i]), seq);
		if (conf_user_device())
			CHECK(known_to_the_kernel(0));
		peer_kill(&p[left - 1]);
	}
	if (conf_user_device())
		WAIT_FOR(!known_to_the_kernel(0));
	num_send_to(&n, ah, GROUP_QPN, 0, seq);
	OK(ibv_destroy_ah(ah));
	num_free(&n);
}

/* Two of two processes each: every one of the others gets what one of them sends. */
static void sender_of_a_group(struct peer *me, void *arg)
{
	struct numbered n[2];
	struct ibv_ah *ah;
	uint32_t mine = (uint32_t)(uintptr_t)arg;

	for (int i = 0; i < 2; i++) {
		num_open(&n[i], RECVS);
		OK(attach(&n[i], 0));
	}
	peer_say(me, 'r');
	peer_hear(me, 'g');
	ah = group_ah(&n[0], 0);
	for (uint32_t seq = 0; seq < 20; seq++)
		num_send_to(&n[0], ah, GROUP_QPN, mine, seq);
	for (int i = 0; i < 20; i++)
		num_await(&n[0]);
	for (int i = 0; i < 40; i++)
		num_await(&n[1]);
	EQ(n[0].next[!mine], 20);
	EQ(n[0].next[mine], 0);
	EQ(n[1].next[0], 20);
	EQ(n[1].next[1], 20);
	peer_say(me, 'd');
	peer_hear(me, 'q');
	quiet(&n[0]);
	quiet(&n[1]);
	OK(ibv_destroy_ah(ah));
	for (int i = 0; i < 2; i++) {
		OK(detach(&n[i], 0));
		num_free(&n[i]);
	}
}

static void both_send(void)
{
	struct peer p[2];

	group_of(0);
	for (uintptr_t i = 0; i < 2; i++)
		p[i] = peer_start(sender_of_a_group, (void *)i);
	for (int i = 0; i < 2; i++)
		peer_hear(&p[i], 'r');
	for (int i = 0; i < 2; i++)
		peer_say(&p[i], 'g');
	for (int i = 0; i < 2; i++)
		peer_hear(&p[i], 'd');
	for (int i = 0; i < 2; i++) {
		peer_say(&p[i], 'q');
		peer_end(&p[i]);
	}
}

/* ---- interfaces ----------------------------------------------------------------------- */

enum { ROUNDS = 30, ADDRESS = 0x0a4d0901 /* 10.77.9.1 */ };

static bool has_address(struct ibv_context *ctx)
{
	uint32_t want = htonl(ADDRESS);
	union ibv_gid g;

	for (int i = 0; i < 64; i++)
		if (!ibv_query_gid(ctx, 1, i, &g) && g.raw[11] == 0xff &&
		    !memcmp(g.raw + 12, &want, 4))
			return true;
	return false;
}

/* Interfaces with addresses that come and go, as those of containers, leave nothing behind in
 * the member of a group. */
static void interfaces_come_and_go(void)
{
	struct numbered n[2];
	struct ibv_ah *ah;
	int fds;

	if ((unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) ||
	    system("ip link set lo up"))
		SKIP("no network namespace of our own: %s", strerror(errno));
	for (int i = 0; i < 2; i++)
		num_open(&n[i], RECVS);
	OK(attach(&n[1], 0));
	fds = inuse_fds();
	for (int i = 0; i < ROUNDS; i++) {
		if (system("ip link add v0 type veth peer name v1 && "
			   "ip addr add 10.77.9.1/24 dev v0 && "
			   "ip link set v1 up && ip link set v0 up"))
			SKIP("no interfaces can be made");
		WAIT_FOR(has_address(n[0].ctx));
		OK(system("ip link del v0"));
		WAIT_FOR(!has_address(n[0].ctx));
	}
	WAIT_FOR(inuse_fds() == fds);
	ah = group_ah(&n[0], 0);
	num_send_to(&n[0], ah, GROUP_QPN, 0, 0);
	num_await(&n[1]);
	OK(ibv_destroy_ah(ah));
	OK(detach(&n[1], 0));
	for (int i = 0; i < 2; i++)
		num_free(&n[i]);
}

static const struct conf_case cases[] = {
	CASE(every_member_but_the_sender),
	CASE(leaving_and_keys),
	CASE(many_groups),
	CASE(many_groups_of_one_qp),
	CASE(members_in_other_processes),
	CASE(both_send),
	CASE(interfaces_come_and_go),
};
CONF_MAIN(cases)
