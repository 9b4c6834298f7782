/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams over real sockets. The peer is a plain UDP socket of the test: a QP number is
 * its port, so it can play a QP. */
#include "tests/t.h"

#include "base/ports.h"
#include "ud/end_test.h"
#include "udp/packet.h"
#include "udp/udp.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static struct end *a;
static uint64_t since[UD_COUNTERS];

static void count_from_here(void)
{
	for (unsigned i = 0; i < UD_COUNTERS; i++)
		since[i] = ud_counter_read((enum ud_counter)i);
}

static unsigned counted(enum ud_counter c)
{
	return (unsigned)(ud_counter_read(c) - since[c]);
}

/* ---- the peer ---------------------------------------------------------------------- */

struct peer {
	int fd;
	uint32_t qpn;
	bool v6;
};

static struct sockaddr_storage addr_of(bool v6, uint16_t port, socklen_t *len)
{
	struct sockaddr_storage ss;
	union ibv_gid g = gid_of(v6 ? "::1" : "::ffff:127.0.0.1");

	*len = gid_to_addr(&g, 0, port, &ss);
	return ss;
}

static struct peer peer_new(bool v6)
{
	struct peer p = { .v6 = v6 };
	struct sockaddr_storage ss;
	socklen_t len;
	int on = 1;

	p.fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ss = addr_of(v6, 0, &len);
	CHECK_EQ(bind(p.fd, (struct sockaddr *)&ss, len), 0);
	CHECK_EQ(getsockname(p.fd, (struct sockaddr *)&ss, &len), 0);
	p.qpn = (uint32_t)ntohs(((struct sockaddr_in *)(void *)&ss)->sin_port) << 8 | 9;
	CHECK_EQ(v6 ? setsockopt(p.fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof(on)) :
		      setsockopt(p.fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)),
		 0);
	CHECK_EQ(v6 ? setsockopt(p.fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof(on)) :
		      setsockopt(p.fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof(on)),
		 0);
	return p;
}

static void peer_send_to(const struct peer *p, uint16_t port, const void *data, size_t n)
{
	socklen_t len;
	struct sockaddr_storage ss = addr_of(p->v6, port, &len);

	CHECK_EQ(sendto(p->fd, data, n, 0, (struct sockaddr *)&ss, len), n);
}

static size_t packet(const struct peer *p, struct end *e, uint8_t *out, uint16_t len)
{
	struct ud_head h = { .kind = UD_DATA,
			     .hop_limit = 5,
			     .len = len,
			     .src_qpn = p->qpn,
			     .dst_qpn = e->qp->qp_num,
			     .qkey = QKEY };
	size_t n = packet_head_put(out, &h);

	for (unsigned i = 0; i < len; i++)
		out[n + i] = (uint8_t)(i + len);
	return n + len + packet_tail_put(out + n + len, &h, 0);
}

static void peer_send(const struct peer *p, struct end *e, uint16_t len)
{
	uint8_t buf[PACKET_MAX];
	size_t n = packet(p, e, buf, len);

	peer_send_to(p, qpn_port(e->qp->qp_num), buf, n);
}

/* ---- one to one -------------------------------------------------------------------- */

static void control_of(struct msghdr *m, int *tos, int *ttl)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
			*tos = *CMSG_DATA(c);
		if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) ||
		    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT))
			memcpy(ttl, CMSG_DATA(c), sizeof(*ttl));
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)
			memcpy(tos, CMSG_DATA(c), sizeof(*tos));
	}
}

