/* SPDX-License-Identifier: BSD-2-Clause */
/* From samples to the table and the CSV files. A ratio is taken round by round
 * (the two values of one round are neighbours in time) and its median shown. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 4096 };

static struct sample *samples;
static size_t nsamples;

struct dist {
	unsigned n;
	double med, q1, q3, min, max;
};

enum sense { NONE, RATIO_GE, RATIO_LE, VALUE_LE, VALUE_LT };

struct row {
	const char *metric, *kind, *rival, *unit;
	uint32_t size;
	enum sense sense;
	double target;
};

#define STREAMS(size, sense, target) \
	{ "bandwidth", "send", "tcp", "MB/s", size, sense, target }, \
	{ "bandwidth", "write", "tcp", "MB/s", size, sense, target }, \
	{ "bandwidth", "read", "tcp", "MB/s", size, sense, target }

#define REG(size) \
	{ "register", "mr", "mlock", "ns", size, NONE, 0 }

#define REG_MIB(size) \
	{ "register per MiB", "mr", "mlock", "ns", size, NONE, 0 }

#define COST(kind) \
	{ "instructions", kind, NULL, "/call", 0, NONE, 0 }, \
	{ "system calls", kind, NULL, "/call", 0, NONE, 0 }

static const struct row rows[] = {
	STREAMS(64, NONE, 0), STREAMS(256, NONE, 0), STREAMS(1024, NONE, 0),
	STREAMS(4096, NONE, 0), STREAMS(16384, NONE, 0), STREAMS(65536, NONE, 0),
	STREAMS(262144, NONE, 0), STREAMS(1048576, RATIO_GE, 0.8),
	STREAMS(8388608, NONE, 0),
	{ "bandwidth", "tcp poll", "tcp", "MB/s", 1048576, NONE, 0 },
	{ "latency", "send", "tcp", "us", PING, RATIO_LE, 1.5 },
	{ "latency p50", "send", "tcp", "us", PING, NONE, 0 },
	{ "latency p99", "send", "tcp", "us", PING, NONE, 0 },
	{ "latency", "write", "tcp", "us", PING, NONE, 0 },
	{ "switches", "send", NULL, "/message", PING, VALUE_LT, 0.01 },
	{ "switches", "write", NULL, "/message", PING, NONE, 0 },
	{ "switches", "tcp", NULL, "/message", PING, NONE, 0 },
	{ "stream switches", "send", NULL, "/message", 64, NONE, 0 },
	{ "connections", "rc16", "tcp", "/s", 0, RATIO_GE, 0.25 },
	{ "connections", "rc", "tcp", "/s", 0, NONE, 0 },
	{ "connections", "rc", "tcp cycle", "/s", 0, NONE, 0 },
	{ "connections", "rc16", "unix16", "/s", 0, NONE, 0 },
	{ "connections", "rc", "unix", "/s", 0, NONE, 0 },
	{ "event", "ids 100000", "ids 10", "us", 0, NONE, 0 },
	{ "completion", "qps 10000", "qps 1", "us", 0, NONE, 0 },
	{ "atomics", "fadd", "read", "/s", 8, NONE, 0 },
	{ "atomics", "fadd16", "read16", "/s", 8, NONE, 0 },
	COST("poll bare"), COST("poll empty"), COST("poll hit"), COST("post recv"),
	COST("post send"), COST("post send16"),
	REG(4 << 10), REG(16 << 10), REG(64 << 10), REG(256 << 10), REG(1 << 20),
	REG(4 << 20), REG(16 << 20), REG(64 << 20), REG(256 << 20), REG(1 << 30),
	REG_MIB(4 << 10), REG_MIB(1 << 20), REG_MIB(64 << 20), REG_MIB(1 << 30),
	{ "deregister", "mr", "mlock", "ns", 4 << 10, NONE, 0 },
	{ "deregister", "mr", "mlock", "ns", 1 << 30, NONE, 0 },
	{ "memory", "rc", "tcp", "KiB", 0, VALUE_LE, 64 },
	{ "memory", "rc used", "tcp", "KiB", 0, NONE, 0 },
	{ "both", "rc", "tcp", "KiB", 0, NONE, 0 },
	{ "rss client", "rc", "tcp", "KiB", 0, NONE, 0 },
	{ "rss server", "rc", "tcp", "KiB", 0, NONE, 0 },
	{ "slab", "rc", "tcp", "KiB", 0, NONE, 0 },
	{ "slab all", "rc", NULL, "KiB", 0, NONE, 0 },
	{ "tcp buffers", "rc", NULL, "KiB", 0, NONE, 0 },
	{ "idle cpu", "rc", NULL, "ms/s", 0, NONE, 0 },
};

void report_add(const struct sample *s)
{
	struct sample *p = realloc(samples, (nsamples + 1) * sizeof(*p));

	if (!p)
		die("memory");
	samples = p;
	samples[nsamples++] = *s;
}

int report_read(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[256];
	struct sample m;

	if (!f) {
		fprintf(stderr, "bench: %s: %s\n", path, strerror(errno));
		return -1;
	}
	while (fgets(line, sizeof(line), f)) {
		memset(&m, 0, sizeof(m));
		if (sscanf(line, "%23[^,],%15[^,],%u,%u,%lf", m.metric, m.kind, &m.size,
			   &m.round, &m.value) == 5)
			report_add(&m);
	}
	fclose(f);
	return 0;
}

static const struct sample *find(const char *metric, const char *kind,
				 uint32_t size, unsigned round)
{
	for (size_t i = 0; i < nsamples; i++)
		if (!strcmp(samples[i].metric, metric) && !strcmp(samples[i].kind, kind) &&
		    samples[i].size == size && samples[i].round == round)
			return &samples[i];
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of the values, or of their ratios to the rival's. */
static struct dist dist_of(const char *metric, const char *kind, const char *rival,
			   uint32_t size)
{
	double v[MAX_ROUNDS];
	struct dist d = { 0, 0, 0, 0, 0, 0 };

	for (unsigned r = 0; r < MAX_ROUNDS; r++) {
		const struct sample *a = find(metric, kind, size, r);
		const struct sample *b = rival ? find(metric, rival, size, r) : NULL;

		if (!a || (rival && !b))
			break;
		v[d.n++] = rival ? a->value / b->value : a->value;
	}
	if (d.n == 0)
		return d;
	qsort(v, d.n, sizeof(*v), by_value);
	d.med = d.n % 2 ? v[d.n / 2] : (v[d.n / 2 - 1] + v[d.n / 2]) / 2;
	d.q1 = v[d.n / 4];
	d.q3 = v[d.n - 1 - d.n / 4];
	d.min = v[0];
	d.max = v[d.n - 1];
	return d;
}

