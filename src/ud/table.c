/* SPDX-License-Identifier: BSD-2-Clause */
/* UD QPs by number. A number's port is random and its index counts up, so the low bits
 * spread well. */
#include "base/state.h"
#include "ud/ud.h"

enum { BUCKETS = 1024, LOCKS = 64 };

static struct ud_qp *bucket[BUCKETS] PROCESS_STATE;
static struct lock locks[LOCKS] PROCESS_STATE = { [0 ... LOCKS - 1] = LOCK_INIT };

static unsigned bucket_of(uint32_t qpn)
{
	return (qpn ^ qpn >> 8) % BUCKETS;
}

static struct ud_qp **find_locked(uint32_t qpn)
{
	struct ud_qp **at = &bucket[bucket_of(qpn)];

	while (*at && (*at)->qpn != qpn)
		at = &(*at)->next;
	return at;
}

void ud_table_add(struct ud_qp *u)
{
	struct lock *l = &locks[bucket_of(u->qpn) % LOCKS];
	struct ud_qp **at = &bucket[bucket_of(u->qpn)];

	ud_get(u);
	lock_get(l);
	u->next = *at;
	*at = u;
	lock_put(l);
}

void ud_table_del(struct ud_qp *u)
{
	struct lock *l = &locks[bucket_of(u->qpn) % LOCKS];
	struct ud_qp **at;
	bool there;

	lock_get(l);
	at = find_locked(u->qpn);
	there = *at == u;
	if (there)
		*at = u->next;
	lock_put(l);
	if (there)
		ud_put(u);
}

struct ud_qp *ud_table_get(uint32_t qpn)
{
	struct lock *l = &locks[bucket_of(qpn) % LOCKS];
	struct ud_qp *u;

	lock_get(l);
	u = *find_locked(qpn);
	if (u)
		ud_get(u);
	lock_put(l);
	return u;
}
