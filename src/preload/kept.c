/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/kept.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

struct kept {
	pthread_mutex_t lock; /* of several processes; done, error */
	size_t len, done;
	int error;
	uint8_t data[];
};

struct kept *kept_create(const uint8_t *data, size_t len, int error)
{
	struct kept *k = mmap(NULL, sizeof(*k) + len, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t attr;

	if (k == MAP_FAILED)
		return NULL;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&k->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	if (len)
		memcpy(k->data, data, len);
	k->len = len;
	k->error = error;
	return k;
}

void kept_leave(struct kept *k)
{
	if (k)
		munmap(k, sizeof(*k) + k->len);
}

/* Who dies with the lock has either advanced `done` or not. */
static void kept_lock(struct kept *k)
{
	if (pthread_mutex_lock(&k->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&k->lock);
}

ssize_t kept_read(struct kept *k, const struct iovec *iov, int count, int flags)
{
	size_t at, n;
	ssize_t ret;

	kept_lock(k);
	at = k->done;
	for (int i = 0; i < count && at < k->len; i++) {
		n = k->len - at < iov[i].iov_len ? k->len - at : iov[i].iov_len;
		memcpy(iov[i].iov_base, k->data + at, n);
		at += n;
	}
	ret = (ssize_t)(at - k->done);
	if (!ret && k->error) {
		ret = -k->error;
		k->error = 0;
	}
	if (!(flags & MSG_PEEK))
		k->done = at;
	pthread_mutex_unlock(&k->lock);
	return ret;
}

size_t kept_len(struct kept *k)
{
	size_t n;

	kept_lock(k);
	n = k->len - k->done;
	pthread_mutex_unlock(&k->lock);
	return n;
}
