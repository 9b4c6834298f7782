/* SPDX-License-Identifier: BSD-2-Clause */
/* The exported calls: descriptors become objects, -errno becomes errno. */
#include "rsocket/rs.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/time.h>

static ssize_t edge(ssize_t ret)
{
	if (ret >= 0)
		return ret;
	errno = (int)-ret;
	return -1;
}

/* -EBADF: not ours. After a fork the parent's sockets are as those whose peer has gone. */
static int get(int fd, enum obj_kind kind, void *out)
{
	struct obj *o = table_get(fd);
	int ret = 0;

	if (!o)
		return -EBADF;
	if (obj_is_dead(o))
		ret = -ECONNRESET;
	else if (o->kind == OBJ_EPOLL)
		ret = -ENOTSOCK;
	else if (kind == OBJ_STREAM && o->kind != kind)
		ret = -EOPNOTSUPP;
	if (ret)
		table_put(o);
	else
		*(struct obj **)out = o;
	return ret;
}

/* With rs: the stream socket of this number. */
#define STREAM_CALL(fd, call)                                                    \
	({                                                                       \
		struct rs *rs;                                                   \
		ssize_t ret_ = get(fd, OBJ_STREAM, &rs);                         \
		if (!ret_) {                                                     \
			ret_ = (call);                                           \
			table_put(&rs->obj);                                     \
		}                                                                \
		edge(ret_);                                                      \
	})

/* The same for both kinds: STREAM's and DGRAM's way. */
#define SOCKET_CALL(fd, stream, dgram)                                           \
	({                                                                       \
		struct rs *rs;                                                   \
		ssize_t ret_ = get(fd, OBJ_DGRAM, &rs);                          \
		if (!ret_) {                                                     \
			ret_ = rs->dg ? (ssize_t)(dgram) : (ssize_t)(stream);    \
			table_put(&rs->obj);                                     \
		}                                                                \
		edge(ret_);                                                      \
	})

int rsocket(int domain, int type, int protocol)
{
	int flags = type & (SOCK_NONBLOCK | SOCK_CLOEXEC), ret;
	struct rs *rs;

	type &= ~flags;
	if (domain != AF_INET && domain != AF_INET6 && domain != AF_IB)
		return (int)edge(-ENOTSUP);
	if (type == SOCK_STREAM && (!protocol || protocol == IPPROTO_TCP))
		ret = rs_new(domain, flags, &rs);
	else if (type == SOCK_DGRAM && (!protocol || protocol == IPPROTO_UDP))
		ret = dgram_new(domain, flags, &rs);
	else
		ret = -ENOTSUP;
	return (int)edge(ret ? ret : rs->obj.fd);
}

int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return (int)SOCKET_CALL(socket, rs_bind(rs, addr, addrlen),
				bind(socket, addr, addrlen) ? -errno : 0);
}

int rlisten(int socket, int backlog)
{
	return (int)STREAM_CALL(socket, rs_listen(rs, backlog));
}

static int accept_named(struct rs *l, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rs *rs;
	int ret = rs_accept(l, 0, &rs);

	if (ret)
		return ret;
	if (addr && addrlen)
		name_copy(rdma_get_peer_addr(rs->id), addr, addrlen);
	return rs->obj.fd;
}

int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return (int)STREAM_CALL(socket, accept_named(rs, addr, addrlen));
}

int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return (int)SOCKET_CALL(socket, rs_connect(rs, addr, addrlen),
				dgram_connect(rs, addr, addrlen));
}

int rshutdown(int socket, int how)
{
	return (int)SOCKET_CALL(socket, rs_shutdown(rs, how), rs_shutdown(rs, how));
}

int rclose(int socket)
{
	struct obj *o = table_get(socket);
	int ret;

	if (!o)
		return (int)edge(-EBADF);
	ret = o->kind == OBJ_EPOLL ? ep_close(o) : rs_close((struct rs *)o);
	table_put(o);
	return (int)edge(ret);
}

/* ---- data --------------------------------------------------------------------------- */

/* A plain receive, from whomever. */
static ssize_t dgram_get(struct rs *rs, const struct iovec *v, size_t n, int flags)
{
	struct dgram_from from;

	return dgram_recvv(rs, v, n, flags, &from);
}

ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	struct iovec v = { buf, len };

	return SOCKET_CALL(socket, rs_recvv(rs, &v, 1, flags),
			   dgram_get(rs, &v, 1, flags));
}

static ssize_t recv_from(struct rs *rs, const struct iovec *v, int flags,
			 struct sockaddr *addr, socklen_t *len)
{
	ssize_t ret = rs_recvv(rs, v, 1, flags);

