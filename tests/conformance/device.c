/* SPDX-License-Identifier: BSD-2-Clause */
/* What a device reports of itself, by each of the queries; that it refuses what it does
 * not report; and that the limits it reports for one object can be used. Limits for the
 * number of objects are in tests/system/limits.c. */
#include "side.h"

#include <net/if.h>
#include <sys/mman.h>

#undef ibv_query_port /* the symbol itself */

static const union ibv_gid zero_gid;

static struct ibv_device_attr_ex attr_ex(void)
{
	struct ibv_device_attr_ex a;

	memset(&a, 0xa5, sizeof(a));
	OK(ibv_query_device_ex(dev.ctx, NULL, &a));
	return a;
}

static void both_queries_agree(void)
{
	struct ibv_query_device_ex_input input = { 0 };
	struct ibv_device_attr_ex x;
	struct ibv_device_attr a;

	open_device();
	memset(&a, 0xa5, sizeof(a));
	OK(ibv_query_device(dev.ctx, &a));
	x = attr_ex();
	CHECK(!strcmp(a.fw_ver, x.orig_attr.fw_ver));
	CHECK(!memcmp(&a.node_guid, &x.orig_attr.node_guid,
		      sizeof(a) - offsetof(struct ibv_device_attr, node_guid)));
	EQ(x.comp_mask, 0);
	CHECK(a.node_guid && a.node_guid == ibv_get_device_guid(dev.ctx->device));
	EQ(x.phys_port_cnt_ex, a.phys_port_cnt);
	EQ((uint32_t)x.device_cap_flags_ex, a.device_cap_flags);
	if (conf_user_device())
		EQ(x.device_cap_flags_ex >> 32, 1u << 8); /* IBV_DEVICE_ATOMIC_WRITE */
	input.comp_mask = 1;
	EQ(ibv_query_device_ex(dev.ctx, &input, &x), EINVAL);
	close_device();
}

static void promises_are_sane(void)
{
	struct ibv_device_attr a;

	open_device();
	a = attr_ex().orig_attr;
	CHECK(a.max_qp > 0 && a.max_qp_wr > 0 && a.max_sge > 0 && a.max_sge_rd > 0);
	CHECK(a.max_cq > 0 && a.max_cqe > 0 && a.max_mr > 0 && a.max_pd > 0);
	CHECK(a.max_srq > 0 && a.max_srq_wr > 0 && a.max_srq_sge > 0);
	CHECK(a.max_qp_rd_atom > 0 && a.max_qp_init_rd_atom > 0 && a.max_res_rd_atom > 0);
	CHECK(a.max_ah > 0 && a.max_pkeys > 0 && a.phys_port_cnt >= 1);
	CHECK(a.max_mr_size > 1ull << 31);
	CHECK(a.page_size_cap & (uint64_t)sysconf(_SC_PAGESIZE));
	close_device();
}

/* Every capability that is not there is zero. */
static void not_offered_is_zero(void)
{
	struct ibv_device_attr_ex x;

	if (!conf_user_device())
		SKIP("other devices offer other things");
	open_device();
	x = attr_ex();
	EQ(x.odp_caps.per_transport_caps.ud_odp_caps, 0);
	EQ(x.tso_caps.max_tso, 0);
	EQ(x.tso_caps.supported_qpts, 0);
	EQ(x.rss_caps.supported_qpts, 0);
	EQ(x.rss_caps.max_rwq_indirection_tables, 0);
	EQ(x.max_wq_type_rq, 0);
	EQ(x.packet_pacing_caps.qp_rate_limit_max, 0);
	EQ(x.packet_pacing_caps.supported_qpts, 0);
	EQ(x.raw_packet_caps, 0);
	EQ(x.tm_caps.max_num_tags, 0);
	EQ(x.tm_caps.flags, 0);
	EQ(x.max_dm_size, 0);
	EQ(x.orig_attr.max_ee, 0);
	EQ(x.orig_attr.max_rdd, 0);
	EQ(x.orig_attr.max_fmr, 0);
	EQ(x.orig_attr.max_raw_ethy_qp, 0);
	EQ(x.orig_attr.max_raw_ipv6_qp, 0);
	EQ(x.orig_attr.device_cap_flags &
		   (IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_MANAGED_FLOW_STEERING |
		    IBV_DEVICE_UD_IP_CSUM | IBV_DEVICE_RC_IP_CSUM | IBV_DEVICE_RAW_IP_CSUM |
		    IBV_DEVICE_RESIZE_MAX_WR | IBV_DEVICE_RAW_MULTI),
	   0);
	CHECK(x.completion_timestamp_mask && x.hca_core_clock);
	CHECK(x.cq_mod_caps.max_cq_count && x.cq_mod_caps.max_cq_period);
	close_device();
}

