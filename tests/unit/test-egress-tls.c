/* TLS at both ends: who is believed, who is refused and why, what the sandbox gets to trust, and that no file is opened any more
 * once the broker is confined. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/jks.h"
#include "egress/tls-internal.h"

/* The broker under test, and the CA of the world outside, which it trusts by network.ca_file. The host's own trust store is one
 * that the test wrote, with a CA that signs nothing. */
struct world {
	char folder[64], host[96], outside_file[96];
	struct network_rule rules[4];
	struct network network, outside_network;
	struct broker broker;
	struct tls *tls;
	struct leaf_ca *outside, *stranger;
};

struct side {
	struct bufferevent *bev;
	bool connected, eof, error;
	char why[240];
};

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	fd_close(&fd);
}

static struct leaf_ca *new_ca(const struct network *n)
{
	struct zw_error e = {0};
	struct leaf_ca *ca = leaf_ca_new(n, "zw-test", &e);

	if (ca == NULL)
		fail_msg("%s", e.text);
	return ca;
}

static void set_up_rules(struct world *w)
{
	w->rules[0] = (struct network_rule){.pattern = (char *) (uintptr_t) "a.test", .protocol = NET_HTTPS};
	w->rules[1] = (struct network_rule){.pattern = (char *) (uintptr_t) "*.wild.test", .protocol = NET_HTTPS};
	w->rules[2] = (struct network_rule){.pattern = (char *) (uintptr_t) "plain.test", .protocol = NET_TCP};
	w->rules[3] = (struct network_rule){.protocol = NET_HTTPS, .prefix = {.bits = 24}};
	assert_int_equal(network_address("10.1.2.0", 8, &w->rules[3].prefix.address), 0);
	w->outside_network = (struct network){.rules = w->rules, .rule_count = 4};
	w->network = w->outside_network;
	w->network.ca_file = w->outside_file;
}

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);
	struct zw_error e = {0};

	(void) signal(SIGPIPE, SIG_IGN);
	(void) snprintf(w->folder, sizeof w->folder, "/tmp/zwinger-test-tls.XXXXXX");
	assert_non_null(mkdtemp(w->folder));
	(void) snprintf(w->host, sizeof w->host, "%s/host.pem", w->folder);
	(void) snprintf(w->outside_file, sizeof w->outside_file, "%s/outside.pem", w->folder);
	set_up_rules(w);
	w->outside = new_ca(&w->outside_network);
	w->stranger = new_ca(&w->outside_network);
	write_file(w->outside_file, leaf_ca_pem(w->outside));
	{
		struct leaf_ca *other = new_ca(&w->outside_network);

		write_file(w->host, leaf_ca_pem(other));
		other = leaf_ca_free(other);
	}
	assert_int_equal(setenv("SSL_CERT_FILE", w->host, 1), 0);
	w->broker = (struct broker){.base = event_base_new(), .network = &w->network, .id = "zw-abc"};
	w->tls = tls_new(&w->broker, &e);
	if (w->tls == NULL)
		fail_msg("%s", e.text);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	tls_free(w->tls);
	event_base_free(w->broker.base);
	w->outside = leaf_ca_free(w->outside);
	w->stranger = leaf_ca_free(w->stranger);
	(void) unlink(w->host);
	(void) unlink(w->outside_file);
	(void) rmdir(w->folder);
	free(w);
	return 0;
}

/* ---- Two ends and a loop. ---- */

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
	struct side *s = ctx;

	if ((what & BEV_EVENT_CONNECTED) != 0)
		s->connected = true;
	if ((what & BEV_EVENT_EOF) != 0)
		s->eof = true;
	if ((what & BEV_EVENT_ERROR) != 0) {
		s->error = true;
		/* A peer of the test's own is no bufferevent of ours. */
		if (s->why[0] == '\0')
			tls_error(bev, s->why, sizeof s->why);
	}
}

static void watch(struct side *s, struct bufferevent *bev)
{
	assert_non_null(bev);
	s->bev = bev;
	bufferevent_setcb(bev, NULL, NULL, on_event, s);
	bufferevent_setwatermark(bev, EV_READ, 0, 65536);
	assert_int_equal(bufferevent_enable(bev, EV_READ | EV_WRITE), 0);
}

