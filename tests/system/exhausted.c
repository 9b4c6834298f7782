/* SPDX-License-Identifier: BSD-2-Clause */
/* A process without free file descriptors: calls fail with an errno or an event, nothing
 * crashes or hangs, and everything works again when there are descriptors. */
#include "lab.h"

#include <sys/resource.h>

static int taken[4096];
static int ntaken;

static void limit(int n)
{
	struct rlimit r = { .rlim_cur = n, .rlim_max = n };

	OK(setrlimit(RLIMIT_NOFILE, &r));
	setenv("ANYRDMA_NOFILE", "keep", 1);
}

/* Takes every free descriptor. */
static void exhaust(void)
{
	int fd;

	while (ntaken < 4096 && (fd = dup(0)) >= 0)
		taken[ntaken++] = fd;
	EQ(errno, EMFILE);
}

static void release(void)
{
	while (ntaken)
		close(taken[--ntaken]);
}

static void channel_and_ids(void)
{
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;

	limit(200);
	rdma_destroy_event_channel(conf_channel());
	exhaust();
	errno = 0;
	CHECK(!rdma_create_event_channel());
	EQ(errno, EMFILE);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == -1);
	CHECK(errno == EMFILE || errno == ENOMEM);
	release();
	ch = conf_channel();
	id = conf_id(ch);
	conf_id_close(id);
}

static void listen_fails_cleanly(void)
{
	conf_sa addr = conf_addr(AF_INET, 0);
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;

	limit(200);
	ch = conf_channel();
	id = conf_id(ch);
	exhaust();
	if (!rdma_bind_addr(id, SA(addr)))
		CHECK(rdma_listen(id, 1) == -1);
	CHECK(errno == EMFILE || errno == ENFILE || errno == ENOMEM);
	OK(rdma_destroy_id(id));
	release();
	id = conf_listen(ch, AF_INET, 1);
	conf_id_close(id);
}

static void server(struct peer *me, void *arg)
{
	struct end s;

	(void)arg;
	end_serve(&s, me);
	conf_expect(s.ch, s.id, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(s.id));
	end_free(&s);
}

/* Connecting without a descriptor ends in an event, a second try works. */
static void connect_is_unreachable(void)
{
	struct peer p = peer_start(server, NULL);
	uint16_t port = peer_hear_u32(&p);
	struct rdma_conn_param param = conf_param();
	struct rdma_event_channel *ch;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	struct end e;

	limit(200);
	ch = conf_channel();
	id = conf_route_resolved(ch, conf_addr(AF_INET, port));
	conf_qp(id, 4);
	exhaust();
	if (!rdma_connect(id, &param)) {
		MUST(ev = conf_next(ch, conf_ms(CONF_WAIT)));
		EQ(ev->event, RDMA_CM_EVENT_UNREACHABLE);
		CHECK(ev->status < 0);
		OK(rdma_ack_cm_event(ev));
	} else {
		CHECK(errno == EMFILE);
	}
	release();
	conf_id_close(id);
	end_connect(&e, port);
	end_established(&e);
	OK(rdma_disconnect(e.id));
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&e);
	peer_end(&p);
}

/* The next request whose client is still there. Over shared memory requests need no
 * descriptor: those came whose clients did not wait. */
static void accept_living(struct end *t)
{
	struct rdma_conn_param param = conf_param();

	for (;;) {
		end_request(t);
		conf_settle(); /* so that accept knows who has gone */
		if (!rdma_accept(t->id, &param))
			break;
		EQ(errno, EINVAL);
		rdma_destroy_qp(t->id);
		conf_buf_free(&t->buf);
		OK(rdma_destroy_id(t->id));
	}
	conf_expect(t->ch, t->id, RDMA_CM_EVENT_ESTABLISHED);
}

/* A server without descriptors refuses, keeps what it has, and recovers. */
static void poor_server(struct peer *me, void *arg)
{
	struct end s, t;

	(void)arg;
	limit(300);
	end_serve(&s, me);
	exhaust();
	peer_say(me, 'x');
	peer_hear(me, 'r');
	release();
	peer_say(me, 'y');
	t = s;
	t.id = NULL;
	accept_living(&t);
	conf_wc_ok(s.id->recv_cq, 0); /* the old connection still works */
	peer_say(me, 'z');
	peer_hear(me, 'q');
	rdma_destroy_qp(t.id);
	conf_buf_free(&t.buf);
	OK(rdma_destroy_id(t.id));
	end_free(&s);
}