#define REFUSED_PTR(c) \
	do { \
		errno = 0; \
		CHECK(!(c)); \
		EQ(errno, EOPNOTSUPP); \
	} while (0)

static void not_offered_is_refused(void)
{
	struct ibv_ops_wr op = { 0 }, *bad_op = NULL;
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(flow) };
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1 };
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct ibv_counters_init_attr counters = { 0 };
	struct side x;

	if (!conf_user_device())
		SKIP("other devices offer other things");
	open_device();
	x = side_with(1, (struct side_opt){ .srq = true });
	wq.pd = dev.pd;
	wq.cq = x.cq;
	REFUSED_PTR(ibv_create_flow(x.qp, &flow));
	REFUSED_PTR(ibv_create_flow_action_esp(dev.ctx, &esp));
	REFUSED_PTR(ibv_create_wq(dev.ctx, &wq));
	REFUSED_PTR(ibv_create_rwq_ind_table(dev.ctx, &table));
	REFUSED_PTR(ibv_alloc_dm(dev.ctx, &dm));
	REFUSED_PTR(ibv_create_counters(dev.ctx, &counters));
	REFUSED_PTR(ibv_reg_dmabuf_mr(dev.pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE));
	REFUSED_PTR(ibv_import_device(0));
	REFUSED_PTR(ibv_import_pd(dev.ctx, 0));
	REFUSED_PTR(ibv_import_mr(dev.pd, 0));
	EQ(ibv_modify_qp_rate_limit(x.qp, &rate), EOPNOTSUPP);
	EQ(ibv_post_srq_ops(x.srq, &op, &bad_op), EOPNOTSUPP);
	CHECK(bad_op == &op);
	side_free(&x);
	close_device();
}

/* ---- port ------------------------------------------------------------------------ */

