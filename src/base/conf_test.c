/* SPDX-License-Identifier: BSD-2-Clause */
/* The table is read once per process: every case looks at it in a child. */
#include "base/conf.h"
#include "base/log.h"
#include "tests/t.h"

#include <fcntl.h>
#include <sys/wait.h>

static const char *manual; /* path of the manual's source, when given */

/* Runs check in a child with NAME=VALUE set and stderr caught in out. */
static bool child(const char *name, const char *value, bool (*check)(void),
		  char *out, size_t size)
{
	int p[2], status;
	ssize_t n, have = 0;
	pid_t pid;

	if (pipe(p))
		return false;
	pid = fork();
	if (!pid) {
		dup2(p[1], 2);
		setenv(name, value, 1);
		_exit(check() ? 0 : 1);
	}
	close(p[1]);
	while ((n = read(p[0], out + have, size - 1 - (size_t)have)) > 0)
		have += n;
	out[have] = 0;
	close(p[0]);
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static bool is_default(void)
{
	const struct conf *c = conf_get();

	return !c->addr && !c->ports_identity && !c->nofile_keep &&
	       !c->strict_timeout && !c->crc && !c->sndbuf && !c->rcvbuf &&
	       c->cm_retry_ms == 4000 && c->cm_retries == 15 &&
	       c->cm_reply_ms == 5000;
}

static bool is_identity(void) { return conf_get()->ports_identity; }
static bool is_unguarded(void)
{
	return conf_get()->guard_off;
}

static bool is_trusting(void)
{
	return conf_get()->pages_trust;
}

static bool is_keep(void) { return conf_get()->nofile_keep; }
static bool is_strict(void) { return conf_get()->strict_timeout; }
static bool is_crc(void) { return conf_get()->crc; }
static bool is_sndbuf(void) { return conf_get()->sndbuf == 4096; }
static bool is_retry(void) { return conf_get()->cm_retry_ms == 10; }
static bool is_retries0(void) { return conf_get()->cm_retries == 0; }

static bool is_addr(void)
{
	const char *a = conf_get()->addr;

	unsetenv("ANYRDMA_ADDR");
	return a && !strcmp(a, "10.0.0.1,::1");
}

static void defaults(void)
{
	char out[1000];

	CHECK(child("ANYRDMA_NOTHING", "1", is_default, out, sizeof(out)));
	CHECK(child("ANYRDMA_CRC", "", is_default, out, sizeof(out)));
	CHECK_STR(out, "");
}

static void values(void)
{
	static const struct {
		const char *name, *value;
		bool (*check)(void);
	} row[] = {
		{ "ANYRDMA_PORTS", "identity", is_identity },
		{ "ANYRDMA_GUARD", "off", is_unguarded },
		{ "ANYRDMA_NOFILE", "keep", is_keep },
		{ "ANYRDMA_PAGES", "trust", is_trusting },
		{ "ANYRDMA_STRICT_TIMEOUT", "1", is_strict },
		{ "ANYRDMA_CRC", "on", is_crc },
		{ "ANYRDMA_SNDBUF", "4096", is_sndbuf },
		{ "ANYRDMA_CM_RETRY_MS", "10", is_retry },
		{ "ANYRDMA_CM_RETRIES", "0", is_retries0 },
		{ "ANYRDMA_ADDR", "10.0.0.1,::1", is_addr },
	};
	char out[1000];

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		if (!CHECK(child(row[i].name, row[i].value, row[i].check, out,
				 sizeof(out))))
			diag("%s=%s", row[i].name, row[i].value);
		CHECK_STR(out, "");
	}
}

