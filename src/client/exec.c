/* zwinger exec: a process of a sandbox with this terminal's, or this pipe's, streams.
 *
 * One loop over libcurl's transfers and our own descriptors. Output comes as server-sent events on one connection, which is taken
 * up again behind the last event when it breaks. Input goes in requests that last as long as there is something to read, so that
 * the daemon sets the pace and no request waits for a person. Signals and sizes are requests, one after the other. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signame.h"
#include "client/exec-output.h"
#include "client/remote.h"
#include "client/show.h"
#include "client/sse-in.h"
#include "client/verbs.h"
#include "sandbox/terminal.h"

enum { CONTROLS_MAX = 64, ATTEMPTS = 5, RETRY_MSEC = 200, WAIT_MSEC = 60 * 1000, INTERRUPTS_TO_LEAVE = 3 };

struct lane {
	struct transfer transfer;
	CURL *easy;
	bool on;
};

struct exec {
	const struct client_options *options;
	struct remote *remote;
	CURLM *multi;
	char *path; /* of the process */
	struct lane output, input, control;
	struct exec_output out;
	struct terminal terminal;
	int signals;
	json_t *controls; /* [path, body] of those that wait */
	bool input_over, eof_sent, input_fresh, failed;
	unsigned attempts, interrupts;
	int left; /* the exit status when we leave without the process's */
};

/* ---- Lanes. ---- */

static bool lane_begin(struct exec *x, struct lane *l, const char *method, const char *path, json_t *body)
{
	if (l->easy == NULL)
		l->easy = curl_easy_init();
	if (l->easy == NULL) {
		json_decref(body);
		return false;
	}
	transfer_init(&l->transfer, x->remote, l->easy, method, path, body);
	(void) curl_easy_setopt(l->easy, CURLOPT_PRIVATE, l);
	return true;
}

static void lane_go(struct exec *x, struct lane *l)
{
	l->on = curl_multi_add_handle(x->multi, l->easy) == CURLM_OK;
	if (!l->on)
		transfer_done(&l->transfer);
}

static void lane_stop(struct exec *x, struct lane *l)
{
	if (!l->on)
		return;
	(void) curl_multi_remove_handle(x->multi, l->easy);
	transfer_done(&l->transfer);
	l->on = false;
}

/* ---- Output. ---- */

static int take_output(void *ctx, const char *data, size_t size)
{
	struct exec *x = ctx;
	int r;

	if (exec_output_is_full(&x->out)) {
		x->out.paused = true;
		return 1;
	}
	r = sse_in_take(&x->out.sse, data, size);
	if (r < 0 && x->out.fault == NULL)
		x->out.fault = "it sends an event that is larger than a client accepts";
	return r;
}

static void begin_output(struct exec *x)
{
	cleanup_free char *path = xasprintf("%s/output?from=start", x->path);
	cleanup_free char *last = xasprintf("Last-Event-ID: %s", x->out.sse.id);

	if (!lane_begin(x, &x->output, "GET", path, NULL))
		return;
	transfer_header(&x->output.transfer, "Accept: text/event-stream");
	if (x->out.sse.id[0] != '\0')
		transfer_header(&x->output.transfer, last);
	x->output.transfer.sink = take_output;
	x->output.transfer.ctx = x;
	x->out.paused = false;
	sse_in_again(&x->out.sse);
	lane_go(x, &x->output);
}

static void output_over(struct exec *x, CURLcode code)
{
	bool moved = x->out.moved;

	x->out.moved = false;
	x->attempts = moved ? 0 : x->attempts + 1;
	if (x->out.end != NULL)
		return;
	if (x->out.fault != NULL) {
		log_error("%s: %s", x->remote->where, x->out.fault);
		x->left = EXIT_REFUSED;
	} else if (code == CURLE_OK && !transfer_is_good(&x->output.transfer)) {
		x->left = transfer_judge(&x->output.transfer, code);
	} else if (x->attempts >= ATTEMPTS) {
		if (transfer_judge(&x->output.transfer, code) == 0)
			log_error("%s ends the output again and again before the command has ended", x->remote->where);
		x->left = EXIT_REFUSED;
	}
}

