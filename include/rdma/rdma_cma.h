/* SPDX-License-Identifier: BSD-2-Clause */
/* The RDMA connection manager: addresses, routes and connections for queue
 * pairs, by IP address and port.
 *
 * Unless said otherwise a function returns 0, or -1 with errno set; a function
 * that returns a pointer returns NULL with errno set. The manual pages hold the
 * details; the comments here say what each thing is for. */
#ifndef RDMA_CMA_H
#define RDMA_CMA_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <infiniband/sa.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- events -------------------------------------------------------------- */

enum rdma_cm_event_type {
	RDMA_CM_EVENT_ADDR_RESOLVED,	 /* the id has a device */
	RDMA_CM_EVENT_ADDR_ERROR,
	RDMA_CM_EVENT_ROUTE_RESOLVED,	 /* rdma_resolve_route is done */
	RDMA_CM_EVENT_ROUTE_ERROR,
	RDMA_CM_EVENT_CONNECT_REQUEST,	 /* listener: event->id is a new id */
	RDMA_CM_EVENT_CONNECT_RESPONSE,	 /* active id without a QP: the peer accepted */
	RDMA_CM_EVENT_CONNECT_ERROR,
	RDMA_CM_EVENT_UNREACHABLE,	 /* the peer does not answer */
	RDMA_CM_EVENT_REJECTED,		 /* the peer refused; status is its reason */
	RDMA_CM_EVENT_ESTABLISHED,
	RDMA_CM_EVENT_DISCONNECTED,
	RDMA_CM_EVENT_DEVICE_REMOVAL,	 /* the id's device is going away: destroy the id */
	RDMA_CM_EVENT_MULTICAST_JOIN,
	RDMA_CM_EVENT_MULTICAST_ERROR,
	RDMA_CM_EVENT_ADDR_CHANGE,	 /* the hardware address behind the id changed */
	RDMA_CM_EVENT_TIMEWAIT_EXIT,	 /* the QP of an ended connection may be used again */
	RDMA_CM_EVENT_ADDRINFO_RESOLVED, /* rdma_query_addrinfo has the answer */
	RDMA_CM_EVENT_ADDRINFO_ERROR,
	RDMA_CM_EVENT_USER,		 /* from rdma_write_cm_event */
	RDMA_CM_EVENT_INTERNAL,		 /* of the library itself; never delivered */
};

/* ---- addresses ----------------------------------------------------------- */

/* A port space is a set of port numbers of its own and decides the QP type of
 * an id: UD for RDMA_PS_UDP and RDMA_PS_IPOIB, RC for the others. */
enum rdma_port_space {
	RDMA_PS_IPOIB = 0x0002,
	RDMA_PS_TCP = 0x0106,
	RDMA_PS_UDP = 0x0111,
	RDMA_PS_IB = 0x013F,
};

/* How port space and port sit in the service id of an AF_IB address. */
#define RDMA_IB_IP_PS_MASK 0xFFFFFFFFFFFF0000ULL
#define RDMA_IB_IP_PORT_MASK 0x000000000000FFFFULL
#define RDMA_IB_IP_PS_TCP 0x0000000001060000ULL
#define RDMA_IB_IP_PS_UDP 0x0000000001110000ULL
#define RDMA_IB_PS_IB 0x00000000013F0000ULL

/* Q_Key of every UD QP in RDMA_PS_UDP. */
#define RDMA_UDP_QKEY 0x01234567

struct rdma_ib_addr {
	union ibv_gid sgid;
	union ibv_gid dgid;
	__be16 pkey;
};

struct rdma_addr {
	union {
		struct sockaddr src_addr;
		struct sockaddr_in src_sin;
		struct sockaddr_in6 src_sin6;
		struct sockaddr_storage src_storage;
	};
	union {
		struct sockaddr dst_addr;
		struct sockaddr_in dst_sin;
		struct sockaddr_in6 dst_sin6;
		struct sockaddr_storage dst_storage;
	};
	union {
		struct rdma_ib_addr ibaddr;
	} addr;
};

struct rdma_route {
	struct rdma_addr addr;
	struct ibv_sa_path_rec *path_rec; /* num_paths of them */
	int num_paths;
};

/* ---- objects ------------------------------------------------------------- */

/* Events of the ids on a channel arrive through fd: it can be polled, and
 * O_NONBLOCK on it makes rdma_get_cm_event non-blocking. */
struct rdma_event_channel {
	int fd;
};

