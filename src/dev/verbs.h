/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's verbs, one function each, and what they share: 0 or -errno, outputs
 * written on success only. dev/ops.c puts the verbs into the table that src/verbs
 * calls. */
#ifndef ANYRDMA_DEV_VERBS_H
#define ANYRDMA_DEV_VERBS_H

#include "dev/dev.h"
#include "dev/ops.h"

/* ---- fork.c -------------------------------------------------------------- */

/* From now on a forked child begins anew. Before anything that a child must not have is
 * made; idempotent. */
void fork_watch(void);

/* ---- fatal.c ------------------------------------------------------------- */

/* Before the loop is started; by fork_watch(). */
void fatal_init(void);
/* In a forked child. */
void fatal_child(void);
/* cb runs, in a thread of its own and without locks, when the device has failed, before
 * its objects are old. */
void fatal_watch(void (*cb)(void));
/* If the device has failed: begins a generation. To be called before something is made
 * that is of no context. 0 or -ENODEV. */
int fatal_renew(void);

/* A locally administered OUI: no registered vendor, so that no program takes us
 * for hardware it knows. */
#define DEV_VENDOR_ID 0x02a4dau

/* ---- device.c, query.c --------------------------------------------------- */

/* The devices: ANYRDMA_DEVICES of them, numbered from 0; static, never freed. */
unsigned device_count(void);
struct ibv_device *device_get(unsigned i);	 /* NULL: there is none */
int device_number(const struct ibv_device *dev); /* or -ENODEV: it is none of ours */
uint64_t device_guid(unsigned i);		 /* network order; 0: there is none */
/* An array of them and NULL, to be freed by the caller. */
int device_list(struct ibv_device ***out);
int device_open(struct ibv_device *dev, struct dev_ctx **out);
/* Called after a context was opened, where it is defined (files/live.c). */
void device_opened(void) __attribute__((weak));
int device_close(struct dev_ctx *ctx);
/* A context is open, or was closed and still has objects. */
bool device_has_contexts(void);
/* An object was made on ctx, or is freed. */
void ctx_get(struct dev_ctx *ctx);
void ctx_put(struct dev_ctx *ctx);
/* Calls fn for every open context of the device, or of all (-1), with device_lock held: fn
 * may lock the context's evq alone. */
void device_each_ctx(int device, void (*fn)(struct dev_ctx *ctx, int arg), int arg);

/* As many QPs as can be connected at once: over TCP each needs a descriptor, and the rest of
 * the process needs some, too. With the limit of descriptors it changes. */
int query_max_qp(void);
/* What the last query_max_qp() said, without a system call: who stays below need not ask
 * again. 0 before the first. */
int query_promised_qp(void);
void query_device(unsigned device, struct ibv_device_attr *attr);
int query_device_ex(unsigned device, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t size);
int query_rt_values(struct ibv_values_ex *values);
/* Fills the first `size` bytes of struct ibv_port_attr. */
int query_port(unsigned device, uint8_t port, struct ibv_port_attr *attr, size_t size);
int query_gid(unsigned device, uint32_t port, uint32_t index, union ibv_gid *gid);
/* size: of an entry as the application knows it; what we do not know of it is zero.
 * -ENODATA: the slot is empty. */
int query_gid_ex(unsigned device, uint32_t port, uint32_t index,
		 struct ibv_gid_entry *entry, uint32_t flags, size_t size);
/* All slots that are not empty; how many, or -errno. */
ssize_t query_gid_table(unsigned device, struct ibv_gid_entry *entries, size_t max,
			uint32_t flags, size_t size);
/* As sysfs has it, not enum ibv_gid_type: 0 is IB or RoCE v1, 1 is RoCE v2. */
int query_gid_type(unsigned device, uint32_t port, uint32_t index, unsigned int *type);
int query_pkey(uint8_t port, int index, __be16 *pkey);
int query_pkey_index(uint8_t port, __be16 pkey, int *index);

/* ---- objects -------------------------------------------------------------- */

