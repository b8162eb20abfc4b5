/* The daemon's side of the line to a sandbox's files, against whatever may be at the other end. */
#include "files-fixture.h"

#include <poll.h>
#include <sys/socket.h>

/* We are the program. */
struct peer {
	struct rig rig;
	struct files_ends ends;
};

static int peer_set_up(void **state)
{
	struct peer *p = xcalloc(1, sizeof *p);

	(void) signal(SIGPIPE, SIG_IGN);
	p->rig.base = event_base_new();
	assert_int_equal(files_client_new(p->rig.base, on_gone, &p->rig, &p->rig.client, &p->ends, NULL), 0);
	*state = p;
	return 0;
}

static int peer_tear_down(void **state)
{
	struct peer *p = *state;

	files_client_free(p->rig.client);
	event_base_free(p->rig.base);
	fd_close(&p->ends.in);
	fd_close(&p->ends.out);
	fd_close(&p->ends.err);
	fd_close(&p->ends.channel);
	free(p);
	return 0;
}

static void turn(struct peer *p)
{
	for (int i = 0; i < 4; i++)
		assert_true(event_base_loop(p->rig.base, EVLOOP_NONBLOCK) >= 0);
}

/* The next request, or false. Its descriptor, if any, goes to *ret_fd. */
static bool next_request(struct peer *p, struct files_request *r, int *ret_fd)
{
	char bytes[sizeof *r + 2 * FILES_PATH_MAX + FILES_WHOLE_MAX];
	struct pollfd ready = {.fd = p->ends.channel, .events = POLLIN};
	size_t nfds = 1;
	ssize_t n;

	turn(p);
	if (poll(&ready, 1, 0) <= 0)
		return false;
	n = fd_recv(p->ends.channel, bytes, sizeof bytes, ret_fd, &nfds);
	assert_true(n >= (ssize_t) sizeof *r);
	memcpy(r, bytes, sizeof *r);
	assert_int_equal(n, sizeof *r + r->path_size + r->other_size + r->data_size);
	if (nfds == 0)
		*ret_fd = -EBADF;
	return true;
}

static uint32_t request_id(struct peer *p)
{
	struct files_request r;
	int fd = -EBADF;

	assert_true(next_request(p, &r, &fd));
	fd_close(&fd);
	return r.id;
}

struct body {
	size_t size;
	char bytes[2 * FILES_BODY_MAX];
};

static void add(struct body *b, const void *data, size_t size)
{
	assert_true(b->size + size <= sizeof b->bytes);
	memcpy(b->bytes + b->size, data, size);
	b->size += size;
}

static void add_entry(struct body *b, uint32_t mode, const char *path)
{
	const struct files_stat s = {.mode = mode, .path_size = (uint16_t) strlen(path), .user_size = 4, .group_size = 3};

	add(b, &s, sizeof s);
	add(b, path, s.path_size);
	add(b, "user", 4);
	add(b, "x:y", 3);
}

static void answer(struct peer *p, uint16_t type, uint32_t id, const struct body *b)
{
	const struct files_answer head = {.size = (uint32_t) b->size, .type = type, .id = id};

	assert_int_equal(fd_write_all(p->ends.out, &head, sizeof head), 0);
	assert_int_equal(fd_write_all(p->ends.out, b->bytes, b->size), 0);
	turn(p);
}

static void answer_done(struct peer *p, uint32_t id, int error, uint32_t flags, uint32_t mode)
{
	const struct files_done done = {.error = error, .flags = flags};
	struct body b = {0};

	add(&b, &done, sizeof done);
	if ((flags & FILES_DONE_ENTRY) != 0)
		add_entry(&b, mode, "/x");
	answer(p, FILES_DONE, id, &b);
}

/* ---- What goes well. ---- */

