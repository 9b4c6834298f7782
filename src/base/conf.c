/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/conf.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct row {
	const char *name;
	const char *def;
	const char *help;
	/* Stores the value of text; false when it means nothing. NULL: the
	 * variable is read elsewhere (log.c). */
	bool (*parse)(const struct row *row, const char *text);
	void *to;
	uint32_t min, max;	/* of numbers */
	const char *off, *on;	/* words of a switch */
	const char *const *words; /* of a choice: stores which one, as uint32_t */
};

static struct conf conf;

static bool parse_text(const struct row *row, const char *text)
{
	*(const char **)row->to = *text ? text : NULL;
	return true;
}

static bool parse_switch(const struct row *row, const char *text)
{
	if (strcmp(text, row->on) && strcmp(text, row->off))
		return false;
	*(bool *)row->to = !strcmp(text, row->on);
	return true;
}

static bool parse_number(const struct row *row, const char *text)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || v < row->min ||
	    v > row->max)
		return false;
	*(uint32_t *)row->to = (uint32_t)v;
	return true;
}

static bool parse_choice(const struct row *row, const char *text)
{
	for (uint32_t i = 0; row->words[i]; i++) {
		if (!strcmp(text, row->words[i])) {
			*(uint32_t *)row->to = i;
			return true;
		}
	}
	return false;
}

static const char *const directs[] = { "auto", "on", "mem", "off", NULL };
static const char *const files[] = { "auto", "namespace", "preload", "off", NULL };
static const char *const transports[] = { "auto", "tcp", "shm", NULL };

#define CHOICE(field, list) .parse = parse_choice, .to = &conf.field, .words = (list)
#define NUMBER(field, lo, hi) .parse = parse_number, .to = &conf.field, .min = (lo), .max = (hi)
#define SWITCH(field, no, yes) .parse = parse_switch, .to = &conf.field, .off = (no), .on = (yes)