int pd_alloc(struct dev_ctx *ctx, struct dev_pd **out);
int pd_dealloc(struct dev_pd *pd); /* a parent domain, too */
int pd_alloc_parent(struct dev_ctx *ctx, const struct ibv_parent_domain_init_attr *attr,
		    struct dev_pd **out);
int td_alloc(struct dev_ctx *ctx, const struct ibv_td_init_attr *attr,
	     struct dev_td **out);
int td_dealloc(struct dev_td *td);

int mr_reg(struct dev_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access,
	   struct dev_mr **out);
/* ibv_alloc_null_mr: what is read is zero, what is written goes nowhere. */
int mr_alloc_null(struct dev_pd *pd, struct dev_mr **out);
/* null.c: the memory of null regions, at least DEV_MAX_MSG bytes of it. */
int mr_null_init(void);
void *mr_null_memory(unsigned access);
/* IBV_REREG_MR_ERR_* or 0; errno says why. The region stays as it was when it is
 * refused; else it has new keys. -EBUSY while windows are bound. */
int mr_rereg(struct dev_mr *mr, int flags, struct dev_pd *pd, void *addr, size_t len,
	     unsigned access);
/* ibv_advise_mr, and what is offered of paging on demand: odp.c. */
int mr_advise(struct dev_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	      const struct ibv_sge *sges, uint32_t n);
void odp_caps(struct ibv_device_attr_ex *attr);
/* -EBUSY while windows are bound to it. */
int mr_dereg(struct dev_mr *mr);
/* maps.c: the range is mapped, readable, and writable if asked. 0, -EFAULT. */
int maps_check(uintptr_t addr, size_t len, bool writable);
/* Brings its pages in where the kernel can; else the same check. */
int maps_populate(uintptr_t addr, size_t len, bool writable);
/* The ways of doing it, each the fallback of the one before; for tests. */
enum maps_way { MAPS_QUERY, MAPS_READ, MAPS_MINCORE };
int maps_check_by(enum maps_way way, uintptr_t addr, size_t len, bool writable);

/* mw.c */
int mw_alloc(struct dev_pd *pd, enum ibv_mw_type type, struct dev_mw **out);
/* A bound window is unbound first. */
void mw_dealloc(struct dev_mw *mw);
/* Type 1: posts the bind. */
int mw_bind(struct dev_qp *qp, struct dev_mw *mw, const struct ibv_mw_bind *bind);
/* Fills the bind's own fields of a WQE. The new key, of which rkey gives the low 8 bits, is
 * mw->rkey at once. -EINVAL: not a request for a window of this type. Whether it can be
 * carried out is seen later, by mw_execute(). */
int mw_wqe_fill(struct wqe *w, enum ibv_mw_type type, struct ibv_mw *mw, uint32_t rkey,
		const struct ibv_mw_bind_info *info);
/* Carries out a bind or a local invalidate; logs why it cannot. */
enum ibv_wc_status mw_execute(struct dev_qp *qp, const struct wqe *w);

int channel_create(struct dev_ctx *ctx, struct dev_channel **out);
int channel_destroy(struct dev_channel *ch);
int channel_get_event(struct dev_channel *ch, struct dev_cq **out) NO_TSA;
/* Queues a completion event of cq. Called with cq->lock held. */
void channel_fire(struct dev_cq *cq);
/* Drops unfetched events of cq and waits for acks of the fetched ones. */
void channel_drain(struct dev_cq *cq);

int cq_create(struct dev_ctx *ctx, int cqe, void *context, struct dev_channel *ch,
	      int vector, struct dev_cq **out);
int cq_destroy(struct dev_cq *cq);
int cq_resize(struct dev_cq *cq, int cqe);
int cq_poll(struct dev_cq *cq, int n, struct ibv_wc *wc);
/* One completion and its stamp, from the ring alone, without progress. False: there is
 * none. */