static void an_answer_may_come_byte_by_byte(void **state)
{
	struct peer *p = *state;
	struct files_done done = {.flags = FILES_DONE_ENTRY};
	struct files_answer head = {.type = FILES_DONE};
	struct body b = {0};
	struct reply r;

	begin(&p->rig, (struct files_ask){.type = FILES_STAT, .path = "x"}, &r, NULL);
	head.id = request_id(p);
	add(&b, &head, sizeof head);
	add(&b, &done, sizeof done);
	add_entry(&b, S_IFREG | 0644, "/x");
	head.size = (uint32_t) (b.size - sizeof head);
	memcpy(b.bytes, &head, sizeof head);
	for (size_t i = 0; i < b.size; i++) {
		assert_false(r.ended);
		assert_int_equal(write(p->ends.out, b.bytes + i, 1), 1);
		turn(p);
	}
	assert_true(r.ended);
	assert_string_equal(r.entry.path, "/x");
	assert_string_equal(r.entry.user, "user");
	assert_string_equal(r.entry.group, ""); /* no name that could go anywhere */
	reply_reset(&r);
}

static void no_descriptor_can_come_out(void **state)
{
	struct peer *p = *state;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(fd_send(p->ends.channel, "x", 1, fds, 1), -EPIPE);
	assert_int_equal(fd_send(p->ends.channel, "x", 1, NULL, 0), -EPIPE);
	assert_true(fd_send(p->ends.out, "x", 1, fds, 1) < 0); /* a pipe */
	fd_close(&fds[0]);
	fd_close(&fds[1]);
}

static void long_calls_leave_room_for_short_ones(void **state)
{
	struct peer *p = *state;
	struct reply heavy[10], quick;
	struct files_request r;
	uint32_t id = 0;
	size_t count = 0;
	int fd = -EBADF;

	for (size_t i = 0; i < ARRAY_SIZE(heavy); i++)
		begin(&p->rig, (struct files_ask){.type = FILES_REMOVE, .path = "x"}, &heavy[i], NULL);
	begin(&p->rig, (struct files_ask){.type = FILES_STAT, .path = "x"}, &quick, NULL);
	for (; next_request(p, &r, &fd); count++)
		id = r.type == FILES_REMOVE && id == 0 ? r.id : id;
	assert_int_equal(count, 5); /* four, and the short one past the six that wait */
	answer_done(p, id, ENOENT, 0, 0);
	assert_true(heavy[0].ended);
	assert_int_equal(heavy[0].error, ENOENT);
	assert_true(next_request(p, &r, &fd));
	assert_int_equal(r.type, FILES_REMOVE);
	files_client_free(p->rig.client);
	p->rig.client = NULL;
	assert_false(heavy[1].ended);
}

static void the_queue_has_an_end(void **state)
{
	struct peer *p = *state;
	struct reply r = {.base = p->rig.base, .fd = -EBADF};
	const struct files_ask a = {.type = FILES_STAT, .path = "x", .path_size = 1};
	int count = 0;

	while (files_call(p->rig.client, &a, &test_callbacks, &r, NULL) == 0)
		count++;
	assert_int_equal(count, 1024);
	assert_int_equal(files_call(p->rig.client, &a, &test_callbacks, &r, NULL), -EAGAIN);
	files_client_free(p->rig.client);
	p->rig.client = NULL;
	assert_false(r.ended);
}

/* It neither reads its requests nor answers. */
static void a_program_that_does_nothing_stops_nobody(void **state)
{
	struct peer *p = *state;
	cleanup_free char *data = xcalloc(1, FILES_WHOLE_MAX);
	struct reply r[40];

	for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
		begin(&p->rig,
		      (struct files_ask){
			  .type = FILES_WRITE, .flags = FILES_WHOLE, .path = "x", .data = data, .data_size = FILES_WHOLE_MAX},
		      &r[i], NULL);
		turn(p);
	}
	files_client_end(p->rig.client, "enough");
	for (size_t i = 0; i < ARRAY_SIZE(r); i++)
		assert_int_equal(r[i].error, ESHUTDOWN);
	assert_int_equal(p->rig.gone, 1);
	assert_int_equal(files_call(p->rig.client, &(struct files_ask){.type = FILES_STAT, .path = "x", .path_size = 1},
				    &test_callbacks, &r[0], NULL),
			 -ESHUTDOWN);
}

