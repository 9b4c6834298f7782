/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel backend: requests to /dev/infiniband/rdma_cm.
 *
 * A channel's fd is the device node's. Each request is one write(2) (command.c).
 * Events are the answers of GET_EVENT (event.c), in the caller's thread.
 *
 * Lock order: objects' table (ids.c) > what cm/cm.h allows a backend. The lock of
 * wake.c is taken with none held, and the channel's queue lock under it. */
#ifndef ANYRDMA_CM_KERNEL_KERNEL_H
#define ANYRDMA_CM_KERNEL_KERNEL_H

#include "cm/backend.h"
#include "cm/kernel/abi.h"

#include <sys/types.h>

/* ---- node.c: the device node ---------------------------------------------- */

struct kernel_node {
	int abi;
	dev_t dev; /* 0: unknown */
	char name[64];
};

/* Learns the node's name and the ABI's version, once. -EPERM: a version that we
 * do not speak. */
int kernel_node_find(void);
/* A new descriptor, close-on-exec, or -errno. */
int kernel_node_open(void);
int kernel_abi(void);

/* The outside world; a unit test brings its own. */
struct kernel_sys {
	const char *root; /* in front of /dev and /sys */
	int (*open)(const char *path, int flags);
	ssize_t (*write)(int fd, const void *buf, size_t len);
	/* Asks netlink for the character device "rdma_cm". 0 or -errno. */
	int (*chardev)(struct kernel_node *out);
	int node_wait_ms; /* how long a node may take to appear */
};
extern const struct kernel_sys *kernel_sys;
void kernel_node_forget(void); /* unit tests: find it again */

/* ---- command.c: the write ------------------------------------------------------ */

/* A request on the stack, zeroed: header and the command's struct `p`. */
#define KERNEL_REQ(name, type) \
	struct { \
		struct rdma_ucm_cmd_hdr hdr; \
		struct type p; \
	} name = { .hdr = { 0 } }

#define kernel_command(fd, cmd, req, out) \
	kernel_write(fd, cmd, &(req)->hdr, sizeof(*(req)), out)

/* Writes the request of len bytes, header included; `out` is the size of the
 * response it points to. 0, -errno, or -ENODATA for a short write. */
int kernel_write(int fd, uint32_t cmd, struct rdma_ucm_cmd_hdr *hdr, size_t len,
		 size_t out);
/* Whether the kernel takes AF_IB addresses: decides between the commands for any
 * address and those for IP alone. Asked once, with a channel's fd. */
void kernel_probe(int fd);
bool kernel_has_af_ib(void);
void kernel_probe_forget(void); /* unit tests: ask again */
/* Whether the kernel knows this command at all: EINVAL may mean either. */
bool kernel_knows(int fd, uint32_t cmd, struct rdma_ucm_cmd_hdr *hdr, size_t len,
		  uint32_t *handle);

/* ---- ids.c: what the kernel's answers name ---------------------------------- */

enum { KERNEL_MOVES = 4 };

/* An id or a joined group, as the kernel knows it. */
struct kernel_obj {
	uint64_t uid;	       /* ours, in the kernel's events; 0: none given yet */
	uint32_t handle;       /* the kernel's, in our requests */
	struct cm_id *id;      /* NULL: a child that is no id yet */
	struct cm_mcast *mc;   /* NULL: the id itself */
	struct cm_channel *ch; /* where a child came from ... */
	int fd;		       /* ... and its descriptor, until it is an id */
	uint32_t seen;	       /* events fetched that name it (table's lock) */
	atomic_bool responded; /* the peer's reply was fetched */
	bool listening;
	int halfway;	       /* of a listener that was moved: see migrate.c; else -1 */
	/* Descriptors that the id was moved away from, newest first, else -1. The
	 * kernel may have left a child there: it has its listener's here (table's
	 * lock). */
	int moved_from[KERNEL_MOVES];
};

#define KERNEL_UID_WAKE UINT64_MAX

static inline struct kernel_obj *to_kernel(struct cm_id *id)
{
	return id->be_id;
}

static inline int kernel_fd(struct cm_id *id)
{
	return to_channel(id->pub.channel)->pub.fd;
}

