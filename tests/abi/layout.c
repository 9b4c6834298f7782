/* SPDX-License-Identifier: BSD-2-Clause */
/* Made by layout-gen from the original's headers; do not edit. What is here
 * holds for ours, or this does not compile. */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <stddef.h>
#include <stdio.h>

_Static_assert(sizeof(struct rdma_addr) == 296, "ABI");
_Static_assert(_Alignof(struct rdma_addr) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addr, src_addr) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->src_addr) == 16, "ABI");
_Static_assert(offsetof(struct rdma_addr, src_sin) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->src_sin) == 16, "ABI");
_Static_assert(offsetof(struct rdma_addr, src_sin6) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->src_sin6) == 28, "ABI");
_Static_assert(offsetof(struct rdma_addr, src_storage) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->src_storage) == 128, "ABI");
_Static_assert(offsetof(struct rdma_addr, dst_addr) == 128, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->dst_addr) == 16, "ABI");
_Static_assert(offsetof(struct rdma_addr, dst_sin) == 128, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->dst_sin) == 16, "ABI");
_Static_assert(offsetof(struct rdma_addr, dst_sin6) == 128, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->dst_sin6) == 28, "ABI");
_Static_assert(offsetof(struct rdma_addr, dst_storage) == 128, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->dst_storage) == 128, "ABI");
_Static_assert(offsetof(struct rdma_addr, addr) == 256, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->addr) == 40, "ABI");
_Static_assert(offsetof(struct rdma_addr, addr.ibaddr) == 256, "ABI");
_Static_assert(sizeof(((struct rdma_addr *)0)->addr.ibaddr) == 40, "ABI");
_Static_assert(sizeof(struct rdma_addrinfo) == 96, "ABI");
_Static_assert(_Alignof(struct rdma_addrinfo) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_flags) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_flags) == 4, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_family) == 4, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_family) == 4, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_qp_type) == 8, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_qp_type) == 4, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_port_space) == 12, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_port_space) == 4, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_src_len) == 16, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_src_len) == 4, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_dst_len) == 20, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_dst_len) == 4, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_src_addr) == 24, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_src_addr) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_dst_addr) == 32, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_dst_addr) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_src_canonname) == 40, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_src_canonname) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_dst_canonname) == 48, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_dst_canonname) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_route_len) == 56, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_route_len) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_route) == 64, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_route) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_connect_len) == 72, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_connect_len) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_connect) == 80, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_connect) == 8, "ABI");
_Static_assert(offsetof(struct rdma_addrinfo, ai_next) == 88, "ABI");
_Static_assert(sizeof(((struct rdma_addrinfo *)0)->ai_next) == 8, "ABI");
_Static_assert(sizeof(struct rdma_cm_event) == 80, "ABI");
_Static_assert(_Alignof(struct rdma_cm_event) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_event, id) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_cm_event *)0)->id) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_event, listen_id) == 8, "ABI");
_Static_assert(sizeof(((struct rdma_cm_event *)0)->listen_id) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_event, event) == 16, "ABI");
_Static_assert(sizeof(((struct rdma_cm_event *)0)->event) == 4, "ABI");
_Static_assert(offsetof(struct rdma_cm_event, status) == 20, "ABI");
_Static_assert(sizeof(((struct rdma_cm_event *)0)->status) == 4, "ABI");
_Static_assert(offsetof(struct rdma_cm_event, param) == 24, "ABI");
_Static_assert(sizeof(((struct rdma_cm_event *)0)->param) == 56, "ABI");
_Static_assert(offsetof(struct rdma_cm_event, param.conn) == 24, "ABI");
_Static_assert(sizeof(((struct rdma_cm_event *)0)->param.conn) == 24, "ABI");
_Static_assert(offsetof(struct rdma_cm_event, param.ud) == 24, "ABI");
_Static_assert(sizeof(((struct rdma_cm_event *)0)->param.ud) == 56, "ABI");
_Static_assert(sizeof(struct rdma_cm_id) == 416, "ABI");
_Static_assert(_Alignof(struct rdma_cm_id) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, verbs) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->verbs) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, channel) == 8, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->channel) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, context) == 16, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->context) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, qp) == 24, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->qp) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, route) == 32, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->route) == 312, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, ps) == 344, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->ps) == 4, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, port_num) == 348, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->port_num) == 1, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, event) == 352, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->event) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, send_cq_channel) == 360, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->send_cq_channel) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, send_cq) == 368, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->send_cq) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, recv_cq_channel) == 376, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->recv_cq_channel) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, recv_cq) == 384, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->recv_cq) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, srq) == 392, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->srq) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, pd) == 400, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->pd) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_id, qp_type) == 408, "ABI");
_Static_assert(sizeof(((struct rdma_cm_id *)0)->qp_type) == 4, "ABI");
_Static_assert(sizeof(struct rdma_cm_join_mc_attr_ex) == 16, "ABI");
_Static_assert(_Alignof(struct rdma_cm_join_mc_attr_ex) == 8, "ABI");
_Static_assert(offsetof(struct rdma_cm_join_mc_attr_ex, comp_mask) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_cm_join_mc_attr_ex *)0)->comp_mask) == 4, "ABI");
_Static_assert(offsetof(struct rdma_cm_join_mc_attr_ex, join_flags) == 4, "ABI");
_Static_assert(sizeof(((struct rdma_cm_join_mc_attr_ex *)0)->join_flags) == 4, "ABI");
_Static_assert(offsetof(struct rdma_cm_join_mc_attr_ex, addr) == 8, "ABI");
_Static_assert(sizeof(((struct rdma_cm_join_mc_attr_ex *)0)->addr) == 8, "ABI");
_Static_assert(sizeof(struct rdma_conn_param) == 24, "ABI");
_Static_assert(_Alignof(struct rdma_conn_param) == 8, "ABI");
_Static_assert(offsetof(struct rdma_conn_param, private_data) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_conn_param *)0)->private_data) == 8, "ABI");
_Static_assert(offsetof(struct rdma_conn_param, private_data_len) == 8, "ABI");
_Static_assert(sizeof(((struct rdma_conn_param *)0)->private_data_len) == 1, "ABI");
_Static_assert(offsetof(struct rdma_conn_param, responder_resources) == 9, "ABI");
_Static_assert(sizeof(((struct rdma_conn_param *)0)->responder_resources) == 1, "ABI");
_Static_assert(offsetof(struct rdma_conn_param, initiator_depth) == 10, "ABI");
_Static_assert(sizeof(((struct rdma_conn_param *)0)->initiator_depth) == 1, "ABI");
_Static_assert(offsetof(struct rdma_conn_param, flow_control) == 11, "ABI");
_Static_assert(sizeof(((struct rdma_conn_param *)0)->flow_control) == 1, "ABI");
_Static_assert(offsetof(struct rdma_conn_param, retry_count) == 12, "ABI");
_Static_assert(sizeof(((struct rdma_conn_param *)0)->retry_count) == 1, "ABI");
_Static_assert(offsetof(struct rdma_conn_param, rnr_retry_count) == 13, "ABI");
_Static_assert(sizeof(((struct rdma_conn_param *)0)->rnr_retry_count) == 1, "ABI");
_Static_assert(offsetof(struct rdma_conn_param, srq) == 14, "ABI");
_Static_assert(sizeof(((struct rdma_conn_param *)0)->srq) == 1, "ABI");
_Static_assert(offsetof(struct rdma_conn_param, qp_num) == 16, "ABI");
_Static_assert(sizeof(((struct rdma_conn_param *)0)->qp_num) == 4, "ABI");
_Static_assert(sizeof(struct rdma_event_channel) == 4, "ABI");
_Static_assert(_Alignof(struct rdma_event_channel) == 4, "ABI");
_Static_assert(offsetof(struct rdma_event_channel, fd) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_event_channel *)0)->fd) == 4, "ABI");
_Static_assert(sizeof(struct rdma_ib_addr) == 40, "ABI");
_Static_assert(_Alignof(struct rdma_ib_addr) == 8, "ABI");
_Static_assert(offsetof(struct rdma_ib_addr, sgid) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_ib_addr *)0)->sgid) == 16, "ABI");
_Static_assert(offsetof(struct rdma_ib_addr, dgid) == 16, "ABI");
_Static_assert(sizeof(((struct rdma_ib_addr *)0)->dgid) == 16, "ABI");
_Static_assert(offsetof(struct rdma_ib_addr, pkey) == 32, "ABI");
_Static_assert(sizeof(((struct rdma_ib_addr *)0)->pkey) == 2, "ABI");
_Static_assert(sizeof(struct rdma_route) == 312, "ABI");
_Static_assert(_Alignof(struct rdma_route) == 8, "ABI");
_Static_assert(offsetof(struct rdma_route, addr) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_route *)0)->addr) == 296, "ABI");
_Static_assert(offsetof(struct rdma_route, path_rec) == 296, "ABI");
_Static_assert(sizeof(((struct rdma_route *)0)->path_rec) == 8, "ABI");
_Static_assert(offsetof(struct rdma_route, num_paths) == 304, "ABI");
_Static_assert(sizeof(((struct rdma_route *)0)->num_paths) == 4, "ABI");
_Static_assert(sizeof(struct rdma_ud_param) == 56, "ABI");
_Static_assert(_Alignof(struct rdma_ud_param) == 8, "ABI");
_Static_assert(offsetof(struct rdma_ud_param, private_data) == 0, "ABI");
_Static_assert(sizeof(((struct rdma_ud_param *)0)->private_data) == 8, "ABI");
_Static_assert(offsetof(struct rdma_ud_param, private_data_len) == 8, "ABI");
_Static_assert(sizeof(((struct rdma_ud_param *)0)->private_data_len) == 1, "ABI");
_Static_assert(offsetof(struct rdma_ud_param, ah_attr) == 16, "ABI");
_Static_assert(sizeof(((struct rdma_ud_param *)0)->ah_attr) == 32, "ABI");
_Static_assert(offsetof(struct rdma_ud_param, qp_num) == 48, "ABI");
_Static_assert(sizeof(((struct rdma_ud_param *)0)->qp_num) == 4, "ABI");
_Static_assert(offsetof(struct rdma_ud_param, qkey) == 52, "ABI");
_Static_assert(sizeof(((struct rdma_ud_param *)0)->qkey) == 4, "ABI");
_Static_assert(sizeof(enum rdma_cm_event_type) == 4, "ABI");
_Static_assert(sizeof(enum rdma_cm_join_mc_attr_mask) == 4, "ABI");
_Static_assert(sizeof(enum rdma_cm_mc_join_flags) == 4, "ABI");
_Static_assert(sizeof(enum rdma_driver_id) == 4, "ABI");
_Static_assert(sizeof(enum rdma_port_space) == 4, "ABI");
_Static_assert(RDMA_CM_EVENT_ADDR_CHANGE == 14, "ABI");
_Static_assert(RDMA_CM_EVENT_ADDR_ERROR == 1, "ABI");
_Static_assert(RDMA_CM_EVENT_ADDR_RESOLVED == 0, "ABI");
_Static_assert(RDMA_CM_EVENT_CONNECT_ERROR == 6, "ABI");
_Static_assert(RDMA_CM_EVENT_CONNECT_REQUEST == 4, "ABI");
_Static_assert(RDMA_CM_EVENT_CONNECT_RESPONSE == 5, "ABI");
_Static_assert(RDMA_CM_EVENT_DEVICE_REMOVAL == 11, "ABI");
_Static_assert(RDMA_CM_EVENT_DISCONNECTED == 10, "ABI");
_Static_assert(RDMA_CM_EVENT_ESTABLISHED == 9, "ABI");
_Static_assert(RDMA_CM_EVENT_MULTICAST_ERROR == 13, "ABI");
_Static_assert(RDMA_CM_EVENT_MULTICAST_JOIN == 12, "ABI");
_Static_assert(RDMA_CM_EVENT_REJECTED == 8, "ABI");
_Static_assert(RDMA_CM_EVENT_ROUTE_ERROR == 3, "ABI");
_Static_assert(RDMA_CM_EVENT_ROUTE_RESOLVED == 2, "ABI");
_Static_assert(RDMA_CM_EVENT_TIMEWAIT_EXIT == 15, "ABI");
_Static_assert(RDMA_CM_EVENT_UNREACHABLE == 7, "ABI");
_Static_assert(RDMA_CM_JOIN_MC_ATTR_ADDRESS == 1, "ABI");
_Static_assert(RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS == 2, "ABI");
_Static_assert(RDMA_CM_JOIN_MC_ATTR_RESERVED == 4, "ABI");
_Static_assert(RDMA_DRIVER_BNXT_RE == 6, "ABI");
_Static_assert(RDMA_DRIVER_CXGB3 == 3, "ABI");
_Static_assert(RDMA_DRIVER_CXGB4 == 4, "ABI");
_Static_assert(RDMA_DRIVER_EFA == 17, "ABI");
_Static_assert(RDMA_DRIVER_ERDMA == 19, "ABI");
_Static_assert(RDMA_DRIVER_HFI1 == 15, "ABI");
_Static_assert(RDMA_DRIVER_HNS == 12, "ABI");
_Static_assert(RDMA_DRIVER_I40IW == 9, "ABI");
_Static_assert(RDMA_DRIVER_IRDMA == 9, "ABI");
_Static_assert(RDMA_DRIVER_MANA == 20, "ABI");
_Static_assert(RDMA_DRIVER_MLX4 == 2, "ABI");
_Static_assert(RDMA_DRIVER_MLX5 == 1, "ABI");
_Static_assert(RDMA_DRIVER_MTHCA == 5, "ABI");
_Static_assert(RDMA_DRIVER_NES == 8, "ABI");
_Static_assert(RDMA_DRIVER_OCRDMA == 7, "ABI");
_Static_assert(RDMA_DRIVER_QEDR == 11, "ABI");
_Static_assert(RDMA_DRIVER_QIB == 16, "ABI");
_Static_assert(RDMA_DRIVER_RXE == 14, "ABI");
_Static_assert(RDMA_DRIVER_SIW == 18, "ABI");
_Static_assert(RDMA_DRIVER_UNKNOWN == 0, "ABI");
_Static_assert(RDMA_DRIVER_USNIC == 13, "ABI");
_Static_assert(RDMA_DRIVER_VMW_PVRDMA == 10, "ABI");
_Static_assert(RDMA_INLINE == 2, "ABI");
_Static_assert(RDMA_IOMAPSIZE == 3, "ABI");
_Static_assert(RDMA_MAX_INIT_DEPTH == 255, "ABI");
_Static_assert(RDMA_MAX_RESP_RES == 255, "ABI");
_Static_assert(RDMA_MC_JOIN_FLAG_FULLMEMBER == 0, "ABI");
_Static_assert(RDMA_MC_JOIN_FLAG_RESERVED == 2, "ABI");
_Static_assert(RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER == 1, "ABI");
_Static_assert(RDMA_OPTION_IB == 1, "ABI");
_Static_assert(RDMA_OPTION_IB_PATH == 1, "ABI");
_Static_assert(RDMA_OPTION_ID == 0, "ABI");
_Static_assert(RDMA_OPTION_ID_ACK_TIMEOUT == 3, "ABI");
_Static_assert(RDMA_OPTION_ID_AFONLY == 2, "ABI");
_Static_assert(RDMA_OPTION_ID_REUSEADDR == 1, "ABI");
_Static_assert(RDMA_OPTION_ID_TOS == 0, "ABI");
_Static_assert(RDMA_PS_IB == 319, "ABI");
_Static_assert(RDMA_PS_IPOIB == 2, "ABI");
_Static_assert(RDMA_PS_TCP == 262, "ABI");
_Static_assert(RDMA_PS_UDP == 273, "ABI");
_Static_assert(RDMA_ROUTE == 4, "ABI");
_Static_assert(RDMA_RQSIZE == 1, "ABI");
_Static_assert(RDMA_SQSIZE == 0, "ABI");
_Static_assert(RAI_FAMILY == 8, "ABI");
_Static_assert(RAI_NOROUTE == 4, "ABI");
_Static_assert(RAI_NUMERICHOST == 2, "ABI");
_Static_assert(RAI_PASSIVE == 1, "ABI");
_Static_assert(RDMA_IB_IP_PORT_MASK == 65535, "ABI");
_Static_assert(RDMA_IB_IP_PS_MASK == 0xffffffffffff0000ULL, "ABI");
_Static_assert(RDMA_IB_IP_PS_TCP == 17170432, "ABI");
_Static_assert(RDMA_IB_IP_PS_UDP == 17891328, "ABI");
_Static_assert(RDMA_IB_PS_IB == 20905984, "ABI");
_Static_assert(RDMA_UDP_QKEY == 19088743, "ABI");
_Static_assert(SOL_RDMA == 65536, "ABI");

