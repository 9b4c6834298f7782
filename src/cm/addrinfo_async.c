/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_resolve_addrinfo: rdma_getaddrinfo without waiting for the name service.
 *
 * getaddrinfo(3) can neither be made non-blocking nor be cancelled, so a thread
 * of its own runs it. The job outlives the id if need be: destroying the id takes
 * the id out of the job, and the result is dropped. */
#include "base/log.h"
#include "cm/backend.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct addrinfo_job {
	struct lock lock; /* guards id and event; outer to the backend's locks */
	struct cm_id *id; /* NULL: cancelled */
	struct cm_event *event; /* for the result; NULL: it was written */
	atomic_int refs;  /* the id's and the thread's */
	char *node, *service;
	struct rdma_addrinfo *hints; /* or NULL */
};

static void job_put(struct addrinfo_job *job)
{
	if (atomic_fetch_sub(&job->refs, 1) != 1)
		return;
	lock_fini(&job->lock);
	cm_event_free(job->event);
	free(job->node);
	free(job->service);
	rdma_freeaddrinfo(job->hints);
	free(job);
}

static void finish(struct addrinfo_job *job, struct rdma_addrinfo *res, int status)
{
	struct cm_id *id;
	int r;

	lock_get(&job->lock);
	id = job->id;
	if (id) {
		lock_get(&id->lock);
		id->resolved = res;
		lock_put(&id->lock);
		cm_event_set(job->event, id, RDMA_CM_EVENT_INTERNAL, status);
		r = id->be->write_event(id, job->event);
		job->event = NULL;
		if (r)
			log_error("id %p: the end of its address resolution cannot be "
				  "reported: errno %d", (void *)id, -r);
	}
	lock_put(&job->lock);
	if (!id)
		rdma_freeaddrinfo(res);
}

static void *run(void *arg)
{
	struct addrinfo_job *job = arg;
	struct rdma_addrinfo *res = NULL;
	int eai, status;

	status = cm_addrinfo_get(job->node, job->service, job->hints, &res, &eai);
	finish(job, res, status);
	job_put(job);
	return NULL;
}

/* Of the hints only what cm_addrinfo_get looks at. */
static struct rdma_addrinfo *copy_hints(const struct rdma_addrinfo *in)
{
	struct rdma_addrinfo *out = calloc(1, sizeof(*out));

	if (!out)
		return NULL;
	out->ai_flags = in->ai_flags;
	out->ai_family = in->ai_family;
	out->ai_qp_type = in->ai_qp_type;
	out->ai_port_space = in->ai_port_space;
	if (in->ai_src_len) {
		out->ai_src_addr = malloc(in->ai_src_len);
		if (!out->ai_src_addr)
			goto fail;
		memcpy(out->ai_src_addr, in->ai_src_addr, in->ai_src_len);
		out->ai_src_len = in->ai_src_len;
	}
	if (in->ai_dst_len) {
		out->ai_dst_addr = malloc(in->ai_dst_len);
		if (!out->ai_dst_addr)
			goto fail;
		memcpy(out->ai_dst_addr, in->ai_dst_addr, in->ai_dst_len);
		out->ai_dst_len = in->ai_dst_len;
	}
	return out;
fail:
	rdma_freeaddrinfo(out);
	return NULL;
}

static struct addrinfo_job *job_new(struct cm_id *id, const char *node,
				    const char *service,
				    const struct rdma_addrinfo *hints)
{
	struct addrinfo_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	lock_init(&job->lock);
	atomic_store(&job->refs, 1);
	job->id = id;
	job->event = cm_event_alloc(0);
	job->node = node ? strdup(node) : NULL;
	job->service = service ? strdup(service) : NULL;
	job->hints = hints ? copy_hints(hints) : NULL;
	if (!job->event || (node && !job->node) || (service && !job->service) ||
	    (hints && !job->hints)) {
		job_put(job);
		return NULL;
	}
	return job;
}

/* Signals are the application's business, not this thread's. */
static int spawn(struct addrinfo_job *job)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	atomic_fetch_add(&job->refs, 1);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, run, job);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (r)
		job_put(job);
	return -r;
}

void cm_addrinfo_cancel(struct cm_id *id)
{
	struct addrinfo_job *job = id->job;

	id->job = NULL;
	if (!job)
		return;
	lock_get(&job->lock);
	job->id = NULL;
	lock_put(&job->lock);
	job_put(job);
}

static int start_names(struct cm_id *id, const char *node, const char *service,
		       const struct rdma_addrinfo *hints)
{
	int r;

	cm_addrinfo_cancel(id); /* of an earlier, finished resolution */
	id->job = job_new(id, node, service, hints);
	if (!id->job)
		return -ENOMEM;
	r = spawn(id->job);
	if (r)
		cm_addrinfo_cancel(id);
	return r;
}

static int start_sa(struct cm_id *id, const char *service)
{
	char *end;

	if (!service || !*service)
		return log_refuse(EINVAL, "RAI_SA needs a service");
	(void)strtoull(service, &end, 0);
	if (*end && strlen(service) > 63)
		return log_refuse(EINVAL, "a service name has at most 63 characters");
	return id->be->resolve_service(id, service);
}

static int resolve(struct cm_id *id, const char *node, const char *service,
		   const struct rdma_addrinfo *hints)
{
	int flags = hints ? hints->ai_flags : 0, r;
	bool busy;

	if ((flags & RAI_SA) && (node || (flags & RAI_DNS)))
		return log_refuse(EOPNOTSUPP, "RAI_SA goes with a service alone");
	if (!node && !service && !hints)
		return log_refuse(EINVAL, "neither node nor service nor hints given");
	lock_get(&id->lock);
	busy = id->resolving;
	id->resolving = true;
	lock_put(&id->lock);
	if (busy)
		return log_refuse(EBUSY, "id %p: a resolution is under way or was not "
					 "queried", (void *)id);
	r = flags & RAI_SA ? start_sa(id, service) :
			     start_names(id, node, service, hints);
	if (r) {
		lock_get(&id->lock);
		id->resolving = false;
		lock_put(&id->lock);
		return r;
	}
	return cm_sync_complete(id, CM_SYNC_ADDRINFO);
}

int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node,
			  const char *service, const struct rdma_addrinfo *hints)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	return cm_ret(r ? r : resolve(to_id(id), node, service, hints));
}

int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info)
{
	struct rdma_addrinfo *res;
	struct cm_id *p;
	int r = cm_id_check(id);

	if (!r && !info)
		r = log_refuse(EINVAL, "no place for the result given");
	if (r)
		return cm_ret(r);
	p = to_id(id);
	lock_get(&p->lock);
	res = p->resolved;
	p->resolved = NULL;
	if (res)
		p->resolving = false;
	lock_put(&p->lock);
	if (!res)
		return cm_ret(log_refuse(ENOENT, "id %p: nothing has been resolved",
					 (void *)id));
	*info = res;
	return 0;
}
