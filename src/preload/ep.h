/* SPDX-License-Identifier: BSD-2-Clause */
/* epoll instances. The kernel's instance watches everything that is the kernel's, TCP sockets
 * of moved connections included as far as TCP still matters; a second instance of
 * rsockets (repoll) watches the first and the rsockets. */
#ifndef ANYRDMA_PRELOAD_EP_H
#define ANYRDMA_PRELOAD_EP_H

#include "preload/file.h"

#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

struct conn;

struct file *ep_file_new(void);
void ep_file_reset(struct file *f);
void ep_file_end(struct file *f);

void ep_adopt(int fd);

/* 0 or -errno. */
int ep_ctl(int epfd, int op, int fd, struct epoll_event *event);

/* As epoll_pwait2(); count or -errno. The caller has found that epfd is in the table. */
int ep_wait(struct file *ep, int epfd, struct epoll_event *events, int max,
	    const struct timespec *timeout, const sigset_t *mask);

/* The instances' view of c follows its rx and tx. c->lock is held. */
void ep_follow(struct conn *c);

/* c can move: those who wait in instances that watch it shall agree. c->lock is held. */
void ep_offer(struct conn *c);

/* No thread waits in the kernel for an instance that watches c. c->lock is held. */
bool ep_idle(struct conn *c);

/* c has no descriptors any more. c->lock is held. */
void ep_forget(struct conn *c);

/* The instance is watched by another one, by poll or select: nothing in it may move. */
void ep_nest(int epfd);

void ep_lock_all(void);
void ep_unlock_all(void);
void ep_child(void);

#endif
