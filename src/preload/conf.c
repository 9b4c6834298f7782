/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/conf.h"
#include "base/conf.h"
#include "preload/real.h"

#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONFIG "/etc/rdma/rsocket/preload_config"

enum { ANY = -1 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
	bool lines;  /* the file has any that mean something: only what they name */
	bool v4, v6; /* TCP over IPv4, over IPv6 */
} want;

static bool word(const char *text, const char *name)
{
	if (!strncasecmp(text, "AF_", 3) || !strncasecmp(text, "PF_", 3))
		text += 3;
	return !strcasecmp(text, name);
}

/* "program domain type protocol", * for any. The original takes a program's name as a
 * prefix ("ssh" is sshd, too); here it is the name, and a * at its end makes it one. */
static bool is_program(const char *name)
{
	size_t len = strlen(name);

	if (len && name[len - 1] == '*')
		return !strncasecmp(name, program_invocation_short_name, len - 1);
	return !strcasecmp(name, program_invocation_short_name);
}

static void config_line(char *line)
{
	char *save, *field[4];
	bool any;

	if (*line == '#')
		return;
	for (int i = 0; i < 4; i++) {
		field[i] = strtok_r(i ? NULL : line, " \t\n", &save);
		if (!field[i])
			return;
	}
	any = !strcmp(field[1], "*");
	if (!any && !word(field[1], "INET") && !word(field[1], "INET6") &&
	    !word(field[1], "IB"))
		return;
	want.lines = true;
	if (!is_program(field[0]))
		return;
	if (strcmp(field[2], "*") && strcasecmp(field[2], "STREAM") &&
	    strcasecmp(field[2], "SOCK_STREAM"))
		return;
	if (strcmp(field[3], "*") && strcasecmp(field[3], "TCP") &&
	    strcasecmp(field[3], "IPPROTO_TCP"))
		return;
	want.v4 |= any || word(field[1], "INET");
	want.v6 |= any || word(field[1], "INET6");
}

static void config_read(void)
{
	FILE *file = fopen(CONFIG, "re");
	char line[512];

	if (file) {
		while (fgets(line, sizeof(line), file))
			config_line(line);
		fclose(file);
	}
	if (!want.lines)
		want.v4 = want.v6 = true;
}

bool conf_wants(int domain, int type, int protocol)
{
	type &= ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (type != SOCK_STREAM || (protocol && protocol != IPPROTO_TCP) ||
	    (domain != AF_INET && domain != AF_INET6) || !conf_after())
		return false;
	pthread_once(&once, config_read);
	return domain == AF_INET ? want.v4 : want.v6;
}

unsigned conf_after(void)
{
	return conf_get()->sockets_after;
}

static void option(int rsock, const char *name, int opt)
{
	const char *text = getenv(name);
	int value = text ? atoi(text) : 0;

	if (value)
		rs.rsetsockopt(rsock, SOL_RDMA, opt, &value, sizeof(value));
}

/* Programs count on what TCP takes before anybody reads; the memory is allocated when it
 * is needed. */
void conf_rsocket(int rsock)
{
	int room = 1 << 17; /* twice that, as the kernel has it */

	rs.rsetsockopt(rsock, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	rs.rsetsockopt(rsock, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	option(rsock, "RS_SQ_SIZE", RDMA_SQSIZE);
	option(rsock, "RS_RQ_SIZE", RDMA_RQSIZE);
	option(rsock, "RS_INLINE", RDMA_INLINE);
}
