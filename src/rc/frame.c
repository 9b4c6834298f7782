/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc/frame.h"

static const char *const op_names[16] = {
	[RC_WRITE] = "write",
	[RC_READ_REQ] = "read request",
	[RC_READ_RESP] = "read response",
	[RC_SEND] = "send",
	[RC_SEND_INV] = "send inv",
	[RC_SEND_SE] = "send se",
	[RC_SEND_SE_INV] = "send se inv",
	[RC_TERMINATE] = "terminate",
	[RC_IMM] = "imm",
	[RC_IMM_SE] = "imm se",
	[RC_ATOMIC_REQ] = "atomic request",
	[RC_ATOMIC_RESP] = "atomic response",
	[RC_CTL] = "control",
};

const char *rc_op_str(enum rc_op op)
{
	return (unsigned)op < 16 && op_names[op] ? op_names[op] : "unknown";
}