bool cq_next(struct dev_cq *cq, struct ibv_wc *wc, uint64_t *stamp);
/* Arms the CQ without progress: poll_arm() calls it. */
void cq_arm(struct dev_cq *cq, bool solicited_only);
/* Makes the event that the CQ is armed for. */
void cq_fire_locked(struct dev_cq *cq) REQUIRES(cq->lock);
int cq_req_notify(struct dev_cq *cq, bool solicited_only);
void cq_ack_events(struct dev_cq *cq, unsigned n);
/* moderate.c */
void moderate_init(struct dev_cq *cq);
/* Nothing runs for cq after this. */
void moderate_fini(struct dev_cq *cq);
int moderate_set(struct dev_cq *cq, uint32_t count, uint32_t period);
/* A completion that the CQ is armed for has come: true if the event is to wait. */
bool moderate_holds_locked(struct dev_cq *cq) REQUIRES(cq->lock);

/* cq_ex.c: contracts in dev/ops.h */
extern const struct dev_read_ops cq_read_ops;
int cq_start_poll(struct dev_cq *cq, const struct ibv_poll_cq_attr *attr);
int cq_next_poll(struct dev_cq *cq);
void cq_end_poll(struct dev_cq *cq);
int cq_modify(struct dev_cq *cq, const struct ibv_modify_cq_attr *attr);
uint64_t cq_clock(void); /* DEV_CLOCK in ns */
int cq_create_ex(struct dev_ctx *ctx, const struct ibv_cq_init_attr_ex *attr,
		 struct dev_cq **out);

int srq_create(struct dev_pd *pd, struct ibv_srq_init_attr *attr, struct dev_srq **out);
int srq_modify(struct dev_srq *srq, const struct ibv_srq_attr *attr, int mask);
void srq_query(struct dev_srq *srq, struct ibv_srq_attr *attr);
int srq_create_ex(struct dev_ctx *ctx, struct ibv_srq_init_attr_ex *attr,
		  struct dev_srq **out);