static void pair(int fds[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
}

static bool is_over(const struct side *s)
{
	return s->error || s->eof;
}

/* Until both have finished their handshake, or one has failed and the other knows. */
static void shake_hands(struct world *w, struct side *a, struct side *b)
{
	struct timeval limit = {.tv_sec = 10};

	(void) event_base_loopexit(w->broker.base, &limit);
	while (!((a->connected || is_over(a)) && (b->connected || is_over(b))))
		if (event_base_loop(w->broker.base, EVLOOP_ONCE) != 0 || event_base_got_exit(w->broker.base))
			break;
}

static void until_over(struct world *w, const struct side *s)
{
	struct timeval limit = {.tv_sec = 10};

	(void) event_base_loopexit(w->broker.base, &limit);
	while (!is_over(s) && !event_base_got_exit(w->broker.base))
		if (event_base_loop(w->broker.base, EVLOOP_ONCE) != 0)
			break;
}

/* A client inside, which trusts `ca` and asks for `sni` (NULL: none). */
static SSL *client_of(const struct leaf_ca *ca, const char *sni, const char *verify)
{
	SSL_CTX *c = SSL_CTX_new(TLS_client_method());
	size_t size;
	const unsigned char *der = leaf_ca_der(ca, &size);
	X509 *x = d2i_X509(NULL, &der, (long) size);
	SSL *ssl;

	assert_int_equal(X509_STORE_add_cert(SSL_CTX_get_cert_store(c), x), 1);
	SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
	ssl = SSL_new(c);
	if (sni != NULL)
		assert_int_equal(SSL_set_tlsext_host_name(ssl, sni), 1);
	if (verify != NULL)
		assert_int_equal(SSL_set1_host(ssl, verify), 1);
	X509_free(x);
	SSL_CTX_free(c);
	return ssl;
}

static struct bufferevent *raw(struct world *w, int fd, SSL *ssl, enum bufferevent_ssl_state state)
{
	return bufferevent_openssl_socket_new(w->broker.base, fd, ssl, state, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
}

struct meeting {
	struct side ours, peer;
};

static void part(struct meeting *m)
{
	bufferevent_free(m->ours.bev);
	bufferevent_free(m->peer.bev);
	ERR_clear_error();
}

static void meet_client(struct world *w, struct meeting *m, const char *name, SSL *client)
{
	int fds[2];

	*m = (struct meeting){.peer.why = "peer"};
	pair(fds);
	watch(&m->ours, tls_accept(w->tls, fds[0], name));
	watch(&m->peer, raw(w, fds[1], client, BUFFEREVENT_SSL_CONNECTING));
	shake_hands(w, &m->ours, &m->peer);
}

static void meet_server(struct world *w, struct meeting *m, const char *name, SSL *server)
{
	int fds[2];

	*m = (struct meeting){.peer.why = "peer"};
	pair(fds);
	watch(&m->ours, tls_connect(w->tls, fds[0], name));
	watch(&m->peer, raw(w, fds[1], server, BUFFEREVENT_SSL_ACCEPTING));
	shake_hands(w, &m->ours, &m->peer);
}

static void expect_refused(struct meeting *m, const char *why)
{
	assert_true(m->ours.error);
	assert_false(m->ours.connected);
	if (strstr(m->ours.why, why) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", m->ours.why, why);
	part(m);
}

static void expect_met(struct meeting *m)
{
	if (!m->ours.connected || !m->peer.connected)
		fail_msg("ours: %s", m->ours.why);
	part(m);
}

/* ---- Towards the sandbox. ---- */

static void client_that_trusts_the_ca_is_served(void **state)
{
	struct world *w = *state;
	struct meeting m;

	meet_client(w, &m, "a.test", client_of(w->tls->ca, "a.test", "a.test"));
	expect_met(&m);
	meet_client(w, &m, "x.y.wild.test", client_of(w->tls->ca, "x.y.wild.test", "x.y.wild.test"));
	expect_met(&m);
	/* Names have one canonical form, whatever the client writes. */
	meet_client(w, &m, "a.test", client_of(w->tls->ca, "A.TesT.", "a.test"));
	expect_met(&m);
	meet_client(w, &m, "10.1.2.3", client_of(w->tls->ca, NULL, NULL));
	expect_met(&m);
	meet_client(w, &m, "10.1.2.3", client_of(w->tls->ca, "10.1.2.3", NULL));
	expect_met(&m);
}

static void server_name_must_be_that_of_the_connection(void **state)
{
	struct world *w = *state;
	struct meeting m;

	meet_client(w, &m, "a.test", client_of(w->tls->ca, "b.test", NULL));
	expect_refused(&m, "another server name (SNI): b.test");
	meet_client(w, &m, "a.test", client_of(w->tls->ca, NULL, NULL));
	expect_refused(&m, "no server name");
	meet_client(w, &m, "a.test", client_of(w->tls->ca, "a.test.evil.test", NULL));
	expect_refused(&m, "another server name");
	meet_client(w, &m, "a.test", client_of(w->tls->ca, "a..test", NULL));
	expect_refused(&m, "no canonical form");
	meet_client(w, &m, "a.test", client_of(w->tls->ca, "10.1.2.3", NULL));
	expect_refused(&m, "no canonical form");
	meet_client(w, &m, "10.1.2.3", client_of(w->tls->ca, "a.test", NULL));
	expect_refused(&m, "another server name");
}

static void server_name_extension_is_read_strictly(void **state)
{
	static const struct {
		const char *bytes;
		size_t size;
		const char *name;
	} table[] = {
	    {"\0\x09\0\0\x06"
	     "a.test",
	     11, "a.test"},
	    {"\0\x0a\0\0\x07"
	     "A.TEST.",
	     12, "a.test"},
	    {"\0\x09\0\0\x06"
	     "a.test",
	     10, NULL}, /* cut */
	    {"\0\x09\0\0\x06"
	     "a.testx",
	     12, NULL}, /* more than the list */
	    {"\0\x09\0\0\x05"
	     "a.test",
	     11, NULL}, /* the name is shorter than the list */
	    {"\0\x09\0\0\xff"
	     "a.test",
	     11, NULL},
	    {"\xff\xff\0\xff\xff"
	     "a.test",
	     11, NULL},
	    {"\0\x09\1\0\x06"
	     "a.test",
	     11, NULL}, /* another type */
	    {"\0\x09\0\0\x06"
	     "a.te\0t",
	     11, NULL}, /* NUL: two readers, two names */
	    {"\0\x09\0\0\x06"
	     "a.te\rt",
	     11, NULL},
	    {"\0\x09\0\0\x06"
	     "1.2.34",
	     11, NULL}, /* an address, to some */
	    {"\0\x12\0\0\x06"
	     "a.test"
	     "\0\0\x06"
	     "b.test",
	     20, NULL}, /* two names */
	    {"\0\x03\0\0\0", 5, NULL},
	    {"\0", 1, NULL},
	    {"", 0, NULL},
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char name[NETWORK_NAME_SIZE] = "untouched";
		int r = tls_read_sni((const unsigned char *) table[i].bytes, table[i].size, name);

		if (r != (table[i].name != NULL ? 0 : -EINVAL))
			fail_msg("row %zu gives %d", i, r);
		assert_string_equal(name, table[i].name != NULL ? table[i].name : "untouched");
	}
}

static void client_that_does_not_trust_the_ca_is_told_apart(void **state)
{
	struct world *w = *state;
	struct meeting m;

	meet_client(w, &m, "a.test", client_of(w->stranger, "a.test", "a.test"));
	until_over(w, &m.ours);
	assert_true(m.ours.error);
	assert_non_null(strstr(m.ours.why, "does not trust the CA of this run"));
	part(&m);
}

static void http_2_alone_and_old_tls_are_refused(void **state)
{
	struct world *w = *state;
	SSL *client = client_of(w->tls->ca, "a.test", NULL);
	struct meeting m;

	assert_int_equal(SSL_set_alpn_protos(client, (const unsigned char *) "\x02h2", 3), 0);
	meet_client(w, &m, "a.test", client);
	expect_refused(&m, "does not offer HTTP/1.1");
	client = client_of(w->tls->ca, "a.test", NULL);
	assert_int_equal(SSL_set_alpn_protos(client, (const unsigned char *) "\x02h2\x08http/1.1", 12), 0);
	meet_client(w, &m, "a.test", client);
	{
		const unsigned char *chosen;
		unsigned size;

		SSL_get0_alpn_selected(client, &chosen, &size);
		assert_int_equal(size, 8);
		assert_memory_equal(chosen, "http/1.1", 8);
	}
	expect_met(&m);
	client = client_of(w->tls->ca, "a.test", NULL);
	SSL_set_security_level(client, 0);
	assert_int_equal(SSL_set_max_proto_version(client, TLS1_1_VERSION), 1);
	meet_client(w, &m, "a.test", client);
	expect_refused(&m, "unsupported protocol");
}

/* The verdict of a verifier that knows the CA of the run, on the certificate that it gives for a name. */
static int verdict_on(struct leaf_ca *ca, const char *name)
{
	size_t size;
	const unsigned char *der = leaf_ca_der(ca, &size);
	X509 *root = d2i_X509(NULL, &der, (long) size), *leaf;
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *c = X509_STORE_CTX_new();
	EVP_PKEY *key;
	int verdict;

	assert_int_equal(leaf_for(ca, name, &leaf, &key), 0);
	assert_int_equal(X509_check_private_key(leaf, key), 1);
	assert_int_equal(X509_STORE_add_cert(store, root), 1);
	assert_int_equal(X509_STORE_CTX_init(c, store, leaf, NULL), 1);
	assert_int_equal(X509_VERIFY_PARAM_set_flags(X509_STORE_CTX_get0_param(c), X509_V_FLAG_X509_STRICT), 1);
	assert_int_equal(X509_STORE_CTX_set_purpose(c, X509_PURPOSE_SSL_SERVER), 1);
	verdict = X509_verify_cert(c) == 1 ? X509_V_OK : X509_STORE_CTX_get_error(c);
	X509_STORE_CTX_free(c);
	X509_STORE_free(store);
	X509_free(root);
	return verdict;
}

static void ca_may_sign_for_the_rules_names_alone(void **state)
{
	struct world *w = *state;
	struct network none = {.rules = &w->rules[3], .rule_count = 1};
	struct leaf_ca *addresses = new_ca(&none);

	assert_int_equal(verdict_on(w->tls->ca, "a.test"), X509_V_OK);
	assert_int_equal(verdict_on(w->tls->ca, "x.wild.test"), X509_V_OK);
	assert_int_equal(verdict_on(w->tls->ca, "10.1.2.3"), X509_V_OK);
	assert_int_equal(verdict_on(w->tls->ca, "other.test"), X509_V_ERR_PERMITTED_VIOLATION);
	assert_int_equal(verdict_on(w->tls->ca, "plain.test"), X509_V_ERR_PERMITTED_VIOLATION); /* its rule is not https */
	assert_int_equal(verdict_on(w->tls->ca, "ba.test"), X509_V_ERR_PERMITTED_VIOLATION);
	assert_int_equal(verdict_on(w->tls->ca, "10.1.3.3"), X509_V_ERR_PERMITTED_VIOLATION);
	assert_int_equal(verdict_on(w->tls->ca, "2001:db8::1"), X509_V_ERR_PERMITTED_VIOLATION);
	/* Rules of one kind leave nothing of the other. */
	assert_int_equal(verdict_on(addresses, "10.1.2.3"), X509_V_OK);
	assert_int_equal(verdict_on(addresses, "a.test"), X509_V_ERR_PERMITTED_VIOLATION);
	addresses = leaf_ca_free(addresses);
	none = (struct network){.rules = &w->rules[0], .rule_count = 1};
	addresses = new_ca(&none);
	assert_int_equal(verdict_on(addresses, "a.test"), X509_V_OK);
	assert_int_equal(verdict_on(addresses, "10.1.2.3"), X509_V_ERR_EXCLUDED_VIOLATION);
	assert_int_equal(verdict_on(addresses, "2001:db8::1"), X509_V_ERR_EXCLUDED_VIOLATION);
	addresses = leaf_ca_free(addresses);
}

static void certificates_of_many_names_stay_right(void **state)
{
	struct world *w = *state;

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < LEAF_CACHE_MAX + 50; i++) {
			char name[64];
			X509 *leaf;
			EVP_PKEY *key;

			(void) snprintf(name, sizeof name, "n%d.wild.test", i);
			assert_int_equal(leaf_for(w->tls->ca, name, &leaf, &key), 0);
			assert_int_equal(X509_check_host(leaf, name, 0, 0, NULL), 1);
			assert_int_equal(X509_check_host(leaf, "a.test", 0, 0, NULL), 0);
		}
	}
}

static void sessions_are_resumed_for_the_same_name_alone(void **state)
{
	struct world *w = *state;
	SSL *client = client_of(w->tls->ca, "a.test", "a.test");
	SSL_SESSION *session;
	struct meeting m;

	meet_client(w, &m, "a.test", client);
	assert_true(m.peer.connected);
	assert_int_equal(bufferevent_write(m.ours.bev, "x", 1), 0); /* behind the ticket */
	while (evbuffer_get_length(bufferevent_get_input(m.peer.bev)) == 0)
		assert_int_equal(event_base_loop(w->broker.base, EVLOOP_ONCE), 0);
	session = SSL_SESSION_dup(SSL_get0_session(client));
	part(&m);
	client = client_of(w->tls->ca, "a.test", "a.test");
	assert_int_equal(SSL_set_session(client, session), 1);
	meet_client(w, &m, "a.test", client);
	assert_int_equal(SSL_session_reused(client), 1);
	expect_met(&m);
	client = client_of(w->tls->ca, "x.wild.test", NULL);
	assert_int_equal(SSL_set_session(client, session), 1);
	meet_client(w, &m, "x.wild.test", client);
	assert_int_equal(SSL_session_reused(client), 0);
	part(&m);
	SSL_SESSION_free(session);
}

/* ---- Towards the world. ---- */

static SSL *server_with(X509 *certificate, EVP_PKEY *key)
{
	SSL_CTX *c = SSL_CTX_new(TLS_server_method());
	SSL *ssl;

	assert_int_equal(SSL_CTX_use_certificate(c, certificate), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(c, key), 1);
	ssl = SSL_new(c);
	SSL_CTX_free(c);
	return ssl;
}

static SSL *server_of(struct leaf_ca *ca, const char *name)
{
	EVP_PKEY *key;
	X509 *leaf;

	assert_int_equal(leaf_for(ca, name, &leaf, &key), 0);
	return server_with(leaf, key);
}

static void verified_server_is_believed(void **state)
{
	struct world *w = *state;
	struct meeting m;
	SSL *server = server_of(w->outside, "a.test");

	meet_server(w, &m, "a.test", server);
	assert_string_equal(SSL_get_servername(server, TLSEXT_NAMETYPE_host_name), "a.test");
	expect_met(&m);
	server = server_of(w->outside, "10.1.2.3");
	meet_server(w, &m, "10.1.2.3", server);
	assert_null(SSL_get_servername(server, TLSEXT_NAMETYPE_host_name));
	expect_met(&m);
}

static void server_that_cannot_prove_its_name_is_refused(void **state)
{
	struct world *w = *state;
	struct meeting m;

	meet_server(w, &m, "a.test", server_of(w->outside, "x.wild.test"));
	expect_refused(&m, "hostname mismatch");
	meet_server(w, &m, "10.1.2.3", server_of(w->outside, "10.1.2.4"));
	expect_refused(&m, "IP address mismatch");
	meet_server(w, &m, "10.1.2.3", server_of(w->outside, "a.test"));
	expect_refused(&m, "IP address mismatch");
	meet_server(w, &m, "a.test", server_of(w->stranger, "a.test"));
	expect_refused(&m, "network.ca_file");
	/* The CA that the sandbox is to trust is no reason to trust a server outside. */
	meet_server(w, &m, "a.test", server_of(w->tls->ca, "a.test"));
	expect_refused(&m, "network.ca_file");
}

/* A certificate that signs itself; valid from `from` to `to` seconds from now. */
static X509 *self_signed(EVP_PKEY *key, const char *common_name, const char *san, long from, long to)
{
	X509 *x = X509_new();
	X509_NAME *name = X509_get_subject_name(x);

	assert_int_equal(X509_set_version(x, X509_VERSION_3), 1);
	assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(x), 7), 1);
	assert_int_equal(X509_set_pubkey(x, key), 1);
	(void) X509_gmtime_adj(X509_getm_notBefore(x), from);
	(void) X509_gmtime_adj(X509_getm_notAfter(x), to);
	assert_int_equal(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *) common_name, -1, -1, 0),
			 1);
	assert_int_equal(X509_set_issuer_name(x, name), 1);
	if (san != NULL) {
		X509V3_CTX context;
		X509_EXTENSION *extension;

		X509V3_set_ctx(&context, x, x, NULL, NULL, 0);
		extension = X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, san);
		assert_int_equal(X509_add_ext(x, extension, -1), 1);
		X509_EXTENSION_free(extension);
	}
	assert_true(X509_sign(x, key, EVP_sha256()) > 0);
	return x;
}

