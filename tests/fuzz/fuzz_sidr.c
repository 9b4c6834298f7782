/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets of the exchange of UD ids: a decoder uses no byte beyond those given, and what
 * it accepts survives encoding; only a whole packet is accepted. */
#include "cm/user/sidr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool cond)
{
	if (!cond)
		abort();
}

static void request(const uint8_t *p, size_t n)
{
	uint8_t one[SIDR_REQ_LEN], two[SIDR_REQ_LEN];
	struct sidr_req r, again;

	if (sidr_req_decode(p, n, &r))
		return;
	must(n == SIDR_REQ_LEN && r.dst_port);
	sidr_req_encode(one, &r);
	must(!sidr_req_decode(one, sizeof(one), &again));
	sidr_req_encode(two, &again);
	must(!memcmp(one, two, sizeof(one)));
}

static void reply(const uint8_t *p, size_t n)
{
	uint8_t one[SIDR_REP_LEN];
	struct sidr_rep r;

	if (sidr_rep_decode(p, n, &r))
		return;
	must(n == SIDR_REP_LEN && r.qpn <= 0xffffff);
	sidr_rep_encode(one, &r);
	must(!memcmp(one, p, n)); /* no byte of it is reserved */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t max = size < SIDR_MAX + 4 ? size : SIDR_MAX + 4;

	for (size_t n = 0; n <= max; n++) {
		uint8_t *p = malloc(n ? n : 1);
		uint64_t id = 0, quoted = 0;
		int kind;

		must(p);
		if (n)
			memcpy(p, data, n);
		kind = sidr_kind(p, n, &id);
		must(kind == -EPROTO || kind == -EPROTONOSUPPORT ||
		     (kind >= SIDR_REQ && kind <= SIDR_REP));
		must(kind != -EPROTONOSUPPORT || n >= SIDR_REP_LEN);
		if (sidr_quoted_id(p, n, &quoted))
			must(kind != SIDR_REQ || id == quoted);
		else
			must(kind != SIDR_REQ);
		request(p, n);
		reply(p, n);
		free(p);
	}
	return 0;
}