static void what_leaves(bool v6)
{
	struct sockaddr_storage from;
	uint8_t buf[PACKET_MAX], control[256];
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr m = { .msg_name = &from,
			    .msg_namelen = sizeof(from),
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct peer p = peer_new(v6);
	struct ibv_ah *ah = ah_to(a, slot_of(v6), gid_of(v6 ? "::1" : "::ffff:127.0.0.1"));
	const uint8_t *payload;
	int tos = -1, ttl = -1;
	struct ud_head h;
	unsigned flags;
	ssize_t n;

	CHECK_EQ(send_to(a, ah, p.qpn, 200), 0);
	CHECK(sent(a, 200, IBV_WC_SUCCESS));
	n = recvmsg(p.fd, &m, 0);
	CHECK_EQ(n, 12 + 8 + 200 + 4);
	CHECK_EQ(ntohs(((struct sockaddr_in *)(void *)&from)->sin_port),
		 qpn_port(a->qp->qp_num));
	control_of(&m, &tos, &ttl);
	CHECK_EQ(tos, 0x28);
	CHECK_EQ(ttl, 33);
	CHECK_EQ(packet_decode(buf, (size_t)n, &h, &flags, &payload), 0);
	CHECK_EQ(flags, 0);
	CHECK_EQ(h.src_qpn, a->qp->qp_num);
	CHECK_EQ(h.dst_qpn, p.qpn);
	CHECK_EQ(h.psn, 7);
	CHECK_EQ(h.flow_label, 0x12345);
	CHECK_EQ(h.hop_limit, 33);
	CHECK_EQ(h.sl, 3);
	CHECK_EQ(h.len, 200);
	CHECK(!memcmp(payload, a->mem + END_MEM / 2, 200));
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	close(p.fd);
}

static void what_arrives(bool v6)
{
	struct peer p = peer_new(v6);
	struct ibv_wc wc;

	CHECK_EQ(recv_at(a, 0, 300), 0);
	peer_send(&p, a, 201);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, 241);
	CHECK_EQ(wc.src_qp, p.qpn);
	CHECK_EQ(a->mem[40], 201);
	CHECK_EQ(a->mem[40 + 200], (uint8_t)401);
	/* The addresses are those of the packet. */
	if (v6) {
		CHECK(!memcmp(a->mem + 8, &in6addr_loopback, 16));
		CHECK(!memcmp(a->mem + 24, &in6addr_loopback, 16));
	} else {
		CHECK(!memcmp(a->mem + 20 + 12, "\x7f\0\0\1\x7f\0\0\1", 8));
	}
	CHECK_EQ(a->mem[v6 ? 7 : 28], 5);
	close(p.fd);
}

static void over_ipv4(void)
{
	a = end_up();
	what_leaves(false);
	what_arrives(false);
	end_free(a);
}

static void over_ipv6(void)
{
	SKIP_IF(slot_of(true) < 0, "no ::1 here");
	a = end_up();
	what_leaves(true);
	what_arrives(true);
	end_free(a);
}

static void batches(void)
{
	struct peer p = peer_new(false);
	struct ibv_ah *ah;
	uint8_t buf[PACKET_MAX];
	struct ibv_wc wc;

	a = end_up();
	ah = ah_to(a, slot_of(false), gid_of("::ffff:127.0.0.1"));
	for (unsigned i = 0; i < END_WRS; i++)
		CHECK_EQ(recv_at(a, i, 300), 0);
	for (uint16_t i = 0; i < END_WRS; i++)
		peer_send(&p, a, i);
	for (unsigned i = 0; i < END_WRS; i++) {
		REQUIRE(poll_for(a->rcq, &wc));
		CHECK_EQ(wc.byte_len, 40 + i);
		CHECK_EQ(wc.wr_id, i);
	}
	for (uint16_t i = 0; i < END_WRS; i++)
		CHECK_EQ(send_to(a, ah, p.qpn, i), 0);
	for (unsigned i = 0; i < END_WRS; i++)
		CHECK_EQ(recv(p.fd, buf, sizeof(buf), 0), 24 + i);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
	close(p.fd);
}

/* The buffer is as large as the process may have it. */
static void the_receive_buffer(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), want, has = 0;
	int size = UDP_RECEIVE_BUFFER;
	socklen_t len = sizeof(int);

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, len))
		CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, len), 0);
	CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &want, &len), 0);
	a = end_up();
	CHECK_EQ(getsockopt(qpn_udp(a->qp->qp_num), SOL_SOCKET, SO_RCVBUF, &has, &len), 0);
	CHECK_EQ(has, want);
	end_free(a);
	close(fd);
}

/* What was sent before the QP could receive is lost, as on hardware. */
static void before_rtr(void)
{
	struct peer p = peer_new(false);
	struct ibv_wc wc;

	a = end_new(false);
	CHECK_EQ(end_state(a, IBV_QPS_INIT), 0);
	CHECK_EQ(recv_at(a, 0, 300), 0);
	peer_send(&p, a, 1);
	CHECK_EQ(end_state(a, IBV_QPS_RTR), 0);
	peer_send(&p, a, 2);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.byte_len, 42);
	CHECK_EQ(end_state(a, IBV_QPS_RESET), 0);
	peer_send(&p, a, 3);
	end_rts(a);
	CHECK_EQ(recv_at(a, 0, 300), 0);
	peer_send(&p, a, 4);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.byte_len, 44);
	end_free(a);
	close(p.fd);
}

