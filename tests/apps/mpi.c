/* SPDX-License-Identifier: BSD-2-Clause */
/* What an MPI program asks of a network, every result checked: messages of all sizes, collectives,
 * one-sided operations. Compiled by each MPI's own mpicc (mpi.sh), run with 2 to 8 ranks.
 *
 *	mpi [quick]	quick: small messages and two collectives
 *
 * Rank 0 prints a line per part and "all is right" at the end; a wrong byte ends all ranks. */
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 8 << 20, GUARD = 64, WINDOW = 16, TAG = 7 };

static int rank, ranks;
static uint8_t *out, *in;

#define SIZES(a) ((int)(sizeof(a) / sizeof((a)[0])))

static const int sizes[] = { 0,	     1,	      2,       7,	 8,	64,    79,
			     80,     255,     256,     1000,	 1024,	4096,  8191,
			     8192,   8255,    8256,    12288,	 32768, 65536, 65537,
			     262144, 1 << 20, 4 << 20, MAX_BYTES };
static const int few_sizes[] = { 0, 1, 8, 100, 5000, 100000 };

__attribute__((format(printf, 1, 2), noreturn)) static void wrong(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "rank %d of %d: ", rank, ranks);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

#define CHECK(cond) \
	do { \
		if (!(cond)) \
			wrong("line %d: %s", __LINE__, #cond); \
	} while (0)

static void part(const char *name)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank) {
		printf("%s\n", name);
		fflush(stdout);
	}
}

/* Byte i of a message: what a shifted, repeated or foreign message would not have. */
static uint8_t byte_of(uint32_t seed, uint32_t i)
{
	return (uint8_t)((i * 2654435761u ^ seed * 40503u) >> 13);
}

static uint32_t seed_of(int from, int to, int n)
{
	return (uint32_t)(from * 64 + to) * 1009u + (uint32_t)n;
}

static void fill(uint8_t *p, int n, uint32_t seed)
{
	for (int i = 0; i < n; i++)
		p[i] = byte_of(seed, (uint32_t)i);
}

static void clear(uint8_t *p, int n)
{
	memset(p, 0xee, (size_t)n + GUARD);
}

static void expect(const uint8_t *p, int n, uint32_t seed, const char *what)
{
	for (int i = 0; i < n; i++)
		if (p[i] != byte_of(seed, (uint32_t)i))
			wrong("%s: byte %d of %d is 0x%02x", what, i, n, p[i]);
	for (int i = 0; i < GUARD; i++)
		if (p[n + i] != 0xee)
			wrong("%s: byte %d behind %d was written", what, i, n);
}

/* ---- two by two: rank 2k with rank 2k + 1 --------------------------------------- */

static int partner(void)
{
	int p = rank ^ 1;

	return p < ranks ? p : MPI_PROC_NULL;
}

enum how { BLOCKING, PREPOSTED, UNEXPECTED, SYNCHRONOUS, PERSISTENT };

static void send_as(enum how how, int n, int to)
{
	MPI_Request r;

	if (how == SYNCHRONOUS) {
		MPI_Ssend(out, n, MPI_BYTE, to, TAG, MPI_COMM_WORLD);
	} else if (how == PERSISTENT) {
		MPI_Send_init(out, n, MPI_BYTE, to, TAG, MPI_COMM_WORLD, &r);
		for (int i = 0; i < 3; i++) {
			MPI_Start(&r);
			MPI_Wait(&r, MPI_STATUS_IGNORE);
		}
		MPI_Request_free(&r);
	} else {
		MPI_Send(out, n, MPI_BYTE, to, TAG, MPI_COMM_WORLD);
	}
}

static void check_status(const MPI_Status *s, int from, int n)
{
	int count;

	MPI_Get_count(s, MPI_BYTE, &count);
	CHECK(s->MPI_SOURCE == from && s->MPI_TAG == TAG && count == n);
}