static void a_canceled_call_may_still_be_answered(void **state)
{
	struct peer *p = *state;
	const struct files_opened opened = {0};
	struct body b = {0};
	struct files_call *sent, *waiting;
	struct files_request q;
	struct reply r, other;
	int fd = -EBADF, theirs = -EBADF;
	uint32_t id;

	begin(&p->rig, (struct files_ask){.type = FILES_PACK, .path = "x"}, &r, &sent);
	assert_true(next_request(p, &q, &theirs));
	id = q.id;
	begin(&p->rig, (struct files_ask){.type = FILES_STAT, .path = "x"}, &other, &waiting);
	files_cancel(waiting); /* before it was sent */
	files_cancel(sent);
	files_cancel(sent);
	assert_true(next_request(p, &q, &fd));
	assert_int_equal(q.type, FILES_CANCEL);
	assert_int_equal(q.id, id);
	assert_false(next_request(p, &q, &fd));
	assert_int_equal(write(theirs, "x", 1), -1); /* nobody reads any more */
	fd_close(&theirs);
	add(&b, &opened, sizeof opened);
	answer(p, FILES_OPENED, id, &b); /* it had not read that yet */
	answer_done(p, id, ECANCELED, 0, 0);
	assert_int_equal(p->rig.gone, 0);
	assert_false(r.ended || other.ended);
	answer_done(p, id, ECANCELED, 0, 0); /* but once */
	assert_int_equal(p->rig.gone, 1);
}

static void unsound_requests_are_refused(void **state)
{
	struct peer *p = *state;
	static char longest[FILES_PATH_MAX + 1];
	const struct files_ask cases[] = {
	    {.type = FILES_STAT, .path = "", .path_size = 0},
	    {.type = FILES_STAT, .path = "a\0b", .path_size = 3},
	    {.type = FILES_STAT, .path = longest, .path_size = FILES_PATH_MAX},
	    {.type = FILES_MOVE, .path = "a", .path_size = 1},
	    {.type = FILES_MOVE, .path = "a", .path_size = 1, .other = "\0", .other_size = 1},
	    {.type = FILES_COMMIT, .path = "a", .path_size = 1},
	    {.type = FILES_DONE, .path = "a", .path_size = 1},
	    {.type = (enum files_type) 0, .path = "a", .path_size = 1},
	    {.type = FILES_MKDIR, .path = "a", .path_size = 1, .mode = 04755},
	    {.type = FILES_STAT, .path = "a", .path_size = 1, .flags = 4096},
	    {.type = FILES_STAT, .path = "a", .path_size = 1, .flags = FILES_WHOLE},
	    {.type = FILES_WRITE, .path = "a", .path_size = 1, .data = longest, .data_size = 1},
	    {.type = FILES_WRITE,
	     .path = "a",
	     .path_size = 1,
	     .flags = FILES_WHOLE,
	     .data = longest,
	     .data_size = FILES_WHOLE_MAX + 1},
	};

	memset(longest, 'a', sizeof longest);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(files_call(p->rig.client, &cases[i], &test_callbacks, NULL, NULL), -EINVAL);
}

/* ---- Breaches. Each ends the line, and every call with it. ---- */

/* Sends `b` as the answer to a call of `type`, and sees the line end. */
static void assert_breach(uint16_t asked, unsigned flags, uint16_t type, const struct body *b)
{
	struct files_ask a = {.type = asked, .flags = flags, .path = "x", .limit = 1};
	struct reply r, other;
	struct peer *p;
	void *state;

	assert_int_equal(peer_set_up(&state), 0);
	p = state;
	a.other = asked == FILES_MOVE ? "y" : NULL;
	begin(&p->rig, a, &r, NULL);
	begin(&p->rig, (struct files_ask){.type = FILES_USER, .path = "x"}, &other, NULL);
	answer(p, type, request_id(p), b);
	assert_int_equal(p->rig.gone, 1);
	assert_true(r.ended && other.ended);
	assert_int_equal(r.error, ESHUTDOWN);
	assert_int_equal(other.error, ESHUTDOWN);
	reply_reset(&r);
	reply_reset(&other);
	assert_int_equal(peer_tear_down(&state), 0);
}

