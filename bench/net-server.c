/* net-server CERTIFICATE KEY: the servers that bench/network measures with, on 127.0.0.1 (net-wire.h). Prints one line, the ports
 * of the plain, the HELLO and the TLS service, and ends when its standard input does.
 *
 * Each service has its threads before the first connection comes, all of them in accept(2): making one then would be part of what
 * is measured. */
#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "net-wire.h"

/* bench/network holds 100 connections of each service at once. */
enum { THREADS = 128, STACK = 256 * 1024 };

struct service {
	int listener;
	SSL_CTX *tls;
	void (*serve)(const struct service *s, int fd);
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void *buffer(size_t size)
{
	void *p = calloc(1, size);

	if (p == NULL)
		die("calloc");
	return p;
}

static void feed(int fd)
{
	char *data = buffer(CHUNK);
	uint32_t msec;

	if (receive_all(fd, &msec, sizeof msec)) {
		uint64_t end = now_ns() + msec * UINT64_C(1000000);

		while (now_ns() < end && send_all(fd, data, CHUNK))
			;
	}
	free(data);
}

static void drain(int fd)
{
	char *data = buffer(CHUNK), kind = CHUNK_MORE;
	uint64_t total = 0;

	while (total % CHUNK != 0 || kind == CHUNK_MORE) {
		ssize_t n = recv(fd, data, CHUNK - (size_t) (total % CHUNK), 0);

		if (n <= 0)
			break;
		if (total % CHUNK == 0)
			kind = *data;
		total += (uint64_t) n;
	}
	(void) send_all(fd, &total, sizeof total); /* the client judges it */
	free(data);
}

static void serve_plain(const struct service *s, int fd)
{
	char ask;

	(void) s;
	while (receive_all(fd, &ask, 1)) {
		if (ask == ASK_ECHO && send_all(fd, &ask, 1))
			continue;
		if (ask == ASK_IN)
			feed(fd);
		else if (ask == ASK_OUT)
			drain(fd);
		return;
	}
}

static void serve_hello(const struct service *s, int fd)
{
	uint8_t header[5], record[1 << 16];

	if (receive_all(fd, header, sizeof header) && receive_all(fd, record, (size_t) (header[3] << 8 | header[4])))
		serve_plain(s, fd);
}

/* ---- HTTP over TLS. ---- */

struct session {
	SSL *ssl;
	char *data; /* TLS_CHUNK bytes */
	char head[HEAD_MAX + 1];
	size_t size; /* of what came, the head and perhaps some of the body */
};

/* Length of the next head, 0: there is none. */
static size_t read_head(struct session *s)
{
	for (;;) {
		const char *end;
		int n;

		s->head[s->size] = '\0';
		end = strstr(s->head, "\r\n\r\n");
		if (end != NULL)
			return (size_t) (end - s->head) + 4;
		n = SSL_read(s->ssl, s->head + s->size, (int) (HEAD_MAX - s->size));
		if (n <= 0)
			return 0;
		s->size += (size_t) n;
	}
}

static bool reply(struct session *s, uint64_t length)
{
	int size =
	    snprintf(s->data, TLS_CHUNK,
		     "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %" PRIu64 "\r\n\r\n", length);

	/* What is small goes out whole, in one record. */
	for (uint64_t left = length;;) {
		size_t n = left < (uint64_t) (TLS_CHUNK - size) ? (size_t) left : (size_t) (TLS_CHUNK - size);

		if (SSL_write(s->ssl, s->data, size + (int) n) <= 0)
			return false;
		left -= n;
		size = 0;
		if (left == 0)
			return true;
	}
}

static bool take_body(struct session *s, uint64_t length, size_t head)
{
	uint64_t left = length - (s->size - head);

	if (s->size - head > length)
		return false; /* the client sends one request at a time */
	while (left > 0) {
		int n = SSL_read(s->ssl, s->data, TLS_CHUNK);

		if (n <= 0)
			return false;
		left -= (uint64_t) n;
	}
	s->size = 0;
	return true;
}

static bool serve_request(struct session *s)
{
	size_t head = read_head(s);
	const char *length;
	bool post;

	if (head == 0)
		return false;
	post = strncmp(s->head, "POST ", 5) == 0;
	length = post ? strcasestr(s->head, "\r\ncontent-length:") : s->head;
	if (length == NULL)
		return false;
	/* "GET /N" or "POST /" and the length that it announces */
	if (post)
		return take_body(s, strtoull(strchr(length, ':') + 1, NULL, 10), head) && reply(s, 2);
	s->size = 0;
	return reply(s, strtoull(s->head + strcspn(s->head, "/") + 1, NULL, 10));
}

static void serve_tls(const struct service *service, int fd)
{
	struct session *s = buffer(sizeof *s);

	s->ssl = SSL_new(service->tls);
	s->data = buffer(TLS_CHUNK);
	if (s->ssl != NULL && SSL_set_fd(s->ssl, fd) == 1 && SSL_accept(s->ssl) == 1) {
		while (serve_request(s))
			;
		(void) SSL_shutdown(s->ssl);
	}
	SSL_free(s->ssl);
	free(s->data);
	free(s);
}

/* ---- Services. ---- */

static void *work(void *ctx)
{
	const struct service *s = ctx;
	const int on = 1;

	for (;;) {
		int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		s->serve(s, fd);
		(void) close(fd);
	}
	return NULL;
}

static uint16_t start(struct service *s)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof a;
	pthread_attr_t attr;
	pthread_t thread;

	s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->listener < 0 || bind(s->listener, (struct sockaddr *) &a, size) < 0 || listen(s->listener, 1024) < 0 ||
	    getsockname(s->listener, (struct sockaddr *) &a, &size) < 0)
		die("listen");
	if (pthread_attr_init(&attr) != 0 || pthread_attr_setstacksize(&attr, STACK) != 0)
		die("pthread_attr_init");
	for (int i = 0; i < THREADS; i++) {
		errno = pthread_create(&thread, &attr, work, s);
		if (errno != 0)
			die("pthread_create");
	}
	return ntohs(a.sin_port);
}

static SSL_CTX *certified(const char *certificate, const char *key)
{
	SSL_CTX *tls = SSL_CTX_new(TLS_server_method());

	if (tls == NULL || SSL_CTX_use_certificate_chain_file(tls, certificate) != 1 ||
	    SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1) {
		fprintf(stderr, "net-server: %s and %s are not a certificate and its key\n", certificate, key);
		exit(1);
	}
	return tls;
}

int main(int argc, char **argv)
{
	struct service plain = {.serve = serve_plain}, hello = {.serve = serve_hello}, tls = {.serve = serve_tls};
	uint16_t ports[3];
	char byte;

	if (argc != 3) {
		fputs("usage: net-server CERTIFICATE KEY\n", stderr);
		return 2;
	}
	(void) sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
	tls.tls = certified(argv[1], argv[2]);
	ports[0] = start(&plain);
	ports[1] = start(&hello);
	ports[2] = start(&tls);
	printf("%u %u %u\n", ports[0], ports[1], ports[2]);
	(void) fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	/* Threads may be anywhere; nothing is left to tidy. */
	_exit(0);
}
