/* SPDX-License-Identifier: BSD-2-Clause */
/* A client and a server of UCP that look at every byte: tags, streams, active messages, put and
 * get, atomics. They find each other by address and port (UCX's rdmacm).
 *
 *	ucp server ADDRESS PORT		prints "listening" when it does
 *	ucp client ADDRESS PORT
 *
 * Both print "all is right" at the end. Which transport carries the data UCX_TLS says. */
#include <ucp/api/ucp.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 4 << 20, GUARD = 64, AM_ID = 3, ADDS = 100 };
enum { TAG_DATA = 1, TAG_BACK = 2, TAG_KEY = 3, TAG_STEP = 4 };

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static ucp_conn_request_h request;
static bool server;
static uint8_t *out, *in;

static const size_t sizes[] = { 1,     8,     64,    79,     80,      81,	255,
				1000,  1016,  4096,  8191,   8255,    8256,	8257,
				16384, 65535, 65536, 262144, 1 << 20, MAX_BYTES };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", server ? "server" : "client");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void ok(ucs_status_t s, const char *what)
{
	if (s != UCS_OK)
		fail("%s: %s", what, ucs_status_string(s));
}

/* ---- what is sent, and whether it came ------------------------------------------- */

static uint8_t byte_of(uint32_t seed, size_t i)
{
	return (uint8_t)(((uint32_t)i * 2654435761u ^ seed * 40503u) >> 13);
}

static void fill(uint8_t *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = byte_of(seed, i);
}

static void clear(uint8_t *p, size_t n)
{
	memset(p, 0xee, n + GUARD);
}

static void expect(const uint8_t *p, size_t n, uint32_t seed, const char *what)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != byte_of(seed, i))
			fail("%s: byte %zu of %zu is 0x%02x", what, i, n, p[i]);
	for (size_t i = n; i < n + GUARD; i++)
		if (p[i] != 0xee)
			fail("%s: byte %zu behind %zu was written", what, i, n);
}

/* ---- requests -------------------------------------------------------------------- */

static void finish(ucs_status_ptr_t r, const char *what)
{
	ucs_status_t s;

	if (UCS_PTR_IS_ERR(r))
		fail("%s: %s", what, ucs_status_string(UCS_PTR_STATUS(r)));
	if (!r)
		return;
	while ((s = ucp_request_check_status(r)) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	ok(s, what);
	ucp_request_free(r);
}

static void flush(void)
{
	ucp_request_param_t p = { 0 };

	finish(ucp_ep_flush_nbx(ep, &p), "flush");
}

static void tag_send(const void *buf, size_t n, ucp_tag_t tag)
{
	ucp_request_param_t p = { 0 };

	finish(ucp_tag_send_nbx(ep, buf, n, tag, &p), "tag send");
}

static void tag_recv(void *buf, size_t n, ucp_tag_t tag)
{
	ucp_request_param_t p = { 0 };

	finish(ucp_tag_recv_nbx(worker, buf, n, tag, ~0ull, &p), "tag receive");
}

/* Both are here. */
static void step(void)
{
	uint32_t x = 0;

	if (server) {
		tag_recv(&x, sizeof(x), TAG_STEP);
		tag_send(&x, sizeof(x), TAG_STEP);
	} else {
		tag_send(&x, sizeof(x), TAG_STEP);
		tag_recv(&x, sizeof(x), TAG_STEP);
	}
}

/* ---- tags: unexpected or posted before, and with an answer from the matching ------ */

static void tag_round(size_t n, bool unexpected)
{
	ucp_request_param_t p = { 0 };
	ucp_tag_recv_info_t info;
	ucs_status_ptr_t r = NULL;
	uint32_t seed = (uint32_t)n * 2 + unexpected;

	if (!server) {
		fill(out, n, seed);
		clear(in, n);
		if (unexpected)
			tag_send(out, n, TAG_DATA);
		else
			finish(ucp_tag_send_sync_nbx(ep, out, n, TAG_DATA, &p),
			       "sync send");
		tag_recv(in, n, TAG_BACK);
		expect(in, n, seed + 77, "tag, back");
		return;
	}
	clear(in, n);
	if (unexpected) {
		while (!ucp_tag_probe_nb(worker, TAG_DATA, ~0ull, 0, &info))
			ucp_worker_progress(worker);
		if (info.length != n)
			fail("probe: %zu bytes instead of %zu", info.length, n);
	}
	r = ucp_tag_recv_nbx(worker, in, n, TAG_DATA, ~0ull, &p);
	finish(r, "tag receive");
	expect(in, n, seed, "tag");
	fill(out, n, seed + 77);
	tag_send(out, n, TAG_BACK);
}

static void tags(void)
{
	for (unsigned i = 0; i < SIZES; i++) {
		tag_round(sizes[i], false);
		tag_round(sizes[i], true);
	}
}

/* ---- streams --------------------------------------------------------------------- */

static void stream_send(size_t n, uint32_t seed)
{
	ucp_request_param_t p = { 0 };

	fill(out, n, seed);
	finish(ucp_stream_send_nbx(ep, out, n, &p), "stream send");
}

static void stream_recv(size_t n, uint32_t seed)
{
	ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
				  .flags = UCP_STREAM_RECV_FLAG_WAITALL };
	size_t len = n;

	clear(in, n);
	finish(ucp_stream_recv_nbx(ep, in, n, &len, &p), "stream receive");
	expect(in, n, seed, "stream");
}

