/* net-client: the clients that bench/network measures with: natively, in a sandbox, behind other relays. Does what lines of its
 * standard input say, with the services of net-server, and answers each in one line; ends with its input.
 *
 *	in HOST PORT MSEC [hello]     takes bytes for so long; BYTES NANOSECONDS
 *	out HOST PORT MSEC [hello]    sends bytes for so long, until the server has them; BYTES NANOSECONDS
 *	connect HOST PORT COUNT       so many connections one after the other, a byte there and back on each; NANOSECONDS each
 *	hold HOST PORT COUNT [tls]    so many at once, a byte or a request there and back on each, which stay open; 1
 *	get HOST PORT BYTES           one request of HTTPS, whose answer is so long; BYTES NANOSECONDS, without the handshake
 *	post HOST PORT BYTES          one that itself is
 *	requests HOST PORT COUNT      so many small ones on one connection; NANOSECONDS each
 *
 * HOST is a name, which is resolved before anything is timed, or NAME=ADDRESS. When it can take commands it says "ready". */
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdarg.h>
#include <string.h>

#include "net-wire.h"

enum { WORDS_MAX = 5 };

struct job {
	const char *host;
	struct sockaddr_storage address;
	socklen_t address_size;
	uint64_t amount;
	const char *option; /* or "" */
	SSL_CTX *tls;
	char *data; /* CHUNK bytes */
};

static _Noreturn void fail(const char *what, const struct job *j)
{
	fprintf(stderr, "net-client: %s, %s: %s\n", what, j->host, strerror(errno));
	exit(1);
}

static int connect_to(const struct job *j)
{
	int fd = socket(j->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0 ||
	    connect(fd, (const struct sockaddr *) &j->address, j->address_size) < 0)
		fail("connect", j);
	return fd;
}

/* ---- Plain. ---- */

static uint8_t *put(uint8_t *p, size_t value, size_t bytes)
{
	while (bytes-- > 0)
		*p++ = (uint8_t) (value >> 8 * bytes);
	return p;
}

static uint8_t *put_name(uint8_t *p, const char *name)
{
	size_t size = strlen(name);

	p = put(put(p, 0, 2), size + 5, 2); /* extension server_name */
	p = put(put(put(p, size + 3, 2), 0, 1), size, 2);
	memcpy(p, name, size);
	return p + size;
}

/* A ClientHello of TLS 1.2 that names the host (RFC 5246, 7.4.1.2; RFC 6066, 3). */
static void send_hello(const struct job *j, int fd)
{
	uint8_t record[512], *p = put(put(record, 0x160301, 3), 0, 2);
	uint8_t *message = p, *extensions;

	p = put(put(put(p, 1, 1), 0, 3), 0x0303, 2);
	p = put(p, 0, 32);                           /* random */
	p = put(put(p, 0, 1), 2, 2);                 /* no session */
	p = put(put(put(p, 0xc02f, 2), 1, 1), 0, 1); /* one suite, no compression */
	extensions = p;
	p = put_name(put(p, 0, 2), j->host);
	(void) put(extensions, (size_t) (p - extensions) - 2, 2);
	(void) put(message + 1, (size_t) (p - message) - 4, 3);
	(void) put(record + 3, (size_t) (p - message), 2);
	if (!send_all(fd, record, (size_t) (p - record)))
		fail("send", j);
}

static int connect_plain(const struct job *j)
{
	int fd = connect_to(j);

	if (strcmp(j->option, "hello") == 0)
		send_hello(j, fd);
	return fd;
}

static void do_in(struct job *j)
{
	struct {
		uint8_t ask;
		uint32_t msec;
	} __attribute__((packed)) ask = {ASK_IN, (uint32_t) j->amount};
	uint64_t total = 0, began;
	int fd = connect_plain(j);
	ssize_t n;

	began = now_ns();
	if (!send_all(fd, &ask, sizeof ask))
		fail("send", j);
	while ((n = recv(fd, j->data, CHUNK, 0)) > 0)
		total += (uint64_t) n;
	if (n < 0 || total == 0)
		fail("receive", j);
	printf("%" PRIu64 " %" PRIu64 "\n", total, now_ns() - began);
	(void) close(fd);
}

