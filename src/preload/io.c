/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls that read and write. */
#include "preload/conn.h"
#include "preload/edge.h"
#include "preload/move.h"
#include "preload/real.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* One piece or many, of a connection that has moved; -EXDEV: it has not. The kernel's
 * call counts while it lasts. */
static ssize_t moved_recv(struct conn *c, int fd, const struct iovec *iov, int count,
			  int flags)
{
	if (atomic_load(&c->lost))
		return -ECONNRESET;
	if (atomic_load(&c->offer))
		conn_agree(c);
	if (!conn_reads_rs(c) && conn_plain_rx_begin(c))
		return -EXDEV;
	return conn_recv(c, fd, iov, count, flags);
}

static ssize_t moved_send(struct conn *c, int fd, const struct iovec *iov, int count,
			  int flags)
{
	if (atomic_load(&c->lost))
		return -ECONNRESET;
	if (flags & MSG_OOB)
		move_pin(c);
	if (!conn_writes_rs(c) && conn_plain_tx_begin(c))
		return -EXDEV;
	return conn_send(c, fd, iov, count, flags);
}

/* call: of the kernel. */
#define RECV(fd, buf, len, flags, call) \
	do { \
		struct iovec iov_ = { (void *)(buf), (len) }; \
		RECV_IOV(fd, &iov_, 1, flags, call); \
	} while (0)

#define RECV_IOV(fd, iov, count, flags, call) \
	do { \
		struct conn *c_; \
		ssize_t n_; \
\
		real_need(); \
		c_ = conn_get(fd); \
		if (!c_) \
			return call; \
		n_ = moved_recv(c_, fd, iov, count, flags); \
		if (n_ == -EXDEV) { \
			n_ = call; \
			conn_plain_rx_end(c_); \
			conn_count(c_, fd, n_); \
		} else { \
			n_ = edge(n_); \
		} \
		conn_put(c_); \
		return n_; \
	} while (0)

#define SEND(fd, buf, len, flags, call) \
	do { \
		struct iovec iov_ = { (void *)(buf), (len) }; \
		SEND_IOV(fd, &iov_, 1, flags, call); \
	} while (0)

#define SEND_IOV(fd, iov, count, flags, call) \
	do { \
		struct conn *c_; \
		ssize_t n_; \
\
		real_need(); \
		c_ = conn_get(fd); \
		if (!c_) \
			return call; \
		n_ = moved_send(c_, fd, iov, count, flags); \
		if (n_ == -EXDEV) { \
			n_ = call; \
			conn_plain_tx_end(c_); \
			conn_count(c_, fd, n_); \
		} else { \
			n_ = edge(n_); \
		} \
		conn_put(c_); \
		return n_; \
	} while (0)

EXPORT ssize_t read(int fd, void *buf, size_t len)
{
	RECV(fd, buf, len, 0, real.read(fd, buf, len));
}

EXPORT ssize_t readv(int fd, const struct iovec *iov, int count)
{
	if (count < 0 || count > IOV_MAX)
		return edge(-EINVAL);
	RECV_IOV(fd, iov, count, 0, real.readv(fd, iov, count));
}

EXPORT ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	RECV(fd, buf, len, flags, real.recv(fd, buf, len, flags));
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from,
			socklen_t *from_len)
{
	/* TCP names nobody; the kernel says so by the length. */
	if (from && from_len && file_peek_kind(fd) == FILE_CONN)
		*from_len = 0;
	RECV(fd, buf, len, flags, real.recvfrom(fd, buf, len, flags, from, from_len));
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct conn *c;
	ssize_t n;

	real_need();
	c = conn_get(fd);
	if (!c)
		return real.recvmsg(fd, msg, flags);
	if (msg->msg_iovlen > IOV_MAX) {
		conn_put(c);
		return edge(-EMSGSIZE);
	}
	/* The error queue is the kernel's. */
	n = flags & MSG_ERRQUEUE ?
		    -EXDEV :
		    moved_recv(c, fd, msg->msg_iov, (int)msg->msg_iovlen, flags);
	if (n == -EXDEV) {
		n = real.recvmsg(fd, msg, flags);
		if (!(flags & MSG_ERRQUEUE))
			conn_plain_rx_end(c);
		conn_count(c, fd, n);
	} else {
		n = edge(n);
		msg->msg_namelen = 0;
		msg->msg_controllen = 0;
		msg->msg_flags = 0;
	}
	conn_put(c);
	return n;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags,
		    struct timespec *timeout)
{
	unsigned done = 0;
	ssize_t n;

	real_need();
	if (file_peek_kind(fd) != FILE_CONN)
		return real.recvmmsg(fd, msgs, count, flags, timeout);
	while (done < count) {
		n = recvmsg(fd, &msgs[done].msg_hdr,
			    (flags & ~MSG_WAITFORONE) |
				    (done && flags & MSG_WAITFORONE ? MSG_DONTWAIT : 0));
		if (n < 0)
			return done ? (int)done : -1;
		msgs[done++].msg_len = (unsigned)n;
		if (!n)
			break;
	}
	return (int)done;
}

EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	SEND(fd, buf, len, 0, real.write(fd, buf, len));
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int count)
{
	if (count < 0 || count > IOV_MAX)
		return edge(-EINVAL);
	SEND_IOV(fd, iov, count, 0, real.writev(fd, iov, count));
}

EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	SEND(fd, buf, len, flags, real.send(fd, buf, len, flags));
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags,
		      const struct sockaddr *to, socklen_t to_len)
{
	SEND(fd, buf, len, flags, real.sendto(fd, buf, len, flags, to, to_len));
}

/* Descriptors among the control messages go to another process, or to another descriptor of
 * this one: what they name is the kernel's from now on. */
static void pin_passed(const struct msghdr *msg)
{
	struct msghdr *m = (struct msghdr *)msg;

	if (!m->msg_control || m->msg_controllen < sizeof(struct cmsghdr))
		return;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			struct conn *c;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(fd), sizeof(fd));
			c = conn_get(fd);
			if (!c)
				continue;
			move_pin(c);
			conn_put(c);
		}
	}
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct conn *c;
	ssize_t n;

	real_need();
	if (!msg)
		return edge(-EFAULT);
	pin_passed(msg);
	c = conn_get(fd);
	if (!c)
		return real.sendmsg(fd, msg, flags);
	if (msg->msg_iovlen > IOV_MAX) {
		conn_put(c);
		return edge(-EMSGSIZE);
	}
	n = moved_send(c, fd, msg->msg_iov, (int)msg->msg_iovlen, flags);
	if (n == -EXDEV) {
		n = real.sendmsg(fd, msg, flags);
		conn_plain_tx_end(c);
		conn_count(c, fd, n);
	} else {
		n = edge(n);
	}
	conn_put(c);
	return n;
}

EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags)
{
	unsigned done = 0;
	ssize_t n;

	real_need();
	for (unsigned i = 0; msgs && i < count; i++)
		pin_passed(&msgs[i].msg_hdr);
	if (file_peek_kind(fd) != FILE_CONN)
		return real.sendmmsg(fd, msgs, count, flags);
	while (done < count) {
		n = sendmsg(fd, &msgs[done].msg_hdr, flags);
		if (n < 0)
			return done ? (int)done : -1;
		msgs[done++].msg_len = (unsigned)n;
	}
	return (int)done;
}

/* ---- from a file ---- */

enum { SEND_CHUNK = 65536 };

/* The file's position moves by what was sent, as sendfile() has it. */
static ssize_t sendfile_moved(struct conn *c, int fd, int in, off_t *offset, size_t count)
{
	off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
	char *buf = malloc(SEND_CHUNK);
	size_t done = 0;
	ssize_t got, n = 0;

	if (!buf)
		return -ENOMEM;
	while (done < count) {
		size_t want = count - done < SEND_CHUNK ? count - done : SEND_CHUNK;
		struct iovec iov;

		/* What has no position (a pipe) cannot be given back what was not sent. */
		got = at < 0 ? -1 : real.pread(in, buf, want, at);
		if (got <= 0) {
			n = at < 0 ? -EINVAL : got < 0 ? -errno : 0;
			break;
		}
		iov = (struct iovec){ buf, (size_t)got };
		n = conn_send(c, fd, &iov, 1, 0);
		if (n <= 0)
			break;
		done += (size_t)n;
		at += n;
		if (n < got)
			break;
	}
	free(buf);
	if (!done && n < 0)
		return n;
	if (offset)
		*offset = at;
	else
		lseek(in, at, SEEK_SET);
	return (ssize_t)done;
}

EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	struct conn *c;
	ssize_t n;

	real_need();
	c = conn_get(out);
	if (!c)
		return real.sendfile(out, in, offset, count);
	if (atomic_load(&c->lost)) {
		n = edge(-ECONNRESET);
	} else if (!conn_writes_rs(c) && conn_plain_tx_begin(c)) {
		n = real.sendfile(out, in, offset, count);
		conn_plain_tx_end(c);
		conn_count(c, out, n);
	} else {
		n = edge(sendfile_moved(c, out, in, offset, count));
	}
	conn_put(c);
	return n;
}

EXPORT ssize_t sendfile64(int out, int in, off64_t *offset, size_t count)
{
	_Static_assert(sizeof(off_t) == sizeof(off64_t), "one sendfile");
	return sendfile(out, in, (off_t *)offset, count);
}

/* The kernel moves pages between pipe and socket: the connection is TCP's for good. */
EXPORT ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset,
		      size_t len, unsigned flags)
{
	int both[2] = { in, out };

	real_need();
	for (int i = 0; i < 2; i++) {
		struct conn *c = conn_get(both[i]);

		if (!c)
			continue;
		move_pin(c);
		conn_put(c);
	}
	return real.splice(in, in_offset, out, out_offset, len, flags);
}

/* ---- fortified names ---- */

extern void __chk_fail(void) __attribute__((noreturn));

ssize_t __read_chk(int fd, void *buf, size_t len, size_t room);
ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags,
		       struct sockaddr *from, socklen_t *from_len);

EXPORT ssize_t __read_chk(int fd, void *buf, size_t len, size_t room)
{
	if (len > room)
		__chk_fail();
	return read(fd, buf, len);
}

EXPORT ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	if (len > room)
		__chk_fail();
	return recv(fd, buf, len, flags);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags,
			      struct sockaddr *from, socklen_t *from_len)
{
	if (len > room)
		__chk_fail();
	return recvfrom(fd, buf, len, flags, from, from_len);
}
