/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/names.h"
#include "tests/t.h"

static device_name names[8];

/* The names that come of it, with commas between. */
static const char *made(const char *text, unsigned n)
{
	static char all[8 * sizeof(device_name)];

	memset(names, 0x55, sizeof(names));
	if (names_make(text, n, names))
		return "refused";
	all[0] = 0;
	for (unsigned i = 0; i < n; i++) {
		strcat(all, i ? "," : "");
		strcat(all, names[i]);
	}
	return all;
}

#define CHECK_MADE(text, n, want) CHECK(!strcmp(made(text, n), want))

static void without_a_setting(void)
{
	CHECK_MADE(NULL, 1, "anyrdma0");
	CHECK_MADE("", 3, "anyrdma0,anyrdma1,anyrdma2");
}

static void lists(void)
{
	CHECK_MADE("mlx5_0,mlx5_1", 2, "mlx5_0,mlx5_1");
	CHECK_MADE("rocep1s0f0,rocep1s0f1", 2, "rocep1s0f0,rocep1s0f1");
	CHECK_MADE("a,b,c", 3, "a,b,c");
	CHECK_MADE("a.b-c", 1, "a.b-c");
}

static void one_name_counts_up(void)
{
	CHECK_MADE("mlx5_0", 1, "mlx5_0");
	CHECK_MADE("rail", 1, "rail");
	CHECK_MADE("mlx5_0", 3, "mlx5_0,mlx5_1,mlx5_2");
	CHECK_MADE("mlx5_9", 2, "mlx5_9,mlx5_10");
	CHECK_MADE("n08", 3, "n08,n09,n10");
	CHECK_MADE("rail", 2, "rail0,rail1");
	CHECK_MADE("ib0,mlx5_2", 3, "ib0,mlx5_2,mlx5_3");
	CHECK_MADE("7", 2, "7,8");
	CHECK_MADE("x123456789012", 2, "x123456789012,x123456789013");
	CHECK_MADE("x999999999", 2, "x999999999,x1000000000");
}

static void refused(void)
{
	static const char long63[] =
		"abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabc";
	char long64[65];

	snprintf(long64, sizeof(long64), "%sd", long63);
	CHECK(!strcmp(made(long63, 1), long63));
	CHECK_MADE(long64, 1, "refused");
	CHECK_MADE(long63, 2, "refused"); /* with a number it is too long */
	CHECK_MADE("a/b", 1, "refused");
	CHECK_MADE("..", 1, "refused");
	CHECK_MADE("-a", 1, "refused");
	CHECK_MADE("a b", 1, "refused");
	CHECK_MADE("a%d", 1, "refused");
	CHECK_MADE("\xc3\xa4", 1, "refused");
	CHECK_MADE("a,,b", 3, "refused");
	CHECK_MADE("a,", 2, "refused");
	CHECK_MADE("a,b", 1, "refused");
	CHECK_MADE("a,a", 2, "refused");
	CHECK_MADE("a1,a0", 3, "refused"); /* a1, a0, a1 */
}

static void refused_means_default(void)
{
	CHECK(names_make("a/b", 2, names));
	CHECK(!strcmp(names[0], "anyrdma0") && !strcmp(names[1], "anyrdma1"));
	CHECK(names_make("a/b", 1, names));
	CHECK(!strcmp(names[0], "anyrdma0"));
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(without_a_setting);
	T_RUN(lists);
	T_RUN(one_name_counts_up);
	T_RUN(refused);
	T_RUN(refused_means_default);
	return t_done();
}
