/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests of the connection manager: a backend that only remembers what
 * it was asked, over the verbs of fake_verbs_test.h. Events are what the test
 * posts. To be included by one file of a program, after tests/t.h. */
#ifndef ANYRDMA_CM_FAKE_TEST_H
#define ANYRDMA_CM_FAKE_TEST_H

#include "cm/backend.h"
#include "cm/fake_verbs_test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

/* ---- backend ------------------------------------------------------------------ */

static struct {
	char calls[400];	/* names of what was asked, in order */
	int fail;		/* what each of those answers */
	struct cm_conn_param param;
	uint8_t reject_reason, reject_len;
	int children_dropped;
	struct cm_mcast *mc;
	atomic_int ids;		/* backend objects alive */
	bool unbound;		/* ids have no device */
	int query_fails;
} fb;

static int fb_call(const char *name)
{
	strcat(strcat(fb.calls, " "), name);
	return -fb.fail;
}

static int fb_probe(void)
{
	return 1;
}

static int fb_init(void)
{
	return 0;
}

static int fb_channel_open(struct cm_channel *ch)
{
	int r = evq_init(&ch->q);

	ch->pub.fd = ch->q.fd;
	return r;
}

static void fb_channel_close(struct cm_channel *ch)
{
	evq_fini(&ch->q);
}

static int fb_id_create(struct cm_id *id)
{
	id->be_id = malloc(1);
	fb.ids++;
	return 0;
}

static void fb_child_drop(void *be_child)
{
	free(be_child);
	fb.ids--;
	fb.children_dropped++;
}

static void fb_drop(struct cm_event *ev)
{
	if (ev->be_child)
		fb_child_drop(ev->be_child);
}

static int fb_id_destroy(struct cm_id *id, uint32_t *delivered)
{
	cm_event_purge(id, fb_drop);
	*delivered = cm_event_delivered(id);
	free(id->be_id);
	fb.ids--;
	return 0;
}

static int fb_id_migrate(struct cm_id *id, struct cm_channel *to, uint32_t *delivered)
{
	cm_event_move(id, to);
	*delivered = cm_event_delivered(id);
	return 0;
}

static int fb_bind(struct cm_id *id, const struct sockaddr *addr)
{
	(void)id, (void)addr;
	return fb_call("bind");
}

static int fb_resolve_addr(struct cm_id *id, const struct sockaddr *src,
			   const struct sockaddr *dst, int timeout_ms)
{
	(void)id, (void)src, (void)dst, (void)timeout_ms;
	return fb_call("resolve_addr");
}

static int fb_resolve_route(struct cm_id *id, int timeout_ms)
{
	(void)id, (void)timeout_ms;
	return fb_call("resolve_route");
}

static int fb_listen(struct cm_id *id, int backlog)
{
	(void)id, (void)backlog;
	return fb_call("listen");
}

static int fb_query_addr(struct cm_id *id, struct cm_addrs *out)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)&out->src;

	(void)id;
	if (fb.query_fails)
		return -fb.query_fails;
	sin->sin_family = AF_INET;
	sin->sin_port = htons(4711);
	out->bound = !fb.unbound;
	out->port_num = 1;
	out->pkey = 0xFFFF;
	return 0;
}

static int fb_query_path(struct cm_id *id, struct ibv_path_data *path, int max)
{
	(void)id, (void)max;
	path->flags = 0x2B;
	path->path.flowlabel_hoplimit = htonl(0x12345640);
	path->path.reversible_numpath = 0x80;
	path->path.mtu = 0x80 | IBV_MTU_1024;
	return 1;
}

static int fb_connect(struct cm_id *id, const struct cm_conn_param *p)
{
	(void)id;
	fb.param = *p;
	return fb_call("connect");
}

static int fb_accept_prepare(struct cm_id *id, const struct cm_conn_param *p)
{
	(void)id, (void)p;
	return fb_call("prepare");
}

static int fb_accept(struct cm_id *id, const struct cm_conn_param *p)
{
	(void)id;
	fb.param = *p;
	return fb_call("accept");
}

static int fb_reject(struct cm_id *id, uint8_t reason, const void *data, uint8_t len)
{
	(void)id, (void)data;
	fb.reject_reason = reason;
	fb.reject_len = len;
	return fb_call("reject");
}

static int fb_establish(struct cm_id *id)
{
	(void)id;
	return fb_call("establish");
}

static int fb_abandon(struct cm_id *id)
{
	(void)id;
	return fb_call("abandon");
}

static int fb_disconnect(struct cm_id *id)
{
	(void)id;
	return fb_call("disconnect");
}

static int fb_notify(struct cm_id *id, enum ibv_event_type event)
{
	(void)id, (void)event;
	return fb_call("notify");
}

static int fb_init_qp_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	(void)id;
	attr->max_dest_rd_atomic = 3;
	attr->max_rd_atomic = 4;
	*mask = IBV_QP_STATE;
	return 0;
}