struct rdma_cm_event;

/* One end of a connection, a listener, or one end of datagram communication. */
struct rdma_cm_id {
	struct ibv_context *verbs;	   /* device, once known */
	struct rdma_event_channel *channel;
	void *context;			   /* the application's */
	struct ibv_qp *qp;		   /* from rdma_create_qp */
	struct rdma_route route;
	enum rdma_port_space ps;
	uint8_t port_num;		   /* of the device; 0: unknown */
	struct rdma_cm_event *event;	   /* synchronous ids: the last call's event */
	struct ibv_comp_channel *send_cq_channel; /* these four only when the */
	struct ibv_cq *send_cq;			  /* library created them     */
	struct ibv_comp_channel *recv_cq_channel;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	enum ibv_qp_type qp_type;
};

/* "As many as the device has" for the two depths of rdma_conn_param. */
enum {
	RDMA_MAX_RESP_RES = 0xFF,
	RDMA_MAX_INIT_DEPTH = 0xFF,
};

struct rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources; /* reads and atomics of the peer served at once */
	uint8_t initiator_depth;     /* reads and atomics of our own under way at once */
	uint8_t flow_control;
	uint8_t retry_count;	     /* not used by rdma_accept */
	uint8_t rnr_retry_count;
	/* For a QP that the id does not own; ignored when it has one. */
	uint8_t srq;
	uint32_t qp_num;
};

struct rdma_ud_param {
	const void *private_data;
	uint8_t private_data_len;
	struct ibv_ah_attr ah_attr;
	uint32_t qp_num;
	uint32_t qkey;
};

struct rdma_cm_event {
	struct rdma_cm_id *id;
	struct rdma_cm_id *listen_id; /* CONNECT_REQUEST only, else NULL */
	enum rdma_cm_event_type event;
	int status; /* 0, -errno; REJECTED, and UNREACHABLE of UD: reason > 0 */
	union {
		struct rdma_conn_param conn; /* connected QP types */
		struct rdma_ud_param ud;     /* UD */
		uint64_t arg;		     /* USER */
	} param;
};

/* ---- address information ------------------------------------------------- */

#define RAI_PASSIVE 0x00000001	   /* the result is for a listener */
#define RAI_NUMERICHOST 0x00000002 /* node is numeric: no name service */
#define RAI_NOROUTE 0x00000004	   /* do not look for a route */
#define RAI_FAMILY 0x00000008	   /* hints->ai_family tells how to read node */
#define RAI_SA 0x00000010	   /* service is a service record of an InfiniBand SA */
#define RAI_DNS 0x00000020	   /* node and service are names and numbers of IP */

struct rdma_addrinfo {
	int ai_flags;
	int ai_family;
	int ai_qp_type;
	int ai_port_space;
	socklen_t ai_src_len;
	socklen_t ai_dst_len;
	struct sockaddr *ai_src_addr;
	struct sockaddr *ai_dst_addr;
	char *ai_src_canonname;
	char *ai_dst_canonname;
	size_t ai_route_len;
	void *ai_route;
	size_t ai_connect_len;
	void *ai_connect;
	struct rdma_addrinfo *ai_next;
};

/* ---- multicast ----------------------------------------------------------- */

enum rdma_cm_join_mc_attr_mask {
	RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1 << 0,
	RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1,
	RDMA_CM_JOIN_MC_ATTR_RESERVED = 1 << 2,
};

enum rdma_cm_mc_join_flags {
	RDMA_MC_JOIN_FLAG_FULLMEMBER,
	RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
	RDMA_MC_JOIN_FLAG_RESERVED,
};

struct rdma_cm_join_mc_attr_ex {
	uint32_t comp_mask;  /* enum rdma_cm_join_mc_attr_mask */
	uint32_t join_flags; /* enum rdma_cm_mc_join_flags */
	struct sockaddr *addr;
};

/* ---- channels and events ------------------------------------------------- */

struct rdma_event_channel *rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct rdma_event_channel *channel);

/* Every event must be acknowledged once; that frees it and what it points to. */
int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event);
int rdma_ack_cm_event(struct rdma_cm_event *event);
const char *rdma_event_str(enum rdma_cm_event_type event);

/* Queues an event of the application's own (RDMA_CM_EVENT_USER). */
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event,
			int status, uint64_t arg);

/* ---- ids ----------------------------------------------------------------- */

