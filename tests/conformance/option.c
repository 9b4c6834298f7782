/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_set_option: every level and name, right and wrong lengths and states. */
#include "conf.h"

static struct rdma_event_channel *ch;

static struct rdma_cm_id *new_id(void)
{
	if (!ch)
		ch = conf_channel();
	return conf_id(ch);
}

static int set(struct rdma_cm_id *id, int name, int value)
{
	return rdma_set_option(id, RDMA_OPTION_ID, name, &value, sizeof(value));
}

static int set8(struct rdma_cm_id *id, int name, uint8_t value)
{
	return rdma_set_option(id, RDMA_OPTION_ID, name, &value, 1);
}

static void type_of_service(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa dst = conf_addr(AF_INET, 7000);

	OK(set8(id, RDMA_OPTION_ID_TOS, 0x20));
	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(set8(id, RDMA_OPTION_ID_TOS, 0x40)); /* any state */
	ERR(set(id, RDMA_OPTION_ID_TOS, 1), EINVAL); /* four bytes */
	conf_id_close(id);
}

static void reuse_address(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa addr = conf_addr(AF_INET, 0);

	OK(set(id, RDMA_OPTION_ID_REUSEADDR, 1));
	OK(set(id, RDMA_OPTION_ID_REUSEADDR, 0)); /* while idle */
	ERR(set8(id, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);
	OK(rdma_bind_addr(id, SA(addr)));
	OK(set(id, RDMA_OPTION_ID_REUSEADDR, 1));
	ERR(set(id, RDMA_OPTION_ID_REUSEADDR, 0), EINVAL);
	conf_id_close(id);
}

static void reuse_address_of_a_listener(void)
{
	struct rdma_cm_id *id;

	ch = conf_channel();
	id = conf_listen(ch, AF_INET, 1);
	ERR(set(id, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);
	conf_id_close(id);
}

static void one_family_only(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa dst = conf_addr(AF_INET, 7000);

	OK(set(id, RDMA_OPTION_ID_AFONLY, 1));
	ERR(set8(id, RDMA_OPTION_ID_AFONLY, 1), EINVAL);
	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	ERR(set(id, RDMA_OPTION_ID_AFONLY, 1), EINVAL);
	conf_id_close(id);
}

static void ack_timeout_lengths(void)
{
	struct rdma_cm_id *id = new_id(), *ud;

	OK(set8(id, RDMA_OPTION_ID_ACK_TIMEOUT, 14));
	ERR(set(id, RDMA_OPTION_ID_ACK_TIMEOUT, 14), EINVAL);
	OK(rdma_create_id(ch, &ud, NULL, RDMA_PS_UDP));
	ERR(set8(ud, RDMA_OPTION_ID_ACK_TIMEOUT, 14), EINVAL);
	OK(rdma_destroy_id(ud));
	conf_id_close(id);
}

static void prepare(struct rdma_cm_id *id, bool active)
{
	OK(set8(id, RDMA_OPTION_ID_ACK_TIMEOUT, active ? 15 : 18));
}

static void ack_timeout_reaches_the_qp(void)
{
	struct conf_opt opt = { .prepare = prepare };
	struct ibv_qp_attr attr;
	struct conf_pair c;

	conf_pair_open(&c, &opt);
	conf_qp_query(c.a->qp, &attr);
	EQ(attr.timeout, 15);
	conf_qp_query(c.p->qp, &attr);
	EQ(attr.timeout, 18);
	conf_pair_close(&c);
}

static void unknown(void)
{
	struct rdma_cm_id *id = new_id();
	int v = 1;

	ERR(rdma_set_option(id, 7, 0, &v, sizeof(v)), ENOSYS);
	ERR(rdma_set_option(id, RDMA_OPTION_ID, 99, &v, sizeof(v)), ENOSYS);
	ERR(rdma_set_option(id, RDMA_OPTION_IB, 99, &v, sizeof(v)), ENOSYS);
	conf_id_close(id);
}

static void null_arguments(void)
{
	struct rdma_cm_id *id;
	int v = 1;

	if (conf_original())
		SKIP("crashes the original");
	id = new_id();
	ERR(rdma_set_option(NULL, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &v, 1), EINVAL);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1) == -1);
	conf_id_close(id);
}

static struct ibv_path_data path_of(struct rdma_cm_id *id)
{
	struct ibv_path_data d = {
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY |
			 IBV_PATH_FLAG_OUTBOUND | IBV_PATH_FLAG_INBOUND_REVERSE,
	};

	d.path.sgid = id->route.addr.addr.ibaddr.sgid;
	d.path.dgid = id->route.addr.addr.ibaddr.dgid;
	d.path.pkey = 0xffff;
	d.path.reversible_numpath = 0x80 | 1;
	d.path.mtu = 0x80 | IBV_MTU_1024;
	d.path.rate = 0x80 | 2;
	d.path.packetlifetime = 0x80 | 16;
	return d;
}

static void path_in_wrong_states(void)
{
	struct rdma_cm_id *id = new_id();
	struct ibv_path_data d = path_of(id);

	ERR(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &d, sizeof(d)), EINVAL);
	conf_id_close(id);
}

static void path_with_bad_length(void)
{
	struct rdma_cm_id *id;
	struct ibv_path_data d;

	ch = conf_channel();
	id = conf_addr_resolved(ch, conf_addr(AF_INET, 7000));
	d = path_of(id);
	ERR(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &d, sizeof(d) - 1),
	    EINVAL);
	d.flags = IBV_PATH_FLAG_GMP;
	ERR(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &d, sizeof(d)), EINVAL);
	conf_id_close(id);
}

static const struct conf_case cases[] = {
	CASE(type_of_service),
	CASE(reuse_address),
	CASE(reuse_address_of_a_listener),
	CASE(one_family_only),
	CASE(ack_timeout_lengths),
	CASE(ack_timeout_reaches_the_qp),
	CASE(unknown),
	CASE(null_arguments),
	CASE(path_in_wrong_states),
	CASE(path_with_bad_length),
};

CONF_MAIN(cases)
