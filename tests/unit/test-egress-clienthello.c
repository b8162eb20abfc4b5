/* The ClientHello that protocol tls is decided by: real ones, in every fragmentation, and ones that two readers could read
 * differently. */
#include <openssl/ssl.h>

#include "egress-fixture.h"
#include "egress/clienthello.h"

enum { PLENTY = 40000 };

struct bytes {
	unsigned char at[PLENTY];
	size_t size;
};

static void add(struct bytes *b, const void *data, size_t size)
{
	assert_true(b->size + size <= sizeof b->at);
	memcpy(b->at + b->size, data, size);
	b->size += size;
}

static void add_number(struct bytes *b, size_t value, unsigned bytes)
{
	while (bytes-- > 0) {
		const unsigned char c = (unsigned char) (value >> 8 * bytes);

		add(b, &c, 1);
	}
}

#define ADD(b, literal) add(b, literal, sizeof(literal) - 1)

static void add_extension(struct bytes *to, unsigned type, const void *data, size_t size)
{
	add_number(to, type, 2);
	add_number(to, size, 2);
	add(to, data, size);
}

static void add_name(struct bytes *to, const void *name, size_t size)
{
	struct bytes data = {.size = 0};

	add_number(&data, size + 3, 2);
	add_number(&data, 0, 1);
	add_number(&data, size, 2);
	add(&data, name, size);
	add_extension(to, 0, data.at, data.size);
}

/* The handshake message around some extensions. */
static struct bytes message_of(const struct bytes *extensions)
{
	struct bytes m = {.size = 0};

	add_number(&m, 1, 1);
	add_number(&m, 2 + 32 + 1 + 4 + 2 + 2 + extensions->size, 3);
	add_number(&m, 0x0303, 2);
	for (unsigned i = 0; i < 32; i++)
		add_number(&m, i, 1);
	add_number(&m, 0, 1);
	ADD(&m, "\0\2\x13\1\1\0");
	add_number(&m, extensions->size, 2);
	add(&m, extensions->at, extensions->size);
	return m;
}

/* Records of at most `fragment` bytes. */
static struct bytes records_of(const struct bytes *message, size_t fragment)
{
	struct bytes r = {.size = 0};

	for (size_t at = 0; at < message->size; at += fragment) {
		size_t n = message->size - at < fragment ? message->size - at : fragment;

		ADD(&r, "\x16\3\1");
		add_number(&r, n, 2);
		add(&r, message->at + at, n);
	}
	return r;
}

static struct bytes hello_of(const struct bytes *extensions)
{
	struct bytes m = message_of(extensions);

	return records_of(&m, 16384);
}

static struct bytes hello_for(const char *name)
{
	struct bytes x = {.size = 0};

	add_name(&x, name, strlen(name));
	return hello_of(&x);
}

static void expect(const struct bytes *b, enum clienthello_result result)
{
	struct clienthello h;

	assert_int_equal(clienthello_parse(b->at, b->size, &h), result);
}

/* What OpenSSL says first. */
static struct bytes openssl_hello(const char *name, const char *alpn)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *ssl = SSL_new(ctx);
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
	struct bytes b = {.size = 0};
	int n;

	SSL_set_bio(ssl, in, out);
	if (name != NULL)
		assert_int_equal(SSL_set_tlsext_host_name(ssl, name), 1);
	if (alpn != NULL)
		assert_int_equal(SSL_set_alpn_protos(ssl, (const unsigned char *) alpn, (unsigned) strlen(alpn)), 0);
	assert_int_equal(SSL_connect(ssl), -1);
	n = BIO_read(out, b.at, sizeof b.at);
	assert_true(n > 0);
	b.size = (size_t) n;
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	return b;
}

static void a_real_hello_is_read(void **state)
{
	struct bytes b = openssl_hello("API.example.org", "\2h2\10http/1.1");
	struct clienthello h;

	(void) state;
	assert_int_equal(clienthello_parse(b.at, b.size, &h), CLIENTHELLO_OK);
	assert_true(h.has_name);
	assert_false(h.ech);
	assert_string_equal(h.name, "api.example.org");
	assert_int_equal(h.alpn_size, 12);
	assert_memory_equal(h.alpn, "\2h2\10http/1.1", 12);
	b = openssl_hello(NULL, NULL);
	assert_int_equal(clienthello_parse(b.at, b.size, &h), CLIENTHELLO_OK);
	assert_false(h.has_name);
	assert_int_equal(h.alpn_size, 0);
}

static void every_beginning_of_a_hello_wants_more(void **state)
{
	struct bytes whole = openssl_hello("api.example.org", "\2h2");
	struct bytes plain = hello_for("api.example.org");

	(void) state;
	for (struct bytes b = whole; b.size-- > 0;)
		expect(&b, CLIENTHELLO_MORE);
	ADD(&whole, "\x14\3\3\0\1\1"); /* what comes after is not looked at */
	expect(&whole, CLIENTHELLO_OK);
	expect(&plain, CLIENTHELLO_OK);
}