/* channel NULL: a synchronous id, whose calls block and leave their event in
 * id->event. */
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context, enum rdma_port_space ps);

/* Waits until every event of the id that was fetched has been acknowledged. The
 * QP must be gone or be destroyed by the application. */
int rdma_destroy_id(struct rdma_cm_id *id);

/* Moves the id and its events to another channel (NULL: makes it synchronous);
 * waits like rdma_destroy_id. */
int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel);

/* An endpoint is a synchronous id with addresses, and a QP if asked for. */
int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res,
		   struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr);
void rdma_destroy_ep(struct rdma_cm_id *id);

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);
int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
		      struct sockaddr *dst_addr, int timeout_ms);
int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);

/* ---- queue pairs --------------------------------------------------------- */

/* The QP comes ready to take receives. pd NULL: the device's default PD. CQs
 * that are NULL are created with a channel of their own each. */
int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *qp_init_attr);
int rdma_create_qp_ex(struct rdma_cm_id *id,
		      struct ibv_qp_init_attr_ex *qp_init_attr);
void rdma_destroy_qp(struct rdma_cm_id *id);

/* For QPs that the application moves itself: fills qp_attr and the mask for the
 * move to qp_attr->qp_state (INIT, RTR or RTS). */
int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr,
		      int *qp_attr_mask);

/* ---- connections --------------------------------------------------------- */

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);

/* After CONNECT_RESPONSE, once the application's own QP is in RTS. */
int rdma_establish(struct rdma_cm_id *id);

int rdma_listen(struct rdma_cm_id *id, int backlog);

/* Waits for a request to a synchronous listener. */
int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id);

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);
int rdma_reject(struct rdma_cm_id *id, const void *private_data,
		uint8_t private_data_len);
/* The same, with the reason "ECE options do not fit". */
int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data,
		    uint8_t private_data_len);

/* Tells the CM of an asynchronous event of the QP (IBV_EVENT_COMM_EST). */
int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event);
int rdma_disconnect(struct rdma_cm_id *id);

/* ---- multicast groups ---------------------------------------------------- */

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr,
			void *context);
int rdma_join_multicast_ex(struct rdma_cm_id *id,
			   struct rdma_cm_join_mc_attr_ex *mc_join_attr,
			   void *context);
int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr);

/* ---- what an id knows ---------------------------------------------------- */

/* Ports in network order; 0 while there is none. */
__be16 rdma_get_src_port(struct rdma_cm_id *id);
__be16 rdma_get_dst_port(struct rdma_cm_id *id);

static inline struct sockaddr *rdma_get_local_addr(struct rdma_cm_id *id)
{
	return &id->route.addr.src_addr;
}

static inline struct sockaddr *rdma_get_peer_addr(struct rdma_cm_id *id)
{
	return &id->route.addr.dst_addr;
}

/* ---- devices ------------------------------------------------------------- */

/* All RDMA devices, opened; NULL-terminated. */
struct ibv_context **rdma_get_devices(int *num_devices);
void rdma_free_devices(struct ibv_context **list);

/* ---- options ------------------------------------------------------------- */

enum { /* level */
	RDMA_OPTION_ID = 0,
	RDMA_OPTION_IB = 1,
};

enum { /* names of RDMA_OPTION_ID */
	RDMA_OPTION_ID_TOS = 0,	       /* uint8_t */
	RDMA_OPTION_ID_REUSEADDR = 1,  /* int */
	RDMA_OPTION_ID_AFONLY = 2,     /* int */
	RDMA_OPTION_ID_ACK_TIMEOUT = 3, /* uint8_t, 4.096 us * 2^value */
};

enum { /* names of RDMA_OPTION_IB */
	RDMA_OPTION_IB_PATH = 1, /* struct ibv_path_data[] */
};

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
		    size_t optlen);

/* ---- enhanced connection establishment (ids without a QP) ---------------- */

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece);
int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece);

/* ---- address information ------------------------------------------------- */

/* Returns 0, -1 with errno set, or an EAI_* code of getaddrinfo(3). */
int rdma_getaddrinfo(const char *node, const char *service,
		     const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res);
void rdma_freeaddrinfo(struct rdma_addrinfo *res);

/* The same without waiting: ADDRINFO_RESOLVED or ADDRINFO_ERROR follows, then
 * rdma_query_addrinfo hands the list over, once. */
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node,
			  const char *service,
			  const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);

#ifdef __cplusplus
}
#endif

#endif
