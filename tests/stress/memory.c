/* SPDX-License-Identifier: BSD-2-Clause */
/* Does memory grow? What is resident, sampled each second, goes up and down with the messages
 * under way; so what counts is the least of a window. The first one ends after a fifth of the
 * time, when caches and buffers have been filled, the second one is at the end. */
#include "memory.h"

#include <stdio.h>
#include <string.h>

enum { FIFTHS = 5, WINDOW = 20 /* of the time, one such part */ };

/* KiB; without the file in which the sides tell each other what they do: it is the test's own,
 * and its pages are touched one by one. 0: the process is gone. */
static uint64_t resident(pid_t pid)
{
	char path[40], line[512];
	bool count = true;
	uint64_t sum = 0;
	unsigned long n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Rss: %lu kB", &n) == 1)
			sum += count ? n : 0;
		else if (sscanf(line, "%lx-%*x ", &n) == 1)
			count = !strstr(line, "memfd:stress");
	}
	fclose(f);
	return sum;
}

static void least(uint64_t *to, uint64_t kib)
{
	if (!*to || kib < *to)
		*to = kib;
}

void memory_sample(struct memory *m, int side, pid_t pid, uint64_t ms, uint64_t of)
{
	uint64_t kib;

	if (!m->limit || ms < m->next[side] || ms >= of)
		return;
	m->next[side] = ms + 1000;
	kib = resident(pid);
	if (!kib)
		return;
	if (m->verbose && ms / 30000 != m->said[side]) {
		m->said[side] = ms / 30000;
		printf("# side %d after %3llu s: %llu KiB\n", side,
		       (unsigned long long)ms / 1000, (unsigned long long)kib);
	}
	if (ms < of / FIFTHS && ms + of / WINDOW >= of / FIFTHS)
		least(&m->before[side], kib);
	if (ms + of / WINDOW >= of)
		least(&m->after[side], kib);
}

bool memory_good(const struct memory *m)
{
	bool good = true;

	for (int i = 0; m->limit && i < 2; i++) {
		if (!m->next[i]) /* both sides are one process */
			continue;
		printf("# side %d: %llu KiB resident after a fifth of the time, %llu at the end\n",
		       i, (unsigned long long)m->before[i], (unsigned long long)m->after[i]);
		good &= m->before[i] && m->after[i] &&
			m->after[i] <= m->before[i] + m->limit;
	}
	if (!good)
		fprintf(stderr, "# it may grow by %u KiB\n", m->limit);
	return good;
}