static void what_is_not_believed(void)
{
	struct peer p = peer_new(false), liar = peer_new(false);
	uint16_t port;
	uint8_t buf[PACKET_MAX + 10];
	struct ibv_wc wc;
	size_t n;

	a = end_up();
	port = qpn_port(a->qp->qp_num);
	CHECK_EQ(recv_at(a, 0, 300), 0);
	count_from_here();
	liar.qpn = p.qpn;
	peer_send(&liar, a, 10);
	CHECK(T_WAIT(nothing(a->rcq) && counted(UD_DROP_SOURCE) == 1, PATIENCE_MS));
	n = packet(&p, a, buf, 3);
	for (size_t k = 0; k < 24; k++)
		peer_send_to(&p, port, buf, k);
	CHECK(T_WAIT(nothing(a->rcq) && counted(UD_DROP_FORMAT) == 24, PATIENCE_MS));
	peer_send_to(&p, port, buf, sizeof(buf)); /* longer than any */
	CHECK(T_WAIT(nothing(a->rcq) && counted(UD_DROP_FORMAT) == 25, PATIENCE_MS));
	buf[5] ^= 1; /* a QP of another port */
	peer_send_to(&p, port, buf, n);
	CHECK(T_WAIT(nothing(a->rcq) && counted(UD_DROP_FORMAT) == 26, PATIENCE_MS));
	buf[5] ^= 1;
	buf[7] ^= 1; /* another QP of this one */
	peer_send_to(&p, port, buf, n);
	CHECK(T_WAIT(nothing(a->rcq) && counted(UD_DROP_NO_QP) == 1, PATIENCE_MS));
	memset(buf + 5, 0xff, 3); /* a group's number */
	peer_send_to(&p, port, buf, n);
	CHECK(T_WAIT(nothing(a->rcq) && counted(UD_DROP_FORMAT) == 27, PATIENCE_MS));
	peer_send(&p, a, 4);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.byte_len, 44);
	end_free(a);
	close(p.fd);
	close(liar.fd);
}

/* The table has ::1 alone: what comes to another address of the host is not for the device.
 * This case runs in a process of its own. */
static void another_address_inside(void)
{
	struct peer p4 = peer_new(false), p6 = peer_new(true);
	struct ibv_wc wc;

	a = end_up();
	CHECK_EQ(recv_at(a, 0, 300), 0);
	count_from_here();
	peer_send(&p4, a, 1);
	CHECK(T_WAIT(nothing(a->rcq) && counted(UD_DROP_ADDRESS) == 1, PATIENCE_MS));
	peer_send(&p6, a, 2);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.byte_len, 42);
	peer_send(&p4, a, 3);
	CHECK(T_WAIT(nothing(a->rcq) && counted(UD_DROP_ADDRESS) == 2, PATIENCE_MS));
	end_free(a);
	close(p4.fd);
	close(p6.fd);
}

/* Nobody listens there: ICMP says so, and nothing happens to the QP. */
static void to_nobody(void)
{
	struct peer p = peer_new(false);
	struct ibv_ah *ah;

	a = end_up();
	ah = ah_to(a, slot_of(false), gid_of("::ffff:127.0.0.1"));
	close(p.fd);
	for (unsigned i = 0; i < 20; i++) {
		CHECK_EQ(send_to(a, ah, p.qpn, i), 0);
		CHECK(sent(a, i, IBV_WC_SUCCESS));
	}
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	/* The host refuses a limited broadcast. */
	count_from_here();
	ah = ah_to(a, slot_of(false), gid_of("::ffff:255.255.255.255"));
	CHECK_EQ(send_to(a, ah, p.qpn, 1), 0);
	CHECK(sent(a, 1, IBV_WC_SUCCESS));
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(counted(UD_LOST_SEND), 1);
	CHECK_EQ(state_of(a), IBV_QPS_RTS);
	end_free(a);
}

/* Who waited for room to send was destroyed: nobody watches for room any more. */
static void nobody_waits_for_room(void)
{
	struct udp_port *p;

	a = end_up();
	p = udp_end_of(end_ud(a))->port;
	lock_get(&p->lock);
	CHECK_EQ(poll_mod(&p->s.src, EPOLLIN | EPOLLOUT), 0);
	lock_put(&p->lock);
	CHECK(T_WAIT(atomic_load(&p->s.src.events) == EPOLLIN, PATIENCE_MS));
	end_free(a);
}