static void streams(void)
{
	for (unsigned i = 0; i < SIZES; i++) {
		if (!server)
			stream_send(sizes[i], i);
		stream_recv(sizes[i], server ? i : i + 77);
		if (server)
			stream_send(sizes[i], i + 77);
	}
}

/* ---- active messages -------------------------------------------------------------- */

static size_t am_bytes;
static bool am_came;
static void *am_data; /* to be fetched: a rendezvous */

static ucs_status_t am_arrived(void *arg, const void *header, size_t header_length,
			       void *data, size_t length,
			       const ucp_am_recv_param_t *param)
{
	(void)arg;
	if (header_length != sizeof(am_bytes))
		fail("active message: a header of %zu bytes", header_length);
	memcpy(&am_bytes, header, sizeof(am_bytes));
	if (am_bytes != length)
		fail("active message: %zu bytes, %zu by its header", length, am_bytes);
	am_came = true;
	if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
		am_data = data;
		return UCS_INPROGRESS;
	}
	am_data = NULL;
	memcpy(in, data, length);
	return UCS_OK;
}

static void am_send(size_t n, uint32_t seed)
{
	ucp_request_param_t p = { 0 };

	fill(out, n, seed);
	finish(ucp_am_send_nbx(ep, AM_ID, &n, sizeof(n), out, n, &p), "active message");
}

static void am_recv(size_t n, uint32_t seed)
{
	ucp_request_param_t p = { 0 };

	while (!am_came)
		ucp_worker_progress(worker);
	am_came = false;
	if (am_bytes != n)
		fail("active message: %zu bytes instead of %zu", am_bytes, n);
	if (am_data)
		finish(ucp_am_recv_data_nbx(worker, am_data, in, n, &p),
		       "active message's data");
	expect(in, n, seed, "active message");
	clear(in, MAX_BYTES);
}

static void active_messages(void)
{
	clear(in, MAX_BYTES);
	step();
	for (unsigned i = 0; i < SIZES; i++) {
		if (!server)
			am_send(sizes[i], i + 1);
		am_recv(sizes[i], server ? i + 1 : i + 78);
		if (server)
			am_send(sizes[i], i + 78);
	}
}

/* ---- memory of the other ----------------------------------------------------------- */

static struct remote {
	uint64_t addr;
	uint64_t key_bytes;
	uint8_t key[512];
} far;
static uint8_t *mapped;
static ucp_mem_h mem;
static ucp_rkey_h rkey;