static void port_in_both_layouts(void)
{
	enum { OLD = offsetof(struct ibv_port_attr, port_cap_flags2) };
	struct {
		struct ibv_port_attr a;
		uint8_t behind[64];
	} old;
	struct ibv_port_attr new;

	open_device();
	memset(&new, 0xa5, sizeof(new));
	EQ(___ibv_query_port(dev.ctx, 1, &new), 0);
	/* Binaries from before port_cap_flags2 have no room for it. */
	memset(&old, 0xa5, sizeof(old));
	EQ(ibv_query_port(dev.ctx, 1, (struct _compat_ibv_port_attr *)&old.a), 0);
	CHECK(!memcmp(&old.a, &new, OLD));
	CHECK(conf_is_fill((uint8_t *)&old + OLD, 0xa5, sizeof(old) - OLD));
	CHECK(new.state >= IBV_PORT_DOWN && new.state <= IBV_PORT_ACTIVE_DEFER);
	CHECK(new.active_mtu >= IBV_MTU_256 && new.active_mtu <= new.max_mtu);
	EQ(new.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK(new.gid_tbl_len > 0 && new.pkey_tbl_len > 0);
	CHECK(new.max_msg_sz >= 1u << 23);
	if (conf_user_device())
		EQ(new.max_msg_sz, 1u << 31);
	for (int p = 0; p < 256; p += 2) {
		EQ(___ibv_query_port(dev.ctx, (uint8_t)p, &new), EINVAL);
		EQ(ibv_query_port(dev.ctx, (uint8_t)p,
				  (struct _compat_ibv_port_attr *)&old.a), EINVAL);
	}
	close_device();
}

/* ---- GIDs ------------------------------------------------------------------------ */

static void gid_entries(void)
{
	struct ibv_gid_entry e;
	union ibv_gid gid;
	char name[IF_NAMESIZE];
	int n = 0;

	open_device();
	for (int i = 0; i < dev.port.gid_tbl_len; i++) {
		int r = ibv_query_gid_ex(dev.ctx, 1, (uint32_t)i, &e, 0);

		OK(ibv_query_gid(dev.ctx, 1, i, &gid));
		if (!memcmp(&gid, &zero_gid, 16)) {
			EQ(r, ENODATA);
			continue;
		}
		EQ(r, 0);
		n++;
		CHECK(!memcmp(&e.gid, &gid, 16));
		EQ(e.gid_index, i);
		EQ(e.port_num, 1);
		CHECK(e.gid_type == IBV_GID_TYPE_ROCE_V1 || e.gid_type == IBV_GID_TYPE_ROCE_V2);
		CHECK(if_indextoname(e.ndev_ifindex, name));
		if (conf_user_device())
			EQ(e.gid_type, IBV_GID_TYPE_ROCE_V2);
	}
	CHECK(n > 0);
	EQ(ibv_query_gid_ex(dev.ctx, 1, (uint32_t)dev.port.gid_tbl_len, &e, 0), EINVAL);
	EQ(ibv_query_gid_ex(dev.ctx, 9, 0, &e, 0), EINVAL);
	EQ(ibv_query_gid_ex(dev.ctx, 1, 0, &e, 1), EINVAL);
	ERR(ibv_query_gid(dev.ctx, 9, 0, &gid), EINVAL);
	close_device();
}

static void gid_table(void)
{
	static struct ibv_gid_entry all[1024], few[1024];
	struct ibv_gid_entry e;
	ssize_t n;

	open_device();
	n = ibv_query_gid_table(dev.ctx, all, 1024, 0);
	CHECK(n > 0 && n <= dev.port.gid_tbl_len);
	for (ssize_t i = 0; i < n; i++) {
		OK(ibv_query_gid_ex(dev.ctx, 1, all[i].gid_index, &e, 0));
		CHECK(!memcmp(&e, &all[i], sizeof(e)));
		if (i)
			CHECK(all[i].gid_index > all[i - 1].gid_index);
	}
	EQ(ibv_query_gid_table(dev.ctx, few, (size_t)n, 0), n);
	CHECK(!memcmp(all, few, sizeof(*all) * (size_t)n));
	EQ(ibv_query_gid_table(dev.ctx, few, (size_t)n - 1, 0), -EINVAL);
	CHECK(ibv_query_gid_table(dev.ctx, few, (size_t)n, 1) < 0);
	close_device();
}

/* A later header may have a longer entry: ours is filled, the rest is zero. */
static void longer_gid_entries(void)
{
	struct {
		struct ibv_gid_entry e;
		uint8_t more[24];
	} e, t[64];
	ssize_t n;

	if (!conf_user_device())
		SKIP("the original asks its kernel");
	open_device();
	memset(&e, 0xa5, sizeof(e));
	memset(t, 0xa5, sizeof(t));
	OK(_ibv_query_gid_ex(dev.ctx, 1, (uint32_t)dev.gid_index, &e.e, 0, sizeof(e)));
	CHECK(!memcmp(&e.e.gid, &dev.gid, 16));
	CONF_MSG_ZERO(e.more, sizeof(e.more));
	n = _ibv_query_gid_table(dev.ctx, &t[0].e, 64, 0, sizeof(t[0]));
	CHECK(n > 0);
	for (ssize_t i = 0; i < n; i++) {
		CHECK(memcmp(&t[i].e.gid, &zero_gid, 16));
		CONF_MSG_ZERO(t[i].more, sizeof(t[i].more));
	}
	EQ(_ibv_query_gid_ex(dev.ctx, 1, 0, &e.e, 0, 8), EINVAL);
	close_device();
}

static void pkeys(void)
{
	__be16 pkey = 0;

	open_device();
	OK(ibv_query_pkey(dev.ctx, 1, 0, &pkey));
	EQ(ntohs(pkey), 0xffff);
	EQ(ibv_get_pkey_index(dev.ctx, 1, pkey), 0);
	EQ(ibv_get_pkey_index(dev.ctx, 1, htons(0x1234)), -1);
	EQ(ibv_query_pkey(dev.ctx, 1, 9999, &pkey), -1);
	close_device();
}

/* ---- clock ----------------------------------------------------------------------- */

static void clock_runs(void)
{
	struct ibv_values_ex a = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK }, b = a;
	struct ibv_values_ex bad = { .comp_mask = 1u << 20 }, none = { 0 };
	struct ibv_device_attr_ex x;
	double ticks, seconds;
	uint64_t t0, t1;
	int r;

	open_device();
	x = attr_ex();
	t0 = conf_now();
	r = ibv_query_rt_values_ex(dev.ctx, &a);
	if (r == EOPNOTSUPP || r == ENOSYS)
		SKIP("no clock");
	EQ(r, 0);
	usleep(50000); /* time is the point */
	OK(ibv_query_rt_values_ex(dev.ctx, &b));
	t1 = conf_now();
	CHECK(a.comp_mask & IBV_VALUES_MASK_RAW_CLOCK);
	ticks = (double)(b.raw_clock.tv_sec - a.raw_clock.tv_sec) * 1e9 +
		(double)(b.raw_clock.tv_nsec - a.raw_clock.tv_nsec);
	seconds = (double)(t1 - t0) / 1e9;
	/* At the announced rate; both were read between t0 and t1. */
	CHECK(ticks / ((double)x.hca_core_clock * 1e3) > 0.049);
	CHECK(ticks / ((double)x.hca_core_clock * 1e3) < seconds * 1.1 + 0.05);
	if (conf_user_device())
		EQ(ibv_query_rt_values_ex(dev.ctx, &bad), EINVAL);
	OK(ibv_query_rt_values_ex(dev.ctx, &none));
	close_device();
}