	if (ret > 0 && addr && len)
		name_copy(rdma_get_peer_addr(rs->id), addr, len);
	return ret;
}

static ssize_t dgram_from(struct rs *rs, const struct iovec *v, int flags,
			  struct sockaddr *addr, socklen_t *len)
{
	struct dgram_from from;
	ssize_t ret = dgram_recvv(rs, v, 1, flags, &from);

	if (ret >= 0 && addr && len)
		name_copy((struct sockaddr *)&from.src, addr, len);
	return ret;
}

ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags,
		  struct sockaddr *src_addr, socklen_t *addrlen)
{
	struct iovec v = { buf, len };

	return SOCKET_CALL(socket, recv_from(rs, &v, flags, src_addr, addrlen),
			   dgram_from(rs, &v, flags, src_addr, addrlen));
}

static ssize_t dgram_msg(struct rs *rs, struct msghdr *msg, int flags)
{
	struct dgram_from from;
	ssize_t ret = dgram_recvv(rs, msg->msg_iov, msg->msg_iovlen, flags, &from);

	if (ret < 0)
		return ret;
	if (msg->msg_name)
		name_copy((struct sockaddr *)&from.src, msg->msg_name, &msg->msg_namelen);
	if (from.truncated)
		msg->msg_flags |= MSG_TRUNC;
	return ret;
}

static ssize_t recv_msg(struct rs *rs, struct msghdr *msg, int flags)
{
	if (msg->msg_control && msg->msg_controllen)
		return -ENOTSUP;
	if (msg->msg_iovlen > IOV_MAX)
		return -EMSGSIZE;
	msg->msg_flags = 0;
	if (rs->dg)
		return dgram_msg(rs, msg, flags);
	msg->msg_namelen = 0;
	return rs_recvv(rs, msg->msg_iov, msg->msg_iovlen, flags);
}

ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	return SOCKET_CALL(socket, recv_msg(rs, msg, flags), recv_msg(rs, msg, flags));
}

ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	struct iovec v = { (void *)buf, len };

	return SOCKET_CALL(socket, rs_sendv(rs, &v, 1, flags),
			   dgram_sendv(rs, &v, 1, flags, NULL, 0));
}

ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
		const struct sockaddr *dest_addr, socklen_t addrlen)
{
	struct iovec v = { (void *)buf, len };

	return SOCKET_CALL(socket,
			   dest_addr || addrlen ? (rs_state(rs) == RS_CONNECTED ?
							   -EISCONN : -ENOTCONN) :
						  rs_sendv(rs, &v, 1, flags),
			   dgram_sendv(rs, &v, 1, flags, dest_addr, addrlen));
}

static ssize_t send_msg(struct rs *rs, const struct msghdr *msg, int flags)
{
	if (msg->msg_control && msg->msg_controllen)
		return -ENOTSUP;
	if (msg->msg_iovlen > IOV_MAX)
		return -EMSGSIZE;
	if (rs->dg)
		return dgram_sendv(rs, msg->msg_iov, msg->msg_iovlen, flags, msg->msg_name,
				   msg->msg_namelen);
	return rs_sendv(rs, msg->msg_iov, msg->msg_iovlen, flags);
}

ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	return SOCKET_CALL(socket, send_msg(rs, msg, flags), send_msg(rs, msg, flags));
}

ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecv(socket, buf, count, 0);
}

ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsend(socket, buf, count, 0);
}

static bool iov_bad(const struct iovec *iov, int n)
{
	return n < 0 || n > IOV_MAX || (n && !iov);
}

ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	return SOCKET_CALL(socket,
			   iov_bad(iov, iovcnt) ? -EINVAL :
						  rs_recvv(rs, iov, (size_t)iovcnt, 0),
			   iov_bad(iov, iovcnt) ? -EINVAL :
						  dgram_get(rs, iov, (size_t)iovcnt, 0));
}

ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	return SOCKET_CALL(socket,
			   iov_bad(iov, iovcnt) ? -EINVAL :
						  rs_sendv(rs, iov, (size_t)iovcnt, 0),
			   iov_bad(iov, iovcnt) ? -EINVAL :
						  dgram_sendv(rs, (struct iovec *)iov,
							      (size_t)iovcnt, 0, NULL, 0));
}

/* ---- waiting ------------------------------------------------------------------------ */

static uint64_t after(uint64_t ns)
{
	uint64_t end = now_ns() + ns;

	return end < ns ? UINT64_MAX : end;
}

static uint64_t after_ms(int ms)
{
	return ms < 0 ? UINT64_MAX : ms ? after((uint64_t)ms * 1000000) : 0;
}

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	return (int)edge(rs_poll(fds, nfds, after_ms(timeout)));
}

