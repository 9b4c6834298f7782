/* SPDX-License-Identifier: BSD-2-Clause */
/* Two ends of a TCP connection. Under the preload both have moved to an rsocket. */
#ifndef ANYRDMA_TESTS_SOCK_H
#define ANYRDMA_TESTS_SOCK_H

#include "t.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* anyrdma_sockets_moved() of the preload, or NULL: plain TCP. */
extern int (*moved)(int fd);

struct pair {
	int a, b; /* connecting, accepting */
};

void sock_init(void);

/* A listener on loopback of a port that nobody has; its address in *in. */
int sock_listen(struct sockaddr_in *in);

/* Connected, not used yet. False: a check has failed. */
bool pair_open(struct pair *p);
void pair_close(struct pair *p);

/* Used until both ends have moved both directions (nothing to wait for on plain TCP). */
bool pair_warm(struct pair *p);

/* Both of these. */
bool pair_make(struct pair *p);

/* Writes or reads all of it; false: not so many. */
bool put(int fd, const void *buf, size_t len);
bool get(int fd, void *buf, size_t len);

/* Bytes of a stream: the place says which. */
void fill(uint8_t *buf, size_t len, uint64_t at);
bool same(const uint8_t *buf, size_t len, uint64_t at);

#endif