/* ---- Input. ---- */

static bool is_ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

static size_t read_input(char *to, size_t one, size_t size, void *ctx)
{
	struct exec *x = ctx;
	ssize_t n;

	if (x->input_over || (!x->input_fresh && !is_ready(STDIN_FILENO)))
		return 0;
	x->input_fresh = false;
	do
		n = read(STDIN_FILENO, to, one * size);
	while (n < 0 && errno == EINTR);
	x->input_over = n <= 0;
	return n > 0 ? (size_t) n : 0;
}

static void begin_input(struct exec *x)
{
	cleanup_free char *path = xasprintf("%s/stdin%s", x->path, x->input_over ? "?eof=true" : "");

	if (!lane_begin(x, &x->input, "POST", path, NULL))
		return;
	x->eof_sent = x->input_over;
	x->input_fresh = true;
	transfer_upload(&x->input.transfer, read_input, x, -1);
	lane_go(x, &x->input);
}

static void input_done(struct exec *x, CURLcode code)
{
	long status = 0;

	(void) curl_easy_getinfo(x->input.easy, CURLINFO_RESPONSE_CODE, &status);
	if (code == CURLE_OK && transfer_is_good(&x->input.transfer))
		return;
	x->input_over = x->eof_sent = true; /* a part is lost: nothing behind it may follow */
	if (status == 409 || status == 404 || status == 410)
		return; /* the process reads no more, as with a pipe */
	(void) transfer_judge(&x->input.transfer, code);
	log_error("the command does not get the rest of its input");
	x->failed = true;
}

/* ---- Signals and sizes. ---- */

static void add_control(struct exec *x, const char *what, json_t *body)
{
	if (json_array_size(x->controls) >= CONTROLS_MAX)
		json_decref(body);
	else
		(void) json_array_append_new(x->controls, json_pack("[so]", what, body));
}

static void begin_control(struct exec *x)
{
	json_t *next = json_array_get(x->controls, 0);
	cleanup_free char *path = xasprintf("%s/%s", x->path, json_string_value(json_array_get(next, 0)));

	if (lane_begin(x, &x->control, "POST", path, json_incref(json_array_get(next, 1))))
		lane_go(x, &x->control);
	(void) json_array_remove(x->controls, 0);
}

static void send_size(struct exec *x)
{
	uint16_t rows, columns;

	if (x->options->tty && terminal_size(x->terminal.fd, &rows, &columns) == 0)
		add_control(x, "resize", json_pack("{si si}", "columns", (int) columns, "rows", (int) rows));
}

static void on_signal(struct exec *x, int number)
{
	const char *name = signal_abbreviation(number);

	if (number == SIGWINCH) {
		send_size(x);
	} else if (number == SIGCONT) {
		terminal_leave(&x->terminal); /* the shell had it meanwhile */
		(void) terminal_enter(&x->terminal);
		send_size(x);
	} else if (name != NULL) {
		add_control(x, "signal", json_pack("{ss}", "signal", name));
		if (number == SIGINT && ++x->interrupts >= INTERRUPTS_TO_LEAVE) {
			log_error("left; the command goes on as %s", strrchr(x->path, '/') + 1);
			x->left = 128 + SIGINT;
		}
	}
}

static void read_signals(struct exec *x)
{
	struct signalfd_siginfo info;

	if (read(x->signals, &info, sizeof info) == (ssize_t) sizeof info)
		on_signal(x, (int) info.ssi_signo);
}

/* ---- The loop. ---- */

