/* The standard input of processes. What waits for one that does not read stays with whoever wrote it: here lies a pipe's worth of
 * it at most, behind what the start came with. */
#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/processes.h"
#include "daemon/sandbox.h"

enum { INPUT_ROOM = 64 * 1024 };

bool process_takes_input(const struct process *p)
{
	return p->state != PROCESS_ENDED && p->in >= 0 && !p->in_eof;
}

static void drop_input(struct process *p)
{
	if (p->in >= 0)
		process_outlive_input_over(p);
	if (p->in_event != NULL)
		event_free(p->in_event);
	p->in_event = NULL;
	fd_close(&p->in);
}

/* Into the pipe. True: it is full. */
static bool empty_buffer(struct process *p)
{
	while (p->in >= 0 && evbuffer_get_length(p->input) > 0) {
		int n = evbuffer_write(p->input, p->in);

		if (n < 0 && errno == EAGAIN) {
			(void) event_add(p->in_event, NULL); /* else it waits for the next write */
			return true;
		}
		if (n <= 0) { /* nobody reads any more */
			drop_input(p);
			(void) evbuffer_drain(p->input, evbuffer_get_length(p->input));
		}
	}
	if (p->in >= 0 && p->in_eof)
		drop_input(p);
	return false;
}

/* From the writers, the first first. Tells those whose bytes have all been taken. */
static void fill_buffer(struct process *p)
{
	static const char end_of_transmission = 4;

	while (p->writers != NULL) {
		struct input_writer *w = p->writers;
		bool takes = process_takes_input(p);
		size_t have = evbuffer_get_length(p->input);

		if (takes && have < INPUT_ROOM)
			(void) evbuffer_remove_buffer(w->data, p->input, INPUT_ROOM - have);
		if (takes && (evbuffer_get_length(w->data) > 0 || have >= INPUT_ROOM))
			return;
		if (takes && w->eof && p->tty)
			(void) evbuffer_add(p->input, &end_of_transmission, 1); /* a terminal has no end to close */
		if (takes)
			p->in_eof = w->eof && !p->tty;
		process_input_forget(w);
		w->done(w, takes ? 0 : -EPIPE);
	}
}

static void move_input(struct process *p)
{
	if (p->moving)
		return; /* who is told comes back with more: the loop below takes it */
	p->moving = true;
	do
		fill_buffer(p);
	while (!empty_buffer(p) && p->writers != NULL);
	p->moving = false;
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	move_input(arg);
}

void process_input(struct process *p, struct input_writer *w)
{
	struct input_writer **at = &p->writers;
	unsigned count = 0;

	for (; *at != NULL; at = &(*at)->next)
		count++;
	if (count >= INPUT_WRITERS_MAX) {
		w->done(w, -EAGAIN);
		return;
	}
	w->next = NULL;
	w->process = p;
	*at = w;
	move_input(p);
}

void process_input_forget(struct input_writer *w)
{
	struct input_writer **at;

	if (w->process == NULL)
		return;
	for (at = &w->process->writers; *at != w;)
		at = &(*at)->next;
	*at = w->next;
	w->process = NULL;
}

int process_resize(struct process *p, unsigned rows, unsigned columns)
{
	const struct winsize size = {.ws_row = (unsigned short) rows, .ws_col = (unsigned short) columns};

	if (!p->tty || p->in < 0)
		return -ENOTTY;
	return ioctl(p->in, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}

void process_hold(struct process *p, bool on)
{
	p->held = on;
	if (on)
		p->sandbox->holds++;
	else
		p->sandbox->holds--;
}

int process_input_open(struct process *p, int fd)
{
	p->in = fd;
	(void) fd_nonblock(fd);
	p->in_event = event_new(event_get_base(p->sandbox->timer), fd, EV_WRITE, on_input, p);
	return p->in_event != NULL ? 0 : -ENOMEM;
}

void process_input_begin(struct process *p)
{
	move_input(p);
}

void process_input_close(struct process *p)
{
	drop_input(p);
	(void) evbuffer_drain(p->input, evbuffer_get_length(p->input));
	move_input(p); /* which tells who waits */
}
