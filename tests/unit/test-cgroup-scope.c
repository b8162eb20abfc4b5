/* The talk with the service manager of a user, against one that this test plays: every wrong turn it can take ends in an error,
 * in time. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

enum behaviour {
	GOOD,
	SIGNAL_FIRST,   /* the job ends before the call is answered */
	OTHERS_SIGNALS, /* other jobs end too */
	IN_PIECES,
	FAILED_JOB,
	REFUSES_CALL,
	REFUSES_USER,
	SILENT_AT_ONCE,
	SILENT_LATER,
	HANGS_UP,
	ENDLESS_LINE,
	ENDLESS_SIGNALS,
	GIANT_MESSAGE,
	FIELDS_TOO_LONG,
	STRING_TOO_LONG,
	STRING_WITHOUT_END,
	UNKNOWN_TYPE,
	NOISE,
};

enum { PID = 4711 };

/* A message under construction; all in the byte order of this machine. */
struct out {
	unsigned char data[4096];
	size_t size;
};

static void bytes(struct out *o, const void *data, size_t size)
{
	if (size > sizeof o->data - o->size)
		_exit(90);
	memcpy(o->data + o->size, data, size);
	o->size += size;
}

static void align(struct out *o, size_t to)
{
	static const char zero[8];

	bytes(o, zero, (to - o->size % to) % to);
}

static void u32(struct out *o, uint32_t n)
{
	align(o, 4);
	bytes(o, &n, 4);
}

static void string(struct out *o, const char *s)
{
	u32(o, (uint32_t) strlen(s));
	bytes(o, s, strlen(s) + 1);
}

/* A header with the fields that are given, and the body. */
static struct out message(unsigned char type, uint32_t reply_serial, const char *member, const struct out *body)
{
	static const uint16_t one = 1;
	struct out o = {.size = 0};
	unsigned char start[4] = {*(const unsigned char *) &one == 1 ? 'l' : 'B', type, 1, 1};
	uint32_t fields;

	bytes(&o, start, sizeof start);
	u32(&o, (uint32_t) body->size);
	u32(&o, 77);
	u32(&o, 0);
	if (reply_serial != 0) {
		bytes(&o, "\5\1u", 4);
		u32(&o, reply_serial);
		align(&o, 8);
	}
	bytes(&o, "\1\1o", 4);
	string(&o, "/org/freedesktop/systemd1");
	if (member != NULL) {
		align(&o, 8);
		bytes(&o, "\3\1s", 4);
		string(&o, member);
	}
	align(&o, 8);
	bytes(&o, "\10\1g\0\4uoss", 10); /* the signature */
	fields = (uint32_t) o.size - 16;
	memcpy(o.data + 12, &fields, sizeof fields);
	align(&o, 8);
	bytes(&o, body->data, body->size);
	return o;
}

static void say(int sock, const void *data, size_t size, bool in_pieces)
{
	for (size_t i = 0; i < size; i += in_pieces ? 1 : size)
		if (send(sock, (const char *) data + i, in_pieces ? 1 : size, MSG_NOSIGNAL) < 0)
			_exit(0); /* hung up on, which some cases want */
}

static void say_removed(int sock, const char *unit, const char *result, bool in_pieces)
{
	struct out body = {.size = 0}, o;

	u32(&body, 9);
	string(&body, "/org/freedesktop/systemd1/job/9");
	string(&body, unit);
	string(&body, result);
	o = message(4, 0, "JobRemoved", &body);
	say(sock, o.data, o.size, in_pieces);
}

static void say_reply(int sock, uint32_t serial, bool in_pieces)
{
	struct out body = {.size = 0}, o;

	string(&body, "/org/freedesktop/systemd1/job/9");
	o = message(2, serial, NULL, &body);
	say(sock, o.data, o.size, in_pieces);
}

/* Reads a line of the authentication. */
static void hear_line(int sock, const char *expected)
{
	char line[128] = "";
	size_t n = 0;

	while (n < sizeof line - 1 && (n == 0 || line[n - 1] != '\n'))
		if (read(sock, line + n, 1) == 1)
			n++;
		else
			_exit(91);
	if (memcmp(line, expected, strlen(expected)) != 0)
		_exit(92);
}

