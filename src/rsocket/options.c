/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket options: a table. Most are numbers in struct rs_opts. */
#include "rsocket/rs.h"

#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/time.h>

enum { KEEPIDLE_DEFAULT = 7200, SNDBUF_MIN = 4096, SIZE_MAX_WR = 0xfffe };

static int keepidle_default(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/tcp_keepalive_time", "re");
	int v = KEEPIDLE_DEFAULT;

	if (!f)
		return v;
	if (fscanf(f, "%d", &v) != 1 || v <= 0)
		v = KEEPIDLE_DEFAULT;
	fclose(f);
	return v;
}

static int keepidle;
static pthread_once_t keepidle_once = PTHREAD_ONCE_INIT;

static void keepidle_read(void)
{
	keepidle = keepidle_default();
}

void opts_init(struct rs_opts *o)
{
	const struct rs_conf *c = rs_conf();

	pthread_once(&keepidle_once, keepidle_read);
	*o = (struct rs_opts){
		.rcvbuf = c->rmem,
		.sndbuf = c->wmem,
		.sq = c->sq,
		.rq = c->rq,
		.inline_max = c->inline_max,
		.iomaps = c->iomaps,
		.keepidle = keepidle,
		.keepcnt = 9,
		.keepintvl = 1,
	};
}

int opts_apply(struct rs *rs)
{
	uint8_t tos = (uint8_t)rs->opts.tos;

	if (rs->opts.tos)
		rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
	return 0;
}

/* ---- setting ---------------------------------------------------------------------- */

struct option;
typedef int set_fn(struct rs *rs, const struct option *o, const void *val, socklen_t len);
typedef int get_fn(struct rs *rs, const struct option *o, void *val, socklen_t *len);

struct option {
	int level, name;
	size_t at;	/* of an int or uint32_t in struct rs_opts */
	set_fn *set;	/* NULL: may not be set */
	get_fn *get;	/* NULL: may not be asked for */
	int most;
};

static uint32_t *field(struct rs *rs, const struct option *o)
{
	return (uint32_t *)((char *)&rs->opts + o->at);
}

/* Some are looked at by the service thread. */
static void field_set(struct rs *rs, const struct option *o, uint32_t v)
{
	__atomic_store_n(field(rs, o), v, __ATOMIC_RELAXED);
}

static int get_arg(const void *val, socklen_t len, int *v)
{
	if (!val)
		return -EFAULT;
	if (len < sizeof(*v))
		return -EINVAL;
	memcpy(v, val, sizeof(*v));
	return 0;
}

static int set_bool(struct rs *rs, const struct option *o, const void *val, socklen_t len)
{
	int v, ret = get_arg(val, len, &v);

	if (!ret)
		field_set(rs, o, v != 0);
	return ret;
}

static int set_positive(struct rs *rs, const struct option *o, const void *val,
			socklen_t len)
{
	int v, ret = get_arg(val, len, &v);

	if (ret)
		return ret;
	if (v <= 0)
		return -EINVAL;
	field_set(rs, o, (uint32_t)v);
	return 0;
}

static int set_ignored(struct rs *rs, const struct option *o, const void *val,
		       socklen_t len)
{
	int v;

	(void)rs, (void)o;
	return get_arg(val, len, &v);
}

static bool is_set_up(struct rs *rs)
{
	return rs_state(rs) != RS_NEW && rs_state(rs) != RS_LISTENING;
}

/* Twice what is asked for, as the kernel does. The buffers of a connection stay as they
 * are, as with the original. */
static int set_buf(struct rs *rs, const struct option *o, const void *val, socklen_t len)
{
	int v, ret = get_arg(val, len, &v);

	if (ret)
		return ret;
	if (is_set_up(rs))
		return 0;
	v = v < SNDBUF_MIN / 2 ? SNDBUF_MIN / 2 : v > 1 << 29 ? 1 << 29 : v;
	*field(rs, o) = (uint32_t)v * 2;
	return 0;
}

/* Of struct rs_opts, set before there is a connection. */
static int set_size(struct rs *rs, const struct option *o, const void *val, socklen_t len)
{
	int v, ret = get_arg(val, len, &v);

	if (ret)
		return ret;
	if (is_set_up(rs) || v < 0)
		return -EINVAL;
	*field(rs, o) = (uint32_t)(v > o->most ? o->most : v);
	return 0;
}

static int set_iomaps(struct rs *rs, const struct option *o, const void *val,
		      socklen_t len)
{
	int ret = set_size(rs, o, val, len);

	if (!ret)
		rs->opts.iomaps = proto_iomaps(proto_iomaps_scale(rs->opts.iomaps));
	return ret;
}

static int set_reuseaddr(struct rs *rs, const struct option *o, const void *val,
			 socklen_t len)
{
	int ret = set_bool(rs, o, val, len), v = rs->opts.reuseaddr;

	if (ret || !v)
		return ret;
	ret = rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &v,
			      sizeof(v));
	/* Too late, or a kernel without it: as with the original, it is no error. */
	return ret && errno != ENOSYS && errno != EINVAL ? -errno : 0;
}

