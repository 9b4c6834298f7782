/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens at the wrong moment: ids and channels that end while the progress
 * thread works for them, too many peers, floods, and a process that did not run. */
#include "tests/t.h"

#include "cm/user/pair_test.h"

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/resource.h>

/* Makes the progress thread stand still, as a stopped process would. */
static struct {
	struct loop_work work;
	sem_t stands, go, goes;
} hold;

static void hold_run(struct loop_work *w)
{
	(void)w;
	sem_post(&hold.stands);
	sem_wait(&hold.go);
	sem_post(&hold.goes);
}

static void hold_loop(void)
{
	hold.work.run = hold_run;
	loop_post(&hold.work);
	sem_wait(&hold.stands);
}

static void release_loop(void)
{
	sem_post(&hold.go);
	sem_wait(&hold.goes);
}

/* ---- listeners that end ---------------------------------------------------------- */

enum { HARSH_PORT = 20060 };

static atomic_bool stop_clients;

static void *client_thread(void *arg)
{
	struct sockaddr_in a = loop_addr((uint16_t)port_to_tcp(HARSH_PORT, false));
	uint8_t req[MPA_FRAME_MAX];
	size_t n = raw_request(req, sizeof(req), HARSH_PORT);
	bool whole = arg;

	while (!atomic_load(&stop_clients)) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		/* Whether it gets through is chance. */
		if (!connect(fd, (struct sockaddr *)&a, sizeof(a)) && whole)
			send(fd, req, n, MSG_NOSIGNAL);
		close(fd);
	}
	return NULL;
}

/* In every stage of its children: being accepted, half-open, waiting, queued. */
static void listener_ends_while_it_accepts(void)
{
	struct sockaddr_in a = loop_addr(HARSH_PORT);
	struct cm_channel *ch = ch_new();
	pthread_t t[2];

	atomic_store(&stop_clients, false);
	for (int i = 0; i < 2; i++)
		REQUIRE(!pthread_create(&t[i], NULL, client_thread, i ? ch : NULL));
	for (int i = 0; i < 300; i++) {
		struct cm_id *lis = id_new(ch, NULL);

		if (!CHECK_EQ(be->bind(lis, (struct sockaddr *)&a), 0) ||
		    !CHECK_EQ(be->listen(lis, 1 + i % 3), 0)) {
			id_free(lis);
			break;
		}
		usleep((useconds_t)(i % 7) * 300); /* as far as they get in this time */
		id_free(lis);
	}
	atomic_store(&stop_clients, true);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	CHECK(silent(ch));
	cm_channel_free(ch);
}

/* ---- channels that end ----------------------------------------------------------- */

static bool rejected(int fd, uint16_t reason)
{
	uint8_t ans[MPA_FRAME_MAX];
	struct mpa_cm_rej rej;
	struct mpa_frame f;

	return CHECK(raw_answer(fd, ans, &f)) && CHECK(!mpa_cm_rej_decode(&f, &rej)) &&
	       CHECK_EQ(rej.reason, reason);
}

/* The application destroys the channel under a listener: requests have nowhere to
 * go, so their peers are told, and they leave no place in the backlog taken. */