static const char *verdict(const struct row *r, const struct dist *v,
			   const struct dist *ratio)
{
	if (!ratio->n && (r->sense == RATIO_GE || r->sense == RATIO_LE))
		return "";
	switch (r->sense) {
	case RATIO_GE:
		return ratio->med >= r->target ? "reached" : "NOT reached";
	case RATIO_LE:
		return ratio->med <= r->target ? "reached" : "NOT reached";
	case VALUE_LE:
		return v->med <= r->target ? "reached" : "NOT reached";
	case VALUE_LT:
		return v->med < r->target ? "reached" : "NOT reached";
	case NONE:
		break;
	}
	return "";
}

static void target_str(char *buf, size_t n, const struct row *r)
{
	static const char *const word[] = {
		[NONE] = "", [RATIO_GE] = ">= %g x", [RATIO_LE] = "<= %g x",
		[VALUE_LE] = "<= %g", [VALUE_LT] = "< %g",
	};

	buf[0] = '\0';
	if (r->sense != NONE)
		snprintf(buf, n, word[r->sense], r->target);
}

static void size_str(char *buf, size_t n, uint32_t size)
{
	if (size == 0)
		buf[0] = '\0';
	else if (size >= 1 << 20)
		snprintf(buf, n, "%u MiB", size >> 20);
	else if (size >= 1 << 10)
		snprintf(buf, n, "%u KiB", size >> 10);
	else
		snprintf(buf, n, "%u B", size);
}

