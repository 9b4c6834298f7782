/* SPDX-License-Identifier: BSD-2-Clause */
/* The driver. It never calls the library itself: each group gets two processes
 * that have not used it before, and the driver outlives what breaks in them. */
#include "bench.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct group {
	const char *name;
	void (*run)(struct side *s);
	unsigned repeat;	/* fresh pairs whose single sample is a round */
	bool by_name;		/* only when asked for */
};

static const struct group groups[] = {
	{ "memory-tcp", mem_tcp_run, 3, false },
	{ "memory-rc", mem_rc_run, 3, false },
	{ "connections", conn_run, 1, false },
	{ "latency", latency_run, 1, false },
	{ "bandwidth", bandwidth_run, 1, false },
	{ "atomics", atomic_run, 1, false },
	{ "registration", reg_run, 1, false },
	{ "scale", scale_run, 1, true },
	{ "cost", cost_run, 1, true },
};

static void usage(void)
{
	fprintf(stderr,
		"usage: bench [-a address] [-r rounds] [-t slot_ms] [-n connections]\n"
		"             [-i idle] [-c server_cpu,client_cpu] [-S server_netns]\n"
		"             [-C client_netns] [-o folder] [-m key=value]... [-w seconds]\n"
		"             [-k kind,...] [-s size] [-D device] [group...]\n"
		"             [-x samples]\n"
		"groups: memory-tcp memory-rc connections latency bandwidth atomics\n"
		"        registration (default: all), scale, cost (for callgrind, see cost.sh)\n");
	exit(2);
}

/* A side, watched so that the other does not wait for one that has died. */
struct child {
	const char *who;
	pid_t pid;
	int fd;			/* a pipe that ends with the process; -1: has ended */
	bool ok;
};

static void start(struct child *c, const struct group *g, const struct opts *o,
		  bool server, const int ctl[2], const int out[2])
{
	struct side s = { .o = o, .server = server };
	int life[2];

	if (pipe(life))
		die("pipe");
	c->pid = fork();
	if (c->pid < 0)
		die("fork");
	if (c->pid > 0) {
		close(life[1]);
		c->fd = life[0];
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(life[0]);
	s.ctl = ctl[server ? 0 : 1];
	close(ctl[server ? 1 : 0]);
	s.out = out[1];
	close(out[0]);
	side_enter(&s);
	g->run(&s);
	exit(0);
}

static void child_end(struct child *c, const char *group)
{
	int st;

	if (waitpid(c->pid, &st, 0) != c->pid)
		die("waitpid");
	close(c->fd);
	c->fd = -1;
	c->ok = WIFEXITED(st) && WEXITSTATUS(st) == 0;
	if (WIFSIGNALED(st))
		fprintf(stderr, "bench: %s: %s died of signal %d\n", group, c->who,
			WTERMSIG(st));
}

static void child_kill(struct child *c, const char *group, const char *why)
{
	if (c->fd < 0)
		return;
	fprintf(stderr, "bench: %s: %s %s and is ended\n", group, c->who, why);
	kill(c->pid, SIGKILL);
	child_end(c, group);
}

/* Reads samples until both sides have ended and all are read. */
static void collect(int fd, const struct opts *o, unsigned round, const struct group *g,
		    struct child side[2])
{
	struct pollfd p[3] = { { .fd = fd, .events = POLLIN } };
	struct sample m;

	for (;;) {
		for (int i = 0; i < 2; i++)
			p[i + 1] = (struct pollfd){ .fd = side[i].fd, .events = POLLIN };
		if (poll(p, 3, (int)o->timeout_s * 1000) == 0) {
			child_kill(&side[0], g->name, "is stuck");
			child_kill(&side[1], g->name, "is stuck");
		}
		if (p[0].revents) {
			if (read(fd, &m, sizeof(m)) != sizeof(m))
				break;
			if (g->repeat > 1)
				m.round = round;
			report_add(&m);
		}
		for (int i = 0; i < 2; i++) {
			if (p[i + 1].revents)
				child_end(&side[i], g->name);
			if (side[i].fd < 0 && !side[i].ok)
				child_kill(&side[1 - i], g->name, "waits for one that died");
		}
	}
	for (int i = 0; i < 2; i++)
		if (side[i].fd >= 0)
			child_end(&side[i], g->name);
}

static bool run_pair(const struct group *g, const struct opts *o, unsigned round)
{
	struct child side[2] = { { .who = "server" }, { .who = "client" } };
	int ctl[2], out[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ctl) || pipe(out))
		die("socketpair");
	for (int i = 0; i < 2; i++)
		start(&side[i], g, o, i == 0, ctl, out);
	close(ctl[0]);
	close(ctl[1]);
	close(out[1]);
	collect(out[0], o, round, g, side);
	close(out[0]);
	return side[0].ok && side[1].ok;
}