/* A child knows nothing of its parent's QPs and groups, and makes its own. */
static void in_a_child(void)
{
	union ibv_gid g = gid_of("::ffff:239.77.1.9");
	struct end *mine;
	int status = -1;
	pid_t pid;

#ifdef LOCK_PTHREAD
	SKIP_IF(true, "the thread sanitizer allows no thread in a child");
#endif
	mine = end_up();
	CHECK_EQ(ibv_attach_mcast(mine->qp, &g, 0), 0);
	pid = fork();
	if (!pid) {
		the_ctx = NULL;
		a = end_up();
		what_leaves(false);
		what_arrives(false);
		CHECK_EQ(ibv_attach_mcast(a->qp, &g, 0), 0);
		CHECK_EQ(ibv_detach_mcast(a->qp, &g, 0), 0);
		end_free(a);
		_exit(t_.bad);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	a = mine;
	what_arrives(false);
	CHECK_EQ(ibv_detach_mcast(mine->qp, &g, 0), 0);
	end_free(mine);
}

/* The loop thread receives for those who wait for an event. */
static void events(void)
{
	struct peer p = peer_new(false);
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *arg;

	a = end_up();
	CHECK_EQ(recv_at(a, 0, 300), 0);
	CHECK_EQ(ibv_req_notify_cq(a->rcq, 0), 0);
	peer_send(&p, a, 10);
	CHECK_EQ(ibv_get_cq_event(a->ch, &cq, &arg), 0);
	ibv_ack_cq_events(cq, 1);
	CHECK_EQ(ibv_poll_cq(a->rcq, 1, &wc), 1);
	CHECK_EQ(wc.byte_len, 50);
	end_free(a);
	close(p.fd);
}

/* ---- with a CRC: this case runs in a process of its own -------------------------------- */

static void crc_inside(void)
{
	struct peer p = peer_new(false);
	uint8_t buf[PACKET_MAX];
	const uint8_t *payload;
	struct ibv_ah *ah;
	struct ud_head h;
	struct ibv_wc wc;
	unsigned flags;
	ssize_t n;

	a = end_up();
	ah = ah_to(a, slot_of(false), gid_of("::ffff:127.0.0.1"));
	for (uint32_t len = 0; len < 300; len += 99) {
		CHECK_EQ(send_to(a, ah, p.qpn, len), 0);
		n = recv(p.fd, buf, sizeof(buf), 0);
		REQUIRE_EQ(n, 12 + 8 + len + 8);
		CHECK_EQ(packet_decode(buf, (size_t)n, &h, &flags, &payload), 0);
		CHECK_EQ(flags, PACKET_CRC);
		CHECK(!memcmp(payload, a->mem + END_MEM / 2, len));
	}
	/* Back to where it is from, as a datagram of the peer; then with an error. */
	CHECK_EQ(recv_at(a, 0, 400), 0);
	count_from_here();
	buf[40] ^= 1;
	memcpy(buf + 5, &(uint8_t[]){ (uint8_t)(a->qp->qp_num >> 16),
				      (uint8_t)(a->qp->qp_num >> 8),
				      (uint8_t)a->qp->qp_num },
	       3);
	peer_send_to(&p, qpn_port(a->qp->qp_num), buf, (size_t)n);
	CHECK(T_WAIT(nothing(a->rcq) && counted(UD_DROP_CRC) == 1, PATIENCE_MS));
	peer_send(&p, a, 3); /* without a CRC */
	CHECK(poll_for(a->rcq, &wc));
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
	close(p.fd);
}

static void in_a_process(const char *name, const char *value)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		setenv(name, value, 1);
		dup2(STDERR_FILENO, STDOUT_FILENO); /* its TAP is not this program's */
		execl("/proc/self/exe", "udp", "inside", NULL);
		_exit(9);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static bool own_interface(void)
{
	return !(unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) &&
	       !system("ip link set lo up && ip link add v0 type veth peer name v1 && "
		       "ip link set v0 addrgenmode none && ip link set v1 up && "
		       "ip link set v0 up && ip addr add fe80::77/64 dev v0 nodad && "
		       "ip addr add 2001:db8::77/64 dev v0 nodad");
}

/* From a link-local address to one that is none: this case runs in a process of its own. */
static void from_link_local_inside(void)
{
	union ibv_gid from = gid_of("fe80::77"), to = gid_of("2001:db8::77");
	struct sockaddr_storage ss;
	struct sockaddr_in6 *got = (void *)&ss;
	socklen_t len = gid_to_addr(&to, 0, 0, &ss);
	struct ibv_ah *ah;
	uint8_t buf[100];
	int fd;

	SKIP_IF(!own_interface(), "no interface of our own");
	ctx();
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&ss, len), 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&ss, &len), 0);
	a = end_up();
	ah = ah_to(a, gid_index(0, &from, 0), to);
	count_from_here();
	CHECK_EQ(send_to(a, ah, (uint32_t)ntohs(got->sin6_port) << 8, 30), 0);
	CHECK(sent(a, 30, IBV_WC_SUCCESS));
	CHECK_EQ(counted(UD_LOST_SEND), 0);
	CHECK(T_WAIT(recvfrom(fd, buf, sizeof(buf), MSG_DONTWAIT, (void *)&ss, &len) == 54,
		     PATIENCE_MS));
	CHECK(!memcmp(&got->sin6_addr, &from, 16));
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
	close(fd);
	ctx_close();
}