static void requests_to_a_dead_channel(void)
{
	struct cm_channel *ch = ch_new(), *to = ch_new();
	struct cm_id *lis = listener(ch, 1);
	uint8_t req[MPA_FRAME_MAX];
	size_t n = raw_request(req, sizeof(req), src_port(lis));
	struct cm_event *ev;
	uint32_t delivered;
	int queued, late, fd;

	cm_channel_attach(ch);
	queued = raw_connect(src_port(lis));
	CHECK_EQ(write(queued, req, n), n);
	CHECK(T_WAIT(!silent(ch), 5000));
	cm_channel_free(ch);
	rejected(queued, CM_REJ_CONSUMER);
	late = raw_connect(src_port(lis));
	CHECK_EQ(write(late, req, n), n);
	rejected(late, CM_REJ_CONSUMER);

	CHECK_EQ(be->id_migrate(lis, to, &delivered), 0);
	cm_channel_detach(ch);
	fd = raw_connect(src_port(lis));
	CHECK_EQ(write(fd, req, n), n);
	ev = want_for(to, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
	if (ev)
		be->child_drop(ev->be_child);
	free(ev);
	close(queued);
	close(late);
	close(fd);
	id_free(lis);
	cm_channel_free(to);
}

/* Open descriptors of this process. */
static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* ---- too many peers, and floods -------------------------------------------------- */

/* A newcomer displaces one silent stream, not more. */
static void too_many_silent_peers(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *lis = listener(ch, 10);
	struct pollfd p[USER_HALF_OPEN_MAX];
	int fd, gone = 0;

	for (int i = 0; i < USER_HALF_OPEN_MAX; i++)
		p[i] = (struct pollfd){ raw_connect(src_port(lis)), POLLIN, 0 };
	usleep(700000); /* time is the point: older than what is spared */
	fd = raw_connect(src_port(lis));
	CHECK(poll(p, USER_HALF_OPEN_MAX, (int)t_scaled(5000)) > 0);
	hold_loop(); /* the thread has finished what it was about */
	release_loop();
	CHECK(poll(p, USER_HALF_OPEN_MAX, 0) > 0);
	for (int i = 0; i < USER_HALF_OPEN_MAX; i++) {
		gone += p[i].revents != 0;
		close(p[i].fd);
	}
	CHECK_EQ(gone, 1);
	close(fd);
	id_free(lis);
	cm_channel_free(ch);
}

/* A connection from this address of ours. */
static int raw_connect_from(uint8_t last, uint16_t port)
{
	struct sockaddr_in to = loop_addr((uint16_t)port_to_tcp(port, false)), from = loop_addr(0);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1u + last);
	CHECK(!bind(fd, (struct sockaddr *)&from, sizeof(from)));
	CHECK(!connect(fd, (struct sockaddr *)&to, sizeof(to)));
	return fd;
}