/* A value that means nothing: the default, and a line that names it. */
static void nonsense(void)
{
	static const char *const row[][2] = {
		{ "ANYRDMA_PORTS", "both" },	{ "ANYRDMA_CRC", "yes" },
		{ "ANYRDMA_SNDBUF", "-1" },	{ "ANYRDMA_SNDBUF", "12k" },
		{ "ANYRDMA_RCVBUF", "99999999999999999999" },
		{ "ANYRDMA_CM_RETRY_MS", "0" }, { "ANYRDMA_LOG", "loud" },
	};
	char out[1000], want[100];

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		CHECK(child(row[i][0], row[i][1], is_default, out, sizeof(out)));
		snprintf(want, sizeof(want), "%s=%s:", row[i][0], row[i][1]);
		if (!strcmp(row[i][0], "ANYRDMA_LOG"))
			continue; /* read by the first message only */
		if (!CHECK(strstr(out, want) != NULL))
			diag("%s gave: %s", want, out);
	}
}

static bool log_some(void)
{
	log_error("e %d", 1);
	log_warn("w");
	log_info("i");
	log_debug("d");
	errno = ENOENT;
	log_error("%s", "x");
	return errno == ENOENT;
}

static bool log_long(void)
{
	char big[3000];

	memset(big, 'a', sizeof(big));
	big[sizeof(big) - 1] = 0;
	log_error("%s", big);
	return true;
}

static void log_levels(void)
{
	char out[4000];

	CHECK(child("ANYRDMA_LOG", "warn", log_some, out, sizeof(out)));
	CHECK(strstr(out, "]: error: e 1\n") && strstr(out, "]: warn: w\n"));
	CHECK(!strstr(out, "info") && !strstr(out, "debug"));
	CHECK(child("ANYRDMA_LOG", "debug", log_some, out, sizeof(out)));
	CHECK(strstr(out, "]: info: i\n") && strstr(out, "]: debug: d\n"));
	CHECK(child("ANYRDMA_LOG", "loud", log_some, out, sizeof(out)));
	CHECK(strstr(out, "ANYRDMA_LOG=loud") && !strstr(out, "warn: "));
	CHECK(child("ANYRDMA_LOG", "error", log_long, out, sizeof(out)));
	CHECK(strlen(out) < 1024 && strstr(out, "aaa...\n"));
}

static void log_file(void)
{
	char out[1000], path[] = "/tmp/anyrdma-conf-XXXXXX", env[100];
	int fd = mkstemp(path);
	ssize_t n;

	REQUIRE(fd >= 0);
	snprintf(env, sizeof(env), "info:%s", path);
	CHECK(child("ANYRDMA_LOG", env, log_some, out, sizeof(out)));
	CHECK_STR(out, "");
	n = read(fd, out, sizeof(out) - 1);
	out[n > 0 ? n : 0] = 0;
	CHECK(strstr(out, "]: info: i\n") && !strstr(out, "debug"));
	close(fd);
	unlink(path);
	CHECK(child("ANYRDMA_LOG", "info:/nonexistent/file", log_some, out, sizeof(out)));
	CHECK(strstr(out, "cannot open /nonexistent/file") && strstr(out, "info: i\n"));
}

/* The manual has a paragraph "*NAME* (default: DEF)" for every row. */
static void manual_has_every_row(void)
{
	const char *name, *def, *help;
	char text[20000], want[200];
	ssize_t n;
	int fd;

	SKIP_IF(!manual, "no manual given");
	fd = open(manual, O_RDONLY);
	REQUIRE(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	REQUIRE(n > 0);
	text[n] = 0;
	for (unsigned i = 0; conf_row(i, &name, &def, &help); i++) {
		snprintf(want, sizeof(want), "*%s* (default: %s)", name,
			 *def ? def : "unset");
		if (!CHECK(strstr(text, want) != NULL))
			diag("missing: %s", want);
		CHECK(*help);
	}
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "--manual")) {
		manual = argv[2];
		argc -= 2;
		argv += 2;
	}
	t_init(argc, argv);
	unsetenv("ANYRDMA_LOG");
	T_RUN(defaults);
	T_RUN(values);
	T_RUN(nonsense);
	T_RUN(log_levels);
	T_RUN(log_file);
	T_RUN(manual_has_every_row);
	return t_done();
}
