/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of keys that the peer of fuzz_shm offers: memory of this process, some that is
 * mapped nowhere, and some that must not be accessed. Included once, behind victim.h. */
#ifndef ANYRDMA_FUZZ_OFFERED_H
#define ANYRDMA_FUZZ_OFFERED_H

#include "dev/share.h"
#include "must.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	SOURCE = 0x20000,  /* of what the library fetches */
	KEY_GOOD = 0x177,
	KEY_UNMAPPED = 0x277,
	KEY_OTHER_PD = 0x377,
	KEY_WINDOW = 0x477,
	KEY_HUGE = 0x577,
	PEER_PD = 7,
};
#define PEER_SHARE_ID (1ull << 32 | 1)

static uint8_t source[REGION];

static void publish(struct share_table *t, uint32_t key, uint64_t len, void *addr,
		    uint64_t pd, uint32_t access)
{
	t->key[key >> 8] = (struct share_key){ .key = key, .access = access, .iova = SOURCE,
					       .len = len, .addr = (uintptr_t)addr, .pd = pd };
}

static struct share_table *offered; /* mapped with the first table_fd() */

static void table_fill(void)
{
	struct share_table *t = offered;

	t->version = SHARE_VERSION;
	t->key_xor = 0;
	t->key_inv = 1;
	t->qp[0].word = (PEER_SHARE_ID >> 32 << 32) | SHARE_SEND;
	t->qp[0].pd = PEER_PD;
	t->qp[0].psn = 0;
	publish(t, KEY_GOOD, REGION, source, PEER_PD, SHARE_REGION);
	publish(t, KEY_UNMAPPED, REGION, (void *)0x1000, PEER_PD, SHARE_REGION);
	publish(t, KEY_OTHER_PD, REGION, source, PEER_PD + 1, SHARE_REGION);
	publish(t, KEY_WINDOW, REGION, source, PEER_PD, IBV_ACCESS_REMOTE_READ);
	publish(t, KEY_HUGE, UINT64_MAX, (void *)-64, PEER_PD, SHARE_REGION);
}

/* The table's descriptor. */
static int table_fd(void)
{
	static int fd = -1;

	if (fd >= 0)
		return fd;
	fd = memfd_create("fuzz keys", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	MUST(fd >= 0 && !ftruncate(fd, sizeof(*offered)));
	offered = mmap(NULL, sizeof(*offered), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(offered != MAP_FAILED);
	MUST(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL));
	table_fill();
	memset(source, 0x77, sizeof(source));
	return fd;
}

/* A byte of the table of keys that decides which memory is accessed. Not one that gives
 * rights: what the library would write then is memory of this very process. */
static uint8_t *table_byte(uint32_t x)
{
	struct share_key *k = &offered->key[(x & 1 ? KEY_GOOD : KEY_HUGE) >> 8];
	void *at[] = { &k->iova, &k->len, &k->addr, &k->pd, &offered->qp[0].pd,
		       &offered->key_xor, &offered->key_inv };
	const size_t n = sizeof(at) / sizeof(*at);

	return (uint8_t *)at[(x >> 1) % n] + (x >> 8 & 3);
}

#endif
