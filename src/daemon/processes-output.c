/* The output of processes: from pipes to chunks and to readers. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/api.h"
#include "daemon/output-budget.h"
#include "daemon/process-journal.h"
#include "daemon/processes.h"
#include "daemon/sandbox.h"
#include "daemon/sse.h"
#include "sandbox/encode.h"

enum {
	READ_SIZE = 32 * 1024,
	WINDOW = 256 * 1024,         /* how far a reader may be behind */
	DRAIN_MAX = 1024 * 1024,     /* what does not say how much it can hold */
	KEEP_MAX = 64 * 1024 * 1024, /* of one process, whatever the policy says */
	ROOM_MIN = 64,               /* of a chunk that may grow */
	ROOM_MAX = 4096,
	CHUNKS_MAX = 65536,
	KEEP_DEFAULT = 8 * 1024 * 1024,
	KEEP_CAPTURED = 64 * 1024, /* of each stream */
};

struct chunk {
	struct chunk *next;
	uint64_t end; /* its number: of all bytes added until then */
	unsigned char stream;
	size_t size, room;
	char data[];
};

struct output_reader {
	struct output_reader *next;
	struct process *process;
	const struct output_sink *sink;
	void *arg;
	const struct chunk *at; /* next to send; NULL: none yet */
	uint64_t number, passed;
};

/* ---- Chunks. ---- */

static uint64_t keep_max(const struct process *p)
{
	uint64_t most = p->sandbox->policy.output;

	return most == ZW_UNLIMITED ? KEEP_DEFAULT : most < KEEP_MAX ? most : KEEP_MAX;
}

static bool is_needed(const struct process *p, const struct chunk *c)
{
	for (const struct output_reader *r = p->readers; r != NULL; r = r->next)
		if (r->number <= c->end)
			return true;
	return false;
}

/* Takes the oldest bytes away from a chunk, and no half of a character. */
static size_t cut_chunk(struct chunk *c, size_t size)
{
	size += utf8_continuation_head(c->data + size, c->size - size);
	memmove(c->data, c->data + size, c->size - size);
	c->size -= size;
	return size;
}

static size_t cost(const struct chunk *c)
{
	return sizeof *c + c->room;
}

static void drop_first(struct process *p)
{
	struct chunk *c = p->first;

	p->first = c->next;
	if (p->first == NULL)
		p->last = NULL;
	if (p->first == p->last)
		p->last_link = &p->first;
	p->chunk_count--;
	p->output_held -= cost(c);
	output_budget_take(p, cost(c), true);
	free(c);
}

/* For a daemon that takes the process over. */
static void mark(struct process *p)
{
	struct journal_mark now = {.from = p->added - p->kept, .dropped = p->dropped, .passed = p->passed};

	if (p->journal != NULL)
		journal_mark(p->journal, &now);
}

static void drop_whole(struct process *p)
{
	p->kept -= p->first->size;
	if (p->first->end > p->passed)
		p->dropped += p->first->size;
	drop_first(p);
}

void process_output_shed(struct process *p, size_t most)
{
	while (p->first != NULL && p->output_held > most && !is_needed(p, p->first))
		drop_whole(p);
	mark(p);
}

static void drop_old(struct process *p)
{
	while (p->first != NULL && (p->kept > keep_max(p) || p->chunk_count > CHUNKS_MAX) && !is_needed(p, p->first)) {
		struct chunk *c = p->first;
		uint64_t over = p->chunk_count > CHUNKS_MAX ? c->size : p->kept - keep_max(p);
		bool whole = over >= c->size;
		size_t size = whole ? c->size : cut_chunk(c, (size_t) over);

		p->kept -= size;
		if (c->end > p->passed)
			p->dropped += size;
		if (whole)
			drop_first(p);
	}
	mark(p);
}

static struct chunk *new_chunk(struct process *p, unsigned stream, size_t size)
{
	bool may =
	    output_budget_ask(p, sizeof(struct chunk) + size) || p->readers != NULL; /* they set the pace, and lose nothing */
	struct chunk *c = may ? malloc(sizeof *c + size) : NULL;