static char *pem_of(X509 *x)
{
	BIO *b = BIO_new(BIO_s_mem());
	char *data, *text;
	long size;

	assert_int_equal(PEM_write_bio_X509(b, x), 1);
	size = BIO_get_mem_data(b, &data);
	text = xstrndup(data, (size_t) size);
	BIO_free(b);
	return text;
}

static void try_pinned(struct world *w, X509 *x, EVP_PKEY *key, const char *trouble)
{
	cleanup_free char *pem = pem_of(x);
	struct zw_error e = {0};
	struct meeting m;

	write_file(w->outside_file, pem);
	tls_free(w->tls);
	w->tls = tls_new(&w->broker, &e);
	assert_non_null(w->tls);
	meet_server(w, &m, "a.test", server_with(x, key));
	if (trouble == NULL)
		expect_met(&m);
	else
		expect_refused(&m, trouble);
	X509_free(x);
}

static void certificate_of_its_own_is_held_to_date_and_name(void **state)
{
	struct world *w = *state;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	struct meeting m;
	X509 *x = self_signed(key, "s", "DNS:a.test", -100, 1000);

	meet_server(w, &m, "a.test", server_with(x, key)); /* not named by network.ca_file */
	expect_refused(&m, "self-signed certificate");
	try_pinned(w, x, key, NULL);
	try_pinned(w, self_signed(key, "s", "DNS:a.test", -1000, -100), key, "has expired");
	try_pinned(w, self_signed(key, "s", "DNS:a.test", 100, 1000), key, "not yet valid");
	try_pinned(w, self_signed(key, "s", "DNS:b.test", -100, 1000), key, "hostname mismatch");
	try_pinned(w, self_signed(key, "a.test", NULL, -100, 1000), key, "hostname mismatch"); /* the subject is no host name */
	try_pinned(w, self_signed(key, "s", "DNS:*.test", -100, 1000), key, "hostname mismatch");
	try_pinned(w, self_signed(key, "s", "DNS:a*.test", -100, 1000), key, "hostname mismatch");
	EVP_PKEY_free(key);
}

