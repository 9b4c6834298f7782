/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes that are connected, and what each may hold of the other. Neither is the
 * other's parent (for Yama that makes a difference): the case starts both, and its process
 * does not use the library. */
#ifndef ANYRDMA_TESTS_SCENE_H
#define ANYRDMA_TESTS_SCENE_H

#include "foreign.h"
#include "lab.h"

enum { LISTENER, CLIENT };

enum may {
	NOTHING,  /* neither memory nor keys, and none was ever sent to it */
	DIRECT,	  /* both, soon */
	ANYTHING, /* is not looked at */
};

/* Arrays are by who it is about. */
struct scene {
	void (*prepare[2])(void); /* before the library is used */
	const char *direct;	  /* ANYRDMA_DIRECT of both, else auto */
	bool raw;		  /* QPs without the connection manager */
	bool pending;		  /* nothing may be held before it is accepted */
	void (*decide)(void);	  /* at the listener: before it accepts */
	bool refused[2];	  /* by the kernel, or the case is skipped */
	enum may may[2];
	bool not_passed;	/* descriptors of memory are opened, never sent */
	bool by_tcp;		/* not even a link */
	void *words_at;		/* the listener's (foreign.h), NULL: anywhere */
	void (*after[2])(void); /* at the end */
	bool apart;		/* they do not meet after that */
};

/* What both share; a program that was exec'ed maps it. */
struct meeting {
	_Atomic unsigned arrived;
	_Atomic unsigned stage; /* a case's own */
	struct target target[2];
	uint16_t port;
	uint32_t qpn[2], rkey[2];
	uint64_t addr[2];
};
extern struct meeting *here;
extern int here_fd;
extern int me;
/* Set by prepare[] that forks: go on in the child, with target[me].pid said by the parent. */
extern bool inside;

void scene_run(const struct scene *s);

#endif