/* Reads one message whole, and finds the member's name in it. */
static size_t hear_call(int sock, unsigned char *data, size_t room, const char *member)
{
	uint32_t body, fields;
	size_t size;

	if (recv(sock, data, 16, MSG_WAITALL) != 16)
		_exit(93);
	memcpy(&body, data + 4, 4);
	memcpy(&fields, data + 12, 4);
	size = 16 + (fields + 7) / 8 * 8 + body;
	if (size > room || recv(sock, data + 16, size - 16, MSG_WAITALL) != (ssize_t) (size - 16))
		_exit(94);
	if (memmem(data, size, member, strlen(member) + 1) == NULL)
		_exit(95);
	return size;
}

/* The unit's name out of StartTransientUnit, after a look at what was asked. */
static const char *check_start(const unsigned char *data, size_t size)
{
	static const char *const needed[] = {"Delegate", "PIDs", "ssa(sv)a(sa(sv))", "fail", "org.freedesktop.systemd1.Manager"};
	const char *unit = memmem(data, size, "zwinger-", 8);
	uint32_t pid = PID;

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (memmem(data, size, needed[i], strlen(needed[i]) + 1) == NULL)
			_exit(96);
	if (memmem(data, size, &pid, sizeof pid) == NULL || unit == NULL || strlen(unit) < 10)
		_exit(97);
	return unit;
}

/* Answers that are not what the protocol allows. */
static void say_wrong(int sock, enum behaviour b)
{
	struct out body = {.size = 0}, o;
	uint32_t huge = 0xfffffff0;

	string(&body, "/job");
	o = message(b == UNKNOWN_TYPE ? 9 : 2, 3, NULL, &body);
	if (b == GIANT_MESSAGE)
		memcpy(o.data + 4, &huge, 4);
	else if (b == FIELDS_TOO_LONG)
		memcpy(o.data + 12, &huge, 4);
	else if (b == STRING_TOO_LONG)
		memcpy(o.data + 28, &huge, 4); /* the path field */
	else if (b == STRING_WITHOUT_END)
		memset(o.data + 32, 'x', o.size - 32);
	else if (b == NOISE)
		memset(o.data, 0xa5, o.size);
	say(sock, o.data, o.size, false);
}

static void answer(int sock, enum behaviour b, const char *unit)
{
	bool pieces = b == IN_PIECES;

	if (b == SIGNAL_FIRST)
		say_removed(sock, unit, "done", false);
	for (size_t i = 0; i < (b == OTHERS_SIGNALS ? 5 : b == ENDLESS_SIGNALS ? 100000 : 0); i++)
		say_removed(sock, "other.service", "failed", false);
	if (b == REFUSES_CALL) {
		struct out body = {.size = 0}, o;

		string(&body, "Access is for others.");
		o = message(3, 3, NULL, &body);
		say(sock, o.data, o.size, false);
	} else if (b >= GIANT_MESSAGE) {
		say_wrong(sock, b);
	} else if (b != SILENT_LATER && b != HANGS_UP) {
		say_reply(sock, 3, pieces);
	}
	if (b != SIGNAL_FIRST && b != SILENT_LATER && b != HANGS_UP && b < GIANT_MESSAGE)
		say_removed(sock, unit, b == FAILED_JOB ? "failed" : "done", pieces);
}

static void play(int listener, bool bus, enum behaviour b)
{
	int sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	unsigned char data[4096];
	char byte;
	size_t n;

	if (sock < 0)
		_exit(98);
	if (read(sock, &byte, 1) != 1 || byte != '\0')
		_exit(99);
	hear_line(sock, "AUTH EXTERNAL 3");
	if (b == ENDLESS_LINE)
		for (;;)
			say(sock, "OK OK OK OK OK OK", 17, false);
	if (b == REFUSES_USER)
		say(sock, "REJECTED EXTERNAL\r\n", 19, false);
	else if (b != SILENT_AT_ONCE)
		say(sock, "OK 0123456789abcdef0123456789abcdef\r\n", 37, b == IN_PIECES);
	if (b != REFUSES_USER && b != SILENT_AT_ONCE) {
		hear_line(sock, "BEGIN\r\n");
		if (bus) {
			(void) hear_call(sock, data, sizeof data, "Hello");
			say_reply(sock, 1, false);
			(void) hear_call(sock, data, sizeof data, "AddMatch");
			say_reply(sock, 2, false);
		}
		n = hear_call(sock, data, sizeof data, "StartTransientUnit");
		answer(sock, b, check_start(data, n));
	}
	if (b != HANGS_UP)
		(void) !recv(sock, &byte, 1, 0); /* until we are hung up on */
	_exit(0);
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(sock >= 0);
	assert_true(strlen(path) < sizeof address.sun_path);
	memcpy(address.sun_path, path, strlen(path));
	assert_int_equal(bind(sock, (struct sockaddr *) &address, sizeof address), 0);
	assert_int_equal(listen(sock, 1), 0);
	return sock;
}

