/* Asks an HTTP server the same again and again, and times each answer.
 *
 *	http-load CLIENTS ROUNDS HOST PORT KEY [METHOD PATH BODY]...
 *		each of CLIENTS processes has one connection and goes ROUNDS times through all requests, waiting for each answer.
 *		BODY is sent as JSON, or as bytes after an @; empty: no body. In PATH and BODY, {id} is the "id" of the round's
 *last JSON answer that has one, and {n} a number that no other round of any client has. Prints one line a round: status 0,
 *microseconds of the whole, microseconds of each request
 *
 * A round with an answer that is not 2xx prints status 1 and the answer instead. Answers need a Content-Length or are 204. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 256, STEPS_MAX = 16, ANSWER_MAX = 1 << 20, ID_MAX = 64, FIRST_STEP = 6, STEP_WORDS = 3 };

struct client {
	int fd;
	unsigned long number; /* of the round, among all clients */
	const char *host, *key;
	char id[ID_MAX];
	char answer[ANSWER_MAX];
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	(void) clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t) t.tv_sec * 1000000000U + (uint64_t) t.tv_nsec;
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || n == 0) {
		fprintf(stderr, "http-load: %s is not a number above 0\n", text);
		exit(2);
	}
	return n;
}

static int dial(const char *host, unsigned long port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (inet_pton(AF_INET, host, &to.sin_addr) != 1) {
		fprintf(stderr, "http-load: %s is not an IPv4 address\n", host);
		exit(2);
	}
	if (fd < 0 || connect(fd, (struct sockaddr *) &to, sizeof to) < 0)
		die("connect");
	(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return fd;
}

/* Writes text with {id} and {n} filled in. */
static void fill(FILE *out, const struct client *c, const char *text)
{
	while (*text != '\0') {
		if (strncmp(text, "{id}", 4) == 0) {
			fputs(c->id, out);
			text += 4;
		} else if (strncmp(text, "{n}", 3) == 0) {
			fprintf(out, "%lu", c->number);
			text += 3;
		} else {
			fputc(*text++, out);
		}
	}
}

static void ask(const struct client *c, char **step)
{
	char *path, *body, *whole;
	size_t path_size, body_size, size, sent = 0;
	const bool bytes = step[2][0] == '@';
	FILE *out = open_memstream(&path, &path_size);

	fill(out, c, step[1]);
	fclose(out);
	out = open_memstream(&body, &body_size);
	fill(out, c, step[2] + bytes);
	fclose(out);
	out = open_memstream(&whole, &size);
	fprintf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n", step[0], path, c->host, c->key);
	if (body_size > 0)
		fprintf(out, "Content-Type: %s\r\n", bytes ? "application/octet-stream" : "application/json");
	fprintf(out, "Content-Length: %zu\r\n\r\n", body_size);
	fwrite(body, 1, body_size, out);
	fclose(out);
	while (sent < size) {
		ssize_t n = send(c->fd, whole + sent, size - sent, MSG_NOSIGNAL);

		if (n < 0)
			die("send");
		sent += (size_t) n;
	}
	free(path);
	free(body);
	free(whole);
}

static size_t length_of(const char *head)
{
	const char *field = strcasestr(head, "\r\nContent-Length:");

	return field != NULL ? strtoul(field + strlen("\r\nContent-Length:"), NULL, 10) : 0;
}

/* The body, in c->answer. */
static const char *read_answer(struct client *c)
{
	size_t have = 0, wanted = SIZE_MAX;
	char *end = NULL;

	while (have < wanted) {
		ssize_t n = have < ANSWER_MAX - 1 ? recv(c->fd, c->answer + have, ANSWER_MAX - 1 - have, 0) : 0;

		if (n <= 0)
			die("the connection ended within an answer");
		have += (size_t) n;
		c->answer[have] = '\0';
		if (end == NULL && (end = strstr(c->answer, "\r\n\r\n")) != NULL) {
			*end = '\0';
			wanted = (size_t) (end + 4 - c->answer) + length_of(c->answer);
		}
	}
	return end + 4;
}

static void note_id(struct client *c, const char *body)
{
	const char *id = strstr(body, "\"id\":\"");
	size_t size = id != NULL ? strcspn(id + 6, "\"") : 0;

	if (id != NULL && size < ID_MAX) {
		memcpy(c->id, id + 6, size);
		c->id[size] = '\0';
	}
}

static void round_of(struct client *c, char **steps, size_t count)
{
	uint64_t start = now_ns(), before = start, took[STEPS_MAX];

	for (size_t i = 0; i < count; i++) {
		const char *body;
		uint64_t now;

		ask(c, steps + i * STEP_WORDS);
		body = read_answer(c);
		now = now_ns();
		took[i] = now - before;
		before = now;
		if (strncmp(c->answer, "HTTP/1.1 2", 10) != 0) {
			printf("1 %.12s %.400s\n", c->answer, body);
			return;
		}
		note_id(c, body);
	}
	printf("0 %" PRIu64, (before - start) / 1000);
	for (size_t i = 0; i < count; i++)
		printf(" %" PRIu64, took[i] / 1000);
	printf("\n");
}

static void run_client(char **argv, unsigned long client, char **steps, size_t count)
{
	static struct client c;
	unsigned long rounds = number(argv[2]);

	c = (struct client){.fd = dial(argv[3], number(argv[4])), .host = argv[3], .key = argv[5]};
	for (unsigned long i = 0; i < rounds; i++) {
		c.number = client * rounds + i;
		round_of(&c, steps, count);
	}
	(void) fflush(stdout);
}

int main(int argc, char **argv)
{
	size_t count = argc > FIRST_STEP ? (size_t) (argc - FIRST_STEP) / STEP_WORDS : 0;
	unsigned long clients;
	int status, failed = 0;

	if (count == 0 || count > STEPS_MAX || (argc - FIRST_STEP) % STEP_WORDS != 0 || number(argv[1]) > CLIENTS_MAX) {
		fprintf(stderr, "usage: http-load CLIENTS ROUNDS HOST PORT KEY [METHOD PATH BODY]...\n");
		return 2;
	}
	clients = number(argv[1]);
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* whole lines, whoever writes */
	for (unsigned long i = 0; i < clients; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0) {
			run_client(argv, i, argv + FIRST_STEP, count);
			return 0;
		}
	}
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