static void upstream_sessions_are_resumed_by_name(void **state)
{
	static const unsigned char context[] = "server";
	struct world *w = *state;
	SSL_CTX *c = SSL_CTX_new(TLS_server_method());
	EVP_PKEY *key;
	X509 *leaf;

	assert_int_equal(leaf_for(w->outside, "a.test", &leaf, &key), 0);
	assert_int_equal(SSL_CTX_use_certificate(c, leaf), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(c, key), 1);
	assert_int_equal(SSL_CTX_set_session_id_context(c, context, sizeof context), 1);
	for (int i = 0; i < 3; i++) {
		SSL *server = SSL_new(c);
		struct meeting m;

		meet_server(w, &m, i < 2 ? "a.test" : "x.wild.test", server);
		if (i < 2) {
			assert_int_equal(bufferevent_write(m.peer.bev, "x", 1), 0); /* behind the ticket */
			while (evbuffer_get_length(bufferevent_get_input(m.ours.bev)) == 0)
				assert_int_equal(event_base_loop(w->broker.base, EVLOOP_ONCE), 0);
			assert_int_equal(SSL_session_reused(server), i); /* although the first was never closed in order */
			part(&m);
		} else {
			expect_refused(&m, "hostname mismatch"); /* the session of another name does not help */
		}
	}
	SSL_CTX_free(c);
}

