/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes that are connected, and what each of them may reach of the other. Neither
 * is the other's parent, since Yama treats parents differently: the case starts both, and
 * its own process does not use the library. */
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

/* How the two are connected, and what must hold. Arrays have an element for LISTENER and
 * one for CLIENT. */
struct scene {
	void (*prepare[2])(void); /* before the library is used */
	const char *direct;	  /* ANYRDMA_DIRECT of both, else auto */
	bool raw;		  /* QPs without the connection manager */
	bool pending;		  /* nothing may be held before it is accepted */
	void (*decide)(void);	  /* at the listener: before it accepts */
	bool refused[2];	  /* the kernel refuses access to it; else: skipped */
	enum may may[2];
	bool not_passed;	/* descriptors of memory are opened, never sent */
	bool by_tcp;		/* not even a link */
	void *words_at;		/* of the listener's struct target; NULL: anywhere */
	void (*after[2])(void); /* at the end */
	bool apart;		/* they do not wait for each other after that */
};

/* Memory that both processes share; a program that was exec'ed maps it by here_fd. */
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
/* Set by a prepare[] that forks: the child goes on, and the parent has stored the child's
 * pid in target[me].pid. */
extern bool inside;

void scene_run(const struct scene *s);

#endif