int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
	    struct timeval *timeout)
{
	fd_set *const set[3] = { readfds, writefds, exceptfds };
	uint64_t until = UINT64_MAX;

	if (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0))
		return (int)edge(-EINVAL);
	if (timeout) {
		until = (uint64_t)timeout->tv_sec * 1000000000 +
			(uint64_t)timeout->tv_usec * 1000;
		until = until ? after(until) : 0;
	}
	return (int)edge(rs_select(nfds, set, until));
}

/* ---- names, options ------------------------------------------------------------------ */

int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return (int)SOCKET_CALL(socket, rs_name(rs, true, addr, addrlen),
				dgram_name(rs, true, addr, addrlen));
}

int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return (int)SOCKET_CALL(socket, rs_name(rs, false, addr, addrlen),
				dgram_name(rs, false, addr, addrlen));
}

/* Those of the kernel's are the UDP socket's; times are ours. */
static bool is_ours(int level, int name)
{
	return level == SOL_RDMA ||
	       (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO));
}

static int dgram_setsockopt(struct rs *rs, int level, int name, const void *val,
			    socklen_t len)
{
	if (is_ours(level, name))
		return rs_setsockopt(rs, level, name, val, len);
	return setsockopt(rs->obj.fd, level, name, val, len) ? -errno : 0;
}

static int dgram_getsockopt(struct rs *rs, int level, int name, void *val, socklen_t *len)
{
	if (is_ours(level, name))
		return rs_getsockopt(rs, level, name, val, len);
	return getsockopt(rs->obj.fd, level, name, val, len) ? -errno : 0;
}

int rsetsockopt(int socket, int level, int optname, const void *optval,
		socklen_t optlen)
{
	return (int)SOCKET_CALL(socket, rs_setsockopt(rs, level, optname, optval, optlen),
				dgram_setsockopt(rs, level, optname, optval, optlen));
}

int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	return (int)SOCKET_CALL(socket, rs_getsockopt(rs, level, optname, optval, optlen),
				dgram_getsockopt(rs, level, optname, optval, optlen));
}

static int control(struct obj *o, int cmd, long arg)
{
	int flags = atomic_load(&o->flags);

	switch (cmd) {
	case F_GETFL:
		return flags;
	case F_SETFL:
		atomic_store(&o->flags, (flags & ~O_NONBLOCK) | (int)(arg & O_NONBLOCK));
		return 0;
	case F_GETFD:
		return fcntl(o->fd, F_GETFD) < 0 ? -errno : fcntl(o->fd, F_GETFD);
	case F_SETFD:
		return fcntl(o->fd, F_SETFD, arg) ? -errno : 0;
	default:
		return -ENOTSUP;
	}
}

int rfcntl(int socket, int cmd, ... /* arg */)
{
	struct obj *o = table_get(socket);
	va_list ap;
	long arg;
	int ret;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if (!o)
		return (int)edge(-EBADF);
	ret = control(o, cmd, arg);
	table_put(o);
	return (int)edge(ret);
}

/* ---- memory of the peer -------------------------------------------------------------- */

off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	return STREAM_CALL(socket, rs_iomap(rs, buf, len, prot, flags, offset));
}

int riounmap(int socket, void *buf, size_t len)
{
	return (int)STREAM_CALL(socket, rs_iounmap(rs, buf, len));
}

size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	return (size_t)STREAM_CALL(socket, rs_iowrite(rs, buf, count, offset, flags));
}

/* ---- repoll ---------------------------------------------------------------------------- */

int repoll_create(int flags)
{
	return (int)edge(flags & ~(O_CLOEXEC | O_NONBLOCK) ? -EINVAL : ep_create(flags));
}

int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct obj *o = table_get(epfd);
	int ret;

	if (!o)
		return (int)edge(fcntl(epfd, F_GETFD) < 0 ? -EBADF : -EINVAL);
	ret = o->kind != OBJ_EPOLL || obj_is_dead(o) ? -EINVAL :
						       ep_ctl(o, op, fd, event);
	table_put(o);
	return (int)edge(ret);
}

int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	struct obj *o = table_get(epfd);
	int ret;

	if (!o)
		return (int)edge(fcntl(epfd, F_GETFD) < 0 ? -EBADF : -EINVAL);
	ret = o->kind != OBJ_EPOLL || obj_is_dead(o) ?
		      -EINVAL :
		      ep_wait(o, events, maxevents,
			      obj_nonblock(o, 0) ? 0 : after_ms(timeout));
	table_put(o);
	return (int)edge(ret);
}
