/* SPDX-License-Identifier: BSD-2-Clause */
/* What a peer that is the test program asks of a QP, and what it is answered. */
#ifndef ANYRDMA_RC_ASK_TEST_H
#define ANYRDMA_RC_ASK_TEST_H

#include "rc/end_test.h"

enum { MANY = 10000, AT = 1 << 20 }; /* where peers write, in the region */

static T_UNUSED struct rc_frame send_of(uint32_t msn, uint32_t len)
{
	return (struct rc_frame){
		.op = RC_SEND, .last = true, .msn = msn, .payload = len
	};
}

static T_UNUSED struct rc_frame write_of(uint32_t off, uint32_t len)
{
	return (struct rc_frame){ .op = RC_WRITE,
				  .last = true,
				  .stag = mr->rkey,
				  .to = (uintptr_t)mem + off,
				  .payload = len };
}

static T_UNUSED struct rc_frame read_of(uint32_t msn, uint32_t len)
{
	struct rc_frame f = { .op = RC_READ_REQ, .last = true, .msn = msn };

	f.read.sink_stag = 0x900 + msn;
	f.read.size = len;
	f.read.src_stag = mr->rkey;
	f.read.src_to = (uintptr_t)mem + AT;
	return f;
}

static T_UNUSED struct rc_frame add_of(uint32_t msn, uint32_t off)
{
	struct rc_frame f = { .op = RC_ATOMIC_REQ, .last = true, .msn = msn };

	f.atomic.opcode = RC_FETCH_ADD;
	f.atomic.id = 0x800 + msn;
	f.atomic.stag = mr->rkey;
	f.atomic.to = (uintptr_t)mem + off;
	f.atomic.add_swap = 1;
	return f;
}

static T_UNUSED void say(struct end *e, struct rc_frame f)
{
	fake_say(e->p, &f, NULL);
}

static T_UNUSED void say_send(struct end *e, uint32_t msn, uint32_t len)
{
	say(e, send_of(msn, len));
}

static T_UNUSED void say_imm(struct end *e, uint32_t msn)
{
	struct rc_frame f = { .op = RC_IMM, .last = true, .msn = msn };

	f.imm.imm = 0x1234;
	f.imm.kind = IMM_PREFIX;
	say(e, f);
}

/* The requester goes on with this request, and these message numbers. */
static T_UNUSED void say_resync(struct end *e, uint32_t number, uint32_t msn0, uint32_t msn1)
{
	struct rc_frame f = { .op = RC_CTL, .last = true };

	f.ctl.type = CTL_RESYNC;
	f.ctl.number = number;
	f.ctl.msn0 = msn0;
	f.ctl.msn1 = msn1;
	say(e, f);
}

static T_UNUSED bool hear_nak(struct end *e, enum nak_code code, uint32_t number)
{
	const struct fake_frame *f = hear_ctl(e, CTL_NAK, number);

	return f && CHECK_EQ(f->f.ctl.code, code);
}

/* A receive has completed so. */
static T_UNUSED bool received(struct end *e, uint64_t id, enum ibv_wc_opcode op, uint32_t len)
{
	struct ibv_wc wc = { 0 };

	return CHECK_EQ(ibv_poll_cq(e->cq, 1, &wc), 1) &&
	       CHECK_EQ(wc.status, IBV_WC_SUCCESS) && CHECK_EQ(wc.wr_id, id) &&
	       CHECK_EQ(wc.opcode, op) && CHECK_EQ(wc.byte_len, len);
}

/* The request is refused with this code, the QP fails with this event. */
static T_UNUSED void refused(struct end *e, struct rc_frame f, enum nak_code code, int event)
{
	say(e, f);
	CHECK(hear_nak(e, code, RQ_PSN));
	CHECK_EQ(state_of(e), IBV_QPS_ERR);
	CHECK_EQ(next_event(), event);
	say_send(e, 1, 0);
	CHECK(quiet(e)); /* discarded, until RESYNC */
	say_resync(e, RQ_PSN, 1, 1);
	say_send(e, 1, 0);
	CHECK(hear_nak(e, NAK_NO_QP, RQ_PSN));
	end_free(e);
}

#endif