static void server_refuses_and_recovers(void)
{
	struct peer p = peer_start(poor_server, NULL);
	struct end e[8], last;
	uint16_t port = peer_hear_u32(&p);
	struct rdma_cm_event *ev;

	/* The log names the rejected connections; for scripts/tap-run. */
	printf("# errors are expected\n");
	fflush(stdout);
	end_connect(&last, port);
	end_established(&last);
	peer_hear(&p, 'x');
	for (int i = 0; i < 8; i++)
		end_connect(&e[i], port);
	for (int i = 0; i < 8; i++) { /* refused, or waiting for better times */
		ev = conf_next(e[i].ch, 500);
		if (ev) {
			CHECK(ev->event == RDMA_CM_EVENT_REJECTED ||
			      ev->event == RDMA_CM_EVENT_UNREACHABLE);
			OK(rdma_ack_cm_event(ev));
		}
		end_free(&e[i]);
	}
	conf_settle();
	peer_say(&p, 'r');
	peer_hear(&p, 'y');
	end_connect(&e[0], port);
	end_established(&e[0]);
	OK(conf_send(last.id->qp, 1, &last.buf, 0, 64));
	conf_wc_ok(last.id->send_cq, 1);
	peer_hear(&p, 'z');
	peer_say(&p, 'q');
	end_free(&e[0]);
	end_free(&last);
	peer_end(&p);
}

/* The limit is raised, and ours stay away from small numbers: select() works. */
static void descriptors_stay_out_of_the_way(void)
{
	struct rlimit r = { .rlim_cur = 1024, .rlim_max = 4096 };
	struct conf_pair c[20];
	int fd;

	if (!conf_user_device())
		SKIP("not our device");
	if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_max < 4096)
		SKIP("the hard limit is %lu", (unsigned long)r.rlim_max);
	r.rlim_cur = 1024;
	OK(setrlimit(RLIMIT_NOFILE, &r));
	for (int i = 0; i < 20; i++)
		conf_pair_open(&c[i], NULL);
	OK(getrlimit(RLIMIT_NOFILE, &r));
	CHECK(r.rlim_cur == r.rlim_max);
	fd = dup(0);
	/* Channels are the application's, two for each pair, and completion
	 * channels, four; the streams must not be among them. */
	CHECK(fd >= 0 && fd < 20 * 6 + 40);
	close(fd);
	for (int i = 0; i < 20; i++)
		conf_pair_close(&c[i]);
}

/* More connections than the soft limit has descriptors. */
static void many_connections(void)
{
	enum { N = 1200 };
	struct rlimit r;
	static struct rdma_cm_id *a[N], *p[N];
	struct rdma_event_channel *lch, *ach;
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *l;
	struct ibv_qp_init_attr attr;
	struct ibv_cq *cq = NULL;

	OK(getrlimit(RLIMIT_NOFILE, &r));
	if (r.rlim_max < 4096)
		SKIP("the hard limit is %lu", (unsigned long)r.rlim_max);
	r.rlim_cur = 1024;
	OK(setrlimit(RLIMIT_NOFILE, &r));
	lch = conf_channel();
	ach = conf_channel();
	l = conf_listen(lch, AF_INET, 64);
	for (int i = 0; i < N; i++) {
		a[i] = conf_route_resolved(ach, conf_listen_addr(l));
		if (!cq)
			MUST(cq = ibv_create_cq(a[i]->verbs, 8192, NULL, NULL, 0));
		attr = (struct ibv_qp_init_attr){
			.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
			.cap = CONF_CAP(2, 2, 1),
		};
		OK(rdma_create_qp(a[i], NULL, &attr));
		OK(rdma_connect(a[i], &param));
		p[i] = conf_request(lch);
		OK(rdma_create_qp(p[i], NULL, &attr));
		OK(rdma_accept(p[i], &param));
		conf_expect(ach, a[i], RDMA_CM_EVENT_ESTABLISHED);
		conf_expect(lch, p[i], RDMA_CM_EVENT_ESTABLISHED);
	}
	for (int i = 0; i < N; i++) {
		rdma_destroy_qp(a[i]);
		rdma_destroy_qp(p[i]);
		OK(rdma_destroy_id(a[i]));
		OK(rdma_destroy_id(p[i]));
	}
	OK(ibv_destroy_cq(cq));
	OK(rdma_destroy_id(l));
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(lch);
}

static const struct conf_case cases[] = {
	CASE(channel_and_ids),
	CASE(listen_fails_cleanly),
	CASE(connect_is_unreachable),
	LONG_CASE(server_refuses_and_recovers, 40),
	CASE(descriptors_stay_out_of_the_way),
	LONG_CASE(many_connections, 60),
};

CONF_MAIN(cases)
