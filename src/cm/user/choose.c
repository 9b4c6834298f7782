/* SPDX-License-Identifier: BSD-2-Clause */
/* Which wire a connection uses. */
#include "cm/user/user.h"

enum { BUSY_MS = 20 };

extern const struct user_wire_ops user_wire_shm, user_wire_tcp, user_wire_udp;

/* In order of preference. The last one of streams, and that of datagrams, reach every
 * peer: a listener must have it, and without the others it has that one alone. */
static const struct user_wire_ops *const wires[USER_WIRES] = {
	&user_wire_shm,
	&user_wire_tcp,
	&user_wire_udp,
};

static bool fits(const struct user_id *u, unsigned i)
{
	return wires[i]->datagram == user_is_ud(u);
}

static void connect_from(struct user_id *u, unsigned i) REQUIRES(u->lock)
{
	while (i < USER_WIRES && (!fits(u, i) || !wires[i]->can_connect(u)))
		i++;
	user_timer_give_up(u);
	if (i < USER_WIRES)
		wires[i]->connect(u);
	else
		user_connect_failed(u, ECONNREFUSED);
}

void user_wire_connect(struct user_id *u)
{
	lock_assert_held(&u->lock);
	connect_from(u, 0);
}

void user_wire_failed(struct user_id *u, enum user_wire_failure why)
{
	unsigned i = 0;

	lock_assert_held(&u->lock);
	while (i < USER_WIRES && wires[i] != u->wire->ops)
		i++;
	user_wire_close(u);
	u->req_acked = false;
	if (u->state == US_AWAIT_REP)
		user_step(u, ST_RETRY);
	if (why == WIRE_BUSY)
		user_retry_later(u, BUSY_MS);
	else
		connect_from(u, why == WIRE_PEER_ENDED ? i : i + 1);
}

void user_wire_close(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (u->wire)
		u->wire->ops->close(u);
}

int user_wires_listen(struct user_id *u)
{
	bool must = true;
	int i, ret;

	lock_assert_held(&u->lock);
	for (i = USER_WIRES - 1; i >= 0; i--) {
		if (!fits(u, (unsigned)i))
			continue;
		ret = wires[i]->listen(u, &u->lis->wire[i]);
		if (ret && must)
			return ret;
		must = false;
	}
	return 0;
}

void user_wires_unlisten(struct user_wire_listener *l[USER_WIRES])
{
	for (unsigned i = 0; i < USER_WIRES; i++)
		if (l[i])
			l[i]->ops->unlisten(l[i]);
}
