/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages that come late: whoever touches such a page waits until the case gives it, in user
 * space and in the kernel (userfaultfd). So a copy stands where the case wants it to. */
#ifndef ANYRDMA_TESTS_LATE_H
#define ANYRDMA_TESTS_LATE_H

#include "conf.h"

enum { LATE_PAGE = 4096 };

struct late {
	int fd;
	uint8_t *page;
	uint8_t data[LATE_PAGE]; /* what it holds */
};

/* Skips the case where there can be no such pages. Called before others are started. */
void late_need(void);
/* Takes away the page at p, which keeps its contents. p is of private memory. */
void late_take(struct late *l, uint8_t *p);
/* Waits until somebody waits for the page. */
#define late_wanted(l) WAIT_FOR(conf_readable((l)->fd))
/* The page is there. */
void late_give(struct late *l);

#endif