int srq_number(const struct dev_srq *srq, uint32_t *number);
int srq_destroy(struct dev_srq *srq);
int srq_post(struct dev_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Copies the next receive to qp->cur, or puts qp on the waiting list if its transport
 * wants to know of the next one. */
int srq_take_locked(struct dev_srq *srq, struct dev_qp *qp) REQUIRES(qp->lock);
/* Takes qp off the waiting list of a basic SRQ; returns when no recv_posted() runs for
 * it. */
void srq_forget_qp(struct dev_srq *srq, struct dev_qp *qp);

int qp_create(struct dev_pd *pd, struct ibv_qp_init_attr *attr, struct dev_qp **out);
/* attr->xrcd is set. A PD in attr is stored in the public struct and not used. */
int qp_create_xrc_recv(struct ibv_qp_init_attr_ex *attr, struct dev_qp **out);
/* Also of a handle. */
int qp_destroy(struct dev_qp *qp);
/* Fills what every struct ibv_qp has, that of a handle included: what events need, and
 * references. Number, type and qp_context are set before. xrcd may be NULL. */
void qp_handle_init(struct dev_qp *h, struct dev_ctx *ctx, struct dev_xrcd *xrcd);
/* Returns when its events are acknowledged. */
void qp_handle_fini(struct dev_qp *h);
void qp_query(struct dev_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
int qp_modify(struct dev_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* Empties both queues (RESET). */
void qp_clear_locked(struct dev_qp *qp) REQUIRES(qp->lock);

/* qp_state.c: the verbs' table. 0 or -EINVAL; no log, no side effect. */
int qp_state_check(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next,
		   int mask);
/* Attributes that a transition must and may have; -EINVAL: there is none. */
int qp_state_masks(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next,
		   int *required, int *optional);
const char *qp_type_str(enum ibv_qp_type type);
const char *qp_state_str(enum ibv_qp_state s);
/* The one setter of qp.state. */
void qp_state_set_locked(struct dev_qp *qp, enum ibv_qp_state s) REQUIRES(qp->lock);

/* complete.c: completes everything with WR_FLUSH_ERR, in order; sets flushed. */
void qp_flush_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* Only what is new in one queue of a flushed QP (a post in ERR). */
void sq_flush_locked(struct dev_qp *qp) REQUIRES(qp->lock);
void rq_flush_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* SQD was entered, or the SQ has moved: raises SQ_DRAINED when due. */
void sq_drained_check_locked(struct dev_qp *qp) REQUIRES(qp->lock);

/* qp_ex.c: contracts in dev/ops.h */
extern const struct dev_build_ops qp_build_ops;
void qp_wr_start(struct dev_qp *qp);
int qp_wr_complete(struct dev_qp *qp);
void qp_wr_abort(struct dev_qp *qp);
int qp_create_ex(struct dev_ctx *ctx, struct ibv_qp_init_attr_ex *attr,
		 struct dev_qp **out);
/* The QP is destroyed, if need be between start and complete. */
void qp_ex_fini(struct dev_qp *qp);
/* Excludes builders, for a post by other means on a QP that is_ex. False: this thread is
 * building. */
bool qp_ex_enter(struct dev_qp *qp);
void qp_ex_leave(struct dev_qp *qp);

/* transport.c: the transport has to be told when the next receive is posted
 * (dev_transport.recv_posted). With qp->lock. */
bool qp_waits_for_recv(const struct dev_qp *qp);
/* The QP's state allows posting sends: 0 or -EINVAL. */
int post_state_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* The tail has moved. Returns the transport to kick without qp->lock, or NULL. */
const struct dev_transport *post_submit_locked(struct dev_qp *qp) REQUIRES(qp->lock);
int post_send(struct dev_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct dev_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Copies wr into r; -EINVAL if it has too many SGEs. */
int rqe_fill(struct rqe *r, const struct ibv_recv_wr *wr, uint32_t max_sge);
void rqe_copy(struct rqe *to, const struct rqe *from);
/* Memory of a queue of max_wr entries of stride bytes; *mask is set. */
uint8_t *wq_alloc(uint32_t max_wr, uint32_t stride, uint32_t *mask);

/* ece.c */
void ece_query(struct ibv_ece *ece);
int ece_set(struct dev_qp *qp, struct ibv_ece *ece);

struct dev_ah {
	struct ibv_ah ah;
	struct dev_object object;
	struct dev_pd *pd; /* that it was made with */
	struct dev_av *av; /* counted */
};

static inline struct dev_ah *to_ah(struct ibv_ah *a)
{
	return container_of(a, struct dev_ah, ah);
}

static inline bool ah_intact(struct ibv_ah *o)
{
	return object_is(&to_ah(o)->object, o->context, o->handle);
}

/* Port 1, global route, source GID of a used slot: -EINVAL if not so. */
int ah_check(unsigned device, const struct ibv_ah_attr *attr);
int ah_create(struct dev_pd *pd, const struct ibv_ah_attr *attr, struct dev_ah **out);
void ah_destroy(struct dev_ah *ah);
int ah_create_from_wc(struct dev_pd *pd, const struct ibv_wc *wc,
		      const struct ibv_grh *grh, uint8_t port, struct dev_ah **out);
int ah_init_from_wc(unsigned device, uint8_t port, const struct ibv_wc *wc,
		    const struct ibv_grh *grh, struct ibv_ah_attr *attr);

int async_get(struct dev_ctx *ctx, struct ibv_async_event *ev) NO_TSA;
void async_ack(const struct ibv_async_event *ev);
/* The device has failed, and the descriptors of its contexts may be others' by now. */
void async_fatal(struct dev_ctx *ctx);
/* The event is fetched without waiting, as the context is old. -ENODEV: there is none. */
int async_get_fatal(struct dev_ctx *ctx, struct ibv_async_event *ev);
/* Drops everything queued; the context goes away. */
void async_fini(struct dev_ctx *ctx);

/* Waits on an object's public mutex and cond until *done == want; logs once
 * when it takes longer than a second. */
void ack_wait(pthread_mutex_t *m, pthread_cond_t *c, const uint32_t *done, uint32_t want,
	      const char *what);

#endif