static void take_results(struct exec *x)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(x->multi, &left)) != NULL) {
		CURLcode code = m->data.result;
		char *private = NULL;
		struct lane *l;

		if (m->msg != CURLMSG_DONE)
			continue;
		(void) curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
		l = (struct lane *) (void *) private;
		if (l == &x->output)
			output_over(x, code);
		else if (l == &x->input)
			input_done(x, code);
		lane_stop(x, l); /* that of a signal fails when the command has ended meanwhile */
	}
}

static void begin_what_can(struct exec *x)
{
	bool input = x->options->interactive && !x->eof_sent && !x->input.on && x->out.end == NULL;

	if (x->out.broken_pipe) {
		x->out.broken_pipe = false;
		add_control(x, "signal", json_pack("{ss}", "signal", "PIPE"));
	}
	if (!x->output.on && x->out.end == NULL && x->attempts == 0)
		begin_output(x);
	if (!x->control.on && json_array_size(x->controls) > 0 && x->out.end == NULL)
		begin_control(x);
	if (input && (x->input_over || is_ready(STDIN_FILENO)))
		begin_input(x);
	if (x->output.on && x->out.paused && !exec_output_is_full(&x->out)) {
		x->out.paused = false;
		(void) curl_easy_pause(x->output.easy, CURLPAUSE_CONT);
	}
}

/* Waits for whatever comes first. What curl_multi_poll(3) reports lacks POLLHUP: the descriptors are looked at again. */
static void wait_for_it(struct exec *x)
{
	struct curl_waitfd fds[4] = {{.fd = x->signals, .events = CURL_WAIT_POLLIN}};
	unsigned count = 1;
	bool retry = !x->output.on && x->out.end == NULL;

	if (x->options->interactive && !x->input_over && !x->input.on && x->out.end == NULL)
		fds[count++] = (struct curl_waitfd){.fd = STDIN_FILENO, .events = CURL_WAIT_POLLIN};
	for (size_t i = 0; i < EXEC_STREAMS; i++)
		if (exec_output_waits(&x->out, i))
			fds[count++] = (struct curl_waitfd){.fd = x->out.streams[i].fd, .events = CURL_WAIT_POLLOUT};
	(void) curl_multi_poll(x->multi, fds, count, retry ? RETRY_MSEC : WAIT_MSEC, NULL);
	if (retry && x->attempts > 0)
		begin_output(x);
	if (is_ready(x->signals))
		read_signals(x);
	exec_output_write(&x->out);
}

static void converse(struct exec *x)
{
	int running;

	while (x->left == 0 && (x->out.end == NULL || exec_output_waits(&x->out, 0) || exec_output_waits(&x->out, 1))) {
		begin_what_can(x);
		(void) curl_multi_perform(x->multi, &running);
		take_results(x);
		exec_output_write(&x->out);
		if (x->left == 0 && (x->out.end == NULL || exec_output_waits(&x->out, 0) || exec_output_waits(&x->out, 1)))
			wait_for_it(x);
	}
	terminal_leave(&x->terminal);
	lane_stop(x, &x->output);
	lane_stop(x, &x->input);
	lane_stop(x, &x->control);
}

/* ---- Beginning and end. ---- */

static int catch_signals(struct exec *x)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};
	static const struct sigaction by_default = {.sa_handler = SIG_DFL};
	sigset_t set;

	(void) sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		(void) sigaddset(&set, numbers[i]);
	x->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (x->signals < 0) {
		log_error("cannot watch signals: %s", strerror(errno));
		return EXIT_REFUSED;
	}
	(void) sigaction(SIGINT, &by_default, NULL); /* a shell's background jobs ignore it */
	(void) sigaction(SIGQUIT, &by_default, NULL);
	(void) sigaddset(&set, SIGTTOU); /* the terminal is restored from the background too */
	(void) sigprocmask(SIG_BLOCK, &set, NULL);
	return 0;
}

