/* SPDX-License-Identifier: BSD-2-Clause */
#include "ud/count.h"

#include "base/state.h"
#include "dev/traffic.h"

#include <stddef.h>

static _Atomic uint64_t counters[UD_COUNTERS] PROCESS_STATE;

void ud_count_n(enum ud_counter which, uint64_t n)
{
	atomic_fetch_add_explicit(&counters[which], n, memory_order_relaxed);
	if (atomic_load_explicit(&traffic_awaited_, memory_order_relaxed))
		traffic_tell();
}

uint64_t ud_counter_read(enum ud_counter which)
{
	return (unsigned)which < UD_COUNTERS ?
		       atomic_load_explicit(&counters[which], memory_order_relaxed) :
		       0;
}

const char *ud_counter_name(enum ud_counter which)
{
	static const char *const names[UD_COUNTERS] = {
		[UD_SENT] = "ud_sent",
		[UD_RECEIVED] = "ud_received",
		[UD_LOST_SEND] = "ud_lost_send",
		[UD_DROP_FORMAT] = "ud_drop_format",
		[UD_DROP_CRC] = "ud_drop_crc",
		[UD_DROP_SOURCE] = "ud_drop_source",
		[UD_DROP_ADDRESS] = "ud_drop_address",
		[UD_DROP_NO_QP] = "ud_drop_no_qp",
		[UD_DROP_STATE] = "ud_drop_state",
		[UD_DROP_QKEY] = "ud_drop_qkey",
		[UD_DROP_NO_RECV] = "ud_drop_no_recv",
		[UD_DROP_LENGTH] = "ud_drop_length",
		[UD_DROP_MEMORY] = "ud_drop_memory",
	};

	return (unsigned)which < UD_COUNTERS ? names[which] : NULL;
}