static void assert_wrong_stat(const struct files_stat *s, const char *texts, size_t size)
{
	const struct files_done done = {.flags = FILES_DONE_ENTRY};
	struct body b = {0};

	add(&b, &done, sizeof done);
	add(&b, s, sizeof *s);
	add(&b, texts, size);
	assert_breach(FILES_STAT, 0, FILES_DONE, &b);
}

static void wrong_entries_end_the_line(void **state)
{
	const uint32_t file = S_IFREG | 0644, link = S_IFLNK | 0777;

	(void) state;
	assert_wrong_stat(&(struct files_stat){.mode = 0644, .path_size = 2}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = 0xf000 | 0644, .path_size = 2}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file | 0x10000, .path_size = 2}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2}, "x/", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 0}, "", 0);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 3}, "/\0x", 3);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 3}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2}, "/xx", 3);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 65535}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .target_size = 1}, "/xy", 3);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .target_mode = file}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = link, .path_size = 2, .target_mode = 7}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .user_size = 33},
			  "/x012345678901234567890123456789012", 35);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .size = UINT64_MAX}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .mtime_nsec = 1000000000}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .reserved = 1}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .metadata_size = 1}, "/x", 2);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .metadata_size = 3}, "/xa\0b", 5);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .metadata_size = 2}, "/xa\0", 4);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .metadata_size = 3}, "/x\0b\0", 5);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .metadata_size = 4}, "/xa\0b\0c", 7);
	assert_wrong_stat(&(struct files_stat){.mode = file, .path_size = 2, .metadata_size = FILES_METADATA_MAX + 1}, "/x", 2);
}

static void wrong_ends_end_the_line(void **state)
{
	static const struct {
		uint16_t asked;
		unsigned flags;
		struct files_done done;
	} cases[] = {
	    {FILES_STAT, 0, {.error = 0}}, /* no entry */
	    {FILES_STAT, 0, {.error = -1}},
	    {FILES_STAT, 0, {.error = 4096}},
	    {FILES_STAT, 0, {.error = ENOENT, .flags = 8}},
	    {FILES_STAT, 0, {.error = ENOENT, .flags = FILES_DONE_MORE}},
	    {FILES_STAT, 0, {.error = ENOENT, .flags = FILES_DONE_ENTRY}},
	    {FILES_STAT, 0, {.error = ENOENT, .bytes = UINT64_MAX}},
	    {FILES_REMOVE, 0, {.flags = FILES_DONE_ENTRY}},
	    {FILES_REMOVE, 0, {.flags = FILES_DONE_CREATED}},
	    {FILES_LIST, 0, {.flags = FILES_DONE_MORE}},   /* after nothing */
	    {FILES_READ, 0, {.error = 0}},                 /* never opened */
	    {FILES_WRITE, 0, {.flags = FILES_DONE_ENTRY}}, /* never committed */
	    {FILES_MKDIR, 0, {.error = EEXIST, .flags = FILES_DONE_CREATED}},
	    {FILES_MOVE, 0, {.flags = FILES_DONE_ENTRY | FILES_DONE_CREATED}},
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct body b = {0};

		add(&b, &cases[i].done, sizeof cases[i].done);
		if ((cases[i].done.flags & FILES_DONE_ENTRY) != 0)
			add_entry(&b, S_IFREG | 0644, "/x");
		assert_breach(cases[i].asked, cases[i].flags, FILES_DONE, &b);
	}
}