/* ---- domains ---------------------------------------------------------------------- */

static void parent_domain_is_its_pd(void)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct ibv_pd *parent;
	struct ibv_td *td;
	struct side x, y;

	open_device();
	td = ibv_alloc_td(dev.ctx, &td_attr);
	if (!td && errno == EOPNOTSUPP)
		SKIP("no thread domains");
	MUST(td);
	attr.pd = dev.pd;
	attr.td = td;
	MUST(parent = ibv_alloc_parent_domain(dev.ctx, &attr));
	CHECK(parent != dev.pd);
	/* A QP on the one and memory on the other, both ways. */
	x = side_with(1, (struct side_opt){ .pd = parent });
	y = side(2);
	CHECK(x.qp->pd == parent);
	join(&x, &y);
	exchange(&y, &x, 1);
	conf_buf_free(&x.b);
	x.b = conf_buf(dev.pd, 1 << 20, CONF_RW);
	exchange(&x, &y, 2);
	conf_buf_free(&x.b);
	x.b = conf_buf(parent, 1 << 20, CONF_RW);
	conf_buf_free(&y.b);
	y.b = conf_buf(parent, 1 << 20, CONF_RW);
	exchange(&x, &y, 3);
	/* In use. */
	EQ(ibv_dealloc_td(td), EBUSY);
	EQ(ibv_dealloc_pd(parent), EBUSY);
	EQ(ibv_dealloc_pd(dev.pd), EBUSY);
	side_free(&x);
	side_free(&y);
	EQ(ibv_dealloc_pd(dev.pd), EBUSY); /* by the parent domain alone */
	OK(ibv_dealloc_pd(parent));
	OK(ibv_dealloc_td(td));
	close_device();
}

/* ---- ECE --------------------------------------------------------------------------- */

static void ece(void)
{
	struct ibv_ece e = { .vendor_id = 0xffff }, want;
	struct side x, y;
	int r;

	open_device();
	x = side(1);
	y = side(2);
	r = ibv_query_ece(x.qp, &e);
	if (r == EOPNOTSUPP)
		SKIP("no ECE");
	EQ(r, 0);
	CHECK(e.vendor_id && e.vendor_id != 0xffff);
	EQ(e.comp_mask, 0);
	want = e;
	want.options = 0xffffffff;
	EQ(ibv_set_ece(x.qp, &want), 0);
	if (conf_user_device())
		EQ(want.options, 0); /* what was accepted */
	want.vendor_id ^= 1;
	EQ(ibv_set_ece(x.qp, &want), EINVAL);
	want.vendor_id = 0;
	EQ(ibv_set_ece(x.qp, &want), EOPNOTSUPP);
	want = e;
	want.comp_mask = 1;
	EQ(ibv_set_ece(x.qp, &want), EINVAL);
	join(&x, &y);
	if (conf_user_device())
		EQ(ibv_set_ece(x.qp, &e), EINVAL); /* too late */
	exchange(&x, &y, 1);
	side_pair_free(&x, &y);
}