static void fragments_of_any_size_are_joined(void **state)
{
	struct bytes x = {.size = 0}, m;
	struct clienthello h;

	(void) state;
	add_name(&x, "api.example.org", 15);
	m = message_of(&x);
	for (size_t fragment = 1; fragment <= m.size; fragment++) {
		struct bytes b = records_of(&m, fragment);

		assert_int_equal(clienthello_parse(b.at, b.size, &h), CLIENTHELLO_OK);
		assert_string_equal(h.name, "api.example.org");
		b.size--;
		expect(&b, CLIENTHELLO_MORE);
	}
}

static void what_is_no_tls_is_told_with_the_first_bytes(void **state)
{
	const char *const others[] = {"GET / HTTP/1.1\r\n", "SSH-2.0-x\r\n",  "\x80\x2e\1\3\1" /* SSL 2 */,
				      "\x17\3\3\0\1x",      "\x16\2\1\0\1\1", "\x16\3\5\0\1\1"};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		struct bytes b = {.size = 0};

		add(&b, others[i], 3);
		expect(&b, CLIENTHELLO_NOT_TLS);
	}
}

static void broken_records_are_malformed(void **state)
{
	struct bytes b = {.size = 0}, good = hello_for("api.example.org");

	(void) state;
	ADD(&b, "\x16\3\1\0\0"); /* empty */
	expect(&b, CLIENTHELLO_MALFORMED);
	b.size = 0;
	ADD(&b, "\x16\3\1\x40\1"); /* longer than a record may be */
	expect(&b, CLIENTHELLO_MALFORMED);
	b.size = 0;
	ADD(&b, "\x16\3\1\0\1\2"); /* a ServerHello */
	expect(&b, CLIENTHELLO_MALFORMED);
	b.size = 0;
	ADD(&b, "\x16\3\1\0\4\1\0\x40\0"); /* a message of more than 16 KiB */
	expect(&b, CLIENTHELLO_MALFORMED);
	b.size = 0;
	ADD(&b, "\x16\3\1\0\1\1\x15\3\1\0\2\2\x28"); /* an alert between the fragments */
	expect(&b, CLIENTHELLO_MALFORMED);
	good.at[4]++; /* a second message in the record */
	ADD(&good, "\1");
	expect(&good, CLIENTHELLO_MALFORMED);
}

static void a_hello_has_at_most_16_kib(void **state)
{
	static const char padding[16384];
	struct bytes x = {.size = 0}, m, b;

	(void) state;
	add_name(&x, "api.example.org", 15);
	add_extension(&x, 21, padding, 16200);
	b = hello_of(&x);
	assert_true(b.size <= CLIENTHELLO_SIZE_MAX);
	expect(&b, CLIENTHELLO_OK);
	m = message_of(&x);
	b = records_of(&m, 100); /* with headers it is more */
	assert_true(b.size > CLIENTHELLO_SIZE_MAX);
	expect(&b, CLIENTHELLO_MALFORMED);
	b.size = CLIENTHELLO_SIZE_MAX - 1;
	expect(&b, CLIENTHELLO_MORE);
	b.size++;
	expect(&b, CLIENTHELLO_MALFORMED);
}

/* One server_name extension with this content. */
static struct bytes hello_with(const void *data, size_t size)
{
	struct bytes x = {.size = 0};

	add_extension(&x, 0, data, size);
	return hello_of(&x);
}

#define HELLO_WITH(literal) hello_with(literal, sizeof(literal) - 1)

static void a_name_that_could_be_two_is_malformed(void **state)
{
	const char *const names[] = {"api.example.org.",
				     "127.0.0.1",
				     "::1",
				     "0x7f.1",
				     "api.example.org\n",
				     "api example.org",
				     "*.example.org",
				     "xn--\xc3\xbc.example",
				     "a..example",
				     "-a.example",
				     "api.example.org/",
				     "user@api.example.org",
				     "api.example.org:443"};
	const struct bytes forms[] = {
	    HELLO_WITH(""),
	    HELLO_WITH("\0\0"),                /* no entry */
	    HELLO_WITH("\0\3\0\0\0"),          /* an empty name */
	    HELLO_WITH("\0\4\1\0\1a"),         /* another type of name */
	    HELLO_WITH("\0\x8\0\0\1a\0\0\1b"), /* two names */
	    HELLO_WITH("\0\4\0\0\1a!"),        /* something behind the list */
	    HELLO_WITH("\0\5\0\0\1a"),         /* a list that is longer than the extension */
	    HELLO_WITH("\0\4\0\0\2a"),         /* a name that is longer than the list */
	    HELLO_WITH("\0\7\0\0\4a\0.b"),     /* a NUL within */
	};
	struct bytes x = {.size = 0}, b;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		b = hello_for(names[i]);
		expect(&b, CLIENTHELLO_MALFORMED);
	}
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
		expect(&forms[i], CLIENTHELLO_MALFORMED);
	add_name(&x, "api.example.org", 15);
	add_name(&x, "evil.example", 12); /* the extension twice */
	b = hello_of(&x);
	expect(&b, CLIENTHELLO_MALFORMED);
}