static void answers_that_were_not_asked_for_end_the_line(void **state)
{
	const struct files_opened range = {.length = 4}, beyond = {.length = UINT64_MAX - 1};
	const struct files_event change = {.kind = FILES_EVENT_WRITE, .path_size = 2},
				 lost = {.kind = FILES_EVENT_OVERFLOW, .path_size = 2}, unknown = {.kind = 7, .path_size = 2};
	struct body b = {0};

	(void) state;
	add_entry(&b, S_IFREG | 0644, "/x");
	assert_breach(FILES_STAT, 0, FILES_ENTRY, &b);
	assert_breach(FILES_READ, 0, 0x80, &b);
	assert_breach(FILES_READ, 0, FILES_DONE + 1, &b);
	b.size = 0;
	add(&b, &range, sizeof range);
	assert_breach(FILES_STAT, 0, FILES_OPENED, &b);
	assert_breach(FILES_READ, 0, FILES_OPENED, &b); /* without the entry */
	assert_breach(FILES_WRITE, FILES_WHOLE, FILES_OPENED, &b);
	add_entry(&b, S_IFDIR | 0755, "/x");
	assert_breach(FILES_READ, 0, FILES_OPENED, &b);
	b.size = 0;
	add(&b, &beyond, sizeof beyond);
	add_entry(&b, S_IFREG | 0755, "/x");
	assert_breach(FILES_READ, 0, FILES_OPENED, &b);
	for (int i = 0; i < 3; i++) {
		b.size = 0;
		add(&b, i == 0 ? &change : i == 1 ? &lost : &unknown, sizeof change);
		add(&b, "/x", 2);
		assert_breach(FILES_WATCH, 0, FILES_EVENT, &b); /* the first: before it was opened */
	}
	b.size = FILES_BODY_MAX + 1;
	assert_breach(FILES_STAT, 0, FILES_DONE, &b);
}

static void twice_opened_or_too_many_entries_end_the_line(void **state)
{
	const struct files_opened range = {.length = 4};
	struct peer *p = *state;
	struct body b = {0};
	struct reply r;
	uint32_t id;

	begin(&p->rig, (struct files_ask){.type = FILES_LIST, .path = "x", .limit = 2}, &r, NULL);
	id = request_id(p);
	add_entry(&b, S_IFREG | 0644, "/x");
	answer(p, FILES_ENTRY, id, &b);
	answer(p, FILES_ENTRY, id, &b);
	assert_int_equal(p->rig.gone, 0);
	answer(p, FILES_ENTRY, id, &b);
	assert_int_equal(p->rig.gone, 1);
	reply_reset(&r);
	assert_int_equal(peer_tear_down(state), 0);
	assert_int_equal(peer_set_up(state), 0);
	p = *state;
	begin(&p->rig, (struct files_ask){.type = FILES_READ, .path = "x"}, &r, NULL);
	id = request_id(p);
	b.size = 0;
	add(&b, &range, sizeof range);
	add_entry(&b, S_IFREG | 0644, "/x");
	answer(p, FILES_OPENED, id, &b);
	assert_true(r.opened);
	answer(p, FILES_OPENED, id, &b);
	assert_int_equal(p->rig.gone, 1);
	reply_reset(&r);
}

static void answers_to_nobody_end_the_line(void **state)
{
	struct peer *p = *state;
	struct reply r;
	uint32_t id;

	begin(&p->rig, (struct files_ask){.type = FILES_REMOVE, .path = "x"}, &r, NULL);
	id = request_id(p);
	answer_done(p, id, 0, 0, 0);
	assert_true(r.ended);
	assert_int_equal(r.error, 0);
	answer_done(p, id, 0, 0, 0); /* the same once more */
	assert_int_equal(p->rig.gone, 1);
	reply_reset(&r);
}

static void the_end_of_the_pipe_ends_every_call(void **state)
{
	struct peer *p = *state;
	struct reply r;

	begin(&p->rig, (struct files_ask){.type = FILES_READ, .path = "x"}, &r, NULL);
	turn(p);
	fd_close(&p->ends.out);
	turn(p);
	assert_int_equal(r.error, ESHUTDOWN);
	assert_int_equal(p->rig.gone, 1);
}

/* ---- Callbacks that do anything. ---- */

static void end_frees(void *ctx, const struct files_end *end)
{
	struct peer *p = ctx;

	(void) end;
	files_client_free(p->rig.client);
	p->rig.client = NULL;
}