/* The kernel's answer when an id is not on this descriptor, or it was closed. */
static inline bool kernel_not_there(int r)
{
	return r == -EINVAL || r == -ENOENT || r == -EBADF;
}

/* A new one, not registered, of a child of ch if that is not NULL. */
struct kernel_obj *kernel_obj_new(struct cm_channel *ch);
/* Gives the object a uid, which no other will have. 0 or -ENOMEM. */
int kernel_obj_register(struct kernel_obj *o);
void kernel_obj_unregister(struct kernel_obj *o);
/* Finds the event's object by uid (by handle when uid is 0, a fault of old
 * kernels), sets ev's charge, mcast and pub.id, tells ev's child where it may be,
 * and books the event as fetched, or, with `fetched` false, as seen and dropped.
 * False: there is no such object. */
bool kernel_obj_event(uint64_t uid, uint32_t handle, struct cm_event *ev, bool fetched);
/* The id was moved away from this descriptor. */
void kernel_obj_moved(struct kernel_obj *o, int from);
/* The kernel has handed out n events of the object. Waits for the threads that
 * have not come from their system call to kernel_obj_event yet. */
void kernel_obj_settle(struct kernel_obj *o, uint32_t n);

/* ---- wake.c: the fd tells of events that are not the kernel's ---------------- */

/* Makes the channel's fd readable until kernel_wake_settle. */
void kernel_wake(struct cm_channel *ch);
/* After events left the queue, or may have: readable only if there are more. */
void kernel_wake_settle(struct cm_channel *ch);
/* GET_EVENT answered KERNEL_UID_WAKE. */
void kernel_wake_used(struct cm_channel *ch);
void kernel_wake_close(struct cm_channel *ch);

/* ---- the commands ------------------------------------------------------------ */

/* Raw: without an id of the CM. */
int kernel_raw_create(int fd, uint64_t uid, enum rdma_port_space ps,
		      enum ibv_qp_type qp_type, uint32_t *handle);
int kernel_raw_destroy(int fd, uint32_t handle, uint32_t *reported);
int kernel_raw_bind(int fd, uint32_t handle, const struct sockaddr *addr, bool any_family);
int kernel_raw_resolve(int fd, uint32_t handle, const struct sockaddr *src,
		       const struct sockaddr *dst, int timeout_ms);

/* event.c */
int kernel_event_get(struct cm_channel *ch, struct cm_event **ev);
void kernel_event_purge(struct cm_id *id);
int kernel_write_event(struct cm_id *id, struct cm_event *ev);
void kernel_child_drop(void *be_child);
/* The next event that fd, a channel's, has for the application; ch: where
 * a child is to live. Booked as fetched. 0, -errno, or -ERESTART: look at ch's own
 * queue. */
int kernel_event_fetch(int fd, struct cm_channel *ch, struct cm_event **ev);

/* migrate.c */
int kernel_id_adopt(struct cm_id *id);
int kernel_id_migrate(struct cm_id *id, struct cm_channel *to, uint32_t *delivered);

/* addr.c */
int kernel_bind(struct cm_id *id, const struct sockaddr *addr);
int kernel_resolve_addr(struct cm_id *id, const struct sockaddr *src,
			const struct sockaddr *dst, int timeout_ms);
int kernel_query_addr(struct cm_id *id, struct cm_addrs *out);
int kernel_query_gid(struct cm_id *id, struct cm_addrs *out);
int kernel_query_path(struct cm_id *id, struct ibv_path_data *path, int max);

/* attr.c */
int kernel_init_qp_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask);
void kernel_ah_attr(const struct ib_uverbs_ah_attr *in, struct ibv_ah_attr *out);

/* mcast.c */
int kernel_join(struct cm_id *id, struct cm_mcast *mc);
int kernel_leave(struct cm_id *id, struct cm_mcast *mc, uint32_t *delivered);
/* The groups of an id that is destroyed: no event can name them any more. */
void kernel_mcast_forget(struct cm_id *id);

/* service.c */
int kernel_resolve_service(struct cm_id *id, const char *service);
int kernel_query_service(struct cm_id *id, struct rdma_addrinfo **res);

#endif