static void do_out(struct job *j)
{
	uint64_t total = 0, came, began, end;
	const uint8_t ask = ASK_OUT;
	int fd = connect_plain(j);

	began = now_ns();
	end = began + j->amount * UINT64_C(1000000);
	if (!send_all(fd, &ask, 1))
		fail("send", j);
	do {
		*j->data = now_ns() < end ? CHUNK_MORE : CHUNK_LAST;
		if (!send_all(fd, j->data, CHUNK))
			fail("send", j);
		total += CHUNK;
	} while (*j->data == CHUNK_MORE);
	if (!receive_all(fd, &came, sizeof came) || came != total)
		fail("the server's count of what was sent", j);
	printf("%" PRIu64 " %" PRIu64 "\n", total, now_ns() - began);
	(void) close(fd);
}

static void echo(const struct job *j, int fd)
{
	uint8_t byte = ASK_ECHO;

	if (!send_all(fd, &byte, 1) || !receive_all(fd, &byte, 1) || byte != ASK_ECHO)
		fail("a byte there and back", j);
}

static void do_connect(struct job *j)
{
	for (uint64_t i = 0; i < j->amount; i++) {
		uint64_t began = now_ns();
		int fd = connect_plain(j);

		echo(j, fd);
		(void) close(fd);
		printf("%" PRIu64 " ", now_ns() - began);
	}
	putchar('\n');
}

/* ---- HTTPS. ---- */

static SSL *connect_tls(const struct job *j)
{
	SSL *ssl = SSL_new(j->tls);

	if (ssl == NULL || SSL_set_tlsext_host_name(ssl, j->host) != 1 || SSL_set1_host(ssl, j->host) != 1 ||
	    SSL_set_fd(ssl, connect_to(j)) != 1 || SSL_connect(ssl) != 1) {
		errno = EPROTO;
		fail("handshake", j);
	}
	return ssl;
}

static void disconnect(SSL *ssl)
{
	int fd = SSL_get_fd(ssl);

	(void) SSL_shutdown(ssl);
	SSL_free(ssl);
	(void) close(fd);
}

static void write_tls(const struct job *j, SSL *ssl, const char *data, size_t size)
{
	if (SSL_write(ssl, data, (int) size) <= 0) {
		errno = EPROTO;
		fail("send a request", j);
	}
}