static void receive_as(enum how how, int n, int from, bool any)
{
	int source = any ? MPI_ANY_SOURCE : from, tag = any ? MPI_ANY_TAG : TAG;
	uint32_t seed = seed_of(from, rank, n);
	MPI_Request r;
	MPI_Status s;

	clear(in, n);
	if (how == PREPOSTED) {
		MPI_Irecv(in, n, MPI_BYTE, source, tag, MPI_COMM_WORLD, &r);
		MPI_Send(NULL, 0, MPI_BYTE, from, TAG + 1, MPI_COMM_WORLD);
		MPI_Wait(&r, &s);
	} else if (how == UNEXPECTED) {
		MPI_Probe(source, tag, MPI_COMM_WORLD, &s);
		check_status(&s, from, n);
		MPI_Recv(in, n, MPI_BYTE, source, tag, MPI_COMM_WORLD, &s);
	} else if (how == PERSISTENT) {
		MPI_Recv_init(in, n, MPI_BYTE, source, tag, MPI_COMM_WORLD, &r);
		for (int i = 0; i < 3; i++) {
			clear(in, n);
			MPI_Start(&r);
			MPI_Wait(&r, &s);
			expect(in, n, seed, "persistent");
		}
		MPI_Request_free(&r);
	} else {
		MPI_Recv(in, n, MPI_BYTE, source, tag, MPI_COMM_WORLD, &s);
	}
	check_status(&s, from, n);
	expect(in, n, seed, "message");
}

static void one_way(enum how how, int n, bool any)
{
	int peer = partner();

	if (peer == MPI_PROC_NULL)
		return;
	for (int turn = 0; turn < 2; turn++) {
		if ((rank & 1) == turn) {
			fill(out, n, seed_of(rank, peer, n));
			if (how == PREPOSTED)
				MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG + 1, MPI_COMM_WORLD,
					 MPI_STATUS_IGNORE);
			send_as(how, n, peer);
		} else {
			receive_as(how, n, peer, any);
		}
	}
}

static void messages(const int *list, int n)
{
	for (int i = 0; i < n; i++) {
		for (enum how how = BLOCKING; how <= PERSISTENT; how++)
			one_way(how, list[i], false);
		one_way(PREPOSTED, list[i], true);
	}
}

/* Every rank to every other at once, in an order that the receiver does not expect. */
static void everybody_at_once(int n)
{
	MPI_Request r[2 * 8 * WINDOW];
	int count = 0, at = 0, step = n + GUARD;

	for (int p = 0; p < ranks; p++)
		for (int w = 0; p != rank && w < WINDOW; w++, at++) {
			fill(out + at * step, n, seed_of(rank, p, w));
			MPI_Isend(out + at * step, n, MPI_BYTE, p, w, MPI_COMM_WORLD,
				  &r[count++]);
		}
	at = 0;
	for (int p = 0; p < ranks; p++)
		for (int w = WINDOW - 1; p != rank && w >= 0; w--, at++) {
			clear(in + at * step, n);
			MPI_Irecv(in + at * step, n, MPI_BYTE, p, w, MPI_COMM_WORLD,
				  &r[count++]);
		}
	MPI_Waitall(count, r, MPI_STATUSES_IGNORE);
	at = 0;
	for (int p = 0; p < ranks; p++)
		for (int w = WINDOW - 1; p != rank && w >= 0; w--, at++)
			expect(in + at * step, n, seed_of(p, rank, w), "of everybody");
}

/* Columns of a matrix: a datatype with gaps. */
static void with_gaps(void)
{
	enum { N = 300 };
	int *m = (int *)out, *back = (int *)in, peer = partner();
	MPI_Datatype column;

	if (peer == MPI_PROC_NULL)
		return;
	MPI_Type_vector(N, 1, N, MPI_INT, &column);
	MPI_Type_commit(&column);
	for (int i = 0; i < N * N; i++) {
		m[i] = rank * N * N + i;
		back[i] = -1;
	}
	MPI_Sendrecv(m + 3, 1, column, peer, TAG, back + 5, 1, column, peer, TAG,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < N * N; i++)
		CHECK(back[i] == (i % N == 5 ? peer * N * N + i - 2 : -1));
	MPI_Type_free(&column);
}

/* ---- collectives ---------------------------------------------------------------- */