static void a_callback_may_free_the_client(void **state)
{
	const struct files_callbacks callbacks = {.end = end_frees};
	const struct files_ask a = {.type = FILES_REMOVE, .path = "x", .path_size = 1};
	struct peer *p = *state;
	const struct files_done done = {0};
	struct files_answer head = {.size = sizeof done, .type = FILES_DONE};
	struct body b = {0};

	assert_int_equal(files_call(p->rig.client, &a, &callbacks, p, NULL), 0);
	assert_int_equal(files_call(p->rig.client, &a, &callbacks, p, NULL), 0);
	head.id = request_id(p);
	for (int i = 0; i < 2; i++) {
		add(&b, &head, sizeof head);
		add(&b, &done, sizeof done);
	}
	assert_int_equal(fd_write_all(p->ends.out, b.bytes, b.size), 0);
	turn(p);
	assert_null(p->rig.client);
	assert_int_equal(p->rig.gone, 0);
}

static void a_callback_may_free_the_client_when_the_line_ends(void **state)
{
	const struct files_callbacks callbacks = {.end = end_frees};
	const struct files_ask a = {.type = FILES_REMOVE, .path = "x", .path_size = 1};
	struct peer *p = *state;

	for (int i = 0; i < 3; i++)
		assert_int_equal(files_call(p->rig.client, &a, &callbacks, p, NULL), 0);
	turn(p);
	fd_close(&p->ends.out);
	turn(p);
	assert_null(p->rig.client);
}

struct chain {
	struct peer *peer;
	struct files_call *self, *other;
	int left;
};

static void end_cancels_and_calls(void *ctx, const struct files_end *end)
{
	const struct files_callbacks callbacks = {.end = end_cancels_and_calls};
	const struct files_ask a = {.type = FILES_REMOVE, .path = "x", .path_size = 1};
	struct chain *c = ctx;

	(void) end;
	files_cancel(c->self); /* that is ending */
	if (c->other != NULL)
		files_cancel(c->other);
	c->other = NULL;
	if (--c->left > 0)
		(void) files_call(c->peer->rig.client, &a, &callbacks, c, &c->self);
}

static void callbacks_may_call_and_cancel(void **state)
{
	const struct files_callbacks callbacks = {.end = end_cancels_and_calls};
	const struct files_ask a = {.type = FILES_REMOVE, .path = "x", .path_size = 1};
	struct peer *p = *state;
	struct chain c = {.peer = p, .left = 3};
	struct reply r;

	assert_int_equal(files_call(p->rig.client, &a, &callbacks, &c, &c.self), 0);
	begin(&p->rig, a, &r, &c.other);
	answer_done(p, request_id(p), 0, 0, 0);
	assert_int_equal(c.left, 2);
	assert_false(r.ended);
	fd_close(&p->ends.out); /* and from within the end of the line */
	turn(p);
	assert_int_equal(c.left, 1);
}

int main(void)
{
#define WITH_PEER(test) cmocka_unit_test_setup_teardown(test, peer_set_up, peer_tear_down)
	const struct CMUnitTest tests[] = {
	    WITH_PEER(an_answer_may_come_byte_by_byte),
	    WITH_PEER(no_descriptor_can_come_out),
	    WITH_PEER(long_calls_leave_room_for_short_ones),
	    WITH_PEER(the_queue_has_an_end),
	    WITH_PEER(a_program_that_does_nothing_stops_nobody),
	    WITH_PEER(a_canceled_call_may_still_be_answered),
	    WITH_PEER(unsound_requests_are_refused),
	    cmocka_unit_test(wrong_entries_end_the_line),
	    cmocka_unit_test(wrong_ends_end_the_line),
	    cmocka_unit_test(answers_that_were_not_asked_for_end_the_line),
	    WITH_PEER(twice_opened_or_too_many_entries_end_the_line),
	    WITH_PEER(answers_to_nobody_end_the_line),
	    WITH_PEER(the_end_of_the_pipe_ends_every_call),
	    WITH_PEER(a_callback_may_free_the_client),
	    WITH_PEER(a_callback_may_free_the_client_when_the_line_ends),
	    WITH_PEER(callbacks_may_call_and_cancel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