static void send_request(const struct job *j, SSL *ssl, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void send_request(const struct job *j, SSL *ssl, const char *format, ...)
{
	char head[512];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(head, sizeof head, format, ap);
	va_end(ap);
	write_tls(j, ssl, head, (size_t) n);
}

/* Reads an answer with a Content-Length; the length of its body. */
static uint64_t read_answer(const struct job *j, SSL *ssl)
{
	char head[HEAD_MAX + 1];
	size_t size = 0;
	const char *end = NULL, *length = NULL;
	uint64_t body, came;

	while (end == NULL && size < HEAD_MAX) {
		int n = SSL_read(ssl, head + size, (int) (HEAD_MAX - size));

		errno = EPROTO;
		if (n <= 0)
			fail("receive an answer", j);
		size += (size_t) n;
		head[size] = '\0';
		end = strstr(head, "\r\n\r\n");
	}
	length = strcasestr(head, "\r\ncontent-length:");
	if (end == NULL || strncmp(head, "HTTP/1.1 200 ", 13) != 0 || length == NULL)
		fail("an answer of 200 with a length", j);
	body = strtoull(strchr(length, ':') + 1, NULL, 10);
	came = size - ((size_t) (end - head) + 4);
	while (came < body) {
		int n = SSL_read(ssl, j->data, CHUNK);

		if (n <= 0)
			fail("receive a body", j);
		came += (uint64_t) n;
	}
	return body;
}

static uint64_t get(const struct job *j, SSL *ssl, uint64_t bytes)
{
	send_request(j, ssl, "GET /%" PRIu64 " HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n\r\n", bytes, j->host);
	return read_answer(j, ssl);
}

static void do_get(struct job *j)
{
	SSL *ssl = connect_tls(j);
	uint64_t began = now_ns(), bytes = get(j, ssl, j->amount);

	printf("%" PRIu64 " %" PRIu64 "\n", bytes, now_ns() - began);
	disconnect(ssl);
}

static void do_post(struct job *j)
{
	SSL *ssl = connect_tls(j);
	uint64_t began = now_ns();

	send_request(j, ssl, "POST / HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\nContent-Length: %" PRIu64 "\r\n\r\n", j->host,
		     j->amount);
	for (uint64_t left = j->amount, n; left > 0; left -= n) {
		n = left < TLS_CHUNK ? left : TLS_CHUNK;
		write_tls(j, ssl, j->data, (size_t) n);
	}
	(void) read_answer(j, ssl);
	printf("%" PRIu64 " %" PRIu64 "\n", j->amount, now_ns() - began);
	disconnect(ssl);
}

static void do_requests(struct job *j)
{
	SSL *ssl = connect_tls(j);

	(void) get(j, ssl, 100);
	for (uint64_t i = 0; i < j->amount; i++) {
		uint64_t began = now_ns();

		(void) get(j, ssl, 100);
		printf("%" PRIu64 " ", now_ns() - began);
	}
	putchar('\n');
	disconnect(ssl);
}

static void do_hold(struct job *j)
{
	for (uint64_t i = 0; i < j->amount; i++) {
		if (strcmp(j->option, "tls") == 0)
			(void) get(j, connect_tls(j), 100);
		else
			echo(j, connect_plain(j));
	}
	puts("1"); /* they stay until this process ends */
}

/* ---- Lines. ---- */

static const struct {
	const char *word;
	void (*run)(struct job *j);
} commands[] = {
    {"in", do_in},   {"out", do_out},   {"connect", do_connect},   {"hold", do_hold},
    {"get", do_get}, {"post", do_post}, {"requests", do_requests},
};

static void resolve(struct job *j, char *host, const char *port)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	const char *name = strsep(&host, "=");
	struct addrinfo *found;
	int r = getaddrinfo(host != NULL ? host : name, port, &hints, &found);

	j->host = name;
	if (r != 0) {
		fprintf(stderr, "net-client: %s: %s\n", j->host, gai_strerror(r));
		exit(1);
	}
	memcpy(&j->address, found->ai_addr, found->ai_addrlen);
	j->address_size = found->ai_addrlen;
	freeaddrinfo(found);
}

static void obey(struct job *j, char *line)
{
	char empty[] = "", *words[WORDS_MAX] = {empty, empty, empty, empty, empty};
	size_t n = 0;

	for (char *p = line; n < WORDS_MAX && p != NULL; n++)
		words[n] = strsep(&p, " \n");
	j->amount = strtoull(words[3], NULL, 10);
	j->option = words[4];
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		if (strcmp(words[0], commands[i].word) != 0 || j->amount == 0)
			continue;
		resolve(j, words[1], words[2]);
		commands[i].run(j);
		(void) fflush(stdout);
		return;
	}
	fprintf(stderr, "net-client: no such command: %s\n", words[0]);
	exit(2);
}

int main(void)
{
	struct job j = {.tls = SSL_CTX_new(TLS_client_method()), .data = calloc(1, CHUNK)};
	char *line = NULL;
	size_t size = 0;

	if (j.tls == NULL || j.data == NULL || SSL_CTX_set_default_verify_paths(j.tls) != 1) {
		fputs("net-client: no memory\n", stderr);
		return 1;
	}
	SSL_CTX_set_verify(j.tls, SSL_VERIFY_PEER, NULL);
	puts("ready");
	(void) fflush(stdout);
	while (getline(&line, &size, stdin) > 0)
		obey(&j, line);
	return 0;
}