static void from_a_link_local_address(void)
{
	in_a_process("UDP_TEST_INTERFACE", "1");
}

static void with_a_crc(void)
{
	in_a_process("ANYRDMA_CRC", "on");
}

static void to_another_address(void)
{
	SKIP_IF(slot_of(true) < 0, "no ::1 here");
	in_a_process("ANYRDMA_ADDR", "::1");
}

/* ---- groups --------------------------------------------------------------------------- */

static struct end *b, *c;

static void three(void)
{
	a = end_up();
	b = end_up();
	c = end_up();
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(recv_at(a, 0, 300), 0);
		CHECK_EQ(recv_at(b, 0, 300), 0);
		CHECK_EQ(recv_at(c, 0, 300), 0);
	}
}

static void three_over(void)
{
	end_free(a);
	end_free(b);
	end_free(c);
}

static bool got(struct end *e, uint32_t len)
{
	struct ibv_wc wc;

	return poll_for(e->rcq, &wc) && CHECK_EQ(wc.status, IBV_WC_SUCCESS) &&
	       CHECK_EQ(wc.byte_len, 40 + len) && CHECK_EQ(wc.src_qp, a->qp->qp_num);
}

/* What is sent by loopback is in all sockets when the call returns. */
static bool got_nothing(struct end *e)
{
	return nothing(e->rcq) && nothing(e->rcq);
}

