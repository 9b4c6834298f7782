/* SPDX-License-Identifier: BSD-2-Clause */
#include "lab.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct peer peer_start(void (*fn)(struct peer *me, void *arg), void *arg)
{
	int to[2], from[2];
	struct peer p, me;

	OK(pipe(to));
	OK(pipe(from));
	fflush(NULL);
	p.pid = fork();
	CHECK(p.pid >= 0);
	if (!p.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		close(from[0]);
		me = (struct peer){ .pid = 0, .in = to[0], .out = from[1] };
		fn(&me, arg);
		exit(0);
	}
	close(to[0]);
	close(from[1]);
	p.in = from[0];
	p.out = to[1];
	return p;
}

void peer_say(struct peer *p, char c)
{
	signal(SIGPIPE, SIG_IGN);
	if (write(p->out, &c, 1) != 1)
		FAIL("the other process is gone");
}

void peer_say_u32(struct peer *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		peer_say(p, (char)(v >> (8 * i)));
}

void peer_say_u64(struct peer *p, uint64_t v)
{
	peer_say_u32(p, (uint32_t)v);
	peer_say_u32(p, (uint32_t)(v >> 32));
}

char peer_hear_any(struct peer *p)
{
	struct pollfd fd = { .fd = p->in, .events = POLLIN };
	char c;

	AT("waiting for the other process");
	if (poll(&fd, 1, 3 * conf_ms(CONF_WAIT)) != 1)
		FAIL("the other process says nothing");
	if (read(p->in, &c, 1) != 1)
		FAIL("the other process is gone");
	return c;
}

void peer_hear(struct peer *p, char c)
{
	char got = peer_hear_any(p);

	if (got != c)
		FAIL("the other process says '%c', wanted '%c'", got, c);
}

void peer_await(struct peer *p, char c)
{
	while (peer_hear_any(p) != c)
		;
}

uint32_t peer_hear_u32(struct peer *p)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++)
		v |= (uint32_t)(uint8_t)peer_hear_any(p) << (8 * i);
	return v;
}

uint64_t peer_hear_u64(struct peer *p)
{
	uint64_t low = peer_hear_u32(p);

	return low | (uint64_t)peer_hear_u32(p) << 32;
}

void peer_end(struct peer *p)
{
	int status;

	WAIT_TILL(waitpid(p->pid, &status, WNOHANG), 2 * CONF_WAIT,
		  "the other process does not end");
	if (WIFSIGNALED(status))
		FAIL("the other process died of signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		FAIL("the other process ended with %d", WEXITSTATUS(status));
}

void peer_signal(struct peer *p, int sig)
{
	OK(kill(p->pid, sig));
}

void peer_stop(struct peer *p)
{
	int status;

	peer_signal(p, SIGSTOP);
	EQ(waitpid(p->pid, &status, WUNTRACED), p->pid);
	CHECK(WIFSTOPPED(status));
}

void peer_go_on(struct peer *p)
{
	peer_signal(p, SIGCONT);
}

void peer_kill(struct peer *p)
{
	peer_signal(p, SIGKILL);
	EQ(waitpid(p->pid, NULL, 0), p->pid);
}

/* Both roles. */

static void end_open(struct end *e)
{
	memset(e, 0, sizeof(*e));
	e->ch = conf_channel();
}

static void end_buf(struct end *e)
{
	conf_qp(e->id, 64);
	e->buf = conf_buf(e->id->pd, 1 << 20, CONF_RW);
	for (int i = 0; i < 32; i++)
		OK(conf_recv(e->id->qp, i, &e->buf, (1 << 19) + i * 4096, 4096));
}

void end_listen(struct end *e, struct peer *tell)
{
	end_open(e);
	e->listener = conf_listen(e->ch, AF_INET, 8);
	if (tell)
		peer_say_u32(tell, ntohs(rdma_get_src_port(e->listener)));
}

void end_request(struct end *e)
{
	e->id = conf_request(e->ch);
	end_buf(e);
}

void end_accept(struct end *e, bool established)
{
	struct rdma_conn_param param = conf_param();

	OK(rdma_accept(e->id, &param));
	if (established)
		conf_expect(e->ch, e->id, RDMA_CM_EVENT_ESTABLISHED);
}

void end_serve(struct end *e, struct peer *tell)
{
	end_listen(e, tell);
	end_request(e);
	end_accept(e, true);
}

void end_connect(struct end *e, uint16_t port)
{
	struct rdma_conn_param param = conf_param();

	end_open(e);
	e->id = conf_route_resolved(e->ch, conf_addr(AF_INET, port));
	end_buf(e);
	OK(rdma_connect(e->id, &param));
}

void end_established(struct end *e)
{
	conf_expect(e->ch, e->id, RDMA_CM_EVENT_ESTABLISHED);
}

void end_join(struct end *e, struct peer *server)
{
	end_connect(e, (uint16_t)peer_hear_u32(server));
	end_established(e);
}

void end_free(struct end *e)
{
	if (e->id && e->id->qp)
		rdma_destroy_qp(e->id);
	conf_buf_free(&e->buf);
	conf_id_free(e->id);
	conf_id_free(e->listener);
	rdma_destroy_event_channel(e->ch);
}

void remote_say(struct peer *p, const struct conf_buf *b)
{
	peer_say_u32(p, b->mr->rkey);
	peer_say_u64(p, (uintptr_t)b->p);
}

struct remote remote_hear(struct peer *p)
{
	struct remote to;

	to.rkey = peer_hear_u32(p);
	to.addr = peer_hear_u64(p);
	return to;
}

struct ibv_send_wr remote_rdma(const struct remote *to, uint64_t wr_id, int opcode,
			      struct ibv_sge *sge)
{
	return conf_rdma(wr_id, opcode, sge, 1, (void *)(uintptr_t)to->addr, to->rkey);
}

uint16_t lab_tcp_port(uint16_t port)
{
	return 1024 + (port + 10007u) % 64512;
}

int lab_tcp_connect(uint16_t rdma_port)
{
	conf_sa addr = conf_addr(AF_INET, lab_tcp_port(rdma_port));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	OK(connect(fd, SA(addr), sizeof(struct sockaddr_in)));
	return fd;
}

int lab_tcp_connections(uint16_t port)
{
	FILE *f = fopen("/proc/self/net/tcp", "re");
	unsigned remote, state;
	char line[256];
	int n = 0;

	MUST(f);
	while (fgets(line, sizeof(line), f))
		n += sscanf(line, " %*d: %*x:%*x %*x:%x %x", &remote, &state) == 2 &&
		     state == 1 && remote == lab_tcp_port(port);
	fclose(f);
	return n;
}

void lab_become(uid_t uid)
{
	if (setuid(uid))
		SKIP("no right to become another user");
}

void lab_transport(const char *how)
{
	setenv("ANYRDMA_TRANSPORT", how, 1);
}