static void find_terminal(struct exec *x)
{
	x->terminal = (struct terminal){.fd = -EBADF};
	for (int fd = 0; fd <= 2 && x->options->tty && x->terminal.fd < 0; fd++)
		if (isatty(fd) == 1)
			x->terminal.fd = fd;
	x->terminal.keys = x->options->interactive && isatty(STDIN_FILENO) == 1;
}

static int start_body(struct exec *x, json_t **ret)
{
	const struct client_options *o = x->options;
	const struct {
		const char *name, *value;
	} texts[] = {{"cwd", o->cwd}, {"user", o->user}, {"timeout", o->timeout}};
	json_t *body = json_object(), *argv = json_array(), *env = NULL;
	uint16_t rows = 24, columns = 80;
	int r = 0;

	(void) json_object_set_new(body, "command", argv);
	for (size_t i = 1; i < o->word_count; i++)
		r = json_array_append_new(argv, json_string(o->words[i])) < 0 ? EXIT_REFUSED : r;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].value != NULL)
			r = json_object_set_new(body, texts[i].name, json_string(texts[i].value)) < 0 ? EXIT_REFUSED : r;
	if (r != 0)
		log_error("the command and its options must be UTF-8");
	if (r == 0 && o->env.count > 0 && (r = client_pairs(&o->env, "--env", &env)) == 0)
		(void) json_object_set_new(body, "env", env);
	if (o->interactive)
		(void) json_object_set_new(body, "stdin", json_true());
	if (o->tty) {
		(void) terminal_size(x->terminal.fd, &rows, &columns);
		(void) json_object_set_new(body, "tty", json_pack("{si si}", "columns", (int) columns, "rows", (int) rows));
	}
	if (r == 0)
		*ret = body;
	else
		json_decref(body);
	return r;
}

static int start(struct exec *x)
{
	cleanup_free char *path = remote_path("/v1/sandboxes/%s/processes", x->options->words[0], NULL);
	json_t *body = NULL, *process = NULL;
	const json_t *pid;
	int r = start_body(x, &body);

	if (r == 0)
		r = remote_ask(x->remote, "POST", path, body, &process);
	pid = json_object_get(process, "pid");
	if (r == 0 && !json_is_integer(pid)) {
		log_error("the daemon's answer has no pid");
		r = EXIT_REFUSED;
	}
	if (r == 0)
		x->path = xasprintf("%s/%lld", path, (long long) json_integer_value(pid));
	json_decref(process);
	return r;
}

static int finish(const struct exec *x)
{
	if (x->left != 0)
		return x->left;
	if (x->options->json && show_json(x->out.end) != 0)
		return EXIT_REFUSED;
	if (x->out.dropped_error != 0)
		log_line("output could not be handed on: %s", strerror(x->out.dropped_error));
	exec_output_tell_end(x->out.end);
	return x->failed ? EXIT_REFUSED : exec_output_status(x->out.end);
}

int verb_exec(const struct client_options *o)
{
	struct remote remote;
	struct exec x = {.options = o, .remote = &remote, .signals = -EBADF};
	int r = client_connect(o, &remote);

	if (r != 0)
		return r;
	find_terminal(&x);
	exec_output_init(&x.out, o->json);
	x.controls = json_array();
	x.multi = curl_multi_init();
	if (x.multi == NULL) {
		log_error("libcurl cannot be started");
		r = EXIT_REFUSED;
	}
	if (r == 0)
		r = catch_signals(&x);
	if (r == 0)
		r = start(&x);
	if (r == 0) {
		(void) terminal_enter(&x.terminal);
		converse(&x);
		r = finish(&x);
	}
	for (struct lane *const *l = (struct lane *const[]){&x.output, &x.input, &x.control, NULL}; *l != NULL; l++)
		if ((*l)->easy != NULL)
			curl_easy_cleanup((*l)->easy);
	(void) curl_multi_cleanup(x.multi);
	exec_output_done(&x.out);
	json_decref(x.controls);
	free(x.path);
	fd_close(&x.signals);
	remote_done(&remote);
	return r;
}