/* Those who have many give way, not who was there first. */
static void too_many_from_one_address(void)
{
	enum { MORE = 20 };
	static struct pollfd p[USER_HALF_OPEN_MAX + MORE];
	struct cm_channel *ch = ch_new();
	struct cm_id *lis = listener(ch, 10);
	struct pollfd first = { .fd = raw_connect_from(2, src_port(lis)), .events = POLLIN };
	struct cm_event *ev;
	uint8_t req[MPA_FRAME_MAX];
	size_t n = raw_request(req, sizeof(req), src_port(lis));

	for (int i = 0; i < USER_HALF_OPEN_MAX - 1; i++)
		p[i] = (struct pollfd){ raw_connect_from(3, src_port(lis)), POLLIN, 0 };
	usleep(700000); /* time is the point: older than what is spared */
	for (int i = USER_HALF_OPEN_MAX - 1; i < USER_HALF_OPEN_MAX + MORE; i++)
		p[i] = (struct pollfd){ raw_connect_from(3, src_port(lis)), POLLIN, 0 };
	CHECK(T_WAIT(poll(p, USER_HALF_OPEN_MAX + MORE, 0) > MORE, 5000));
	CHECK_EQ(poll(&first, 1, 0), 0);
	CHECK_EQ(write(first.fd, req, n), n);
	ev = want_for(ch, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
	if (ev)
		be->child_drop(ev->be_child);
	free(ev);
	for (int i = 0; i < USER_HALF_OPEN_MAX + MORE; i++)
		close(p[i].fd);
	close(first.fd);
	id_free(lis);
	cm_channel_free(ch);
}

/* Whole requests that nobody fetches are bounded too; none is lost for that. */
static void too_many_requests(void)
{
	enum { MORE = 50, PEERS = 1 + USER_WAITING_MAX + MORE, FDS = 2 * PEERS + 200 };
	uint8_t req[MPA_FRAME_MAX];
	struct cm_channel *ch;
	static int fd[PEERS];
	int all, seen = 0;
	struct rlimit rl;
	struct cm_id *lis;
	size_t n;

	getrlimit(RLIMIT_NOFILE, &rl);
	SKIP_IF(rl.rlim_max < FDS, "hard limit of %d descriptors", (int)rl.rlim_max);
	ch = ch_new();
	lis = listener(ch, 1);
	n = raw_request(req, sizeof(req), src_port(lis));
	for (int i = 0; i < PEERS; i++) {
		fd[i] = raw_connect(src_port(lis));
		CHECK_EQ(write(fd[i], req, n), n);
	}
	T_WAIT((all = ids()) >= 2 + USER_WAITING_MAX, 5000);
	/* The listener, the one in the queue, those that wait, and a few that were
	 * being read when the limit was reached. */
	CHECK(all >= 2 + USER_WAITING_MAX && all < 2 + USER_WAITING_MAX + MORE);
	for (; seen < PEERS; seen++) {
		struct cm_event *ev = want_for(ch, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);

		if (!ev)
			break;
		be->child_drop(ev->be_child);
		cm_event_free(ev);
	}
	CHECK_EQ(seen, PEERS);
	for (int i = 0; i < PEERS; i++)
		close(fd[i]);
	id_free(lis);
	cm_channel_free(ch);
}

/* Requests that are rejected at once, by peers that do not go then. */
static void too_many_rejected_peers(void)
{
	enum { PEERS = 2 * USER_LINGER_MAX };
	struct cm_channel *ch = ch_new();
	struct cm_id *lis = listener(ch, 10);
	uint8_t req[MPA_FRAME_MAX];
	size_t n = raw_request(req, sizeof(req), (uint16_t)(src_port(lis) + 1));
	static int fd[PEERS];
	int before = descriptors(), told = 0;

	for (int i = 0; i < PEERS; i++) {
		fd[i] = raw_connect(src_port(lis));
		CHECK_EQ(write(fd[i], req, n), n);
	}
	for (int i = 0; i < PEERS; i++)
		told += rejected(fd[i], CM_REJ_NO_LISTENER);
	CHECK_EQ(told, PEERS);
	/* The socket of the last one may be about to be closed. */
	CHECK(descriptors() <= before + PEERS + USER_LINGER_MAX + 1);
	CHECK(T_WAIT(descriptors() <= before + PEERS, 5000)); /* theirs alone */
	for (int i = 0; i < PEERS; i++)
		close(fd[i]);
	id_free(lis);
	cm_channel_free(ch);
}

static atomic_bool stop_flood;

static void *flooder(void *arg)
{
	static const char junk[65536];
	int fd = (int)(intptr_t)arg;

	while (!atomic_load(&stop_flood) && send(fd, junk, sizeof(junk), MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

/* Rejected peers that go on sending do not keep the thread from others. */
static void flood_after_reject(void)
{
	enum { FLOODS = 3 };
	struct cm_channel *ch = ch_new();
	struct cm_id *lis = listener(ch, 10);
	uint8_t req[MPA_FRAME_MAX];
	size_t n = raw_request(req, sizeof(req), (uint16_t)(src_port(lis) + 1));
	pthread_t t[FLOODS];
	int fd[FLOODS];
	struct pair p;

	atomic_store(&stop_flood, false);
	for (int i = 0; i < FLOODS; i++) {
		fd[i] = raw_connect(src_port(lis));
		CHECK_EQ(write(fd[i], req, n), n);
		REQUIRE(!pthread_create(&t[i], NULL, flooder, (void *)(intptr_t)fd[i]));
	}
	if (CHECK(pair_up(&p)))
		pair_end(&p);
	/* and they are ended, however much they have to say */
	for (int i = 0; i < FLOODS; i++) {
		pthread_join(t[i], NULL);
		close(fd[i]);
	}
	id_free(lis);
	cm_channel_free(ch);
}

/* ---- a process that did not run -------------------------------------------------- */

/* A socket on the TCP port of HARSH_PORT that answers nothing by itself. */
static int mute(int backlog)
{
	struct sockaddr_in a = loop_addr((uint16_t)port_to_tcp(HARSH_PORT, false));
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	CHECK(!bind(fd, (struct sockaddr *)&a, sizeof(a)) && !listen(fd, backlog));
	return fd;
}

/* False: the first did not wait for the last to connect. */
static bool answers_in_time(void)
{
	enum { PEERS = 150 };
	struct cm_channel *ch = ch_new();
	struct cm_id *id[PEERS];
	uint8_t rej[MPA_OURS_MAX];
	struct mpa_cm_rej r = { .reason = CM_REJ_CONSUMER };
	int lfd = mute(PEERS), n = mpa_cm_rej_encode(rej, sizeof(rej), &r);
	static int fd[PEERS];
	uint64_t begin;
	bool in_time;

	for (int i = 0; i < PEERS; i++)
		id[i] = routed(ch, HARSH_PORT);
	begin = t_now_ms();
	for (int i = 0; i < PEERS; i++) {
		CHECK_EQ(be->connect(id[i], &conn_param), 0);
		fd[i] = accept(lfd, NULL, NULL);
	}
	hold_loop();
	in_time = t_now_ms() - begin < conf_get()->cm_reply_ms;
	for (int i = 0; i < PEERS; i++)
		CHECK_EQ(write(fd[i], rej, (size_t)n), n);
	usleep(conf_get()->cm_reply_ms * 1500); /* time is the point: the limit passes */
	release_loop();
	for (int i = 0; i < PEERS && in_time; i++)
		if (!want(ch, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER))
			break;
	for (int i = 0; i < PEERS; i++) {
		id_free(id[i]);
		close(fd[i]);
	}
	close(lfd);
	cm_channel_free(ch);
	return in_time;
}

/* More answers than the thread takes in one round came in time, and the limit for
 * them passed too, while the process stood still. */
static void answers_came_while_stopped(void)
{
	int tries = 1;

	while (!answers_in_time() && tries < 10)
		tries++;
	CHECK(tries < 10);
}

static int not_here(const struct sockaddr *sa)
{
	(void)sa;
	return -ENODEV;
}

/* On another host a stopped process and a stranger look alike: more patience than
 * on this one, but not for ever. */
static void silent_remote_peer(void)
{
	struct anyrdma_interface far = device;
	struct cm_channel *ch = ch_new();
	struct cm_id *id = routed(ch, HARSH_PORT);
	uint64_t begin = t_now_ms(), limit = 3 * conf_get()->cm_reply_ms;
	int lfd = mute(1);

	far.gid_device = not_here;
	cm_dev = &far;
	CHECK_EQ(be->connect(id, &conn_param), 0);
	CHECK(want(ch, RDMA_CM_EVENT_REJECTED, CM_REJ_NO_LISTENER));
	CHECK(t_now_ms() - begin >= limit);
	id_free(id);
	cm_dev = &device;
	close(lfd);
	cm_channel_free(ch);
}

int main(int argc, char **argv)
{
	setenv("ANYRDMA_TRANSPORT", "tcp", 1); /* the fake device has no calls */
	setenv("ANYRDMA_CM_REPLY_MS", "500", 1);
	t_init(argc, argv);
	cm_dev = &device;
	if (be->init())
		return 1;
	sem_init(&hold.stands, 0, 0);
	sem_init(&hold.go, 0, 0);
	sem_init(&hold.goes, 0, 0);
	T_RUN(listener_ends_while_it_accepts);
	T_RUN(requests_to_a_dead_channel);
	T_RUN(too_many_silent_peers);
	T_RUN(too_many_from_one_address);
	T_RUN(too_many_requests);
	T_RUN(too_many_rejected_peers);
	T_RUN(flood_after_reject);
	T_RUN(answers_came_while_stopped);
	T_RUN(silent_remote_peer);
	T_RUN(nothing_left);
	return t_done();
}
