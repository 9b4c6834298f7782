/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/mcast.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/gid.h"
#include "dev/lid.h"
#include "dev/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256 };

/* A group that some QP of the process is attached to. */
struct group {
	struct group *next; /* of the same bucket */
	union ibv_gid gid;
	int qps;
};

/* All of them, to keep what the device promises of their numbers. */
static struct {
	struct lock lock; /* guards everything here */
	struct group *bucket[BUCKETS];
	int count;
} groups PROCESS_STATE = { .lock = LOCK_INIT };

/* One of a QP. */
struct attachment {
	struct list link; /* dev_qp.groups */
	union ibv_gid gid;
	uint16_t lid;
	bool leads; /* of those with the same GID, the one that the transport knows of */
};

static bool same_gid(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static const char *gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN])
{
	return inet_ntop(AF_INET6, gid->raw, text, INET6_ADDRSTRLEN);
}

/* ---- the process's groups --------------------------------------------------- */

/* Where the pointer to the group is, or would be. */
static struct group **group_at(const union ibv_gid *gid)
{
	unsigned hash = 0;
	struct group **at;

	for (unsigned i = 0; i < sizeof(gid->raw); i++)
		hash = hash * 31 + gid->raw[i];
	for (at = &groups.bucket[hash % BUCKETS]; *at; at = &(*at)->next)
		if (same_gid(&(*at)->gid, gid))
			break;
	return at;
}

static int group_new(struct group **at, const union ibv_gid *gid)
{
	struct group *g;

	if (groups.count >= DEV_MAX_GROUPS)
		return log_refuse(ENOMEM,
				  "ibv_attach_mcast: QPs are attached to %d groups, no "
				  "more are allowed (max_mcast_grp)",
				  groups.count);
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->gid = *gid;
	groups.count++;
	*at = g;
	return 0;
}

/* A QP more is attached to it. */
static int group_get(const union ibv_gid *gid)
{
	struct group **at;
	int ret = 0;

	lock_get(&groups.lock);
	at = group_at(gid);
	if (!*at)
		ret = group_new(at, gid);
	else if ((*at)->qps >= DEV_MAX_GROUP_QPS)
		ret = log_refuse(ENOMEM,
				 "ibv_attach_mcast: %d QPs are attached to the group, no "
				 "more are allowed (max_mcast_qp_attach)",
				 (*at)->qps);
	if (!ret)
		(*at)->qps++;
	lock_put(&groups.lock);
	return ret;
}

static void group_put(const union ibv_gid *gid)
{
	struct group **at, *g;

	lock_get(&groups.lock);
	at = group_at(gid);
	g = *at;
	if (g && !--g->qps) {
		*at = g->next;
		groups.count--;
		free(g);
	}
	lock_put(&groups.lock);
}

/* ---- those of a QP ------------------------------------------------------------ */

static struct attachment *find_locked(struct dev_qp *qp, const union ibv_gid *gid,
				      int lid) REQUIRES(qp->modify_lock);

/* lid -1: any. */
static struct attachment *find_locked(struct dev_qp *qp, const union ibv_gid *gid,
				      int lid)
{
	struct attachment *a;

	list_for_each (a, &qp->groups, link)
		if (same_gid(&a->gid, gid) && (lid < 0 || a->lid == lid))
			return a;
	return NULL;
}

/* The QP gets what is sent to the group. */
static int begin_locked(struct dev_qp *qp, const union ibv_gid *gid)
	REQUIRES(qp->modify_lock);

static int begin_locked(struct dev_qp *qp, const union ibv_gid *gid)
{
	char text[INET6_ADDRSTRLEN];
	int ret = group_get(gid);

	if (ret || !qp->tr)
		return ret;
	ret = qp->tr->mcast_attach(qp, gid);
	if (!ret)
		return 0;
	group_put(gid);
	return log_refuse(-ret, "ibv_attach_mcast: QP 0x%x: cannot join %s: %s",
			  qp->qp.qp_num, gid_text(gid, text), strerror(-ret));
}

static int add_locked(struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid)
	REQUIRES(qp->modify_lock);