	if (c == NULL)
		return NULL;
	*c = (struct chunk){.stream = (unsigned char) stream, .room = size};
	p->last_link = p->last != NULL ? &p->last->next : &p->first;
	*p->last_link = p->last = c;
	p->chunk_count++;
	p->output_held += cost(c);
	output_budget_add(p, cost(c), true);
	return c;
}

/* Has nobody been sent it, so that it may grow? To no more than ROOM_MAX, and by and by: two streams that take turns make many
 * small ones. */
static bool make_room(struct process *p, unsigned stream, size_t size)
{
	struct chunk *c = p->last;
	size_t room, more;

	if (c == NULL || c->stream != stream || c->end <= p->passed || p->readers != NULL)
		return false;
	if (c->room - c->size >= size)
		return true;
	room = c->room * 2 > c->size + size ? c->room * 2 : c->size + size;
	more = room - c->room;
	if (room > ROOM_MAX || !output_budget_ask(p, more) || p->last != c)
		return false;
	c = realloc(c, sizeof *c + room);
	if (c == NULL)
		return false; /* it is as it was */
	c->room = room;
	*p->last_link = p->last = c;
	p->output_held += more;
	output_budget_add(p, more, true);
	return true;
}

static void add_chunk(struct process *p, unsigned stream, const char *data, size_t size)
{
	struct chunk *c;

	if (size == 0)
		return;
	c = make_room(p, stream, size) ? p->last : new_chunk(p, stream, p->readers == NULL && size < ROOM_MIN ? ROOM_MIN : size);
	if (c == NULL) { /* what is kept has no gaps */
		process_output_shed(p, 0);
		p->added += size;
		p->dropped += size;
		return;
	}
	memcpy(c->data + c->size, data, size);
	c->size += size;
	p->added += size;
	c->end = p->added;
	p->kept += size;
}

/* A character that is cut waits for its rest. */
static void add_text(struct process *p, unsigned which, const char *data, size_t size)
{
	struct text_carry *carry = &p->streams[which].carry;
	cleanup_free char *joined = carry->size > 0 ? text_carry_join(carry, data, size, false, &size) : NULL;

	if (joined == NULL)
		size = text_carry_keep(carry, data, size);
	add_chunk(p, which, joined != NULL ? joined : data, size);
}

static void flush_carry(struct process *p, unsigned which)
{
	struct text_carry *carry = &p->streams[which].carry;

	add_chunk(p, which, carry->bytes, carry->size);
	carry->size = 0;
}

/* ---- Captured. ---- */

static void capture(struct captured *c, const char *data, size_t size, bool may_grow)
{
	size_t have = evbuffer_get_length(c->tail), most = may_grow ? c->tail_max : have, over;
	size_t room = may_grow && c->dropped == 0 && have == 0 ? c->head_max - evbuffer_get_length(c->head) : 0,
	       part = size < room ? size : room;

	(void) evbuffer_add(c->head, data, part); /* without memory it shows as fewer bytes */
	data += part;
	size -= part;
	if (size == 0)
		return;
	(void) evbuffer_add(c->tail, data, size);
	have = evbuffer_get_length(c->tail);
	over = have > most ? have - most : 0;
	(void) evbuffer_drain(c->tail, over);
	c->dropped += over;
}

static void count_captured(struct process *p, struct captured *c)
{
	size_t now = c->head != NULL ? evbuffer_get_length(c->head) + evbuffer_get_length(c->tail) : 0;

	output_budget_take(p, c->counted, false);
	output_budget_add(p, now, false);
	c->counted = now;
}

void process_capture_taken(struct process *p)
{
	for (size_t i = 0; i < STREAMS; i++)
		count_captured(p, &p->streams[i].captured);
}

int process_capture_init(struct process *p, uint64_t output)
{
	uint64_t most = output == ZW_UNLIMITED || output > KEEP_MAX ? KEEP_MAX : output;

	for (size_t i = 0; i < STREAMS; i++) {
		struct captured *c = &p->streams[i].captured;

		*c = (struct captured){.head = evbuffer_new(),
				       .tail = evbuffer_new(),
				       .head_max = (size_t) (most - most / 2),
				       .tail_max = (size_t) (most / 2)};
		if (c->head == NULL || c->tail == NULL)
			return -ENOMEM;
	}
	return 0;
}