/* Sorted by name. Each row stands in man/anyrdma.7.scd with the same default. */
static const struct row table[] = {
	{ "ANYRDMA_ADDR", "",
	  "comma-separated local addresses or interfaces: the GID table holds these alone. With "
	  "several devices lists between semicolons, one for each",
	  .parse = parse_text, .to = &conf.addr },
	{ "ANYRDMA_CM_REPLY_MS", "5000",
	  "milliseconds to wait for the peer's answer to a connection request",
	  NUMBER(cm_reply_ms, 1, 3600000) },
	{ "ANYRDMA_CM_RETRIES", "15",
	  "how often a request that met a full backlog is offered again",
	  NUMBER(cm_retries, 0, 1000) },
	{ "ANYRDMA_CM_RETRY_MS", "4000",
	  "milliseconds between two such offers",
	  NUMBER(cm_retry_ms, 1, 3600000) },
	{ "ANYRDMA_CRC", "off",
	  "on: protect every frame with CRC32C; off: leave it to TCP's checksum",
	  SWITCH(crc, "off", "on") },
	{ "ANYRDMA_DEVICES", "1",
	  "how many devices there are, at most 8",
	  NUMBER(devices, 1, 8) },
	{ "ANYRDMA_DIRECT", "auto",
	  "processes of this host access each other's memory directly. auto: where the kernel "
	  "lets them; mem: likewise, by /proc/PID/mem alone; on: who sets it on both sides need "
	  "not ask the kernel; off: never",
	  CHOICE(direct, directs) },
	{ "ANYRDMA_FILES", "auto",
	  "how anyrdma run shows /sys/class/infiniband and /dev/infiniband. namespace: mounted "
	  "in a namespace; preload: by a library in front of libc; auto: the first that is "
	  "permitted; off: not",
	  CHOICE(files, files) },
	{ "ANYRDMA_GUARD", "on",
	  "on: survive registered memory that was unmapped, by a handler for SIGSEGV and "
	  "SIGBUS where there is none; off: leave the signals alone",
	  SWITCH(guard_off, "on", "off") },
	{ "ANYRDMA_LINK", "ethernet",
	  "link layer of the ports. ethernet: GIDs are addresses, as of RoCE v2; ib: InfiniBand, "
	  "with LIDs that follow from IPv4 addresses",
	  SWITCH(link_ib, "ethernet", "ib") },
	{ "ANYRDMA_LOG", "error",
	  "error, warn, info or debug, and after a colon the file to append to",
	  .parse = NULL },
	{ "ANYRDMA_NAME", "",
	  "names of the devices instead of anyrdma0 and so on, comma-separated; one name counts up",
	  .parse = parse_text, .to = &conf.name },
	{ "ANYRDMA_NOFILE", "raise",
	  "raise: lift RLIMIT_NOFILE to its hard limit; keep: leave it alone",
	  SWITCH(nofile_keep, "raise", "keep") },
	{ "ANYRDMA_PAGES", "ask",
	  "ask: whether pages of much payload are in memory (mincore), and wait in a thread "
	  "of their own for those that are not; trust: that they are",
	  SWITCH(pages_trust, "ask", "trust") },
	{ "ANYRDMA_PORTS", "mapped",
	  "mapped: RDMA port p is TCP port 1024 + (p + 10007) mod 64512; identity: "
	  "TCP port p, for iWARP peers",
	  SWITCH(ports_identity, "mapped", "identity") },
	{ "ANYRDMA_RCVBUF", "0",
	  "SO_RCVBUF of data connections in bytes; 0 leaves it to the kernel",
	  NUMBER(rcvbuf, 0, 1u << 30) },
	{ "ANYRDMA_SNDBUF", "0",
	  "SO_SNDBUF of data connections in bytes; 0 leaves it to the kernel",
	  NUMBER(sndbuf, 0, 1u << 30) },
	{ "ANYRDMA_SOCKETS_AFTER", "8",
	  "reads and writes of a connection before `anyrdma run --sockets` moves it from TCP; "
	  "0: none is moved",
	  NUMBER(sockets_after, 0, 1u << 20) },
	{ "ANYRDMA_STRICT_TIMEOUT", "0",
	  "1: the silence of a stopped peer process counts as that of a dead host",
	  SWITCH(strict_timeout, "0", "1") },
	{ "ANYRDMA_TRANSPORT", "auto",
	  "auto: shared memory between processes of one host, else TCP; tcp: always TCP; "
	  "shm: raw queue pairs use nothing else",
	  CHOICE(transport, transports) },
	{ "ANYRDMA_UC_LATE_MS", "50",
	  "milliseconds that a message of a UC QP waits for a receive before it is "
	  "dropped; 0: none, as on hardware",
	  NUMBER(uc_late_ms, 0, 60000) },
};

#define ROWS (sizeof(table) / sizeof(table[0]))

static pthread_once_t conf_once = PTHREAD_ONCE_INIT;
static atomic_bool conf_ready;

static void conf_read(void)
{
	const char **texts[] = { &conf.addr, &conf.name };

	for (const struct row *row = table; row < table + ROWS; row++) {
		const char *text = secure_getenv(row->name);

		if (!row->parse)
			continue;
		row->parse(row, row->def);
		if (text && *text && !row->parse(row, text))
			log_error("%s=%s: not a value I know (%s); using %s",
				  row->name, text, row->help, row->def);
	}
	/* The environment may be rewritten by the application later. */
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char *copy = *texts[i] ? strdup(*texts[i]) : NULL;

		if (copy)
			*texts[i] = copy;
	}
	atomic_store_explicit(&conf_ready, true, memory_order_release);
}

const struct conf *conf_get(void)
{
	if (!atomic_load_explicit(&conf_ready, memory_order_acquire))
		pthread_once(&conf_once, conf_read);
	return &conf;
}

bool conf_row(unsigned i, const char **name, const char **def, const char **help)
{
	if (i >= ROWS)
		return false;
	*name = table[i].name;
	*def = table[i].def;
	*help = table[i].help;
	return true;
}