static void print_row(FILE *f, const struct row *r)
{
	struct dist v = dist_of(r->metric, r->kind, NULL, r->size);
	struct dist rival = { 0 }, ratio = { 0 };
	char size[16], target[32];

	if (v.n == 0)
		return;
	if (r->rival) {
		rival = dist_of(r->metric, r->rival, NULL, r->size);
		ratio = dist_of(r->metric, r->kind, r->rival, r->size);
	}
	size_str(size, sizeof(size), r->size);
	target_str(target, sizeof(target), r);
	fprintf(f, "%-16s %-10s %8s %12.5g %-8s", r->metric, r->kind, size, v.med,
		r->unit);
	if (ratio.n)
		fprintf(f, " %10.5g %7.3g %7.3g..%-7.3g", rival.med, ratio.med,
			ratio.q1, ratio.q3);
	else
		fprintf(f, " %10s %7s %7.4g..%-7.4g", "", "", v.q1, v.q3);
	fprintf(f, " %-9s %s\n", target, verdict(r, &v, &ratio));
}

/* The rival's own unrest says how much a difference must be to mean something. */
static void print_noise(FILE *f, const char *lead, const struct noise *n)
{
	struct dist bw = dist_of("bandwidth", "tcp", NULL, 1 << 20);
	struct dist lat = dist_of("latency", "tcp", NULL, PING);
	struct dist con = dist_of("connections", "tcp", NULL, 0);

	fprintf(f, "%snoise: raw TCP alone, (max - min) / median over the rounds: "
		"bandwidth at 1 MiB %.0f %%, latency %.0f %%, connections %.0f %%\n",
		lead, bw.n ? (bw.max - bw.min) / bw.med * 100 : 0,
		lat.n ? (lat.max - lat.min) / lat.med * 100 : 0,
		con.n ? (con.max - con.min) / con.med * 100 : 0);
	fprintf(f, "%snoise: load average %.2f at the start; CPUs used by others %.2f; "
		"stolen %.1f %%; run took %.0f s\n", lead, n->load, n->others,
		n->steal * 100, n->seconds);
}

static void print_meta(FILE *f, const char *lead, const struct opts *o)
{
	for (unsigned i = 0; i < o->nmeta; i++)
		fprintf(f, "%s%s\n", lead, o->meta[i]);
	fprintf(f, "%srounds=%u slot_ms=%u conns=%u idle=%u address=%s cpus=%d,%d\n",
		lead, o->rounds, o->slot_ms, o->conns, o->idle, o->addr, o->cpu[0],
		o->cpu[1]);
}

void report_print(FILE *f, const struct opts *o, const struct noise *n)
{
	print_meta(f, "", o);
	fprintf(f, "\n%-16s %-10s %8s %12s %-8s %10s %7s %16s %-9s\n", "measure", "kind",
		"size", "median", "unit", "rival", "ratio", "quartiles   ", "target");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		print_row(f, &rows[i]);
	fprintf(f, "\nQuartiles are of the ratio, or of the value where there is no "
		"rival. Memory is per side and idle\nconnection: resident memory of the "
		"larger side plus half the kernel's for both ends.\nThe rival is raw "
		"TCP; that of atomics a read of 8 bytes, that of registrations mlock.\n");
	print_noise(f, "", n);
}

static FILE *create(const struct opts *o, const struct noise *n, const char *name)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", o->out, name);
	f = fopen(path, "w");
	if (!f) {
		fprintf(stderr, "bench: %s: %s\n", path, strerror(errno));
		return NULL;
	}
	print_meta(f, "# ", o);
	print_noise(f, "# ", n);
	return f;
}

