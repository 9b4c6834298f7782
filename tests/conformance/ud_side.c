/* SPDX-License-Identifier: BSD-2-Clause */
#include "ud_side.h"

#include <sys/socket.h>
#include <sys/wait.h>

static bool gid_is(const union ibv_gid *gid, const conf_sa *sa)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (sa->ss_family == AF_INET6)
		return !memcmp(gid, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
	return !memcmp(gid, mapped, 12) &&
	       !memcmp(gid->raw + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
}

struct ibv_ah_attr ud_attr(int family)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .hop_limit = 64 },
	};
	conf_sa sa = conf_addr(family, 0);

	for (int i = 0; i < dev.port.gid_tbl_len; i++) {
		if (ibv_query_gid(dev.ctx, 1, i, &attr.grh.dgid) ||
		    !gid_is(&attr.grh.dgid, &sa))
			continue;
		attr.grh.sgid_index = (uint8_t)i;
		return attr;
	}
	FAIL("no GID for the address");
}

struct ibv_ah *ud_ah(struct ibv_ah_attr attr)
{
	struct ibv_ah *ah;

	MUST(ah = ibv_create_ah(dev.pd, &attr));
	return ah;
}

uint32_t ud_mtu(void)
{
	return 128u << dev.port.active_mtu;
}

int ud_init(struct side *s, uint32_t qkey)
{
	return conf_qp_modify(s->qp, (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = qkey,
	});
}

void ud_up(struct side *s)
{
	EQ(ud_init(s, UD_QKEY), 0);
	EQ(to_state(s, IBV_QPS_RTR), 0);
	EQ(conf_qp_modify(s->qp, (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = s->psn,
	}), 0);
}

void ud_pair_with(struct side *x, struct side *y, struct ibv_ah **ah, struct side_opt ox,
		  struct side_opt oy)
{
	open_device();
	ox.type = oy.type = IBV_QPT_UD;
	*x = side_with(0xfffff0, ox); /* packet sequence numbers come to their end */
	ud_up(x);
	if (y != x) {
		*y = side_with(0x222222, oy);
		ud_up(y);
	}
	*ah = ud_ah(ud_attr(AF_INET));
}

void ud_pair(struct side *x, struct side *y, struct ibv_ah **ah)
{
	ud_pair_with(x, y, ah, (struct side_opt){ 0 }, (struct side_opt){ 0 });
}

void ud_pair_free(struct side *x, struct side *y, struct ibv_ah *ah)
{
	OK(ibv_destroy_ah(ah));
	side_free(x);
	if (y != x)
		side_free(y);
	close_device();
}

struct ibv_send_wr ud_wr(uint64_t wr_id, int opcode, struct ibv_sge *sge, int n,
			 struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_send_wr wr = conf_wr(wr_id, opcode, sge, n);

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = UD_QKEY;
	return wr;
}

void ud_send(struct side *from, uint64_t wr_id, struct ibv_ah *ah, uint32_t qpn,
	     uint32_t len)
{
	struct ibv_sge sge = conf_sge(&from->b, UD_SRC, len);
	struct ibv_send_wr wr = ud_wr(wr_id, IBV_WR_SEND, &sge, 1, ah, qpn);

	OK(conf_post(from->qp, &wr));
}

void ud_recv(struct side *to, uint64_t wr_id, uint32_t len)
{
	memset(to->b.p + UD_DST, 0xee, UD_GRH + len + 64);
	if (to->srq)
		OK(conf_srq_recv(to->srq, wr_id, &to->b, UD_DST, UD_GRH + len));
	else
		OK(conf_recv(to->qp, wr_id, &to->b, UD_DST, UD_GRH + len));
}

/* Both complete in one CQ, in either order. Returns the receive's. */
static struct ibv_wc own_wc(const char *file, int line, struct ibv_cq *cq)
{
	struct ibv_wc first, second;

	conf_wc_(file, line, cq, &first);
	conf_wc_(file, line, cq, &second);
	if (first.wr_id + second.wr_id != 70 + 71 || first.status || second.status)
		conf_fail(file, line, "wr %d: %s, wr %d: %s", (int)first.wr_id,
			  ibv_wc_status_str(first.status), (int)second.wr_id,
			  ibv_wc_status_str(second.status));
	return first.wr_id == 70 ? first : second;
}

struct ibv_wc ud_arrives_(const char *file, int line, struct side *from, struct side *to,
			  struct ibv_ah *ah, uint32_t len)
{
	static uint32_t seed;
	struct ibv_wc wc;

	conf_pattern(from->b.p + UD_SRC, len, ++seed);
	ud_recv(to, 70, len);
	ud_send(from, 71, ah, to->qp->qp_num, len);
	if (from == to) {
		wc = own_wc(file, line, from->cq);
	} else {
		conf_wc_is_(file, line, from->cq, 71, IBV_WC_SUCCESS, NULL);
		conf_wc_is_(file, line, to->cq, 70, IBV_WC_SUCCESS, &wc);
	}
	if (wc.opcode != IBV_WC_RECV || wc.byte_len != UD_GRH + len)
		conf_fail(file, line, "opcode %d, %u bytes; sent were %u", (int)wc.opcode,
			  wc.byte_len, len);
	if (wc.qp_num != to->qp->qp_num || wc.src_qp != from->qp->qp_num)
		conf_fail(file, line, "to QP %#x from %#x, wanted %#x from %#x",
			  wc.qp_num, wc.src_qp, to->qp->qp_num, from->qp->qp_num);
	if (!(wc.wc_flags & IBV_WC_GRH))
		conf_fail(file, line, "no IBV_WC_GRH");
	if (!conf_pattern_ok(to->b.p + UD_DST + UD_GRH, len, seed))
		conf_fail(file, line, "other bytes than were sent");
	if (!conf_is_fill(to->b.p + UD_DST + UD_GRH + len, 0xee, 64))
		conf_fail(file, line, "bytes behind the receive are changed");
	return wc;
}

void ud_nothing_(const char *file, int line, struct side *to)
{
	conf_wc_none_(file, line, to->cq, conf_ms(CONF_QUIET));
	if (conf_user_device())
		conf_settle();
	conf_wc_none_(file, line, to->cq, 0);
}

/* ---- another process ------------------------------------------------------------ */

static pid_t other;

int ud_other(void (*fn)(int fd))
{
	int fd[2];

	OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd));
	other = fork();
	CHECK(other >= 0);
	if (!other) {
		close(fd[0]);
		fn(fd[1]);
		exit(0);
	}
	close(fd[1]);
	return fd[0];
}

void ud_other_end(int fd)
{
	int status = -1;

	EQ(waitpid(other, &status, 0), other);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		FAIL("the other process ended with %#x", status);
	close(fd);
}

void ud_tell(int fd, const void *p, size_t len)
{
	EQ(write(fd, p, len), len);
}

void ud_hear(int fd, void *p, size_t len)
{
	if (recv(fd, p, len, MSG_WAITALL) != (ssize_t)len)
		FAIL("the other process is gone");
}