/* ---- Ends. ---- */

static void end_without_close_notify_is_an_error(void **state)
{
	struct world *w = *state;
	struct meeting m;

	meet_server(w, &m, "a.test", server_of(w->outside, "a.test"));
	assert_int_equal(shutdown(bufferevent_getfd(m.peer.bev), SHUT_WR), 0);
	until_over(w, &m.ours);
	assert_true(m.ours.error);
	assert_true(tls_was_cut(m.ours.bev));
	assert_string_equal(m.ours.why, "the server ended the connection without close_notify");
	part(&m);
	meet_server(w, &m, "a.test", server_of(w->outside, "a.test"));
	assert_int_equal(SSL_shutdown(bufferevent_openssl_get_ssl(m.peer.bev)), 0);
	until_over(w, &m.ours);
	assert_true(m.ours.eof);
	assert_false(m.ours.error);
	part(&m);
}

static void end_in_the_handshake_is_told(void **state)
{
	struct world *w = *state;
	struct side s = {0};
	int fds[2];

	pair(fds);
	watch(&s, tls_accept(w->tls, fds[0], "a.test"));
	fd_close(&fds[1]);
	until_over(w, &s);
	assert_true(is_over(&s));
	if (!s.error)
		tls_error(s.bev, s.why, sizeof s.why);
	assert_non_null(strstr(s.why, "during the TLS handshake"));
	bufferevent_free(s.bev);
}

