/* Bytes moved by a process of its own: how much, when it refuses, and what is left of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/mover.h"

enum { MANY = 40, SIZE = 300000 };

struct rig {
	struct event_base *base;
	struct movers *movers;
	int ended, last;
};

static int setup(void **state)
{
	static struct rig r;

	r = (struct rig){.base = event_base_new(), .last = -1};
	r.movers = movers_new(r.base);
	*state = &r;
	return 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;

	r->movers = movers_free(r->movers);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left */
	assert_int_equal(errno, ECHILD);
	event_base_free(r->base);
	return 0;
}

static void done(void *arg, int error)
{
	struct rig *r = arg;

	r->ended++;
	r->last = error;
}

static void run_until(struct rig *r, int ended)
{
	while (r->ended < ended)
		assert_int_equal(event_base_loop(r->base, EVLOOP_ONCE), 0);
}

/* On a disk: a memory file has no lock on its offset, and a file system without a size. */
static int new_file(void)
{
	char name[] = "/tmp/test-mover.XXXXXX";
	int fd = mkostemp(name, O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(unlink(name), 0);
	return fd;
}

static int file_of(size_t size)
{
	int fd = new_file();
	char piece[1000];

	memset(piece, 'x', sizeof piece);
	for (; size > 0; size -= size < sizeof piece ? size : sizeof piece)
		assert_int_equal(fd_write_all(fd, piece, size < sizeof piece ? size : sizeof piece), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static int copy_of(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* What comes of moving `size` bytes of a file into another one. */
static int result(struct rig *r, size_t size, struct move move, off_t *ret_moved)
{
	int to = new_file();

	move.from = file_of(size);
	move.to = copy_of(to);
	assert_non_null(mover_start(r->movers, &move, done, r));
	run_until(r, r->ended + 1);
	*ret_moved = lseek(to, 0, SEEK_CUR); /* the offset is shared */
	fd_close(&to);
	return r->last;
}

static void as_much_as_may_be_is_moved(void **state)
{
	struct rig *r = *state;
	off_t moved;

	assert_int_equal(result(r, SIZE, (struct move){.most = SIZE, .durable = true, .spare = 1}, &moved), 0);
	assert_int_equal(moved, SIZE);
	assert_int_equal(result(r, 0, (struct move){.most = SIZE}, &moved), 0);
	assert_int_equal(moved, 0);
	assert_int_equal(result(r, SIZE, (struct move){.most = SIZE - 1}, &moved), EFBIG);
	assert_true(moved < SIZE);
	assert_int_equal(result(r, SIZE, (struct move){.most = 1000, .exact = true}, &moved), 0);
	assert_int_equal(moved, 1000);
	assert_int_equal(result(r, SIZE, (struct move){.most = SIZE + 1, .exact = true}, &moved), EIO);
	assert_int_equal(result(r, SIZE, (struct move){.most = SIZE, .spare = UINT64_MAX}, &moved), ENOSPC);
	assert_int_equal(moved, 0);
}

static void faults_of_either_side_are_told(void **state)
{
	struct rig *r = *state;
	struct move move = {.most = SIZE};
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	fd_close(&fds[0]);
	move.from = file_of(SIZE);
	move.to = fds[1];
	assert_non_null(mover_start(r->movers, &move, done, r));
	run_until(r, 1);
	assert_int_equal(r->last, EPIPE);
	move.from = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	move.to = new_file();
	assert_non_null(mover_start(r->movers, &move, done, r));
	run_until(r, 2);
	assert_int_equal(r->last, EISDIR);
}

/* More than work at a time: all of them wait for their pipes, and none for another one. */
static void each_has_its_turn(void **state)
{
	struct rig *r = *state;
	int ends[MANY], to = new_file();
	struct mover *movers[MANY];

	for (int i = 0; i < MANY; i++) {
		int fds[2];

		assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
		ends[i] = fds[1];
		movers[i] = mover_start(r->movers, &(struct move){.from = fds[0], .to = copy_of(to), .most = SIZE}, done, r);
		assert_non_null(movers[i]);
	}
	mover_cancel(movers[0]);        /* works */
	mover_cancel(movers[MANY - 1]); /* waits, as the last */
	mover_cancel(movers[MANY - 2]);
	for (int i = 0; i < MANY; i++) {
		if (i > 0 && i < MANY - 2)
			assert_int_equal(write(ends[i], "abc", 3), 3);
		fd_close(&ends[i]);
	}
	run_until(r, MANY - 3);
	assert_int_equal(r->last, 0);
	assert_int_equal(lseek(to, 0, SEEK_CUR), 3 * (MANY - 3));
	fd_close(&to);
}

/* The process must not hold other descriptors of ours, nor outlive us. */
static void the_process_has_its_two_descriptors_alone(void **state)
{
	struct rig *r = *state;
	int fds[2], other[2], to = new_file();
	char byte;

	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(pipe2(other, O_CLOEXEC), 0);
	assert_non_null(mover_start(r->movers, &(struct move){.from = fds[0], .to = to, .most = SIZE}, done, r));
	fd_close(&other[1]);
	assert_int_equal(read(other[0], &byte, 1), 0); /* the end: nobody else has the pipe */
	fd_close(&other[0]);
	fd_close(&fds[1]);
	run_until(r, 1);
	assert_int_equal(r->last, 0);
}

int main(void)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(as_much_as_may_be_is_moved, setup, teardown),
	    cmocka_unit_test_setup_teardown(faults_of_either_side_are_told, setup, teardown),
	    cmocka_unit_test_setup_teardown(each_has_its_turn, setup, teardown),
	    cmocka_unit_test_setup_teardown(the_process_has_its_two_descriptors_alone, setup, teardown),
	};

	(void) sigaction(SIGPIPE, &ignore, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