/* Copies the last `size` bytes; returns how many there were. */
static size_t copy_end(struct evbuffer *from, char *to, size_t size)
{
	size_t have = evbuffer_get_length(from), part = have < size ? have : size;
	struct evbuffer_ptr at;

	if (part == 0 || evbuffer_ptr_set(from, &at, have - part, EVBUFFER_PTR_SET) < 0)
		return 0;
	return evbuffer_copyout_from(from, &at, to, part) == (ev_ssize_t) part ? part : 0;
}

void process_capture_keep(struct process *p)
{
	for (unsigned i = 0; i < STREAMS; i++) {
		const struct captured *c = &p->streams[i].captured;
		char data[KEEP_CAPTURED];
		size_t end = copy_end(c->tail, data, sizeof data), size;

		memmove(data + sizeof data - end, data, end);
		/* What was left out between head and tail makes no line of the two. */
		size = c->dropped > 0 ? 0 : copy_end(c->head, data, sizeof data - end);
		memmove(data + size, data + sizeof data - end, end);
		add_chunk(p, i, data, size + end);
		p->dropped += p->streams[i].bytes - (size + end);
	}
}

/* ---- Pipes. ---- */

static bool is_too_far(const struct process *p)
{
	for (const struct output_reader *r = p->readers; r != NULL; r = r->next)
		if (p->added - r->passed > WINDOW)
			return true;
	return false;
}

static void listen_again(struct process *p)
{
	bool stop = is_too_far(p);

	for (size_t i = 0; i < STREAMS; i++) {
		struct stream *s = &p->streams[i];

		if (s->event == NULL)
			continue;
		if (stop && !s->discard)
			(void) event_del(s->event);
		else
			(void) event_add(s->event, NULL); /* fails only without memory, for a moment: the next wake adds it */
	}
}

static void close_stream(struct stream *s)
{
	if (s->fd >= 0)
		process_outlive_stream_over(s->process, (unsigned) (s - s->process->streams));
	if (s->event != NULL)
		event_free(s->event);
	s->event = NULL;
	fd_close(&s->fd);
}

static void check_limit(struct process *p, const struct stream *s)
{
	uint64_t most = p->sandbox->policy.output;

	if (!p->sandbox->policy.output_kill || s->bytes <= most || p->over_limit || p->state == PROCESS_ENDED)
		return;
	p->over_limit = true;
	process_kill(p);
}

/* As read(2); with a journal the bytes are in it first. */
static ssize_t take(struct stream *s, unsigned which, char *data, size_t size)
{
	struct process *p = s->process;
	ssize_t n = -EIO;

	if (p->journal != NULL && !s->discard && !p->tty) {
		n = journal_read(p->journal, which, s->fd, data, size);
		if (n == -EAGAIN)
			errno = EAGAIN;
		if (n != -EIO)
			return n < 0 ? -1 : n;
		process_journal_lost(p);
	}
	n = read(s->fd, data, size);
	if (n > 0 && p->journal != NULL && !s->discard && journal_add(p->journal, which, data, (size_t) n) < 0)
		process_journal_lost(p);
	return n;
}

/* Bytes read; 0: nothing for now; -1: the end. */
static ssize_t read_stream(struct stream *s)
{
	struct process *p = s->process;
	unsigned which = (unsigned) (s - p->streams);
	char data[READ_SIZE];
	ssize_t n = take(s, which, data, sizeof data);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) { /* EIO: the last one has left the terminal */
		if (!s->discard && !p->capture)
			flush_carry(p, which);
		close_stream(s);
		return -1;
	}
	if (s->discard)
		return n;
	s->bytes += (uint64_t) n;
	if (p->capture) {
		capture(&s->captured, data, (size_t) n, output_budget_ask(p, (size_t) n));
		count_captured(p, &s->captured);
	} else {
		add_text(p, which, data, (size_t) n);
	}
	if (p->on_output != NULL)
		p->on_output(p->arg, data, (size_t) n);
	check_limit(p, s);
	return n;
}

static void on_stream(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;
	struct process *p = s->process;

	(void) fd;
	(void) what;
	(void) read_stream(s);
	process_readers_wake(p);
}