static void broadcasts(const int *list, int n)
{
	for (int i = 0; i < n; i++) {
		int root = i % ranks;
		uint32_t seed = seed_of(root, 0, list[i]);

		clear(in, list[i]);
		if (rank == root)
			fill(in, list[i], seed);
		MPI_Bcast(in, list[i], MPI_BYTE, root, MPI_COMM_WORLD);
		expect(in, list[i], seed, "broadcast");
	}
}

static long sum_of_ranks(void)
{
	return (long)ranks * (ranks - 1) / 2;
}

static void reductions(const int *list, int n)
{
	long *a = (long *)out, *b = (long *)in;
	double *x = (double *)out, *y = (double *)in;

	for (int i = 0; i < n; i++) {
		int c = list[i] / 8;

		for (int k = 0; k < c; k++)
			a[k] = rank + k;
		MPI_Allreduce(a, b, c, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		for (int k = 0; k < c; k++)
			CHECK(b[k] == sum_of_ranks() + (long)k * ranks);
		MPI_Allreduce(a, b, c, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
		for (int k = 0; k < c; k++)
			CHECK(b[k] == ranks - 1 + k);
		MPI_Allreduce(a, b, c, MPI_LONG, MPI_BXOR, MPI_COMM_WORLD);
		for (int k = 0; k < c; k++) {
			long v = 0;

			for (int p = 0; p < ranks; p++)
				v ^= p + k;
			CHECK(b[k] == v);
		}
		for (int k = 0; k < c; k++)
			x[k] = 0.5 * (rank + 1) + k;
		MPI_Reduce(x, y, c, MPI_DOUBLE, MPI_MIN, i % ranks, MPI_COMM_WORLD);
		for (int k = 0; rank == i % ranks && k < c; k++)
			CHECK(y[k] == 0.5 + k);
		MPI_Scan(a, b, 0, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	}
}

static void gathers(int n)
{
	int each = n + GUARD;

	fill(out, n, seed_of(rank, 0, n));
	for (int p = 0; p < ranks; p++)
		clear(in + p * n, n);
	MPI_Allgather(out, n, MPI_BYTE, in, n, MPI_BYTE, MPI_COMM_WORLD);
	for (int p = 0; p < ranks; p++)
		for (int i = 0; i < n; i++)
			CHECK(in[p * n + i] == byte_of(seed_of(p, 0, n), (uint32_t)i));
	expect(in + (ranks - 1) * n, n, seed_of(ranks - 1, 0, n), "allgather");
	for (int p = 0; p < ranks; p++)
		fill(out + p * n, n, seed_of(rank, p, n));
	for (int p = 0; p < ranks; p++)
		clear(in + p * n, n);
	MPI_Alltoall(out, n, MPI_BYTE, in, n, MPI_BYTE, MPI_COMM_WORLD);
	for (int p = 0; p < ranks; p++)
		for (int i = 0; i < n; i++)
			CHECK(in[p * n + i] == byte_of(seed_of(p, rank, n), (uint32_t)i));
	if (!rank)
		for (int p = 0; p < ranks; p++)
			fill(out + p * each, n, seed_of(0, p, n));
	clear(in, n);
	MPI_Scatter(out, each, MPI_BYTE, in, each, MPI_BYTE, 0, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		CHECK(in[i] == byte_of(seed_of(0, rank, n), (uint32_t)i));
}

/* Several collectives in flight at once, beside messages. */
static void non_blocking(int n)
{
	enum { AT_ONCE = 8 };
	MPI_Request r[AT_ONCE + 1];
	long *a = (long *)out, *b = (long *)in;
	int c = n / 8, from = MPI_PROC_NULL;

	for (int q = 0; q < AT_ONCE; q++) {
		for (int k = 0; k < c; k++) {
			a[q * c + k] = (long)rank * (q + 1) + k;
			b[q * c + k] = -1;
		}
		MPI_Iallreduce(a + q * c, b + q * c, c, MPI_LONG, MPI_SUM, MPI_COMM_WORLD,
			       &r[q]);
	}
	MPI_Ibarrier(MPI_COMM_WORLD, &r[AT_ONCE]);
	MPI_Sendrecv(&rank, 1, MPI_INT, partner(), TAG, &from, 1, MPI_INT, partner(), TAG,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	CHECK(from == partner());
	MPI_Waitall(AT_ONCE + 1, r, MPI_STATUSES_IGNORE);
	for (int q = 0; q < AT_ONCE; q++)
		for (int k = 0; k < c; k++)
			CHECK(b[q * c + k] == sum_of_ranks() * (q + 1) + (long)k * ranks);
}

static void communicators(void)
{
	MPI_Comm half, all;
	long v = rank, sum = -1;
	int n;

	MPI_Comm_dup(MPI_COMM_WORLD, &all);
	MPI_Comm_split(all, rank & 1, -rank, &half);
	MPI_Comm_size(half, &n);
	MPI_Allreduce(&v, &sum, 1, MPI_LONG, MPI_SUM, half);
	v = 0;
	for (int p = rank & 1; p < ranks; p += 2)
		v += p;
	CHECK(sum == v && n == (ranks + !(rank & 1)) / 2);
	MPI_Comm_free(&half);
	MPI_Comm_free(&all);
}

/* ---- one-sided ------------------------------------------------------------------ */

enum { WORDS = 1 << 16 };

static int next_of(int r)
{
	return (r + 1) % ranks;
}

static int prev_of(int r)
{
	return (r + ranks - 1) % ranks;
}

static void fences(MPI_Win w, long *mem, int c)
{
	long *a = (long *)out, *b = (long *)in;

	for (int k = 0; k < c; k++) {
		a[k] = rank * 1000003L + k;
		mem[k] = b[k] = -1;
	}
	mem[c] = b[c] = -7;
	MPI_Win_fence(0, w);
	MPI_Put(a, c, MPI_LONG, next_of(rank), 0, c, MPI_LONG, w);
	MPI_Win_fence(0, w);
	for (int k = 0; k < c; k++)
		CHECK(mem[k] == prev_of(rank) * 1000003L + k);
	CHECK(mem[c] == -7);
	MPI_Get(b, c, MPI_LONG, next_of(rank), 0, c, MPI_LONG, w);
	MPI_Win_fence(0, w);
	for (int k = 0; k < c; k++)
		CHECK(b[k] == rank * 1000003L + k);
	CHECK(b[c] == -7);
	for (int k = 0; k < c; k++)
		mem[k] = k;
	MPI_Win_fence(0, w);
	for (int k = 0; k < c; k++)
		a[k] = rank + 1;
	MPI_Accumulate(a, c, MPI_LONG, 0, 0, c, MPI_LONG, MPI_SUM, w);
	MPI_Win_fence(0, w);
	for (int k = 0; !rank && k < c; k++)
		CHECK(mem[k] == k + sum_of_ranks() + ranks);
}

/* Each rank draws from one counter: no number twice, none left out. */
static void counters(MPI_Win w, long *mem)
{
	enum { DRAWS = 200 };
	long one = 1, got, last = -1, total;

	mem[0] = mem[1] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, w);
	MPI_Win_sync(w);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < DRAWS; i++) {
		MPI_Fetch_and_op(&one, &got, MPI_LONG, 0, 0, MPI_SUM, w);
		MPI_Win_flush(0, w);
		CHECK(got > last && got < (long)DRAWS * ranks);
		last = got;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Fetch_and_op(NULL, &total, MPI_LONG, 0, 0, MPI_NO_OP, w);
	MPI_Win_flush(0, w);
	CHECK(total == (long)DRAWS * ranks);
	for (int i = 0; i < DRAWS; i++) {
		long seen, old = 0, new;

		do {
			seen = old;
			new = seen + 1;
			MPI_Compare_and_swap(&new, &seen, &old, MPI_LONG, 0, 1, w);
			MPI_Win_flush(0, w);
		} while (old != seen);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Get_accumulate(NULL, 0, MPI_LONG, &total, 1, MPI_LONG, 0, 1, 1, MPI_LONG,
			   MPI_NO_OP, w);
	MPI_Win_flush(0, w);
	CHECK(total == (long)DRAWS * ranks);
	MPI_Win_unlock_all(w);
}

/* A lock that excludes: nobody sees two words differ. */
static void locks(MPI_Win w, long *mem)
{
	long pair[2];

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w);
	mem[0] = mem[1] = 0;
	MPI_Win_unlock(rank, w);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 30; i++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w);
		MPI_Get(pair, 2, MPI_LONG, 0, 0, 2, MPI_LONG, w);
		MPI_Win_flush(0, w);
		CHECK(pair[0] == pair[1]);
		pair[0]++;
		pair[1]++;
		MPI_Put(pair, 2, MPI_LONG, 0, 0, 2, MPI_LONG, w);
		MPI_Win_unlock(0, w);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w);
	MPI_Get(pair, 2, MPI_LONG, 0, 0, 2, MPI_LONG, w);
	MPI_Win_unlock(0, w);
	CHECK(pair[0] == 30L * ranks && pair[1] == pair[0]);
}

/* Post, start, complete, wait: each exposes its memory to the rank before it. */
static void exposures(MPI_Win w, long *mem, int c)
{
	int to = next_of(rank), from = prev_of(rank);
	MPI_Group all, origin, target;
	long *a = (long *)out;

	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_incl(all, 1, &from, &origin);
	MPI_Group_incl(all, 1, &to, &target);
	for (int round = 0; round < 5; round++) {
		for (int k = 0; k < c; k++)
			a[k] = rank * 1000L + k * 7L + round;
		MPI_Win_post(origin, 0, w);
		MPI_Win_start(target, 0, w);
		MPI_Put(a, c, MPI_LONG, to, 0, c, MPI_LONG, w);
		MPI_Win_complete(w);
		MPI_Win_wait(w);
		for (int k = 0; k < c; k++)
			CHECK(mem[k] == from * 1000L + k * 7L + round);
	}
	MPI_Group_free(&origin);
	MPI_Group_free(&target);
	MPI_Group_free(&all);
}

static void windows(bool allocate)
{
	static const int counts[] = { 1, 9, 1000, WORDS - 1 };
	MPI_Aint bytes = (MPI_Aint)WORDS * (MPI_Aint)sizeof(long);
	long *mem = NULL;
	MPI_Win w;

	if (allocate) {
		MPI_Win_allocate(bytes, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mem,
				 &w);
	} else {
		mem = malloc((size_t)bytes);
		MPI_Win_create(mem, bytes, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD,
			       &w);
	}
	for (int i = 0; i < SIZES(counts); i++)
		fences(w, mem, counts[i]);
	exposures(w, mem, 500);
	MPI_Barrier(MPI_COMM_WORLD);
	counters(w, mem);
	MPI_Barrier(MPI_COMM_WORLD);
	locks(w, mem);
	MPI_Win_free(&w);
	if (!allocate)
		free(mem);
}

/* ---- all of it ------------------------------------------------------------------ */

static void everything(void)
{
	part("messages");
	messages(sizes, SIZES(sizes));
	part("messages of everybody to everybody");
	everybody_at_once(100);
	everybody_at_once(20000);
	with_gaps();
	part("collectives");
	broadcasts(sizes, SIZES(sizes));
	reductions(few_sizes, SIZES(few_sizes));
	for (int i = 0; i < SIZES(few_sizes); i++) {
		gathers(few_sizes[i]);
		non_blocking(few_sizes[i]);
	}
	communicators();
	part("one-sided, memory of the program");
	windows(false);
	part("one-sided, memory of the MPI");
	windows(true);
}

int main(int argc, char **argv)
{
	bool quick = argc > 1 && !strcmp(argv[1], "quick");

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	CHECK(ranks >= 2 && ranks <= 8);
	out = malloc(MAX_BYTES + 8 * WINDOW * GUARD);
	in = malloc(MAX_BYTES + 8 * WINDOW * GUARD);
	if (quick) {
		messages(few_sizes, SIZES(few_sizes));
		reductions(few_sizes, SIZES(few_sizes));
	} else {
		everything();
	}
	part("all is right");
	free(out);
	free(in);
	MPI_Finalize();
	return 0;
}
