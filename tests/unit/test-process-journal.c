/* The output of a process in a memory file: what is read back by the next daemon. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "daemon/process-journal.h"

enum { ROOM = 4 << 20 };

struct told {
	char streams[64], *text; /* a digit for each piece of another stream than the last */
	size_t changes, size;
};

static void add(void *arg, unsigned stream, const char *data, size_t size)
{
	struct told *t = arg;

	assert_true(t->size + size <= ROOM);
	memcpy(t->text + t->size, data, size);
	t->size += size;
	if (t->changes == 0 || t->streams[t->changes - 1] != (char) ('0' + stream))
		t->streams[t->changes++] = (char) ('0' + stream);
}

/* As another daemon sees it: by a copy of the descriptor alone. */
static struct journal *again(const struct journal *j)
{
	int copy = fcntl(journal_fd(j), F_DUPFD_CLOEXEC, 3);

	assert_true(copy >= 0);
	return journal_open(copy);
}

static bool replay(struct journal *j, struct told *t)
{
	free(t->text);
	*t = (struct told){.text = malloc(ROOM)};
	assert_non_null(t->text);
	return journal_replay(j, add, t);
}

static void put(struct journal *j, int ends[2], unsigned stream, const char *text)
{
	char got[64];
	ssize_t n = (ssize_t) strlen(text);

	assert_int_equal(write(ends[1], text, strlen(text)), n);
	assert_int_equal(journal_read(j, stream, ends[0], got, sizeof got), n);
	assert_memory_equal(got, text, (size_t) n);
}

static void streams_are_told_in_their_order(void **state)
{
	struct told t = {0};
	struct journal *j = journal_new(), *next;
	char got[8];
	int ends[2];

	(void) state;
	assert_non_null(j);
	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	put(j, ends, 0, "one ");
	put(j, ends, 0, "two ");
	assert_int_equal(journal_read(j, 1, ends[0], got, sizeof got), -EAGAIN); /* and begins a record of nothing */
	put(j, ends, 0, "three ");
	put(j, ends, 1, "error ");
	assert_int_equal(journal_add(j, 0, "added ", 6), 0);
	next = again(j);
	j = journal_free(j);
	assert_true(replay(next, &t));
	assert_string_equal(t.streams, "010");
	assert_int_equal(t.size, strlen("one two three error added "));
	assert_memory_equal(t.text, "one two three error added ", t.size);
	put(next, ends, 0, "more ");
	put(next, ends, 1, "end");
	j = again(next);
	next = journal_free(next);
	assert_true(replay(j, &t));
	assert_memory_equal(t.text, "one two three error added more end", t.size);
	fd_close(&ends[1]);
	assert_int_equal(journal_read(j, 0, ends[0], got, sizeof got), 0); /* the end of the pipe */
	fd_close(&ends[0]);
	j = journal_free(j);
	free(t.text);
}

static void what_is_not_needed_is_given_back(void **state)
{
	static char block[1024];
	struct journal_mark mark = {0};
	struct told t = {0};
	struct journal *j = journal_new(), *next;
	struct stat st;

	(void) state;
	memset(block, 'x', sizeof block);
	for (unsigned i = 0; i < 8192; i++) {
		assert_int_equal(journal_add(j, i / 100 % 2, block, sizeof block), 0);
		mark.from = i < 512 ? 0 : (uint64_t) (i - 512) * sizeof block;
		mark.dropped = mark.from / 2;
		journal_mark(j, &mark);
	}
	assert_int_equal(fstat(journal_fd(j), &st), 0);
	assert_true(st.st_blocks * 512 < 2 << 20);
	next = again(j);
	j = journal_free(j);
	assert_true(replay(next, &t));
	assert_int_equal(t.size + journal_before(next, 0) + journal_before(next, 1), 8192 * sizeof block);
	journal_marked(next, &mark);
	assert_int_equal(mark.from, (8191 - 512) * sizeof block);
	assert_int_equal(mark.dropped, mark.from / 2);
	assert_true(journal_before(next, 0) + journal_before(next, 1) <= mark.from);
	next = journal_free(next);
	free(t.text);
}

/* A daemon that was killed while it began a record. */
static void half_a_record_is_none(void **state)
{
	struct told t = {0};
	struct journal *j = journal_new(), *next;

	(void) state;
	assert_int_equal(journal_add(j, 1, "whole", 5), 0);
	next = again(j);
	assert_int_equal(pwrite(journal_fd(j), "\5\0\0\0", 4, 4096 + 4), 4); /* its size, which the next record brings */
	assert_int_equal(write(journal_fd(j), "\0\0\0", 3), 3);
	assert_true(replay(next, &t));
	assert_int_equal(t.size, 5);
	assert_int_equal(journal_add(next, 1, " and", 4), 0);
	j = journal_free(j);
	j = again(next);
	assert_true(replay(j, &t));
	assert_int_equal(journal_add(j, 0, " more", 5), 0);
	next = journal_free(next);
	next = again(j);
	assert_true(replay(next, &t));
	assert_string_equal(t.streams, "10");
	assert_memory_equal(t.text, "whole and more", 14);
	j = journal_free(j);
	next = journal_free(next);
	free(t.text);
}

static void what_is_no_journal_is_refused(void **state)
{
	int ends[2], empty = memfd_create("x", MFD_CLOEXEC);
	struct told t = {0};
	struct journal *j;

	(void) state;
	assert_null(journal_open(empty));
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_null(journal_open(ends[0])); /* which could keep us waiting */
	fd_close(&ends[1]);
	assert_null(journal_open(open("/etc/passwd", O_RDONLY | O_CLOEXEC)));
	for (int what = 0; what < 3; what++) {
		static const uint32_t bad[3][2] = {{7, 5}, {0, 0x7fffffff}, {1, 6}};
		struct journal *made = journal_new();

		assert_int_equal(journal_add(made, 0, "hello", 5), 0);
		assert_int_equal(pwrite(journal_fd(made), bad[what], 8, 4096), 8);
		j = again(made);
		assert_non_null(j);
		assert_false(replay(j, &t));
		j = journal_free(j);
		made = journal_free(made);
	}
	free(t.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(streams_are_told_in_their_order),
	    cmocka_unit_test(what_is_not_needed_is_given_back),
	    cmocka_unit_test(half_a_record_is_none),
	    cmocka_unit_test(what_is_no_journal_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