static int set_v6only(struct rs *rs, const struct option *o, const void *val,
		      socklen_t len)
{
	int ret = set_bool(rs, o, val, len), v = rs->opts.v6only;

	if (ret)
		return ret;
	return rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &v,
			       sizeof(v)) ? -errno : 0;
}

static int set_tos(struct rs *rs, const struct option *o, const void *val, socklen_t len)
{
	uint8_t tos;
	int v, ret;

	if (!val)
		return -EFAULT;
	if (len == sizeof(tos)) {
		v = *(const uint8_t *)val;
	} else {
		ret = get_arg(val, len, &v);
		if (ret)
			return ret;
	}
	if (v < 0 || v > 255)
		return -EINVAL;
	*field(rs, o) = (uint32_t)v;
	tos = (uint8_t)v;
	return rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos,
			       sizeof(tos)) ? -errno : 0;
}

static int set_linger(struct rs *rs, const struct option *o, const void *val,
		      socklen_t len)
{
	(void)o;
	if (!val)
		return -EFAULT;
	if (len < sizeof(rs->opts.linger))
		return -EINVAL;
	memcpy(&rs->opts.linger, val, sizeof(rs->opts.linger));
	return 0;
}

static int set_time(struct rs *rs, const struct option *o, const void *val, socklen_t len)
{
	struct timeval t;

	if (!val)
		return -EFAULT;
	if (len < sizeof(t))
		return -EINVAL;
	memcpy(&t, val, sizeof(t));
	if (t.tv_usec < 0 || t.tv_usec >= 1000000)
		return -EDOM;
	if (t.tv_sec < 0 || t.tv_sec > INT_MAX)
		t = (struct timeval){ 0 };
	*(uint64_t *)((char *)&rs->opts + o->at) =
		(uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_usec * 1000;
	return 0;
}

static int set_keepalive(struct rs *rs, const struct option *o, const void *val,
			 socklen_t len)
{
	int ret = o->at == offsetof(struct rs_opts, keepalive) ?
			  set_bool(rs, o, val, len) : set_positive(rs, o, val, len);

	if (!ret)
		service_keepalive(rs);
	return ret;
}

static int set_route(struct rs *rs, const struct option *o, const void *val,
		     socklen_t len)
{
	void *copy;

	(void)o;
	if (is_set_up(rs) || !val || !len || len % sizeof(struct ibv_path_data))
		return -EINVAL;
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, val, len);
	free(rs->opts.route);
	rs->opts.route = copy;
	rs->opts.nroute = len;
	return 0;
}

/* ---- asking -------------------------------------------------------------------------- */

static int put(const void *from, size_t n, void *val, socklen_t *len)
{
	if ((int)*len < 0)
		return -EINVAL;
	if (n > *len)
		n = *len;
	memcpy(val, from, n);
	*len = (socklen_t)n;
	return 0;
}

static int get_int(struct rs *rs, const struct option *o, void *val, socklen_t *len)
{
	return put(field(rs, o), sizeof(int), val, len);
}

static int get_error(struct rs *rs, const struct option *o, void *val, socklen_t *len)
{
	int err = atomic_exchange(&rs->err, 0);

	(void)o;
	return put(&err, sizeof(err), val, len);
}

static int get_type(struct rs *rs, const struct option *o, void *val, socklen_t *len)
{
	const int v = o->name == SO_TYPE ? SOCK_STREAM :
		      o->name == SO_DOMAIN ? rs->domain :
		      o->name == SO_PROTOCOL ? IPPROTO_TCP : rs_state(rs) == RS_LISTENING;

	return put(&v, sizeof(v), val, len);
}

static int get_linger(struct rs *rs, const struct option *o, void *val, socklen_t *len)
{
	(void)o;
	return put(&rs->opts.linger, sizeof(rs->opts.linger), val, len);
}

static int get_time(struct rs *rs, const struct option *o, void *val, socklen_t *len)
{
	uint64_t ns = *(uint64_t *)((char *)&rs->opts + o->at);
	struct timeval t = { (time_t)(ns / 1000000000),
			     (suseconds_t)(ns % 1000000000 / 1000) };

	return put(&t, sizeof(t), val, len);
}

static int get_maxseg(struct rs *rs, const struct option *o, void *val, socklen_t *len)
{
	int v = rs->id && rs->id->route.num_paths ?
			128 << (rs->id->route.path_rec->mtu & 7) : 2048;

	(void)o;
	return put(&v, sizeof(v), val, len);
}

static int get_congestion(struct rs *rs, const struct option *o, void *val,
			  socklen_t *len)
{
	(void)rs, (void)o;
	return put("rsocket", sizeof("rsocket"), val, len);
}