extern int raccept (int, struct sockaddr *, socklen_t *);
extern int rbind (int, const struct sockaddr *, socklen_t);
extern int rclose (int);
extern int rconnect (int, const struct sockaddr *, socklen_t);
extern int rdma_accept (struct rdma_cm_id *, struct rdma_conn_param *);
extern int rdma_ack_cm_event (struct rdma_cm_event *);
extern int rdma_bind_addr (struct rdma_cm_id *, struct sockaddr *);
extern int rdma_connect (struct rdma_cm_id *, struct rdma_conn_param *);
extern int rdma_create_ep (struct rdma_cm_id **, struct rdma_addrinfo *, struct
	ibv_pd *, struct ibv_qp_init_attr *);
extern struct rdma_event_channel *rdma_create_event_channel (void);
extern int rdma_create_id (struct rdma_event_channel *, struct rdma_cm_id **,
	void *, enum rdma_port_space);
extern int rdma_create_qp (struct rdma_cm_id *, struct ibv_pd *, struct
	ibv_qp_init_attr *);
extern int rdma_create_qp_ex (struct rdma_cm_id *, struct ibv_qp_init_attr_ex
	*);
extern int rdma_create_srq (struct rdma_cm_id *, struct ibv_pd *, struct
	ibv_srq_init_attr *);