struct cpu_time {
	double busy, steal, all;
};

static struct cpu_time cpu_time(void)
{
	double v[8] = { 0 };
	struct cpu_time t = { 0, 0, 0 };
	FILE *f = fopen("/proc/stat", "r");

	if (!f)
		return t;
	if (fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3],
		   &v[4], &v[5], &v[6], &v[7]) == 8) {
		t.busy = v[0] + v[1] + v[2] + v[5] + v[6];
		t.steal = v[7];
		t.all = t.busy + v[3] + v[4] + v[7];
	}
	fclose(f);
	return t;
}

/* /proc/stat counts in clock ticks; softirq work done for us in others' time
 * counts as theirs, so a small value is normal. */
static void noise_end(struct noise *n, const struct cpu_time *a, double t0)
{
	struct cpu_time b = cpu_time();
	double hz = (double)sysconf(_SC_CLK_TCK);
	struct rusage u;
	double ours;

	getrusage(RUSAGE_CHILDREN, &u);
	ours = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
	n->seconds = now_s() - t0;
	n->others = ((b.busy - a->busy) / hz - ours) / n->seconds;
	if (n->others < 0)
		n->others = 0;
	n->steal = b.all > a->all ? (b.steal - a->steal) / (b.all - a->all) : 0;
}

/* The first two CPUs this process may use; unpinned if there is but one. */
static void default_cpus(struct opts *o)
{
	cpu_set_t set;
	int found = 0;

	o->cpu[0] = o->cpu[1] = -1;
	if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) < 2) {
		fprintf(stderr, "bench: one CPU only: the two sides share it\n");
		return;
	}
	for (int c = 0; c < CPU_SETSIZE && found < 2; c++)
		if (CPU_ISSET(c, &set))
			o->cpu[found++] = c;
}

static void parse(struct opts *o, int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "a:r:t:n:i:c:k:s:S:C:D:o:m:w:x:")) != -1) {
		switch (c) {
		case 'a': o->addr = optarg; break;
		case 'r': o->rounds = (unsigned)atoi(optarg); break;
		case 't': o->slot_ms = (unsigned)atoi(optarg); break;
		case 'n': o->conns = (unsigned)atoi(optarg); break;
		case 'i': o->idle = (unsigned)atoi(optarg); break;
		case 'k': o->kinds = optarg; break;
		case 'D': o->device = optarg; break;
		case 's': o->size = (uint32_t)atoi(optarg); break;
		case 'S': o->ns[0] = optarg; break;
		case 'C': o->ns[1] = optarg; break;
		case 'o': o->out = optarg; break;
		case 'x': o->more = optarg; break;
		case 'w': o->timeout_s = (unsigned)atoi(optarg); break;
		case 'c':
			if (sscanf(optarg, "%d,%d", &o->cpu[0], &o->cpu[1]) != 2)
				usage();
			break;
		case 'm':
			if (o->nmeta < MAX_META)
				o->meta[o->nmeta++] = optarg;
			break;
		default: usage();
		}
	}
	if (!o->rounds || !o->slot_ms || !o->conns || !o->idle || !o->timeout_s)
		usage();
}

static bool wanted(const struct group *g, char **names)
{
	if (!*names)
		return !g->by_name;
	for (; *names; names++)
		if (!strcmp(*names, g->name))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	struct opts o = { .addr = "127.0.0.1", .rounds = 9, .slot_ms = 120,
			  .conns = 500, .idle = 1000, .timeout_s = 60 };
	struct noise n = { 0, 0, 0, 0 };
	struct cpu_time before = cpu_time();
	double t0 = now_s();
	bool ok = true;

	default_cpus(&o);
	parse(&o, argc, argv);
	signal(SIGPIPE, SIG_IGN);
	if (getloadavg(&n.load, 1) != 1)
		n.load = -1;
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++) {
		if (!wanted(&groups[i], argv + optind))
			continue;
		fprintf(stderr, "bench: %s\n", groups[i].name);
		for (unsigned r = 0; r < groups[i].repeat; r++)
			ok &= run_pair(&groups[i], &o, r);
	}
	noise_end(&n, &before, t0);
	if (o.more && report_read(o.more))
		ok = false;
	report_print(stdout, &o, &n);
	if (o.out && report_write(&o, &n))
		ok = false;
	if (!ok)
		fprintf(stderr, "bench: something broke; the table is not complete\n");
	return ok ? 0 : 1;
}