static int get_info(struct rs *rs, const struct option *o, void *val, socklen_t *len)
{
	static const uint8_t state[RS_STATES] = {
		[RS_NEW] = TCP_CLOSE,
		[RS_LISTENING] = TCP_LISTEN,
		[RS_CONNECTING] = TCP_SYN_SENT,
		[RS_CONNECTED] = TCP_ESTABLISHED,
		[RS_FAILED] = TCP_CLOSE,
	};
	struct tcp_info i = { .tcpi_state = state[rs_state(rs)],
			      .tcpi_snd_cwnd = rs->opts.sq };
	unsigned ended = rs_ended(rs);

	(void)o;
	if (ended & RS_GONE)
		i.tcpi_state = TCP_CLOSE;
	else if (ended & RS_PEER_SHUT)
		i.tcpi_state = TCP_CLOSE_WAIT;
	else if (ended & RS_WR_SHUT)
		i.tcpi_state = TCP_FIN_WAIT2;
	return put(&i, sizeof(i), val, len);
}

static int get_route(struct rs *rs, const struct option *o, void *val, socklen_t *len)
{
	(void)o;
	if (*len < rs->opts.nroute)
		return -EINVAL;
	return put(rs->opts.route, rs->opts.nroute, val, len);
}

/* ---- the table ----------------------------------------------------------------------- */

#define AT(f) offsetof(struct rs_opts, f)

static const struct option options[] = {
	{ SOL_SOCKET, SO_REUSEADDR, AT(reuseaddr), set_reuseaddr, get_int, 0 },
	{ SOL_SOCKET, SO_KEEPALIVE, AT(keepalive), set_keepalive, get_int, 0 },
	{ SOL_SOCKET, SO_OOBINLINE, AT(oobinline), set_bool, get_int, 0 },
	{ SOL_SOCKET, SO_BROADCAST, AT(broadcast), set_bool, get_int, 0 },
	{ SOL_SOCKET, SO_RCVBUF, AT(rcvbuf), set_buf, get_int, 0 },
	{ SOL_SOCKET, SO_SNDBUF, AT(sndbuf), set_buf, get_int, 0 },
	{ SOL_SOCKET, SO_LINGER, 0, set_linger, get_linger, 0 },
	{ SOL_SOCKET, SO_RCVTIMEO, AT(rcvtimeo), set_time, get_time, 0 },
	{ SOL_SOCKET, SO_SNDTIMEO, AT(sndtimeo), set_time, get_time, 0 },
	{ SOL_SOCKET, SO_ERROR, 0, NULL, get_error, 0 },
	{ SOL_SOCKET, SO_TYPE, 0, NULL, get_type, 0 },
	{ SOL_SOCKET, SO_DOMAIN, 0, NULL, get_type, 0 },
	{ SOL_SOCKET, SO_PROTOCOL, 0, NULL, get_type, 0 },
	{ SOL_SOCKET, SO_ACCEPTCONN, 0, NULL, get_type, 0 },
	{ IPPROTO_IP, IP_TOS, AT(tos), set_tos, get_int, 0 },
	{ IPPROTO_TCP, TCP_NODELAY, AT(nodelay), set_bool, get_int, 0 },
	{ IPPROTO_TCP, TCP_KEEPIDLE, AT(keepidle), set_keepalive, get_int, 0 },
	{ IPPROTO_TCP, TCP_KEEPCNT, AT(keepcnt), set_positive, get_int, 0 },
	{ IPPROTO_TCP, TCP_KEEPINTVL, AT(keepintvl), set_positive, get_int, 0 },
	{ IPPROTO_TCP, TCP_MAXSEG, 0, set_ignored, get_maxseg, 0 },
	{ IPPROTO_TCP, TCP_CONGESTION, 0, set_ignored, get_congestion, 0 },
	{ IPPROTO_TCP, TCP_INFO, 0, NULL, get_info, 0 },
	{ IPPROTO_IPV6, IPV6_V6ONLY, AT(v6only), set_v6only, get_int, 0 },
	{ SOL_RDMA, RDMA_SQSIZE, AT(sq), set_size, get_int, SIZE_MAX_WR },
	{ SOL_RDMA, RDMA_RQSIZE, AT(rq), set_size, get_int, SIZE_MAX_WR },
	{ SOL_RDMA, RDMA_INLINE, AT(inline_max), set_size, get_int, 65536 },
	{ SOL_RDMA, RDMA_IOMAPSIZE, AT(iomaps), set_iomaps, get_int, PROTO_IOMAP_MAX },
	{ SOL_RDMA, RDMA_ROUTE, 0, set_route, get_route, 0 },
};

static const struct option *find(int level, int name)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (options[i].level == level && options[i].name == name)
			return &options[i];
	return NULL;
}

int rs_setsockopt(struct rs *rs, int level, int name, const void *val, socklen_t len)
{
	const struct option *o = find(level, name);
	int ret;

	if (!o || !o->set)
		return -ENOTSUP;
	pthread_mutex_lock(&rs->lock);
	ret = o->set(rs, o, val, len);
	pthread_mutex_unlock(&rs->lock);
	return ret;
}

int rs_getsockopt(struct rs *rs, int level, int name, void *val, socklen_t *len)
{
	const struct option *o = find(level, name);

	if (!o || !o->get)
		return -ENOTSUP;
	if (!val || !len)
		return -EFAULT;
	return o->get(rs, o, val, len);
}