/* ---- promises for one object ------------------------------------------------------ */

static void longest_queues(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq = { .attr = { .max_sge = 1 } };
	struct ibv_send_wr wr, *bad;
	struct ibv_device_attr a;
	struct ibv_qp *qp;
	struct side x;
	int n = 0;

	open_device();
	a = attr_ex().orig_attr;
	x = side(1);
	attr.send_cq = attr.recv_cq = x.cq;
	attr.cap = (struct ibv_qp_cap)CONF_CAP((uint32_t)a.max_qp_wr, (uint32_t)a.max_qp_wr, 1);
	MUST(qp = ibv_create_qp(dev.pd, &attr));
	OK(ibv_destroy_qp(qp));
	attr.cap.max_send_wr++;
	errno = 0;
	CHECK(!ibv_create_qp(dev.pd, &attr));
	if (conf_user_device())
		EQ(errno, EINVAL);
	attr.cap = (struct ibv_qp_cap)CONF_CAP(1, (uint32_t)a.max_qp_wr + 1, 1);
	CHECK(!ibv_create_qp(dev.pd, &attr));
	srq.attr.max_wr = (uint32_t)a.max_srq_wr;
	MUST(x.srq = ibv_create_srq(dev.pd, &srq));
	for (;; n++) {
		struct ibv_recv_wr rwr = { 0 }, *rbad;

		if (ibv_post_srq_recv(x.srq, &rwr, &rbad))
			break;
	}
	CHECK(n >= a.max_srq_wr);
	OK(ibv_destroy_srq(x.srq));
	srq.attr.max_wr++;
	x.srq = NULL;
	CHECK(!ibv_create_srq(dev.pd, &srq));
	side_free(&x);
	/* Filled to the last request: the peer is not there yet. */
	x = side_with(1, (struct side_opt){ .wr = (unsigned)a.max_qp_wr,
					    .cqe = (unsigned)a.max_qp_wr });
	EQ(to_init(&x), 0);
	EQ(to_rtr(&x, x.qp->qp_num, x.psn, &dev.gid), 0);
	EQ(to_rts(&x), 0);
	wr = conf_rdma(7, IBV_WR_RDMA_WRITE, NULL, 0, x.b.p, x.b.mr->rkey);
	for (n = 0; n < a.max_qp_wr; n++)
		OK(ibv_post_send(x.qp, &wr, &bad));
	for (n = 0; n < a.max_qp_wr; n++)
		conf_wc_ok(x.cq, 7);
	side_free(&x);
	close_device();
}

static void most_entries(void)
{
	struct ibv_device_attr a;
	struct ibv_cq *cq;

	if (!conf_user_device())
		SKIP("a kernel CQ of the largest size takes its memory at once");
	open_device();
	a = attr_ex().orig_attr;
	MUST(cq = ibv_create_cq(dev.ctx, a.max_cqe, NULL, NULL, 0));
	OK(ibv_destroy_cq(cq));
	CHECK(!ibv_create_cq(dev.ctx, a.max_cqe + 1, NULL, NULL, 0));
	close_device();
}

static void most_sges(void)
{
	struct ibv_device_attr a;
	struct ibv_sge s[256];
	struct ibv_recv_wr rwr = { .wr_id = 9, .sg_list = s }, *bad;
	struct ibv_send_wr wr;
	struct side x, y;
	int n;

	open_device();
	a = attr_ex().orig_attr;
	n = a.max_sge < 256 ? a.max_sge : 256;
	x = side_with(1, (struct side_opt){ .sge = (unsigned)n });
	y = side_with(2, (struct side_opt){ .sge = (unsigned)n, .recv_sge = (unsigned)n });
	join(&x, &y);
	conf_pattern(x.b.p, 64 * 256, 5);
	for (int i = 0; i < n; i++) /* backwards, with gaps */
		s[i] = conf_sge(&y.b, 128 * (size_t)(n - i), 64);
	rwr.num_sge = n;
	OK(ibv_post_recv(y.qp, &rwr, &bad));
	for (int i = 0; i < n; i++)
		s[i] = conf_sge(&x.b, 64 * (size_t)i, 64);
	wr = conf_wr(1, IBV_WR_SEND, s, n);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 9);
	for (int i = 0; i < n; i++)
		CHECK(!memcmp(y.b.p + 128 * (n - i), x.b.p + 64 * i, 64));
	side_pair_free(&x, &y);
}

