/* SPDX-License-Identifier: BSD-2-Clause */
/* Events: the kernel's answer to GET_EVENT becomes a cm_event. */
#include "base/log.h"
#include "cm/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

static int get(int fd, struct rdma_ucm_event_resp *resp)
{
	KERNEL_REQ(req, rdma_ucm_get_event);

	memset(resp, 0, sizeof(*resp)); /* an old kernel writes less */
	req.p.response = (uintptr_t)resp;
	return kernel_command(fd, RDMA_USER_CM_CMD_GET_EVENT, &req, sizeof(*resp));
}

/* ---- what an event carries --------------------------------------------------- */

static uint8_t clamp(uint8_t len)
{
	_Static_assert(RDMA_MAX_PRIVATE_DATA > UINT8_MAX, "any length fits");
	return len;
}

static void take_conn(const struct rdma_ucm_event_resp *resp, struct cm_event *ev)
{
	const struct rdma_ucm_conn_param *in = &resp->param.conn;
	struct rdma_conn_param *out = &ev->pub.param.conn;

	cm_event_private(ev, in->private_data, clamp(in->private_data_len),
			 in->private_data_len);
	out->responder_resources = in->responder_resources;
	out->initiator_depth = in->initiator_depth;
	out->flow_control = in->flow_control;
	out->retry_count = in->retry_count;
	out->rnr_retry_count = in->rnr_retry_count;
	out->srq = in->srq;
	out->qp_num = in->qp_num;
	ev->ece.vendor_id = resp->ece.vendor_id;
	ev->ece.options = resp->ece.attr_mod;
}

static void take_ud(const struct rdma_ucm_event_resp *resp, struct cm_event *ev)
{
	const struct rdma_ucm_ud_param *in = &resp->param.ud;
	struct rdma_ud_param *out = &ev->pub.param.ud;

	if (!ev->mcast)
		cm_event_private(ev, in->private_data, clamp(in->private_data_len),
				 in->private_data_len);
	kernel_ah_attr(&in->ah_attr, &out->ah_attr);
	out->qp_num = in->qp_num;
	out->qkey = in->qkey;
}

static void copy_param(const struct rdma_ucm_event_resp *resp, struct cm_event *ev)
{
	switch (ev->pub.event) {
	case RDMA_CM_EVENT_USER:
	case RDMA_CM_EVENT_INTERNAL:
		memcpy(&ev->pub.param.arg, &resp->param, sizeof(ev->pub.param.arg));
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_DISCONNECTED:
		if (ev->charge->pub.qp_type != IBV_QPT_UD) {
			take_conn(resp, ev);
			break;
		}
		/* fall through */
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		take_ud(resp, ev);
		break;
	default:
		break;
	}
}

/* ---- children ------------------------------------------------------------------ */

/* A negative descriptor: the channel was closed, and the child with it. */
void kernel_child_drop(void *be_child)
{
	struct kernel_obj *o = be_child;
	int i, r = -EINVAL;
	uint32_t reported;

	if (o->fd >= 0)
		r = kernel_raw_destroy(o->fd, o->handle, &reported);
	for (i = 0; kernel_not_there(r) && i < KERNEL_MOVES && o->moved_from[i] >= 0; i++)
		r = kernel_raw_destroy(o->moved_from[i], o->handle, &reported);
	free(o);
}

static void drop(struct cm_event *ev)
{
	if (ev->be_child)
		kernel_child_drop(ev->be_child);
}

void kernel_event_purge(struct cm_id *id)
{
	cm_event_purge(id, drop);
}

/* ---- fetching -------------------------------------------------------------------- */

static void lost(const struct rdma_ucm_event_resp *resp)
{
	log_warn("%s of kernel id %u names no id of this process (uid 0x%llx): dropped",
		 rdma_event_str(resp->event), resp->id, (unsigned long long)resp->uid);
}

/* True: ev is for the caller. False: it was none of its business, ev is unused. */
static bool resolve(struct cm_channel *ch, const struct rdma_ucm_event_resp *resp,
		 struct cm_event *ev)
{
	/* Old kernels forget the uid of a child when its accept is under way. Its
	 * establishment is news; anything else came before there was an id. */
	bool wanted = resp->uid || resp->event == RDMA_CM_EVENT_ESTABLISHED, known;
	uint32_t reported;

	if (resp->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		struct kernel_obj *child = kernel_obj_new(ch);

		if (child)
			child->handle = resp->id;
		else
			kernel_raw_destroy(ch->pub.fd, resp->id, &reported);
		ev->be_child = child;
		wanted = wanted && child;
	}
	ev->pub.event = resp->event;
	ev->pub.status = (int)resp->status;
	known = kernel_obj_event(resp->uid, resp->id, ev, wanted);
	if (!known)
		lost(resp);
	if (!known || !wanted) {
		drop(ev);
		return false;
	}
	copy_param(resp, ev);
	return true;
}

static void free_event(void *ev)
{
	cm_event_free(ev);
}

int kernel_event_fetch(int fd, struct cm_channel *ch, struct cm_event **out)
{
	struct rdma_ucm_event_resp resp;
	struct cm_event *ev;
	int r;

	for (;;) {
		/* Before the kernel lets go of the event. */
		ev = cm_event_alloc(CM_EVENT_PRIV);
		if (!ev)
			return -ENOMEM;
		pthread_cleanup_push(free_event, ev);
		cancel_wait_begin();
		r = get(fd, &resp);
		cancel_wait_end();
		pthread_cleanup_pop(0);
		if (!r && resp.uid == KERNEL_UID_WAKE) {
			kernel_wake_used(ch);
			r = -ERESTART;
		} else if (!r && resolve(ch, &resp, ev)) {
			*out = ev;
			return 0;
		}
		cm_event_free(ev);
		if (r)
			return r;
	}
}

int kernel_event_get(struct cm_channel *ch, struct cm_event **out)
{
	int r;

	for (;;) {
		if (cm_event_dequeue_waiting(ch, out)) {
			kernel_wake_settle(ch);
			return 0;
		}
		r = kernel_event_fetch(ch->pub.fd, ch, out);
		if (r != -ERESTART)
			return r;
	}
}

/* ---- writing ---------------------------------------------------------------------- */

static atomic_bool no_write; /* this kernel cannot */

static int write_kernel(struct cm_id *id, const struct rdma_cm_event *ev)
{
	KERNEL_REQ(req, kernel_write_cm_event);

	req.p.id = to_kernel(id)->handle;
	req.p.event = ev->event;
	req.p.status = (uint32_t)ev->status;
	memcpy(req.p.param.arg, &ev->param.arg, sizeof(ev->param.arg));
	return kernel_command(kernel_fd(id), KERNEL_CMD_WRITE_CM_EVENT, &req, 0);
}

int kernel_write_event(struct cm_id *id, struct cm_event *ev)
{
	int r = -EINVAL; /* destroyed */

	if (!to_kernel(id))
		goto free;
	if (!atomic_load_explicit(&no_write, memory_order_relaxed)) {
		r = write_kernel(id, &ev->pub);
		if (r != -EINVAL)
			goto free;
		atomic_store(&no_write, true);
	}
	cm_event_post(ev);
	kernel_wake(to_channel(id->pub.channel));
	return 0;

free:
	cm_event_free(ev);
	return r;
}