static void group(const char *mgid, bool v6)
{
	union ibv_gid g = gid_of(mgid);
	int slot = slot_of(v6);
	struct ibv_ah *ah;

	three();
	ah = ah_to(a, slot, g);
	CHECK_EQ(ibv_attach_mcast(a->qp, &g, 0), 0);
	CHECK_EQ(ibv_attach_mcast(b->qp, &g, 0), 0);
	CHECK_EQ(send_to(a, ah, 0xffffff, 10), 0);
	CHECK(got(b, 10));
	CHECK(!memcmp(b->mem + 24, g.raw, 16) ||
	      !memcmp(b->mem + 36, g.raw + 12, 4)); /* the destination is the group */
	CHECK(got_nothing(b));
	CHECK(got_nothing(a));
	CHECK(got_nothing(c));
	CHECK_EQ(ibv_attach_mcast(c->qp, &g, 0), 0);
	CHECK_EQ(send_to(a, ah, 0xffffff, 11), 0);
	CHECK(got(b, 11));
	CHECK(got(c, 11));
	CHECK_EQ(ibv_detach_mcast(b->qp, &g, 0), 0);
	CHECK_EQ(send_to(a, ah, 0xffffff, 12), 0);
	CHECK(got(c, 12));
	CHECK(got_nothing(b));
	CHECK_EQ(ibv_detach_mcast(a->qp, &g, 0), 0);
	CHECK_EQ(ibv_detach_mcast(c->qp, &g, 0), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	three_over();
}

static void an_ipv4_group(void)
{
	group("::ffff:239.77.1.2", false);
}

static void an_ipv6_group_from_ipv4(void)
{
	group("ff12:401b::77", false);
}

static void an_ipv6_group_from_ipv6(void)
{
	SKIP_IF(slot_of(true) < 0, "no ::1 here");
	group("ff12:401b::78", true);
}

static void addresses_of_groups(void)
{
	union ibv_gid v4 = gid_of("::ffff:239.1.2.3"), g = gid_of("ff12::5"), a6;
	union ibv_gid node = gid_of("ff01::5"), zero = gid_of("::");

	CHECK(udp_group_address(&v4, false, &a6) && !memcmp(&a6, &v4, 16));
	CHECK(!udp_group_address(&v4, true, &a6) && !memcmp(&a6, &zero, 16));
	CHECK(udp_group_address(&g, true, &a6) && !memcmp(&a6, &g, 16));
	CHECK(!udp_group_address(&g, false, &a6) && gid_is_v4(&a6) && a6.raw[12] == 239);
	/* Its scope would keep it on the host. */
	CHECK(!udp_group_address(&node, true, &a6) && !memcmp(&a6, &g, 16));
}

/* Who is in a group whose IPv4 address is that of another does not get the other's. */
static void groups_are_told_apart(void)
{
	union ibv_gid g = gid_of("ff12:401b::77"), v4;
	struct ibv_ah *ah;

	CHECK(!udp_group_address(&g, false, &v4));
	three();
	ah = ah_to(a, slot_of(false), g);
	CHECK_EQ(ibv_attach_mcast(b->qp, &g, 0), 0);
	CHECK_EQ(ibv_attach_mcast(b->qp, &v4, 0), 0);
	CHECK_EQ(ibv_attach_mcast(c->qp, &v4, 0), 0);
	CHECK_EQ(send_to(a, ah, 0xffffff, 10), 0);
	CHECK(got(b, 10));
	CHECK(got_nothing(b));
	CHECK(got_nothing(c));
	CHECK_EQ(ibv_detach_mcast(b->qp, &v4, 0), 0);
	CHECK_EQ(send_to(a, ah, 0xffffff, 11), 0);
	CHECK(got(b, 11)); /* the membership that both had is there */
	CHECK_EQ(ibv_detach_mcast(b->qp, &g, 0), 0);
	CHECK_EQ(ibv_detach_mcast(c->qp, &v4, 0), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	three_over();
}

enum { MANY = 50 }; /* more than a socket may have */

static union ibv_gid nth(unsigned i)
{
	union ibv_gid g = gid_of("::ffff:239.78.0.1");

	g.raw[15] = (uint8_t)(i + 1);
	return g;
}

static void many_groups(void)
{
	three();
	for (unsigned i = 0; i < MANY; i++) {
		union ibv_gid g = nth(i);

		CHECK_EQ(ibv_attach_mcast(b->qp, &g, 0), 0);
	}
	for (unsigned i = 0; i < MANY; i++) {
		struct ibv_ah *ah = ah_to(a, slot_of(false), nth(i));

		CHECK_EQ(send_to(a, ah, 0xffffff, i), 0);
		CHECK(got(b, i));
		CHECK(got_nothing(b));
		CHECK_EQ(recv_at(b, 0, 300), 0);
		CHECK_EQ(ibv_destroy_ah(ah), 0);
	}
	for (unsigned i = 0; i < MANY; i++) {
		union ibv_gid g = nth(i);

		CHECK_EQ(ibv_detach_mcast(b->qp, &g, 0), 0);
	}
	three_over();
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (getenv("UDP_TEST_INTERFACE")) {
		T_RUN(from_link_local_inside);
		return t_done();
	}
	ctx();
	if (getenv("ANYRDMA_ADDR")) {
		T_RUN(another_address_inside);
		ctx_close();
		return t_done();
	}
	T_RUN(over_ipv4);
	T_RUN(over_ipv6);
	T_RUN(batches);
	T_RUN(the_receive_buffer);
	T_RUN(before_rtr);
	T_RUN(what_is_not_believed);
	T_RUN(to_nobody);
	T_RUN(nobody_waits_for_room);
	T_RUN(events);
	T_RUN(in_a_child);
	if (getenv("ANYRDMA_CRC"))
		T_RUN(crc_inside);
	else
		T_RUN(with_a_crc);
	T_RUN(to_another_address);
	T_RUN(from_a_link_local_address);
	T_RUN(an_ipv4_group);
	T_RUN(an_ipv6_group_from_ipv4);
	T_RUN(an_ipv6_group_from_ipv6);
	T_RUN(addresses_of_groups);
	T_RUN(groups_are_told_apart);
	T_RUN(many_groups);
	ctx_close();
	return t_done();
}