static void write_summary(FILE *f)
{
	fprintf(f, "metric,kind,size,unit,rounds,median,q1,q3,min,max,rival_median,"
		"ratio_median,ratio_q1,ratio_q3,target,verdict\n");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct row *r = &rows[i];
		struct dist v = dist_of(r->metric, r->kind, NULL, r->size);
		struct dist rival = { 0 }, ratio = { 0 };
		char target[32];

		if (v.n == 0)
			continue;
		if (r->rival) {
			rival = dist_of(r->metric, r->rival, NULL, r->size);
			ratio = dist_of(r->metric, r->kind, r->rival, r->size);
		}
		target_str(target, sizeof(target), r);
		fprintf(f, "%s,%s,%u,%s,%u,%g,%g,%g,%g,%g,%g,%g,%g,%g,%s,%s\n",
			r->metric, r->kind, r->size, r->unit, v.n, v.med, v.q1, v.q3,
			v.min, v.max, rival.med, ratio.med, ratio.q1, ratio.q3, target,
			verdict(r, &v, &ratio));
	}
}

/* Wide, for the plots: size, then median, q1, q3 of each kind, then the ratios. */
static void write_bandwidth(FILE *f)
{
	static const char *const kind[] = { "tcp", "send", "write", "read" };

	fprintf(f, "size");
	for (int k = 0; k < 4; k++)
		fprintf(f, ",%s,%s_q1,%s_q3", kind[k], kind[k], kind[k]);
	fprintf(f, ",send_ratio,write_ratio,read_ratio\n");
	for (uint32_t size = 64; size <= MAX_MSG; size *= 2) {
		struct dist d = dist_of("bandwidth", "tcp", NULL, size);

		if (d.n == 0)
			continue;
		fprintf(f, "%u", size);
		for (int k = 0; k < 4; k++) {
			d = dist_of("bandwidth", kind[k], NULL, size);
			fprintf(f, ",%g,%g,%g", d.med, d.q1, d.q3);
		}
		for (int k = 1; k < 4; k++)
			fprintf(f, ",%g", dist_of("bandwidth", kind[k], "tcp", size).med);
		fprintf(f, "\n");
	}
}

/* For the plot, as above. */
static void write_registration(FILE *f)
{
	static const char *const metric[] = { "register", "deregister" };
	static const char *const kind[] = { "mr", "mlock" };

	fprintf(f, "size");
	for (int i = 0; i < 4; i++)
		fprintf(f, ",%s_%s,%s_%s_q1,%s_%s_q3", metric[i / 2], kind[i % 2],
			metric[i / 2], kind[i % 2], metric[i / 2], kind[i % 2]);
	fprintf(f, ",register_mr_per_mib\n");
	for (uint64_t size = 4096; size <= 1 << 30; size *= 4) {
		if (dist_of("register", "mr", NULL, (uint32_t)size).n == 0)
			continue;
		fprintf(f, "%u", (uint32_t)size);
		for (int i = 0; i < 4; i++) {
			struct dist d = dist_of(metric[i / 2], kind[i % 2], NULL,
						(uint32_t)size);

			if (d.n)
				fprintf(f, ",%g,%g,%g", d.med, d.q1, d.q3);
			else
				fprintf(f, ",,,");
		}
		fprintf(f, ",%g\n",
			dist_of("register per MiB", "mr", NULL, (uint32_t)size).med);
	}
}

int report_write(const struct opts *o, const struct noise *n)
{
	FILE *all = create(o, n, "samples.csv");
	FILE *sum = create(o, n, "summary.csv");
	FILE *bw = create(o, n, "bandwidth.csv");
	FILE *reg = create(o, n, "registration.csv");
	FILE *txt = create(o, n, "table.txt");

	if (!all || !sum || !bw || !reg || !txt)
		return -1;
	fprintf(all, "metric,kind,size,round,value\n");
	for (size_t i = 0; i < nsamples; i++)
		fprintf(all, "%s,%s,%u,%u,%g\n", samples[i].metric, samples[i].kind,
			samples[i].size, samples[i].round, samples[i].value);
	write_summary(sum);
	write_bandwidth(bw);
	write_registration(reg);
	report_print(txt, o, n);
	return fclose(all) | fclose(sum) | fclose(bw) | fclose(reg) |
	       fclose(txt);
}
