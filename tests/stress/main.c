/* SPDX-License-Identifier: BSD-2-Clause */
/* Random operations on many QPs, checked against a model of what may happen.
 *
 *	stress [--seed N] [--seconds S] [--qps N] [--threads N] [--procs 1|2] ...
 *
 * --help lists the rest. The seed decides what every QP does, in which order, and
 * how it ends; not when. One TAP case; what went wrong is on stderr. */
#include "memory.h"
#include "stress.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
	"stress: random operations on many QPs, checked against a model\n"
	"  --seed N       repeat the run with this seed (default: a new one)\n"
	"  --seconds S    how long (10)\n"
	"  --qps N        pairs of QPs (16)\n"
	"  --threads N    posting and polling threads of each side (3)\n"
	"  --procs 1|2    both sides in one process, or two processes (1)\n"
	"  --kill-ms N    two processes: one is killed about so often (1500; 0: never)\n"
	"  --max-size N   of a message, in bytes (67108864)\n"
	"  --budget N     bytes a QP may send for each request (65536)\n"
	"  --stall S      seconds without progress that count as a hang (30)\n"
	"  --cqs N, --srqs N, --tokens N  of a side (4, 2, 2; tokens: large messages at once)\n"
	"  --addr A       IPv4 address of the device (127.0.0.1)\n"
	"  --links cm|raw only links by the CM, or only without\n"
	"  --types T      only QPs of this type: rc, uc, ud, xrc; noud: all but datagrams\n"
	"  --datagram N   the longest, in bytes (1024)\n"
	"  --plain        no extended QPs and CQs, no windows, no SQD\n"
	"  --skip A,B     leave out operations, faults or kills by name\n"
	"  --clean        no faults and no kills of QPs\n"
	"  --grow KIB     fail if a process is larger at the end than after a fifth of the\n"
	"                 time by more than that; kills no process\n"
	"  --show L:G     print what link L does in generation G, and do nothing\n"
	"Environment: T_SCALE multiplies --stall.\n";

static struct memory memory = { .verbose = true };

static bool skip_one(struct opts *o, const char *name)
{
	bool found = false;

	for (int i = 0; i < OP_RANDOM; i++)
		if (!strcmp(kind_info[i].name, name))
			o->skip_kinds |= 1u << i, found = true;
	for (int i = 1; i < FAULTS; i++)
		if (!strcmp(fault_info[i].name, name))
			o->skip_faults |= 1u << i, found = true;
	for (int i = 0; i < KILLS; i++)
		if (!strcmp(kill_name[i], name))
			o->skip_kills |= 1u << i, found = true;
	return found;
}

static void skip_list(struct opts *o, char *list)
{
	char *name;

	while ((name = strsep(&list, ",")))
		if (*name && !skip_one(o, name)) {
			fprintf(stderr, "stress: nothing is named %s\n", name);
			exit(2);
		}
}