static void memory_show(void)
{
	ucp_mem_map_params_t p = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
						 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
				   .address = mapped,
				   .length = MAX_BYTES + GUARD };
	void *key;
	size_t n;

	ok(ucp_mem_map(context, &p, &mem), "mem_map");
	ok(ucp_rkey_pack(context, mem, &key, &n), "rkey_pack");
	if (n > sizeof(far.key))
		fail("a key of %zu bytes", n);
	memcpy(far.key, key, n);
	far.key_bytes = n;
	far.addr = (uintptr_t)mapped;
	ucp_rkey_buffer_release(key);
	tag_send(&far, sizeof(far), TAG_KEY);
}

static void puts_and_gets(void)
{
	ucp_request_param_t p = { 0 };

	for (unsigned i = 0; i < SIZES; i++) {
		if (server) {
			clear(mapped, sizes[i]);
			step();
			step();
			expect(mapped, sizes[i], i + 5, "put");
			fill(mapped, sizes[i], i + 9);
			step();
			step();
			continue;
		}
		step();
		fill(out, sizes[i], i + 5);
		finish(ucp_put_nbx(ep, out, sizes[i], far.addr, rkey, &p), "put");
		flush();
		step();
		step();
		clear(in, sizes[i]);
		finish(ucp_get_nbx(ep, in, sizes[i], far.addr, rkey, &p), "get");
		flush();
		expect(in, sizes[i], i + 9, "get");
		step();
	}
}

static uint64_t atomic(ucp_atomic_op_t op, uint64_t value, uint64_t expected)
{
	uint64_t reply = expected;
	ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FIELD_REPLY_BUFFER |
						  UCP_OP_ATTR_FIELD_DATATYPE,
				  .datatype = ucp_dt_make_contig(8),
				  .reply_buffer = &reply };

	finish(ucp_atomic_op_nbx(ep, op, &value, 1, far.addr, rkey, &p), "atomic");
	return reply;
}

static void equal(uint64_t got, uint64_t want, const char *what)
{
	if (got != want)
		fail("%s: %llu instead of %llu", what, (unsigned long long)got,
		     (unsigned long long)want);
}

static void atomics(void)
{
	ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE,
				  .datatype = ucp_dt_make_contig(8) };
	uint64_t v = 3, word = 1000;

	if (server) {
		memcpy(mapped, &word, sizeof(word));
		step();
		step();
		memcpy(&word, mapped, sizeof(word));
		equal(word, 424242, "the word in the end");
		return;
	}
	step();
	for (uint64_t i = 0; i < ADDS; i++)
		equal(atomic(UCP_ATOMIC_OP_ADD, i, 0), 1000 + i * (i - 1) / 2,
		      "fetch and add");
	word += ADDS * (ADDS - 1) / 2;
	for (unsigned i = 0; i < ADDS; i++)
		finish(ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &v, 1, far.addr, rkey,
					 &p),
		       "add");
	flush();
	word += v * ADDS;
	equal(atomic(UCP_ATOMIC_OP_CSWAP, 1, 7), word,
	      "compare and swap of another value");
	equal(atomic(UCP_ATOMIC_OP_CSWAP, word, 5), word, "compare and swap");
	equal(atomic(UCP_ATOMIC_OP_SWAP, 5, 0), 5, "swap, as the one before left it");
	equal(atomic(UCP_ATOMIC_OP_SWAP, 424242, 0), 5, "swap");
	step();
}

static void memory(void)
{
	if (server) {
		memory_show();
	} else {
		tag_recv(&far, sizeof(far), TAG_KEY);
		ok(ucp_ep_rkey_unpack(ep, far.key, &rkey), "rkey_unpack");
	}
	puts_and_gets();
	atomics();
	step();
	if (server)
		ok(ucp_mem_unmap(context, mem), "mem_unmap");
	else
		ucp_rkey_destroy(rkey);
}

/* ---- the connection ---------------------------------------------------------------- */

static void asked(ucp_conn_request_h r, void *arg)
{
	(void)arg;
	request = r;
}