/* One talk. Also sees to it that the manager was content with what it heard. */
static int talk(bool bus, enum behaviour b, usec_t timeout, struct zw_error *e)
{
	char dir[] = "/tmp/zwinger-test-XXXXXX", path[80];
	int listener, status = -1, r;
	pid_t manager;

	assert_non_null(mkdtemp(dir));
	(void) snprintf(path, sizeof path, "%s/systemd", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	(void) snprintf(path, sizeof path, "%s/%s", dir, bus ? "bus" : "systemd/private");
	listener = listen_at(path);
	manager = fork();
	assert_true(manager >= 0);
	if (manager == 0) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		play(listener, bus, b);
	}
	fd_close(&listener);
	r = cgroup_scope_enter(dir, PID, timeout, e);
	assert_int_equal(waitpid(manager, &status, 0), manager);
	assert_int_equal(unlink(path), 0);
	(void) snprintf(path, sizeof path, "%s/systemd", dir);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(status, 0);
	return r;
}

static void a_scope_is_had_from_the_private_socket_or_the_bus(void **state)
{
	static const enum behaviour good[] = {GOOD, SIGNAL_FIRST, OTHERS_SIGNALS, IN_PIECES};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct zw_error e = {0};

		assert_int_equal(talk(false, good[i], 10 * USEC_PER_SEC, &e), 0);
		assert_int_equal(talk(true, good[i], 10 * USEC_PER_SEC, &e), 0);
		assert_string_equal(e.text, "");
	}
}

static void what_the_manager_says_reaches_the_sentence(void **state)
{
	struct zw_error e = {0};

	(void) state;
	assert_int_equal(talk(false, REFUSES_CALL, 10 * USEC_PER_SEC, &e), -EACCES);
	assert_non_null(strstr(e.text, "Access is for others."));
	assert_int_equal(talk(false, FAILED_JOB, 10 * USEC_PER_SEC, &e), -EACCES);
	assert_non_null(strstr(e.text, "failed"));
	assert_int_equal(talk(false, REFUSES_USER, 10 * USEC_PER_SEC, &e), -EACCES);
}

static void silence_ends_in_time(void **state)
{
	usec_t start = now_monotonic();

	(void) state;
	assert_int_equal(talk(false, SILENT_AT_ONCE, 50 * USEC_PER_MSEC, NULL), -ETIMEDOUT);
	assert_int_equal(talk(true, SILENT_LATER, 50 * USEC_PER_MSEC, NULL), -ETIMEDOUT);
	assert_true(now_monotonic() - start < 5 * USEC_PER_SEC);
}

static void a_manager_that_breaks_the_protocol_is_left(void **state)
{
	static const enum behaviour bad[] = {HANGS_UP,        ENDLESS_LINE,    ENDLESS_SIGNALS,    GIANT_MESSAGE,
					     FIELDS_TOO_LONG, STRING_TOO_LONG, STRING_WITHOUT_END, NOISE};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct zw_error e = {0};

		assert_true(talk(i % 2 == 1, bad[i], 5 * USEC_PER_SEC, &e) < 0);
		assert_int_not_equal(e.code, -ETIMEDOUT);
		assert_string_not_equal(e.text, "");
	}
	/* Messages of a type that does not exist are passed over, as the specification asks. */
	assert_int_equal(talk(false, UNKNOWN_TYPE, 50 * USEC_PER_MSEC, NULL), -ETIMEDOUT);
}

static void without_a_manager_it_is_told_at_once(void **state)
{
	struct zw_error e = {0};

	(void) state;
	assert_int_equal(cgroup_scope_enter("/nowhere", PID, USEC_PER_SEC, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nowhere"));
	assert_int_equal(
	    cgroup_scope_enter("/a/path/that/is/longer/than/a/socket/address/can/hold/which/is/one/hundred/and/eight/bytes/"
			       "with/the/end/of/it",
			       PID, USEC_PER_SEC, &e),
	    -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_scope_is_had_from_the_private_socket_or_the_bus),
	    cmocka_unit_test(what_the_manager_says_reaches_the_sentence),
	    cmocka_unit_test(silence_ends_in_time),
	    cmocka_unit_test(a_manager_that_breaks_the_protocol_is_left),
	    cmocka_unit_test(without_a_manager_it_is_told_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