extern int rdma_create_srq_ex (struct rdma_cm_id *, struct ibv_srq_init_attr_ex
	*);
static int rdma_dereg_mr (struct ibv_mr *mr);
extern void rdma_destroy_ep (struct rdma_cm_id *);
extern void rdma_destroy_event_channel (struct rdma_event_channel *);
extern int rdma_destroy_id (struct rdma_cm_id *);
extern void rdma_destroy_qp (struct rdma_cm_id *);
extern void rdma_destroy_srq (struct rdma_cm_id *);
extern int rdma_disconnect (struct rdma_cm_id *);
extern int rdma_establish (struct rdma_cm_id *);
extern const char *rdma_event_str (enum rdma_cm_event_type);
extern void rdma_free_devices (struct ibv_context **);
extern void rdma_freeaddrinfo (struct rdma_addrinfo *);
extern int rdma_get_cm_event (struct rdma_event_channel *, struct rdma_cm_event
	**);
extern struct ibv_context **rdma_get_devices (int *);
extern __be16 rdma_get_dst_port (struct rdma_cm_id *);
static struct sockaddr *rdma_get_local_addr (struct rdma_cm_id *id);
static struct sockaddr *rdma_get_peer_addr (struct rdma_cm_id *id);
static int rdma_get_recv_comp (struct rdma_cm_id *id, struct ibv_wc *wc);
extern int rdma_get_remote_ece (struct rdma_cm_id *, struct ibv_ece *);
extern int rdma_get_request (struct rdma_cm_id *, struct rdma_cm_id **);
static int rdma_get_send_comp (struct rdma_cm_id *id, struct ibv_wc *wc);
extern __be16 rdma_get_src_port (struct rdma_cm_id *);
extern int rdma_getaddrinfo (const char *, const char *, const struct
	rdma_addrinfo *, struct rdma_addrinfo **);