static int fb_set_option(struct cm_id *id, int level, int name, const void *val,
			 size_t len)
{
	(void)id, (void)level, (void)name, (void)val, (void)len;
	return fb_call("set_option");
}

static int fb_join(struct cm_id *id, struct cm_mcast *mc)
{
	(void)id;
	fb.mc = mc;
	return fb_call("join");
}

static int fb_leave(struct cm_id *id, struct cm_mcast *mc, uint32_t *delivered)
{
	(void)id;
	cm_event_purge_mcast(mc);
	*delivered = cm_event_delivered_mcast(mc);
	return fb_call("leave");
}

static int fb_write_event(struct cm_id *id, struct cm_event *ev)
{
	(void)id;
	cm_event_post(ev);
	return 0;
}

static int fb_resolve_service(struct cm_id *id, const char *service)
{
	(void)id, (void)service;
	return -EOPNOTSUPP;
}

static void fb_qp_created(struct cm_id *id, struct ibv_qp *qp)
{
	(void)id, (void)qp;
	fb_call("qp_created");
}

static const struct cm_backend fake_backend = {
	.name = "fake",
	.probe = fb_probe,
	.init = fb_init,
	.channel_open = fb_channel_open,
	.channel_close = fb_channel_close,
	.event_get = cm_event_dequeue,
	.id_create = fb_id_create,
	.id_destroy = fb_id_destroy,
	.id_migrate = fb_id_migrate,
	.child_drop = fb_child_drop,
	.bind = fb_bind,
	.resolve_addr = fb_resolve_addr,
	.resolve_route = fb_resolve_route,
	.listen = fb_listen,
	.query_addr = fb_query_addr,
	.query_path = fb_query_path,
	.connect = fb_connect,
	.accept_prepare = fb_accept_prepare,
	.accept = fb_accept,
	.reject = fb_reject,
	.establish = fb_establish,
	.abandon = fb_abandon,
	.disconnect = fb_disconnect,
	.notify = fb_notify,
	.init_qp_attr = fb_init_qp_attr,
	.set_option = fb_set_option,
	.join = fb_join,
	.leave = fb_leave,
	.write_event = fb_write_event,
	.resolve_service = fb_resolve_service,
	.qp_created = fb_qp_created,
};

const struct cm_backend *const cm_backends[] = { &fake_backend, NULL };

/* ---- helpers -------------------------------------------------------------------- */

static T_UNUSED void fake_post(struct rdma_cm_id *id, enum rdma_cm_event_type type,
			       int status)
{
	cm_event_post(cm_event_new(to_id(id), type, status));
}

/* A connection request to a listener; both depths as the listener's side sees
 * them. */
static T_UNUSED void fake_request(struct rdma_cm_id *listener, uint8_t resp_res,
				  uint8_t init_depth)
{
	struct cm_event *ev = cm_event_new(to_id(listener),
					   RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	ev->be_child = malloc(1);
	fb.ids++;
	ev->pub.param.conn.responder_resources = resp_res;
	ev->pub.param.conn.initiator_depth = init_depth;
	cm_event_private(ev, "hello", 5, CM_PRIV_REQ);
	cm_event_post(ev);
}

static T_UNUSED bool fake_readable(const struct rdma_event_channel *ch)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static T_UNUSED void fake_nonblock(const struct rdma_event_channel *ch, bool on)
{
	int fl = fcntl(ch->fd, F_GETFL);

	fcntl(ch->fd, F_SETFL, on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK);
}

static T_UNUSED struct sockaddr *fake_addr(void)
{
	static struct sockaddr_in sin;

	sin.sin_family = AF_INET;
	sin.sin_port = htons(7471);
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return (struct sockaddr *)&sin;
}

/* An id with a device, as after bind. */
static T_UNUSED struct rdma_cm_id *fake_id(struct rdma_event_channel *ch,
					   enum rdma_port_space ps)
{
	struct rdma_cm_id *id = NULL;

	if (rdma_create_id(ch, &id, NULL, ps) || rdma_bind_addr(id, fake_addr()))
		abort();
	return id;
}

static T_UNUSED void fake_reset(void)
{
	fb.calls[0] = fv.moves[0] = 0;
	fb.fail = 0;
	fv.fail_state = -1;
}

static T_UNUSED void fake_init(int argc, char **argv)
{
	t_init(argc, argv);
}

/* Nothing may be left of what the cases made. */
static T_UNUSED int fake_done(void)
{
	ok(fb.ids == 0 && fv.pds == 0 && fv.cqs == 0 && fv.channels == 0 &&
	   fv.qps == 0 && fv.srqs == 0, "nothing is left: %d ids, %d PDs, %d CQs, "
	   "%d channels, %d QPs, %d SRQs", fb.ids, fv.pds, fv.cqs, fv.channels,
	   fv.qps, fv.srqs);
	return t_done();
}

#endif