static int add_locked(struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct attachment *a = calloc(1, sizeof(*a));
	int ret = 0;

	if (!a)
		return -ENOMEM;
	a->gid = *gid;
	a->lid = lid;
	a->leads = !find_locked(qp, gid, -1);
	if (a->leads)
		ret = begin_locked(qp, gid);
	if (ret)
		free(a);
	else
		list_add_tail(&qp->groups, &a->link);
	return ret;
}

int mcast_attach(struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	enum ibv_qp_type type = qp->qp.qp_type;
	char text[INET6_ADDRSTRLEN];
	int ret = 0;

	if (type != IBV_QPT_UD || !gid_is_mcast(gid))
		return log_refuse(EINVAL, "ibv_attach_mcast: QP 0x%x: %s", qp->qp.qp_num,
				  type != IBV_QPT_UD ?
					  "only UD QPs are attached to groups" :
					  gid_text(gid, text));
	/* The kernel looks at the LID on InfiniBand alone. */
	if (conf_get()->link_ib && !lid_is_group(lid))
		return log_refuse(EINVAL, "ibv_attach_mcast: QP 0x%x: LID 0x%x is none of a group",
				  qp->qp.qp_num, lid);
	if (!transport_choose(type)->mcast_attach)
		return log_refuse(EOPNOTSUPP, "ibv_attach_mcast: no multicast");
	lock_get(&qp->modify_lock);
	if (!find_locked(qp, gid, lid))
		ret = add_locked(qp, gid, lid);
	lock_put(&qp->modify_lock);
	return ret;
}

static void del_locked(struct dev_qp *qp, struct attachment *a) REQUIRES(qp->modify_lock);

static void del_locked(struct dev_qp *qp, struct attachment *a)
{
	struct attachment *heir;

	list_del(&a->link);
	heir = find_locked(qp, &a->gid, -1);
	if (!heir) {
		if (qp->tr)
			qp->tr->mcast_detach(qp, &a->gid);
		group_put(&a->gid);
	} else if (a->leads) {
		heir->leads = true;
	}
	free(a);
}

int mcast_detach(struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	char text[INET6_ADDRSTRLEN];
	struct attachment *a = NULL;

	lock_get(&qp->modify_lock);
	if (qp->qp.qp_type == IBV_QPT_UD)
		a = find_locked(qp, gid, lid);
	if (a)
		del_locked(qp, a);
	lock_put(&qp->modify_lock);
	return a ? 0 :
		   log_refuse(EINVAL,
			      "ibv_detach_mcast: QP 0x%x is not attached to %s, LID %u",
			      qp->qp.qp_num, gid_text(gid, text), lid);
}

bool mcast_any(struct dev_qp *qp)
{
	bool any;

	lock_get(&qp->modify_lock);
	any = !list_empty(&qp->groups);
	lock_put(&qp->modify_lock);
	return any;
}

/* ---- transitions -------------------------------------------------------------- */

/* Leaves those before `upto` in the list, or all. */
static void leave_upto_locked(struct dev_qp *qp, const struct dev_transport *tr,
			      const struct attachment *upto) REQUIRES(qp->modify_lock);

static void leave_upto_locked(struct dev_qp *qp, const struct dev_transport *tr,
			      const struct attachment *upto)
{
	struct attachment *a;

	list_for_each (a, &qp->groups, link) {
		if (a == upto)
			break;
		if (a->leads)
			tr->mcast_detach(qp, &a->gid);
	}
}

int mcast_enter_locked(struct dev_qp *qp)
{
	struct attachment *a;
	int ret;

	lock_assert_held(&qp->modify_lock);
	list_for_each (a, &qp->groups, link) {
		ret = a->leads ? qp->tr->mcast_attach(qp, &a->gid) : 0;
		if (!ret)
			continue;
		leave_upto_locked(qp, qp->tr, a);
		return ret;
	}
	return 0;
}

void mcast_leave_locked(struct dev_qp *qp, const struct dev_transport *tr)
{
	lock_assert_held(&qp->modify_lock);
	leave_upto_locked(qp, tr, NULL);
}