static void broken(void *arg, ucp_ep_h which, ucs_status_t s)
{
	(void)arg;
	(void)which;
	/* The other has closed: what comes before was checked. */
	if (s != UCS_ERR_CONNECTION_RESET)
		fail("connection: %s", ucs_status_string(s));
}

static void address(struct sockaddr_storage *to, socklen_t *len, char **argv)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST,
				  .ai_socktype = SOCK_STREAM },
			*ai;

	if (getaddrinfo(argv[2], argv[3], &hints, &ai))
		fail("address %s", argv[2]);
	memcpy(to, ai->ai_addr, ai->ai_addrlen);
	*len = ai->ai_addrlen;
	freeaddrinfo(ai);
}

static void wait_for_client(const struct sockaddr_storage *at, socklen_t len)
{
	ucp_listener_params_t p = { .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
						  UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
				    .sockaddr = { (const struct sockaddr *)at, len },
				    .conn_handler = { asked, NULL } };
	ucp_ep_params_t e = { .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST |
					    UCP_EP_PARAM_FIELD_ERR_HANDLER,
			      .err_handler = { broken, NULL } };
	ucp_listener_h listener;

	ok(ucp_listener_create(worker, &p, &listener), "listen");
	puts("listening");
	fflush(stdout);
	while (!request)
		ucp_worker_progress(worker);
	e.conn_request = request;
	ok(ucp_ep_create(worker, &e, &ep), "accept");
	ucp_listener_destroy(listener);
}

static void connect_to(const struct sockaddr_storage *to, socklen_t len)
{
	ucp_ep_params_t e = { .field_mask = UCP_EP_PARAM_FIELD_FLAGS |
					    UCP_EP_PARAM_FIELD_SOCK_ADDR |
					    UCP_EP_PARAM_FIELD_ERR_HANDLER |
					    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
			      .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
			      .err_mode = UCP_ERR_HANDLING_MODE_PEER,
			      .err_handler = { broken, NULL },
			      .sockaddr = { (const struct sockaddr *)to, len } };

	ok(ucp_ep_create(worker, &e, &ep), "connect");
}

static void open_ucp(void)
{
	ucp_params_t p = { .field_mask = UCP_PARAM_FIELD_FEATURES,
			   .features = UCP_FEATURE_TAG | UCP_FEATURE_STREAM |
				       UCP_FEATURE_AM | UCP_FEATURE_RMA |
				       UCP_FEATURE_AMO64 };
	ucp_worker_params_t w = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				  .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_am_handler_param_t am = { .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
						    UCP_AM_HANDLER_PARAM_FIELD_CB,
				      .id = AM_ID,
				      .cb = am_arrived };

	ok(ucp_init(&p, NULL, &context), "init");
	ok(ucp_worker_create(context, &w, &worker), "worker");
	ok(ucp_worker_set_am_recv_handler(worker, &am), "handler");
}

static void close_ucp(void)
{
	ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
				  .flags = server ? UCP_EP_CLOSE_FLAG_FORCE : 0 };
	ucs_status_ptr_t r = ucp_ep_close_nbx(ep, &p);

	while (r && !UCS_PTR_IS_ERR(r) && ucp_request_check_status(r) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	if (r && !UCS_PTR_IS_ERR(r))
		ucp_request_free(r);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
}

int main(int argc, char **argv)
{
	struct sockaddr_storage at;
	socklen_t len;

	if (argc != 4)
		fail("server|client ADDRESS PORT");
	server = !strcmp(argv[1], "server");
	out = malloc(MAX_BYTES + GUARD);
	in = malloc(MAX_BYTES + GUARD);
	mapped = malloc(MAX_BYTES + GUARD);
	address(&at, &len, argv);
	open_ucp();
	if (server)
		wait_for_client(&at, len);
	else
		connect_to(&at, len);
	step();
	tags();
	streams();
	active_messages();
	memory();
	close_ucp();
	free(out);
	free(in);
	free(mapped);
	puts("all is right");
	return 0;
}