static void bytes_that_are_no_tls_are_refused(void **state)
{
	struct world *w = *state;
	struct side s = {0};
	int fds[2];

	pair(fds);
	watch(&s, tls_accept(w->tls, fds[0], "a.test"));
	assert_int_equal(fd_write_all(fds[1], "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 32), 0);
	until_over(w, &s);
	assert_true(s.error);
	assert_non_null(strstr(s.why, "http request"));
	bufferevent_free(s.bev);
	fd_close(&fds[1]);
}

/* The reader is slow, the socket full: close_notify must wait for its place, and nothing before it may be lost. */
static void orderly_end_arrives_behind_a_full_socket(void **state)
{
	enum { SIZE = 3000000 };
	struct world *w = *state;
	struct meeting m;
	size_t received = 0;
	cleanup_free char *data = xcalloc(SIZE, 1);

	meet_client(w, &m, "a.test", client_of(w->tls->ca, "a.test", "a.test"));
	assert_true(m.ours.connected && m.peer.connected);
	assert_int_equal(bufferevent_disable(m.peer.bev, EV_READ), 0);
	assert_int_equal(bufferevent_write(m.ours.bev, data, SIZE), 0);
	for (bool stuck = false; !stuck;) { /* nothing moves any more: the socket is full */
		size_t before = evbuffer_get_length(bufferevent_get_output(m.ours.bev));

		(void) event_base_loop(w->broker.base, EVLOOP_NONBLOCK);
		stuck = before == evbuffer_get_length(bufferevent_get_output(m.ours.bev));
	}
	assert_true(evbuffer_get_length(bufferevent_get_output(m.ours.bev)) > 0);
	assert_int_equal(bufferevent_enable(m.peer.bev, EV_READ), 0);
	while (evbuffer_get_length(bufferevent_get_output(m.ours.bev)) > 0) {
		assert_int_equal(event_base_loop(w->broker.base, EVLOOP_ONCE), 0);
		received += evbuffer_get_length(bufferevent_get_input(m.peer.bev));
		(void) evbuffer_drain(bufferevent_get_input(m.peer.bev), SIZE);
	}
	tls_close(m.ours.bev);
	for (struct timeval limit = {.tv_sec = 10}; !is_over(&m.peer);) {
		(void) event_base_loopexit(w->broker.base, &limit);
		assert_int_equal(event_base_loop(w->broker.base, EVLOOP_ONCE), 0);
		received += evbuffer_get_length(bufferevent_get_input(m.peer.bev));
		(void) evbuffer_drain(bufferevent_get_input(m.peer.bev), SIZE);
	}
	assert_int_equal(received, SIZE);
	assert_true(m.peer.eof);
	assert_false(m.peer.error);
	bufferevent_free(m.peer.bev);
}

/* ---- What the sandbox gets. ---- */

static char *read_whole(int fd, size_t *ret_size)
{
	char *text = NULL;

	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(fd_read_all(fd, 1 << 20, &text, ret_size), 0);
	return text;
}

static void bundle_has_certificates_and_nothing_else(void **state)
{
	struct world *w = *state;
	cleanup_free char *ca = xstrdup(leaf_ca_pem(w->stranger));
	cleanup_free char *file =
	    xasprintf("a comment with a secret\n-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n%s"
		      "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n",
		      ca);
	cleanup_free char *wanted = xasprintf("%s%s", ca, leaf_ca_pem(w->outside));
	cleanup_free char *bundle = NULL;
	struct zw_error e = {0};
	size_t size;
	int fd;

	write_file(w->host, file);
	tls_free(w->tls);
	w->tls = tls_new(&w->broker, &e);
	assert_non_null(w->tls);
	fd = tls_trust_bundle(w->tls, &e);
	assert_true(fd >= 0);
	bundle = read_whole(fd, &size);
	assert_int_equal(strncmp(bundle, wanted, strlen(wanted)), 0);
	assert_string_equal(bundle + strlen(wanted), tls_ca_pem(w->tls));
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(errno, EPERM);
	fd_close(&fd);
}

/* A PEM file of one certificate with other ends of its lines; "" makes one line of the letters. */
static char *with_line_ends(const char *pem, const char *line_end)
{
	struct buf b = buf_new(1 << 16);

	for (const char *p = pem; *p != '\0'; p++) {
		bool framed = *p == '\n' && (p[-1] == '-' || p[1] == '-');

		if (*p != '\n')
			assert_int_equal(buf_add(&b, p, 1), 0);
		else
			assert_int_equal(buf_adds(&b, framed && line_end[0] == '\0' ? "\n" : line_end), 0);
	}
	return b.data;
}

static void bundle_has_certificates_in_the_usual_form(void **state)
{
	struct world *w = *state;
	cleanup_free char *plain = xstrdup(leaf_ca_pem(w->stranger)), *broken = xstrdup(plain), *cut = xstrdup(plain);
	cleanup_free char *windows = with_line_ends(plain, "\r\n"), *blanks = with_line_ends(plain, " \t\n");
	cleanup_free char *gaps = with_line_ends(plain, "\n\n"), *wide = with_line_ends(plain, "");
	cleanup_free char *wanted = xasprintf("%s%s", plain, leaf_ca_pem(w->outside));
	const char *const taken[] = {plain, cut, windows, blanks, gaps, wide};

	cut[strlen(cut) - 1] = '\0'; /* the last line has no end */
	broken[60] = '-';
	for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
		cleanup_free char *file = xasprintf("%s%s;\n%s", broken, cut, taken[i]), *bundle = NULL;
		struct zw_error e = {0};
		size_t size;
		int fd;

		write_file(w->host, file);
		tls_free(w->tls);
		w->tls = tls_new(&w->broker, &e);
		assert_non_null(w->tls);
		fd = tls_trust_bundle(w->tls, &e);
		assert_true(fd >= 0);
		bundle = read_whole(fd, &size);
		assert_int_equal(strncmp(bundle, wanted, strlen(wanted)), 0);
		fd_close(&fd);
	}
}

static uint64_t number_at(const unsigned char *p, size_t size)
{
	uint64_t value = 0;

	for (size_t i = 0; i < size; i++)
		value = value << 8 | p[i];
	return value;
}

static void java_key_store_is_complete_and_sealed(void **state)
{
	static const unsigned char start[] = {0xfe, 0xed, 0xfe, 0xed, 0, 0, 0,   2,   0,   0,   0,   3,
					      0,    0,    0,    2,    0, 6, 'h', 'o', 's', 't', '-', '0'};
	struct world *w = *state;
	cleanup_free char *text = NULL;
	struct zw_error e = {0};
	const unsigned char *p;
	size_t size;
	int fd = tls_trust_java(w->tls, &e);

	assert_true(fd >= 0);
	text = read_whole(fd, &size);
	p = (const unsigned char *) text;
	assert_memory_equal(p, start, sizeof start);
	p += 12;
	for (int i = 0; i < 3; i++) {
		size_t length;

		assert_int_equal(number_at(p, 4), 2);
		p += 4 + 2 + number_at(p + 4, 2) + 8;
		assert_memory_equal(p, "\0\5X.509", 7);
		length = number_at(p + 7, 4);
		p += 11;
		if (i == 2) {
			size_t der_size;
			const unsigned char *der = leaf_ca_der(w->tls->ca, &der_size);

			assert_int_equal(length, der_size);
			assert_memory_equal(p, der, der_size);
		}
		p += length;
	}
	assert_int_equal(text + size - (const char *) p, 20); /* SHA-1 */
	assert_int_equal(write(fd, "x", 1), -1);
	fd_close(&fd);
}

static void trust_store_that_is_not_there_is_an_error(void **state)
{
	struct world *w = *state;
	struct zw_error e = {0};

	assert_int_equal(setenv("SSL_CERT_FILE", "/nonexistent/bundle.pem", 1), 0);
	assert_null(tls_new(&w->broker, &e));
	assert_non_null(strstr(e.text, "SSL_CERT_FILE"));
	assert_non_null(strstr(e.text, "/nonexistent/bundle.pem"));
	assert_int_equal(setenv("SSL_CERT_FILE", w->host, 1), 0);
	write_file(w->outside_file, "no certificate");
	assert_null(tls_new(&w->broker, &e));
	assert_non_null(strstr(e.text, "network.ca_file"));
}

/* ---- Confined. ---- */

static void forbid_opening(void)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
#ifdef SYS_open
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 2, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_access, 1, 0),
#else
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_faccessat, 2, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 1, 0),
#endif
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static int status_of(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void no_file_is_opened_after_the_start(void **state)
{
	struct world *w = *state;
	SSL *client = client_of(w->tls->ca, "a.test", "a.test"), *server = server_of(w->outside, "a.test");
	pid_t child;
	int status;

	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct meeting m;

		forbid_opening();
		(void) event_reinit(w->broker.base);
		meet_client(w, &m, "a.test", client);
		if (!m.ours.connected)
			_exit(1);
		meet_server(w, &m, "a.test", server);
		if (!m.ours.connected)
			_exit(2);
		meet_server(w, &m, "a.test", server_of(w->stranger, "a.test"));
		_exit(m.ours.error ? 0 : 3);
	}
	status = status_of(child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	SSL_free(client);
	SSL_free(server);
	/* The filter of this test does bite. */
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		forbid_opening();
		_exit(open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0 ? 0 : 1);
	}
	assert_true(WIFSIGNALED(status_of(child)));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(client_that_trusts_the_ca_is_served),
	    TEST(server_name_must_be_that_of_the_connection),
	    cmocka_unit_test(server_name_extension_is_read_strictly),
	    TEST(client_that_does_not_trust_the_ca_is_told_apart),
	    TEST(http_2_alone_and_old_tls_are_refused),
	    TEST(ca_may_sign_for_the_rules_names_alone),
	    TEST(certificates_of_many_names_stay_right),
	    TEST(sessions_are_resumed_for_the_same_name_alone),
	    TEST(verified_server_is_believed),
	    TEST(server_that_cannot_prove_its_name_is_refused),
	    TEST(certificate_of_its_own_is_held_to_date_and_name),
	    TEST(upstream_sessions_are_resumed_by_name),
	    TEST(end_without_close_notify_is_an_error),
	    TEST(end_in_the_handshake_is_told),
	    TEST(bytes_that_are_no_tls_are_refused),
	    TEST(orderly_end_arrives_behind_a_full_socket),
	    TEST(bundle_has_certificates_and_nothing_else),
	    TEST(bundle_has_certificates_in_the_usual_form),
	    TEST(java_key_store_is_complete_and_sealed),
	    TEST(trust_store_that_is_not_there_is_an_error),
	    TEST(no_file_is_opened_after_the_start),
	};

	return cmocka_run_group_tests_name("egress-tls", tests, NULL, NULL);
}