extern int rdma_init_qp_attr (struct rdma_cm_id *, struct ibv_qp_attr *, int *);
extern int rdma_join_multicast (struct rdma_cm_id *, struct sockaddr *, void *);
extern int rdma_join_multicast_ex (struct rdma_cm_id *, struct
	rdma_cm_join_mc_attr_ex *, void *);
extern int rdma_leave_multicast (struct rdma_cm_id *, struct sockaddr *);
extern int rdma_listen (struct rdma_cm_id *, int);
extern int rdma_migrate_id (struct rdma_cm_id *, struct rdma_event_channel *);
extern int rdma_notify (struct rdma_cm_id *, enum ibv_event_type);
static int rdma_post_read (struct rdma_cm_id *id, void *context, void *addr,
	size_t length, struct ibv_mr *mr, int flags, uint64_t remote_addr, uint32_t
	rkey);
static int rdma_post_readv (struct rdma_cm_id *id, void *context, struct ibv_sge
	*sgl, int nsge, int flags, uint64_t remote_addr, uint32_t rkey);
static int rdma_post_recv (struct rdma_cm_id *id, void *context, void *addr,
	size_t length, struct ibv_mr *mr);
static int rdma_post_recvv (struct rdma_cm_id *id, void *context, struct ibv_sge
	*sgl, int nsge);
