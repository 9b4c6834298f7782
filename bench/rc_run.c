/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench.h"

#include <errno.h>
#include <string.h>

enum { WINDOW_BYTES = 16 << 20, MAX_BATCH = 16, SIGNAL_EVERY = 32 };

/* As many WRs as bytes allow are under way, a quarter of them posted at a time
 * and answered by one completion. */
void rc_stream_tx(struct rc *rc, enum ibv_wr_opcode op, size_t size, uint64_t count)
{
	uint64_t end = rc->posted + count;
	uint64_t window = WINDOW_BYTES / size;
	uint64_t batch;

	if (window > SQ_DEPTH)
		window = SQ_DEPTH;
	if (window < 4)
		window = 4;
	batch = window / 4 < MAX_BATCH ? window / 4 : MAX_BATCH;
	while (rc->done < end) {
		while (rc->posted < end && rc->posted - rc->done + batch <= window) {
			uint64_t n = end - rc->posted;

			rc_post(rc, op, size, (unsigned)(n < batch ? n : batch));
		}
		rc_poll(rc);
	}
}

void rc_stream_rx(struct rc *rc, uint64_t count)
{
	uint64_t end = rc->received + count;

	while (rc->received < end)
		if (rc_poll(rc))
			rc_refill(rc);
}

static void wait_ping(struct rc *rc, uint64_t seq)
{
	uint64_t want = rc->received + 1;
	uint64_t w;

	while (rc->received < want)
		rc_poll(rc);
	memcpy(&w, rc->buf, sizeof(w));
	if (w != seq) {
		errno = EBADMSG;
		die("send ping-pong content");
	}
}

static void send_ping(struct rc *rc, uint64_t seq, bool last)
{
	memcpy(rc->buf + MAX_MSG, &seq, sizeof(seq));
	rc_post_ping(rc, IBV_WR_SEND, last || seq % SIGNAL_EVERY == 0);
}

/* A received ping lies at buf until the answer to it has been answered, so one
 * place serves all receives. */
void rc_ping(struct rc *rc, uint64_t count, uint32_t *rtt)
{
	double t = now_s();

	for (uint64_t i = 0; i < count; i++) {
		double u;

		send_ping(rc, i, i + 1 == count);
		wait_ping(rc, i);
		rc_refill(rc);
		u = now_s();
		rtt[i] = (uint32_t)((u - t) * 1e9);
		t = u;
	}
}

void rc_pong(struct rc *rc, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		wait_ping(rc, i);
		send_ping(rc, i, i + 1 == count);
		rc_refill(rc);
	}
}

static uint8_t mark(uint64_t i)
{
	return (uint8_t)(i % 255 + 1);
}

static void spin_mark(struct rc *rc, uint64_t i)
{
	const volatile uint8_t *last = rc->buf + PING - 1;

	while (*last != mark(i))
		;
}

static void write_mark(struct rc *rc, uint64_t i)
{
	rc->buf[MAX_MSG + PING - 1] = mark(i);
	rc_post_ping(rc, IBV_WR_RDMA_WRITE, true);
	while (rc->done < rc->posted)
		rc_poll(rc);
}

/* One-sided, as latency tools do it: the target does not poll a queue but spins
 * on the last byte written. */
void rc_write_ping(struct rc *rc, uint64_t count, uint32_t *rtt)
{
	double t = now_s();

	for (uint64_t i = 0; i < count; i++) {
		double u;

		write_mark(rc, i);
		spin_mark(rc, i);
		u = now_s();
		rtt[i] = (uint32_t)((u - t) * 1e9);
		t = u;
	}
}

void rc_write_pong(struct rc *rc, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		spin_mark(rc, i);
		write_mark(rc, i);
	}
}