int process_streams_open(struct process *p, const int fds[STREAMS], size_t count)
{
	int r = 0;

	for (size_t i = 0; i < count; i++) {
		struct stream *s = &p->streams[i];

		s->process = p;
		s->fd = fds[i];
		if (s->fd < 0)
			continue;
		(void) fd_nonblock(s->fd);
		s->event = event_new(event_get_base(p->sandbox->timer), s->fd, EV_READ | EV_PERSIST, on_stream, s);
		if (s->event == NULL || event_add(s->event, NULL) < 0)
			r = -ENOMEM;
	}
	return r;
}

/* Bytes that a stream can hold: a program may have made its pipe larger. */
static size_t capacity(const struct stream *s)
{
	int size = s->fd >= 0 ? fcntl(s->fd, F_GETPIPE_SZ) : -1;

	return size > 0 ? (size_t) size : DRAIN_MAX;
}

void process_streams_drain(struct process *p)
{
	for (size_t i = 0; i < STREAMS; i++) {
		struct stream *s = &p->streams[i];
		size_t most = capacity(s); /* whatever goes on writing */
		ssize_t n = 1;

		for (size_t sum = 0; s->fd >= 0 && n > 0 && sum < most; sum += (size_t) n) {
			n = read_stream(s);
			if (n < 0)
				break;
		}
		if (s->fd < 0)
			continue;
		if (!p->capture)
			flush_carry(p, (unsigned) i);
		s->discard = true;
		if (p->capture || p->tty)
			close_stream(s); /* the tree has ended with it */
	}
	listen_again(p);
}

void process_streams_discard(struct process *p)
{
	for (size_t i = 0; i < STREAMS; i++)
		p->streams[i].discard = true;
}

static void add_kept(void *arg, unsigned which, const char *data, size_t size)
{
	struct process *p = arg;

	p->streams[which].bytes += size;
	add_text(p, which, data, size);
}

bool process_output_restore(struct process *p)
{
	struct journal_mark m;
	bool good;

	journal_marked(p->journal, &m);
	for (unsigned i = 0; i < STREAMS; i++) {
		p->streams[i].bytes = journal_before(p->journal, i);
		p->added += p->streams[i].bytes;
	}
	good = journal_replay(p->journal, add_kept, p);
	while (p->first != NULL && p->first->end <= m.from) {
		p->kept -= p->first->size;
		drop_first(p);
	}
	if (p->first != NULL && m.from > p->first->end - p->first->size)
		p->kept -= cut_chunk(p->first, (size_t) (m.from - (p->first->end - p->first->size)));
	p->dropped = m.dropped;
	p->passed = m.passed;
	return good;
}

void process_streams_close(struct process *p)
{
	for (size_t i = 0; i < STREAMS; i++)
		close_stream(&p->streams[i]);
}

/* ---- Readers. ---- */

void process_reader_end(struct output_reader *r)
{
	struct process *p = r->process;
	struct output_reader **at = &p->readers;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	free(r);
	drop_old(p);
	listen_again(p);
}

static const struct chunk *next_chunk(const struct output_reader *r)
{
	const struct chunk *c = r->at != NULL ? r->at->next : r->process->first;

	while (c != NULL && c->end < r->number)
		c = c->next;
	return c;
}

static void pump(struct output_reader *r)
{
	struct process *p = r->process;

	while (r->sink->room(r->arg)) {
		const struct chunk *c = next_chunk(r);
		size_t had;

		if (c == NULL)
			break;
		/* One that was cut otherwise by a daemon before: the reader has a part of it. */
		had = r->number > c->end - c->size + 1 ? (size_t) (r->number - 1 - (c->end - c->size)) : 0;
		r->sink->chunk(r->arg, p, c->end, c->stream, c->data + had, c->size - had);
		r->at = c;
		r->number = c->end + 1;
		r->passed = c->end;
		if (c->end > p->passed)
			p->passed = c->end;
	}
	if (next_chunk(r) == NULL)
		r->passed = p->added;
	if (p->state == PROCESS_ENDED && next_chunk(r) == NULL && r->sink->room(r->arg)) {
		const struct output_sink *sink = r->sink;
		void *arg = r->arg;

		process_reader_end(r);
		sink->over(arg, p);
	}
}