static int rdma_post_send (struct rdma_cm_id *id, void *context, void *addr,
	size_t length, struct ibv_mr *mr, int flags);
static int rdma_post_sendv (struct rdma_cm_id *id, void *context, struct ibv_sge
	*sgl, int nsge, int flags);
static int rdma_post_ud_send (struct rdma_cm_id *id, void *context, void *addr,
	size_t length, struct ibv_mr *mr, int flags, struct ibv_ah *ah, uint32_t
	remote_qpn);
static int rdma_post_write (struct rdma_cm_id *id, void *context, void *addr,
	size_t length, struct ibv_mr *mr, int flags, uint64_t remote_addr, uint32_t
	rkey);
static int rdma_post_writev (struct rdma_cm_id *id, void *context, struct
	ibv_sge *sgl, int nsge, int flags, uint64_t remote_addr, uint32_t rkey);
static struct ibv_mr *rdma_reg_msgs (struct rdma_cm_id *id, void *addr, size_t
	length);
static struct ibv_mr *rdma_reg_read (struct rdma_cm_id *id, void *addr, size_t
	length);
static struct ibv_mr *rdma_reg_write (struct rdma_cm_id *id, void *addr, size_t
	length);
extern int rdma_reject (struct rdma_cm_id *, const void *, uint8_t);
extern int rdma_reject_ece (struct rdma_cm_id *, const void *, uint8_t);
extern int rdma_resolve_addr (struct rdma_cm_id *, struct sockaddr *, struct
	sockaddr *, int);
