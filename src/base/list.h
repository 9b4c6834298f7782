/* SPDX-License-Identifier: BSD-2-Clause */
/* Intrusive circular doubly linked list. A node not on a list is either
 * zeroed or points to itself; list_del() leaves it pointing to itself. */
#ifndef ANYRDMA_BASE_LIST_H
#define ANYRDMA_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

#define LIST_INIT(name) { &(name), &(name) }

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

/* True while the node is on some list. */
static inline bool list_linked(const struct list *n)
{
	return n->next && n->next != n;
}

static inline void list_insert_(struct list *n, struct list *prev,
				struct list *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void list_add_tail(struct list *head, struct list *n)
{
	list_insert_(n, head->prev, head);
}

static inline void list_add_head(struct list *head, struct list *n)
{
	list_insert_(n, head, head->next);
}

/* Safe on a node that is on no list. */
static inline void list_del(struct list *n)
{
	if (n->next) {
		n->next->prev = n->prev;
		n->prev->next = n->next;
	}
	list_init(n);
}

static inline struct list *list_pop(struct list *head)
{
	struct list *n = head->next;

	if (n == head)
		return NULL;
	list_del(n);
	return n;
}

#define list_entry(node, type, member) container_of(node, type, member)

#define list_for_each(pos, head, member) \
	for (pos = list_entry((head)->next, __typeof__(*pos), member); \
	     &pos->member != (head); \
	     pos = list_entry(pos->member.next, __typeof__(*pos), member))

/* tmp keeps the successor, so that pos may leave the list in the body. */
#define list_for_each_safe(pos, tmp, head, member) \
	for (pos = list_entry((head)->next, __typeof__(*pos), member), \
	     tmp = list_entry(pos->member.next, __typeof__(*pos), member); \
	     &pos->member != (head); \
	     pos = tmp, \
	     tmp = list_entry(tmp->member.next, __typeof__(*tmp), member))

#endif