static void lengths_must_fit(void **state)
{
	struct bytes x = {.size = 0}, good, b;

	(void) state;
	add_name(&x, "api.example.org", 15);
	good = hello_of(&x);
	expect(&good, CLIENTHELLO_OK);
	/* Positions behind the record's header (5) and the message's (4). */
	b = good;
	b.at[9] = 2; /* legacy_version 2.3 */
	expect(&b, CLIENTHELLO_MALFORMED);
	b = good;
	b.at[9 + 34] = 33; /* session id */
	expect(&b, CLIENTHELLO_MALFORMED);
	b = good;
	b.at[9 + 36] = 3; /* an odd number of bytes of cipher suites */
	expect(&b, CLIENTHELLO_MALFORMED);
	b = good;
	b.at[9 + 39] = 0; /* no compression method */
	expect(&b, CLIENTHELLO_MALFORMED);
	for (int change = -1; change <= 1; change += 2) {
		b = good;
		b.at[9 + 42] = (unsigned char) (b.at[9 + 42] + change); /* of all extensions */
		expect(&b, CLIENTHELLO_MALFORMED);
		b = good;
		b.at[9 + 46] = (unsigned char) (b.at[9 + 46] + change); /* of one */
		expect(&b, CLIENTHELLO_MALFORMED);
	}
}

static void alpn_is_a_list_of_names(void **state)
{
	static const struct {
		const char *data;
		size_t size;
	} bad[] = {{"", 0}, {"\0\0", 2}, {"\0\1\0", 3}, {"\0\3\3h2", 5}, {"\0\3\2h2x", 6}, {"\0\4\2h2\1", 6}};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct bytes x = {.size = 0}, b;

		add_extension(&x, 16, bad[i].data, bad[i].size);
		b = hello_of(&x);
		expect(&b, CLIENTHELLO_MALFORMED);
	}
}

static const char *objection(const struct bytes *b, const char *name)
{
	struct clienthello h;

	assert_int_equal(clienthello_parse(b->at, b->size, &h), CLIENTHELLO_OK);
	return clienthello_objection(&h, name);
}

static void the_name_must_be_the_one_that_was_asked_for(void **state)
{
	struct bytes none = {.size = 0}, without = hello_of(&none), with = hello_for("Api.Example.org");

	(void) state;
	assert_null(objection(&with, "api.example.org"));
	assert_non_null(strstr(objection(&with, "www.example.org"), "another server"));
	assert_non_null(strstr(objection(&with, "pi.example.org"), "another server"));
	assert_non_null(strstr(objection(&without, "api.example.org"), "names no server"));
	assert_null(objection(&without, "")); /* an address was asked for */
	assert_non_null(objection(&with, ""));
}

static void encrypted_client_hello_is_refused_in_every_form(void **state)
{
	const unsigned types[] = {0xfe0d, 0xfe0a, 0xffce};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct bytes x = {.size = 0}, b;

		add_name(&x, "api.example.org", 15);
		add_extension(&x, types[i], "\0", 1);
		b = hello_of(&x);
		assert_non_null(strstr(objection(&b, "api.example.org"), "Encrypted Client Hello"));
	}
}

static void a_hello_without_extensions_is_one(void **state)
{
	struct bytes none = {.size = 0}, b = hello_of(&none);
	struct clienthello h;

	(void) state;
	b.size -= 2; /* the length of the extensions, too */
	b.at[4] = (unsigned char) (b.at[4] - 2);
	b.at[8] = (unsigned char) (b.at[8] - 2);
	assert_int_equal(clienthello_parse(b.at, b.size, &h), CLIENTHELLO_OK);
	assert_false(h.has_name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_real_hello_is_read),
	    cmocka_unit_test(every_beginning_of_a_hello_wants_more),
	    cmocka_unit_test(fragments_of_any_size_are_joined),
	    cmocka_unit_test(what_is_no_tls_is_told_with_the_first_bytes),
	    cmocka_unit_test(broken_records_are_malformed),
	    cmocka_unit_test(a_hello_has_at_most_16_kib),
	    cmocka_unit_test(a_name_that_could_be_two_is_malformed),
	    cmocka_unit_test(lengths_must_fit),
	    cmocka_unit_test(alpn_is_a_list_of_names),
	    cmocka_unit_test(the_name_must_be_the_one_that_was_asked_for),
	    cmocka_unit_test(encrypted_client_hello_is_refused_in_every_form),
	    cmocka_unit_test(a_hello_without_extensions_is_one),
	};

	return cmocka_run_group_tests_name("egress-clienthello", tests, NULL, NULL);
}
