/* SPDX-License-Identifier: BSD-2-Clause */
/* Control messages between the two ends of a connection that moves: a unix socket of the type
 * SOCK_SEQPACKET, so a message arrives whole. Both processes run this library, on one host. */
#include "preload/move.h"
#include "base/log.h"
#include "preload/real.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ctl_msg {
	uint32_t version, type;
	uint64_t value;
	uint8_t data[CTL_DATA];
};

#define CTL_HEAD offsetof(struct ctl_msg, data)
#define CTL_VERSION 1

int ctl_send(struct rail *r, enum ctl_type type, uint64_t value, const void *data,
	     size_t len)
{
	uint64_t head[2] = { 0, value };
	struct iovec iov[2] = { { head, CTL_HEAD }, { (void *)data, len } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = len ? 2 : 1 };
	uint32_t words[2] = { CTL_VERSION, type };

	memcpy(head, words, sizeof(words));
	if (real.sendmsg(r->ctl, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}

void rail_say_consent(struct rail *r)
{
	ctl_send(r, CTL_CONSENT, 0, NULL, 0);
}

void rail_say_end(struct rail *r, uint64_t bytes)
{
	ctl_send(r, CTL_END, bytes, NULL, 0);
}

void rail_say_fin(struct rail *r, uint64_t bytes)
{
	ctl_send(r, CTL_FIN, 0, NULL, 0);
	rail_say_end(r, bytes);
}

static bool left_add(struct rail *r, const uint8_t *data, size_t len)
{
	size_t room = r->left_len + len;
	uint8_t *more;

	if (room > r->left_room) {
		more = realloc(r->left, room * 2);
		if (!more)
			return false;
		r->left = more;
		r->left_room = room * 2;
	}
	memcpy(r->left + r->left_len, data, len);
	r->left_len += len;
	return true;
}

/* ctl_lock is held. False: not a message that belongs here. */
static bool ctl_handle(struct rail *r, const struct ctl_msg *m, size_t len)
{
	if (len < CTL_HEAD || m->version != CTL_VERSION)
		return false;
	len -= CTL_HEAD;
	switch (m->type) {
	case CTL_ASK:
		if (!r->passive || len != sizeof(r->token) || !m->value ||
		    m->value > 65535)
			return false;
		memcpy(r->token, m->data, len);
		r->port = (unsigned)m->value;
		return true;
	case CTL_READY:
		r->ready = true;
		return true;
	case CTL_CONSENT:
		r->agreed = true;
		if (r->step == RAIL_READY && !r->asked_back)
			atomic_store(&r->conn->tx_may, true);
		return true;
	case CTL_END:
		/* The first counts: what ends later had not begun. */
		if (atomic_load(&r->peer_end) == RAIL_OPEN)
			atomic_store(&r->peer_end, m->value);
		return true;
	case CTL_BACK:
		atomic_store(&r->asked_back, true);
		return true;
	case CTL_LEFT:
		return left_add(r, m->data, len);
	case CTL_LEFT_ALL:
		atomic_store(&r->left_all, true);
		return true;
	case CTL_FIN:
		if (atomic_load(&r->peer_end) == RAIL_OPEN)
			atomic_store(&r->peer_fin, true);
		return true;
	}
	return false;
}

void rail_hear(struct rail *r)
{
	struct ctl_msg *m = malloc(sizeof(*m));
	ssize_t n = -1;

	if (!m)
		return;
	pthread_mutex_lock(&r->ctl_lock);
	while (r->ctl >= 0 && !r->peer_gone) {
		n = real.recv(r->ctl, m, sizeof(*m), MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0 || !ctl_handle(r, m, (size_t)n)) {
			if (n > 0)
				log_info("a control message of %zd bytes from the peer "
					 "of a moved "
					 "connection is none",
					 n);
			atomic_store(&r->peer_gone, true);
		}
	}
	pthread_mutex_unlock(&r->ctl_lock);
	free(m);
	service_post(r);
}