/* 2 GiB in one message without 2 GiB of memory: one file, mapped many times. */
static uint8_t *folded(size_t len, size_t piece)
{
	int fd = memfd_create("folded", MFD_CLOEXEC);
	uint8_t *p;

	CHECK(fd >= 0);
	OK(ftruncate(fd, (off_t)piece));
	p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p != MAP_FAILED);
	for (size_t at = 0; at < len; at += piece)
		CHECK(mmap(p + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			   0) == p + at);
	close(fd);
	return p;
}

static void longest_message(void)
{
	enum { PIECE = 16 << 20 };
	size_t len = 1ull << 31;
	struct conf_buf a, b;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct side x, y;
	struct ibv_wc wc;
	uint64_t end;

	if (!conf_user_device())
		SKIP("the kernel would pin the pages many times");
#ifdef CONF_SANITIZER
	SKIP("too slow with a sanitizer");
#endif
	side_pair(&x, &y);
	a = (struct conf_buf){ .p = folded(len, PIECE), .len = len };
	b = (struct conf_buf){ .p = folded(len, PIECE), .len = len };
	MUST(a.mr = ibv_reg_mr(dev.pd, a.p, len, CONF_RW));
	MUST(b.mr = ibv_reg_mr(dev.pd, b.p, len, CONF_RW));
	conf_pattern(a.p, PIECE, 31);
	sge = conf_sge(&a, 0, len);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1, b.p, b.mr->rkey);
	OK(conf_recv(y.qp, 9, &y.b, 0, 8));
	OK(conf_post(x.qp, &wr));
	end = conf_now() + conf_ms(80000) * 1000000ull;
	while (!ibv_poll_cq(y.cq, 1, &wc))
		CHECK(conf_now() < end);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.byte_len, len);
	conf_wc_ok(x.cq, 1);
	CHECK(conf_pattern_ok(b.p, PIECE, 31));
	sge = conf_sge(&a, 0, len);
	sge.length++;
	wr = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge, 1, b.p, b.mr->rkey);
	EQ(conf_post(x.qp, &wr), EINVAL); /* one byte more is too long */
	OK(ibv_dereg_mr(a.mr));
	OK(ibv_dereg_mr(b.mr));
	side_pair_free(&x, &y);
}

static void deepest_reads(void)
{
	struct ibv_device_attr a;
	struct ibv_qp_attr qa = { .qp_state = IBV_QPS_RTR };
	struct side x;

	open_device();
	a = attr_ex().orig_attr;
	x = side(1);
	EQ(to_init(&x), 0);
	qa.path_mtu = dev.port.active_mtu;
	qa.dest_qp_num = x.qp->qp_num;
	qa.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1,
					   .grh = { .dgid = dev.gid,
						    .sgid_index = (uint8_t)dev.gid_index,
						    .hop_limit = 1 } };
	for (int more = 1; more >= 0; more--) {
		qa.max_dest_rd_atomic = (uint8_t)(a.max_qp_rd_atom + more);
		EQ(conf_qp_modify(x.qp, qa), more ? EINVAL : 0);
	}
	side_free(&x);
	close_device();
}

static const struct conf_case cases[] = {
	CASE(both_queries_agree),
	CASE(promises_are_sane),
	CASE(not_offered_is_zero),
	CASE(not_offered_is_refused),
	CASE(port_in_both_layouts),
	CASE(gid_entries),
	CASE(gid_table),
	CASE(longer_gid_entries),
	CASE(pkeys),
	CASE(clock_runs),
	CASE(parent_domain_is_its_pd),
	CASE(ece),
	CASE(longest_queues),
	CASE(most_entries),
	CASE(most_sges),
	LONG_CASE(longest_message, 90),
	CASE(deepest_reads),
};

CONF_MAIN(cases)
