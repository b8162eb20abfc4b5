#include "client/exec-output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "client/show.h"

enum { FULL = 256 * 1024, WAITING_MAX = 4 * 1024 * 1024, ENDED_BY_KILL = 137 };

static int add(struct exec_output *o, size_t stream, const char *data, size_t size)
{
	if (o->streams[stream].broken)
		return 0;
	if (buf_add(&o->streams[stream].waiting, data, size) == 0)
		return 0;
	o->fault = "it sends more output at once than a client accepts";
	return -E2BIG;
}

static int add_base64(struct exec_output *o, size_t stream, const char *text)
{
	size_t size = strlen(text), length = 0;
	cleanup_free char *bytes = xcalloc(size / 4 * 3 + 4, 1);

	if (sodium_base642bin((unsigned char *) bytes, size / 4 * 3 + 4, text, size, NULL, &length, NULL,
			      sodium_base64_VARIANT_ORIGINAL) == 0)
		return add(o, stream, bytes, length);
	o->fault = "it sends output that cannot be decoded";
	return -EBADMSG;
}

static int take_event(void *ctx, const char *event, const char *data, size_t size)
{
	struct exec_output *o = ctx;
	bool is_error = strcmp(event, "stderr") == 0, is_exit = strcmp(event, "exit") == 0;
	size_t stream = is_error || o->json;
	json_t *object;
	const json_t *text;
	int r = 0;

	if (!is_error && !is_exit && strcmp(event, "stdout") != 0 && strcmp(event, "tty") != 0)
		return 0;
	object = json_loadb(data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	text = json_object_get(object, "text");
	o->moved = true;
	if (!json_is_object(object)) {
		o->fault = "it sends events that are no JSON";
		r = -EBADMSG;
	} else if (is_exit) {
		json_decref(o->end);
		o->end = json_incref(object);
	} else if (json_is_string(text)) {
		r = add(o, stream, json_string_value(text), json_string_length(text));
	} else if (json_is_string(json_object_get(object, "base64"))) {
		r = add_base64(o, stream, json_string_value(json_object_get(object, "base64")));
	}
	json_decref(object);
	return r;
}

void exec_output_init(struct exec_output *o, bool json)
{
	struct stat st;

	*o = (struct exec_output){.json = json};
	sse_in_init(&o->sse, SSE_LINE_MAX, take_event, o);
	for (size_t i = 0; i < EXEC_STREAMS; i++) {
		o->streams[i].fd = i == 0 ? STDOUT_FILENO : STDERR_FILENO;
		o->streams[i].waiting = buf_new(WAITING_MAX);
		o->streams[i].whole = fstat(o->streams[i].fd, &st) == 0 && S_ISREG(st.st_mode);
	}
}

void exec_output_done(struct exec_output *o)
{
	sse_in_done(&o->sse);
	for (size_t i = 0; i < EXEC_STREAMS; i++)
		buf_done(&o->streams[i].waiting);
	json_decref(o->end);
}

bool exec_output_waits(const struct exec_output *o, size_t stream)
{
	return o->streams[stream].waiting.size > o->streams[stream].at;
}

bool exec_output_is_full(const struct exec_output *o)
{
	for (size_t i = 0; i < EXEC_STREAMS; i++)
		if (o->streams[i].waiting.size - o->streams[i].at > FULL)
			return true;
	return false;
}

static void stop_stream(struct exec_output *o, size_t stream, int error)
{
	o->streams[stream].broken = true;
	o->streams[stream].waiting.size = o->streams[stream].at = 0;
	if (error == EPIPE)
		o->broken_pipe = true;
	else
		o->dropped_error = error;
}

/* A pipe or terminal that is ready takes PIPE_BUF bytes without waiting (pipe(7)); the description may be shared with programs
 * that do not expect O_NONBLOCK. */
static bool write_some(struct exec_output *o, size_t i)
{
	struct pollfd p = {.fd = o->streams[i].fd, .events = POLLOUT};
	size_t left = o->streams[i].waiting.size - o->streams[i].at;
	ssize_t n;

	if (!o->streams[i].whole && poll(&p, 1, 0) <= 0)
		return false;
	n = write(o->streams[i].fd, o->streams[i].waiting.data + o->streams[i].at,
		  o->streams[i].whole || left < PIPE_BUF ? left : PIPE_BUF);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0)
		stop_stream(o, i, errno);
	else
		o->streams[i].at += (size_t) n;
	if (o->streams[i].at == o->streams[i].waiting.size)
		o->streams[i].at = o->streams[i].waiting.size = 0;
	return true;
}

void exec_output_write(struct exec_output *o)
{
	for (size_t i = 0; i < EXEC_STREAMS; i++) {
		while (exec_output_waits(o, i) && write_some(o, i))
			;
		/* What is written makes room before more is added. */
		if (o->streams[i].at > FULL) {
			struct buf *b = &o->streams[i].waiting;

			memmove(b->data, b->data + o->streams[i].at, b->size - o->streams[i].at);
			b->size -= o->streams[i].at;
			o->streams[i].at = 0;
		}
	}
}

static int number_of(const json_t *process, const char *name, int most)
{
	const json_t *value = json_object_get(process, name);
	json_int_t number = json_integer_value(value);

	return json_is_integer(value) && number >= 0 && number <= most ? (int) number : -1;
}

static const struct {
	const char *status;
	int exit_status; /* -1: the process's own */
	bool tell;
} endings[] = {
    {"exited", -1, false},        {"signaled", -1, false},     {"timeout", 124, true}, {"cpu_timeout", 124, true},
    {"out_of_memory", 137, true}, {"output_limit", 122, true}, {"canceled", -1, true}, {"error", -1, true},
};

int exec_output_status(const json_t *process)
{
	const char *status = json_string_value(json_object_get(process, "status"));
	int code = number_of(process, "exit_code", 255), number = number_of(process, "signal", 64);

	for (size_t i = 0; i < ARRAY_SIZE(endings); i++)
		if (status != NULL && strcmp(endings[i].status, status) == 0 && endings[i].exit_status >= 0)
			return endings[i].exit_status;
	return code >= 0 ? code : number > 0 ? 128 + number : ENDED_BY_KILL;
}

void exec_output_tell_end(const json_t *process)
{
	const char *status = json_string_value(json_object_get(process, "status")),
		   *reason = json_string_value(json_object_get(process, "reason"));
	cleanup_free char *safe = reason != NULL ? show_safe(reason, 400) : NULL;

	for (size_t i = 0; i < ARRAY_SIZE(endings); i++)
		if (status != NULL && safe != NULL && endings[i].tell && strcmp(endings[i].status, status) == 0)
			log_line("%s", safe);
}