extern int rdma_resolve_route (struct rdma_cm_id *, int);
extern int rdma_set_local_ece (struct rdma_cm_id *, struct ibv_ece *);
extern int rdma_set_option (struct rdma_cm_id *, int, int, void *, size_t);
static int rdma_seterrno (int ret);
extern int rfcntl (int, int, ...);
extern int rgetpeername (int, struct sockaddr *, socklen_t *);
extern int rgetsockname (int, struct sockaddr *, socklen_t *);
extern int rgetsockopt (int, int, int, void *, socklen_t *);
extern off_t riomap (int, void *, size_t, int, int, off_t);
extern int riounmap (int, void *, size_t);
extern size_t riowrite (int, const void *, size_t, off_t, int);
extern int rlisten (int, int);
extern int rpoll (struct pollfd *, nfds_t, int);
extern ssize_t rread (int, void *, size_t);
extern ssize_t rreadv (int, const struct iovec *, int);
extern ssize_t rrecv (int, void *, size_t, int);
extern ssize_t rrecvfrom (int, void *, size_t, int, struct sockaddr *, socklen_t
	*);
extern ssize_t rrecvmsg (int, struct msghdr *, int);
extern int rselect (int, fd_set *, fd_set *, fd_set *, struct timeval *);
extern ssize_t rsend (int, const void *, size_t, int);
extern ssize_t rsendmsg (int, const struct msghdr *, int);
extern ssize_t rsendto (int, const void *, size_t, int, const struct sockaddr *,
	socklen_t);
extern int rsetsockopt (int, int, int, const void *, socklen_t);
extern int rshutdown (int, int);
extern int rsocket (int, int, int);
extern ssize_t rwrite (int, const void *, size_t);
extern ssize_t rwritev (int, const struct iovec *, int);

int main(void)
{
	printf("ok 1 - 240 sizes, offsets and values, 86 prototypes\n1..1\n");
	return 0;
}