static const struct option options[] = {
	{ "seed", 1, NULL, 's' },    { "seconds", 1, NULL, 't' }, { "qps", 1, NULL, 'q' },
	{ "threads", 1, NULL, 'j' }, { "procs", 1, NULL, 'p' },	  { "kill-ms", 1, NULL, 'k' },
	{ "max-size", 1, NULL, 'm' }, { "budget", 1, NULL, 'b' }, { "stall", 1, NULL, 'w' },
	{ "cqs", 1, NULL, 'c' },     { "srqs", 1, NULL, 'r' },	  { "tokens", 1, NULL, 'T' },
	{ "addr", 1, NULL, 'a' },    { "links", 1, NULL, 'l' },	  { "skip", 1, NULL, 'x' },
	{ "types", 1, NULL, 'y' },   { "plain", 0, NULL, 'P' },	  { "datagram", 1, NULL, 'd' },
	{ "clean", 0, NULL, 'C' },   { "side", 1, NULL, 'S' },	  { "grow", 1, NULL, 'g' },
	{ "show", 1, NULL, 'V' },    { "help", 0, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static unsigned number(const char *s, unsigned min, unsigned max)
{
	char *end;
	unsigned long v = strtoul(s, &end, 0);

	if (*end || v < min || v > max) {
		fprintf(stderr, "stress: %s is not between %u and %u\n", s, min, max);
		exit(2);
	}
	return (unsigned)v;
}

static void types(struct opts *o, const char *arg)
{
	bool all = !strcmp(arg, "noud");

	o->rc = all || !strcmp(arg, "rc");
	o->uc = all || !strcmp(arg, "uc");
	o->xrc = all || !strcmp(arg, "xrc");
	o->ud = !strcmp(arg, "ud");
}

static void option(struct opts *o, int c, char *arg)
{
	switch (c) {
	case 's': o->seed = strtoull(arg, NULL, 0); break;
	case 't': o->seconds = number(arg, 1, 1000000); break;
	case 'q': o->links = number(arg, 1, MAX_LINKS); break;
	case 'j': o->threads = number(arg, 1, 64); break;
	case 'p': o->procs = number(arg, 1, 2); break;
	case 'k': o->kill_ms = number(arg, 0, 1000000); break;
	case 'm': o->max_size = number(arg, 65536, 1u << 30); break;
	case 'b': o->budget = number(arg, 1, 1u << 30); break;
	case 'w': o->stall = number(arg, 1, 100000); break;
	case 'c': o->cqs = number(arg, 1, MAX_CQS); break;
	case 'r': o->srqs = number(arg, 0, MAX_SRQS); break;
	case 'T': o->tokens = number(arg, 1, MAX_TOKENS); break;
	case 'a': snprintf(o->addr, sizeof(o->addr), "%s", arg); break;
	case 'l': o->cm = strcmp(arg, "raw"); o->raw = strcmp(arg, "cm"); break;
	case 'x': skip_list(o, arg); break;
	case 'y': types(o, arg); break;
	case 'd': o->datagram = number(arg, UD_TELLS, MTU_MAX); break;
	case 'P': o->ex = o->pauses = false; o->mw = 0; break;
	case 'C': o->clean_only = true; break;
	case 'g': memory.limit = number(arg, 1, 1u << 30); break;
	case 'h': fputs(usage, stdout); exit(0);
	default: fputs(usage, stderr); exit(2);
	}
}

static void opts_finish(struct opts *o)
{
	const char *scale = getenv("T_SCALE");

	while (!o->seed)
		if (getrandom(&o->seed, sizeof(o->seed), 0) != sizeof(o->seed))
			o->seed = (uint64_t)time(NULL);
	if (scale && atoi(scale) > 0)
		o->stall *= (unsigned)atoi(scale);
	o->arena = 1u << 20;
	while (o->arena > 128 * 1024 && o->arena > (64u << 20) / o->links)
		o->arena /= 2;
	o->small = o->arena / 8;
	o->srq_buf = o->small > 16384 ? 16384 : o->small - 64;
	if (o->procs == 1 || memory.limit)
		o->kill_ms = 0;
}

/* ---- processes ----------------------------------------------------------- */

static void start_side(int id, int fd, pid_t *pid)
{
	char side[32];

	snprintf(side, sizeof(side), "%d:%d", id, fd);
	atomic_fetch_add(&sh->side[id].life, 1);
	fflush(NULL);
	*pid = fork();
	if (*pid < 0) {
		perror("fork");
		exit(2);
	}
	if (*pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl("/proc/self/exe", "stress", "--side", side, (char *)NULL);
	_exit(127);
}

static void kill_one(int id, int fd, pid_t *pid)
{
	atomic_store(&sh->side[id].down, 1);
	kill(pid[id], SIGKILL);
	waitpid(pid[id], NULL, 0);
	atomic_fetch_add(&sh->deaths, 1);
	start_side(id, fd, &pid[id]);
}

static bool both_up(void)
{
	return !atomic_load(&sh->side[0].down) && !atomic_load(&sh->side[1].down);
}

/* True when one has ended; *bad if not well. */
static bool reap(pid_t *pid, bool *bad)
{
	int status;

	for (int i = 0; i < 2; i++) {
		if (!pid[i] || waitpid(pid[i], &status, WNOHANG) != pid[i])
			continue;
		pid[i] = 0;
		if (status) {
			fprintf(stderr, "# side %d ended with status %x (seed %llu)\n", i, status,
				(unsigned long long)sh->o.seed);
			*bad = true;
		}
	}
	return !pid[0] && !pid[1];
}

/* Both processes; `end` is known when they are up. */
static void sample(const pid_t *pid, uint64_t now, uint64_t end)
{
	uint64_t of = 1000ull * sh->o.seconds;

	for (int i = 0; i < 2 && end != UINT64_MAX; i++)
		if (pid[i])
			memory_sample(&memory, i, pid[i], now + of - end, of);
}

static bool run_two(int fd)
{
	struct rng r = { key_of(sh->o.seed, 0, 0, 9) };
	uint64_t end = UINT64_MAX, next = 0, grace = 0;
	bool bad = false;
	pid_t pid[2];

	for (int i = 0; i < 2; i++) {
		atomic_store(&sh->side[i].down, 1);
		start_side(i, fd, &pid[i]);
	}
	while (!reap(pid, &bad)) {
		uint64_t now = now_ms();

		if (end == UINT64_MAX && both_up()) /* from now on */
			end = now + 1000ull * sh->o.seconds;
		if (now >= end)
			atomic_store(&sh->stop, 1);
		sample(pid, now, end);
		if (bad && !grace) {
			grace = now + 3000; /* the other one says what it knows */
			if (!atomic_load(&sh->failed))
				atomic_store(&sh->failed, MAX_LINKS + 1);
		}
		if (grace && now > grace)
			for (int i = 0; i < 2; i++)
				if (pid[i])
					kill(pid[i], SIGKILL);
		if (!sh->o.kill_ms || now >= end || bad || !both_up())
			next = now + sh->o.kill_ms / 2 + rng_below(&r, sh->o.kill_ms + 1);
		else if (now >= next)
			kill_one((int)rng_below(&r, 2), fd, pid);
		nap_us(10000);
	}
	return !bad;
}

static void *side_thread(void *id)
{
	side_run((int)(intptr_t)id);
	return NULL;
}

static bool run_one(void)
{
	pthread_t t[2];
	uint64_t end;

	for (int i = 0; i < 2; i++) {
		atomic_store(&sh->side[i].life, 1);
		atomic_store(&sh->side[i].down, 1);
	}
	for (intptr_t i = 0; i < 2; i++)
		OK(pthread_create(&t[i], NULL, side_thread, (void *)i));
	while (!both_up())
		nap_us(10000);
	end = now_ms() + 1000ull * sh->o.seconds;
	while (now_ms() < end) {
		memory_sample(&memory, 0, getpid(), now_ms() + 1000ull * sh->o.seconds - end,
			      1000ull * sh->o.seconds);
		nap_us(10000);
	}
	atomic_store(&sh->stop, 1);
	for (int i = 0; i < 2; i++)
		OK(pthread_join(t[i], NULL));
	return true;
}

/* A process of its own: "side:descriptor". */
static int run_side(const char *arg)
{
	int id, fd;

	if (sscanf(arg, "%d:%d", &id, &fd) != 2)
		return 2;
	sh = shared_map(fd);
	if (!sh)
		return 2;
	close(fd);
	side_run(id);
	return 0;
}

int main(int argc, char **argv)
{
	struct opts o = { .seconds = 10, .links = 16, .threads = 3, .procs = 1, .stall = 30,
			  .cqs = 4, .srqs = 2, .tokens = 2, .max_size = 64u << 20,
			  .budget = 65536, .kill_ms = 1500, .cm = true, .raw = true,
			  .datagram = 1024, .rc = true, .uc = true, .ud = true, .xrc = true,
			  .ex = true, .pauses = true, .mw = 3,
			  .addr = "127.0.0.1" };
	const char *show = NULL;
	unsigned link, gen;
	int c, fd;
	bool ok;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 'S')
			return run_side(optarg);
		if (c == 'V')
			show = optarg;
		else
			option(&o, c, optarg);
	}
	opts_finish(&o);
	if (show && sscanf(show, "%u:%u", &link, &gen) == 2) {
		plan_show(&o, link, gen);
		return 0;
	}
	sh = shared_make(&fd);
	if (!sh) {
		perror("stress: shared memory");
		return 2;
	}
	sh->o = o;
	printf("# stress --seed %llu --seconds %u --qps %u --threads %u --procs %u\n",
	       (unsigned long long)o.seed, o.seconds, o.links, o.threads, o.procs);
	ok = o.procs == 2 ? run_two(fd) : run_one();
	ok &= sh->ops > 0;
	ok &= memory_good(&memory);
	printf("# %llu requests, %llu MiB, %llu generations of endpoints, %llu faults, "
	       "%llu kills, %llu deaths, %llu values not told apart, %llu datagrams lost\n",
	       (unsigned long long)sh->ops, (unsigned long long)sh->bytes >> 20,
	       (unsigned long long)sh->gens, (unsigned long long)sh->faults,
	       (unsigned long long)sh->kills, (unsigned long long)sh->deaths,
	       (unsigned long long)sh->uncounted, (unsigned long long)sh->lost);
	printf("%sok 1 - seed %llu\n1..1\n", ok ? "" : "not ", (unsigned long long)o.seed);
	return !ok;
}