void process_readers_wake(struct process *p)
{
	for (struct output_reader *r = p->readers, *next; r != NULL; r = next) {
		next = r->next;
		pump(r);
	}
	/* `at` of a reader leads to a chunk that may go now: the number finds the place again. */
	for (struct output_reader *r = p->readers; r != NULL; r = r->next)
		r->at = NULL;
	sandbox_watch_tell(p->sandbox, p); /* before anything is dropped */
	drop_old(p);
	listen_again(p);
}

struct output_reader *process_read(struct process *p, uint64_t from, const struct output_sink *sink, void *arg)
{
	struct output_reader *r = xcalloc(1, sizeof *r);

	*r = (struct output_reader){.next = p->readers, .process = p, .sink = sink, .arg = arg, .number = from};
	r->passed = p->added - (from > p->added ? 0 : p->kept);
	p->readers = r;
	return r;
}

struct process *process_of_reader(const struct output_reader *r)
{
	return r->process;
}

/* ---- Server-sent events. ---- */

struct follower {
	struct output_reader *reader;
	struct sse *sse;
};

static void send_chunk(void *arg, const struct process *p, uint64_t number, unsigned stream, const char *data, size_t size)
{
	static const char *const names[] = {"stdout", "stderr"};
	const struct follower *f = arg;
	json_t *text = json_stringn(data, size); /* NULL: no UTF-8 */
	cleanup_free char *encoded = text == NULL ? encode_base64(data, size) : NULL;

	sse_send(f->sse, number, p->tty ? "tty" : names[stream],
		 text != NULL ? json_pack("{so}", "text", text) : json_pack("{ss}", "base64", encoded));
}

static bool has_room(void *arg)
{
	const struct follower *f = arg;

	return sse_room(f->sse);
}

static void send_exit(void *arg, struct process *p)
{
	struct follower *f = arg;

	sse_send(f->sse, UINT64_MAX, "exit", process_to_json(p));
	sse_end(f->sse);
	free(f);
}

static void send_no_more(void *arg)
{
	struct follower *f = arg;

	sse_end(f->sse);
	free(f);
}

static void on_gone(struct request *r)
{
	struct follower *f = r->data;

	process_reader_end(f->reader);
	send_no_more(f);
}

static void on_room(struct request *r)
{
	const struct follower *f = r->data;

	process_readers_wake(f->reader->process);
}

void process_follow(struct process *p, struct request *r, uint64_t from)
{
	static const struct output_sink sink = {.chunk = send_chunk, .room = has_room, .over = send_exit, .lost = send_no_more};
	struct sse *sse = sse_begin(r);
	struct follower *f;

	if (sse == NULL)
		return;
	f = xcalloc(1, sizeof *f);
	f->sse = sse;
	f->reader = process_read(p, from, &sink, f);
	r->data = f;
	request_on_gone(r, on_gone);
	sse_on_room(sse, on_room);
	process_readers_wake(p);
}

void process_chunks(const struct process *p, uint64_t from, bool (*call)(void *arg, const struct chunk_view *c), void *arg)
{
	const struct chunk *c = p->first;

	while (c != NULL && c->end <= from)
		c = c->next;
	for (; c != NULL; c = c->next) {
		const struct chunk_view view = {.end = c->end, .stream = c->stream, .data = c->data, .size = c->size};

		if (!call(arg, &view))
			return;
	}
}

void process_output_free(struct process *p)
{
	p->journal = journal_free(p->journal);

	while (p->readers != NULL) {
		const struct output_reader *r = p->readers;
		void (*lost)(void *arg) = r->sink->lost;
		void *arg = r->arg;

		process_reader_end(p->readers);
		lost(arg);
	}
	process_streams_close(p);
	while (p->first != NULL)
		drop_first(p);
	for (size_t i = 0; i < STREAMS; i++) {
		output_budget_take(p, p->streams[i].captured.counted, false);
		if (p->streams[i].captured.head != NULL)
			evbuffer_free(p->streams[i].captured.head);
		if (p->streams[i].captured.tail != NULL)
			evbuffer_free(p->streams[i].captured.tail);
	}
}
