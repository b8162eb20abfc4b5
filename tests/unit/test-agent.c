/* The real agent, started as the levels start it: in a pid namespace where this host gives one, and as a plain process. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/channel.h"
#include "agent/image.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

enum { PATIENCE_MSEC = 20000 };

enum mode { PLAIN, PID_NAMESPACE };

struct sandbox {
	enum mode mode;
	pid_t pid;
	int socket;
	struct channel channel;
	int out; /* reading end of the process's stdout and stderr */
};

/* What became of a START. */
struct outcome {
	bool started, failed, exited;
	int master;
	struct msg_started start;
	struct msg_exec_failed failure;
	struct msg_exited end;
};

static const char *const plain_env[] = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8", NULL};

static pid_t clone_agent(enum mode mode)
{
	unsigned long flags = SIGCHLD;

	if (mode == PID_NAMESPACE)
		flags |= CLONE_NEWPID | (geteuid() != 0 ? CLONE_NEWUSER : 0);
	return (pid_t) syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
}

static bool have_pid_namespaces(void)
{
	pid_t pid = clone_agent(PID_NAMESPACE);

	if (pid == 0)
		_exit(0);
	return pid > 0 && waitpid(pid, NULL, 0) == pid;
}

/* Moves a descriptor out of the way of those that the agent is given. */
static int move_up(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 30);

	assert_true(moved >= 0);
	assert_int_equal(close(fd), 0);
	return moved;
}

static void start_agent(struct sandbox *s, enum mode mode)
{
	cleanup_fd int image = move_up(agent_memfd(NULL));
	const char *const argv[] = {"zwinger-agent", NULL}, *const env[] = {NULL};
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	fds[0] = move_up(fds[0]);
	fds[1] = move_up(fds[1]);
	*s = (struct sandbox){.mode = mode, .socket = fds[0], .out = -EBADF};
	s->pid = clone_agent(mode);
	assert_true(s->pid >= 0);
	if (s->pid == 0) {
		/* What a careless caller leaves to us: ignored signals, and a descriptor that is not close-on-exec. */
		(void) signal(SIGPIPE, SIG_IGN);
		(void) signal(SIGUSR1, SIG_IGN);
		if (dup2(fds[1], AGENT_CHANNEL_FD) < 0 || dup2(fds[1], 17) < 0 || fcntl(17, F_SETFD, 0) < 0 || umask(077) == 0777)
			_exit(99);
		(void) execveat(image, "", (char *const *) (uintptr_t) argv, (char *const *) (uintptr_t) env, AT_EMPTY_PATH);
		_exit(98);
	}
	fd_close(&fds[1]);
	assert_int_equal(channel_init(&s->channel, s->socket, NULL), 0);
}

/* Waits for the agent's own end. */
static int agent_status(struct sandbox *s)
{
	int status;

	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	s->pid = 0;
	return status;
}

static void end_agent(struct sandbox *s)
{
	fd_close(&s->socket);
	fd_close(&s->out);
	channel_done(&s->channel);
	if (s->pid != 0)
		(void) agent_status(s);
}

static uint32_t mode_flags(const struct sandbox *s)
{
	return s->mode == PLAIN ? START_NO_PIDNS : 0;
}

/* Sends START with stdin from /dev/null and one pipe for stdout and stderr. */
static void send_request(struct sandbox *s, struct start_request *start)
{
	cleanup_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct zw_error e = {0};
	int fds[2];

	start->flags |= mode_flags(s);
	start->in = null;
	fd_close(&s->out);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	s->out = fds[0];
	start->out = start->err = fds[1];
	if (channel_send_start(&s->channel, start, &e) < 0)
		fail_msg("%s", e.text);
	fd_close(&fds[1]);
}

static void send_start(struct sandbox *s, uint32_t id, uint32_t flags, const char *cwd, const char *const *argv,
		       const char *const *env)
{
	struct start_request start = {.id = id,
				      .flags = flags,
				      .cwd = cwd,
				      .argv = (char *const *) (uintptr_t) argv,
				      .env = (char *const *) (uintptr_t) env,
				      .rows = 24,
				      .columns = 80};

	send_request(s, &start);
}

static bool next_message(struct sandbox *s, struct msg_in *m)
{
	struct zw_error e = {0};

	for (;;) {
		struct pollfd p = {.fd = s->socket, .events = POLLIN};
		int r = channel_receive(&s->channel, m, &e);

		if (r == -EPIPE)
			return false;
		if (r < 0)
			fail_msg("%s", e.text);
		if (r > 0)
			return true;
		if (poll(&p, 1, PATIENCE_MSEC) <= 0)
			fail_msg("the agent says nothing");
	}
}

/* Reads messages until `id` has ended (or could not be started), or with `until_started` has started. */
static void follow(struct sandbox *s, uint32_t id, struct outcome *o, bool until_started)
{
	struct msg_in m;

	while (next_message(s, &m)) {
		assert_int_equal(m.id, id);
		switch (m.type) {
		case MSG_STARTED:
			assert_false(o->started);
			o->started = true;
			o->start = m.started;
			o->master = m.fd;
			if (until_started)
				return;
			break;
		case MSG_EXEC_FAILED:
			o->failed = true;
			o->failure = m.exec_failed;
			return;
		default:
			assert_true(o->started);
			o->exited = true;
			o->end = m.exited;
			return;
		}
	}
	fail_msg("the agent went away");
}

/* Reads what the process wrote: to the end, or when that does not come, to the last byte that is there now. */
static void read_output(struct sandbox *s, char *text, size_t size)
{
	size_t have = 0;

	assert_int_equal(fd_nonblock(s->out), 0);
	for (;;) {
		ssize_t n = read(s->out, text + have, size - 1 - have);

		if (n <= 0)
			break;
		have += (size_t) n;
	}
	text[have] = '\0';
}

/* One process, from START to its end, in an agent of its own. */
static void run(enum mode mode, const char *cwd, const char *const *argv, const char *const *env, struct outcome *o, char *text,
		size_t size)
{
	struct sandbox s;

	*o = (struct outcome){.master = -EBADF};
	start_agent(&s, mode);
	send_start(&s, 1, START_ONE_SHOT, cwd, argv, env);
	follow(&s, 1, o, false);
	assert_int_equal(agent_status(&s), 0);
	if (text != NULL)
		read_output(&s, text, size);
	end_agent(&s);
}

static void run_sh(enum mode mode, const char *script, struct outcome *o, char *text, size_t size)
{
	const char *const argv[] = {"sh", "-c", script, NULL};

	run(mode, "/", argv, plain_env, o, text, size);
}

static enum mode mode_of(void **state)
{
	enum mode mode = *(const enum mode *) *state;

	if (mode == PID_NAMESPACE && !have_pid_namespaces())
		skip();
	return mode;
}

/* ---- How processes end. ---- */

static void exit_codes_and_signals_are_told(void **state)
{
	static const struct {
		const char *script;
		int status;
	} cases[] = {{"exit 0", 0},
		     {"exit 3", 3 << 8},
		     {"exit 137", 137 << 8},
		     {"kill -KILL $$", SIGKILL},
		     {"kill -TERM $$", SIGTERM},
		     {"kill -USR1 $$", SIGUSR1}};
	enum mode mode = mode_of(state);
	struct outcome o;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		run_sh(mode, cases[i].script, &o, NULL, 0);
		assert_true(o.exited);
		assert_int_equal(o.end.status & ~0x80, cases[i].status);
		assert_true(o.start.pid > 0);
	}
}

static void usage_is_told(void **state)
{
	enum mode mode = mode_of(state);
	struct outcome o;

	run_sh(mode, "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done", &o, NULL, 0);
	assert_true(o.end.utime + o.end.stime > 10000);
	assert_true(o.end.max_rss > 100000);
}

/* ---- What cannot be started. ---- */

static void write_file(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	fd_close(&fd);
}

static void expect_failure(enum mode mode, const char *cwd, const char *command, const char *const *env, int error,
			   unsigned stage)
{
	const char *const argv[] = {command, NULL};
	struct outcome o;

	run(mode, cwd, argv, env, &o, NULL, 0);
	assert_true(o.failed);
	assert_false(o.started);
	assert_int_equal(o.failure.error, error);
	assert_int_equal(o.failure.stage, stage);
}

static void failed_starts_say_why(void **state)
{
	enum mode mode = mode_of(state);
	char dir[] = "/tmp/zwinger-test-XXXXXX", path[64], plain[64], search[160];
	const char *const env[] = {search, NULL};

	assert_non_null(mkdtemp(dir));
	expect_failure(mode, "/", "no-such-command-here", plain_env, ENOENT, EXEC_STAGE_EXEC);
	expect_failure(mode, "/", "/no/such/command", plain_env, ENOENT, EXEC_STAGE_EXEC);
	expect_failure(mode, "/", "", plain_env, ENOENT, EXEC_STAGE_EXEC);
	expect_failure(mode, "/", "/tmp", plain_env, EACCES, EXEC_STAGE_EXEC);
	(void) snprintf(path, sizeof path, "%s/junk", dir);
	write_file(path, "no program\n", 0755);
	expect_failure(mode, "/", path, plain_env, ENOEXEC, EXEC_STAGE_EXEC);
	write_file(path, "#!/no/such/interpreter\r\n", 0755);
	expect_failure(mode, "/", path, plain_env, ENOENT, EXEC_STAGE_EXEC);
	(void) snprintf(plain, sizeof plain, "%s/plain", dir);
	write_file(plain, "#!/bin/sh\n", 0644);
	expect_failure(mode, "/", plain, plain_env, EACCES, EXEC_STAGE_EXEC);
	/* Found along PATH but not executable beats not found further on, as execvp(3) has it. */
	(void) snprintf(search, sizeof search, "PATH=/nowhere:%s:/usr/bin", dir);
	expect_failure(mode, "/", "plain", env, EACCES, EXEC_STAGE_EXEC);
	(void) snprintf(search, sizeof search, "PATH=/nowhere:/usr/bin");
	expect_failure(mode, dir, "plain", env, ENOENT, EXEC_STAGE_EXEC);
	/* An empty element is the working directory. */
	(void) snprintf(search, sizeof search, "PATH=/nowhere:");
	expect_failure(mode, dir, "plain", env, EACCES, EXEC_STAGE_EXEC);
	expect_failure(mode, "/no/such/folder", "true", plain_env, ENOENT, EXEC_STAGE_CWD);
	expect_failure(mode, plain, "true", plain_env, ENOTDIR, EXEC_STAGE_CWD);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(plain), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void the_path_of_the_given_environment_is_searched(void **state)
{
	enum mode mode = mode_of(state);
	char dir[] = "/tmp/zwinger-test-XXXXXX", path[64], search[160], text[256];
	const char *const env[] = {search, NULL}, *const argv[] = {"the-command", "a b", "", NULL};
	struct outcome o;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	(void) snprintf(path, sizeof path, "%s/the-command", dir);
	write_file(path, "#!/bin/sh\necho \"$# $1|$2|$PWD\"\n", 0755);
	(void) snprintf(search, sizeof search, "PATH=/nowhere:%s", dir);
	run(mode, "/usr", argv, env, &o, text, sizeof text);
	assert_true(o.exited);
	assert_string_equal(text, "2 a b||/usr\n");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void large_argument_lists_pass_or_are_told(void **state)
{
	enum mode mode = mode_of(state);
	enum { VARIABLES = 1000, VARIABLE_SIZE = 1024 };
	cleanup_free char *store = xcalloc(VARIABLES, VARIABLE_SIZE);
	cleanup_free const char **env = xcalloc(VARIABLES + 2, sizeof *env);
	cleanup_free char *big = xcalloc(1, 200001);
	const char *const count[] = {"sh", "-c", "env | grep -c ^V", NULL}, *const too_big[] = {"true", big, NULL};
	struct outcome o;
	char text[64];

	for (int i = 0; i < VARIABLES; i++) {
		env[i] = store + i * VARIABLE_SIZE;
		memset(store + i * VARIABLE_SIZE, 'x', VARIABLE_SIZE - 1);
		(void) snprintf(store + i * VARIABLE_SIZE, VARIABLE_SIZE, "V%04d", i);
		store[i * VARIABLE_SIZE + 5] = '=';
	}
	env[VARIABLES] = "PATH=/usr/bin:/bin";
	run(mode, "/", count, env, &o, text, sizeof text);
	assert_true(o.exited);
	assert_string_equal(text, "1000\n");
	memset(big, 'y', 200000);
	run(mode, "/", too_big, plain_env, &o, NULL, 0);
	assert_true(o.failed);
	assert_int_equal(o.failure.error, E2BIG);
}

/* ---- What a process finds. ---- */

static void only_the_three_standard_descriptors_are_open(void **state)
{
	enum mode mode = mode_of(state);
	char text[256];
	struct outcome o;

	/* Tries each number instead of listing /proc/self/fd, which in the namespace shows the outside. 3 to 9 are what sh can
	 * name. */
	run_sh(mode, "for n in 0 1 2 3 4 5 6 7 8 9; do if (eval \": <&$n\") 2>/dev/null; then echo $n; fi; done", &o, text,
	       sizeof text);
	assert_string_equal(text, "0\n1\n2\n");
	if (mode == PLAIN) {
		run_sh(mode, "cd /proc/self/fd && echo *", &o, text, sizeof text);
		assert_string_equal(text, "0 1 2 3\n"); /* 3: the listing's own */
	}
}

static void signals_and_umask_are_at_their_defaults(void **state)
{
	enum mode mode = mode_of(state);
	const char *const argv[] = {"/usr/bin/env", "--list-signal-handling", "true", NULL};
	char text[512];
	struct outcome o;

	run(mode, "/", argv, plain_env, &o, text, sizeof text);
	assert_string_equal(text, "");
	run_sh(mode, "umask", &o, text, sizeof text);
	assert_string_equal(text, "0022\n");
}

static void the_process_leads_a_session_of_its_own(void **state)
{
	char text[128];
	struct outcome o;

	(void) state;
	run_sh(PLAIN, "cut -d' ' -f1,5,6,7 /proc/$$/stat", &o, text, sizeof text);
	assert_int_equal(o.end.status, 0);
	char expected[128];

	(void) snprintf(expected, sizeof expected, "%d %d %d 0\n", o.start.pid, o.start.pid, o.start.pid);
	assert_string_equal(text, expected);
}

static void the_agent_cannot_be_read_by_its_children(void **state)
{
	char text[128];
	struct outcome o;

	(void) state;
	if (geteuid() == 0)
		skip(); /* root may read all */
	run_sh(PLAIN, "cat /proc/$PPID/environ >/dev/null 2>&1 || echo refused", &o, text, sizeof text);
	assert_string_equal(text, "refused\n");
}

/* ---- Endings. ---- */

/* A process of the sandbox is alive as long as it holds the writing end of the pipe. */
static bool pipe_ends(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c[4096];

	for (;;) {
		if (poll(&p, 1, PATIENCE_MSEC) <= 0)
			return false;
		if (read(fd, c, sizeof c) <= 0)
			return true;
	}
}

static const char daemon_script[] =
    "setsid sh -c 'setsid sleep 1000 & setsid sh -c \"trap : TERM HUP; sleep 1000\" &' & sleep 0.05; exit 5";

static void daemons_die_with_the_one_shot_process(void **state)
{
	enum mode mode = mode_of(state);
	const char *const argv[] = {"sh", "-c", daemon_script, NULL};
	struct outcome o = {.master = -EBADF};
	usec_t start = now_monotonic();
	struct sandbox s;

	start_agent(&s, mode);
	send_start(&s, 1, START_ONE_SHOT, "/", argv, plain_env);
	follow(&s, 1, &o, false);
	/* They hold the pipe, which must not delay the news. */
	assert_int_equal(o.end.status, 5 << 8);
	assert_int_equal(agent_status(&s), 0);
	assert_true(pipe_ends(s.out));
	assert_true(now_monotonic() - start < 10 * USEC_PER_SEC);
	end_agent(&s);
}

static void everything_dies_when_the_channel_ends(void **state)
{
	enum mode mode = mode_of(state);
	const char *const argv[] = {
	    "sh", "-c", "trap '' HUP TERM INT; (setsid sleep 1000 &); echo ready; while :; do sleep 1000; done", NULL};
	struct outcome o = {.master = -EBADF};
	struct sandbox s;
	char ready[8];

	start_agent(&s, mode);
	send_start(&s, 1, 0, "/", argv, plain_env);
	follow(&s, 1, &o, true);
	assert_int_equal(read(s.out, ready, sizeof ready), 6);
	fd_close(&s.socket);
	assert_int_equal(agent_status(&s), 0);
	assert_true(pipe_ends(s.out));
	end_agent(&s);
}

static void the_end_is_told_after_a_half_close(void **state)
{
	const char *const argv[] = {"sleep", "1000", NULL};
	struct outcome o = {.master = -EBADF};
	struct sandbox s;

	(void) state;
	start_agent(&s, PLAIN);
	send_start(&s, 1, START_ONE_SHOT, "/", argv, plain_env);
	follow(&s, 1, &o, true);
	assert_int_equal(shutdown(s.socket, SHUT_WR), 0);
	follow(&s, 1, &o, false);
	assert_int_equal(o.end.status, SIGKILL);
	assert_int_equal(agent_status(&s), 0);
	end_agent(&s);
}

static void a_broken_supervisor_ends_the_sandbox(void **state)
{
	enum mode mode = mode_of(state);
	static const struct msg_header wrong[] = {{.type = 99},
						  {.type = MSG_START, .size = 3},
						  {.type = MSG_START, .size = MSG_BODY_MAX + 1},
						  {.type = MSG_SIGNAL, .size = 1}};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct sandbox s;

		start_agent(&s, mode);
		assert_int_equal(write(s.socket, &wrong[i], sizeof wrong[i]), sizeof wrong[i]);
		assert_int_equal(agent_status(&s), 70 << 8);
		end_agent(&s);
	}
}

static void a_process_cannot_stop_or_kill_pid_1(void **state)
{
	struct outcome o;

	(void) mode_of(state);
	run_sh(PID_NAMESPACE, "kill -KILL 1; kill -STOP 1; kill -TERM 1; kill -CHLD 1; exit 4", &o, NULL, 0);
	assert_int_equal(o.end.status, 4 << 8);
}

/* ---- Channels, programs, users. ---- */

static void send_script(struct sandbox *s, const char *script, struct start_request *start)
{
	const char *const argv[] = {"sh", "-c", script, NULL};

	start->id = 1;
	start->cwd = "/";
	start->argv = (char *const *) (uintptr_t) argv;
	start->env = (char *const *) (uintptr_t) plain_env;
	start->flags |= START_ONE_SHOT;
	send_request(s, start);
}

static void a_channel_is_descriptor_3_of_its_process(void **state)
{
	static const char script[] =
	    "for n in 3 4 5 6 7 8 9; do if (eval \": <&$n\") 2>/dev/null; then echo $n; fi; done; echo word >&3";
	struct outcome o = {.master = -EBADF};
	struct sandbox s;
	char text[64];
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	start_agent(&s, mode_of(state));
	send_script(&s, script, &(struct start_request){.flags = START_CHANNEL, .channel = fds[1]});
	fd_close(&fds[1]);
	follow(&s, 1, &o, false);
	assert_int_equal(o.end.status, 0);
	assert_int_equal(agent_status(&s), 0);
	read_output(&s, text, sizeof text);
	assert_string_equal(text, "3\n");
	assert_int_equal(read(fds[0], text, sizeof text), 5);
	assert_memory_equal(text, "word\n", 5);
	assert_int_equal(read(fds[0], text, sizeof text), 0); /* the agent keeps none of it */
	fd_close(&fds[0]);
	end_agent(&s);
}

/* A sealed memory file with the contents of `path`. */
static int program_from(const char *path)
{
	cleanup_fd int file = open(path, O_RDONLY | O_CLOEXEC), fd = memfd_create("program", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cleanup_free char *data = NULL;
	size_t size;

	assert_int_equal(fd_read_all(file, 64 << 20, &data, &size), 0);
	assert_int_equal(fd_write_all(fd, data, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
	return take_fd(&fd);
}

static void a_program_is_executed_in_place_of_the_first_argument(void **state)
{
	const char *const argv[] = {"no-such-program", "-c", "echo $0 >&3; exit 6", "name", NULL};
	cleanup_fd int program = program_from("/bin/sh");
	struct start_request start = {.id = 1,
				      .cwd = "/",
				      .argv = (char *const *) (uintptr_t) argv,
				      .env = (char *const *) (uintptr_t) plain_env,
				      .flags = START_ONE_SHOT | START_PROGRAM | START_CHANNEL,
				      .program = program};
	struct outcome o = {.master = -EBADF};
	struct sandbox s;
	char text[16];
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	start.channel = fds[1];
	start_agent(&s, mode_of(state));
	send_request(&s, &start);
	fd_close(&fds[1]);
	follow(&s, 1, &o, false);
	assert_int_equal(o.end.status, 6 << 8);
	assert_int_equal(read(fds[0], text, sizeof text), 5);
	assert_memory_equal(text, "name\n", 5);
	fd_close(&fds[0]);
	end_agent(&s);
}

static void a_file_that_is_no_program_is_refused(void **state)
{
	cleanup_fd int program = program_from("/etc/passwd");
	struct outcome o = {.master = -EBADF};
	struct sandbox s;

	start_agent(&s, mode_of(state));
	send_script(&s, "true", &(struct start_request){.flags = START_PROGRAM, .program = program});
	follow(&s, 1, &o, false);
	assert_true(o.failed);
	assert_int_equal(o.failure.stage, EXEC_STAGE_EXEC);
	assert_true(o.failure.error == EACCES || o.failure.error == ENOEXEC);
	end_agent(&s);
}

static void another_user_is_refused(void **state)
{
	enum mode mode = mode_of(state);
	/* A user namespace without a map shows everybody as the overflow user. */
	bool mapped = mode == PLAIN || geteuid() == 0;
	struct outcome own = {.master = -EBADF}, other = {.master = -EBADF};
	struct sandbox s;

	start_agent(&s, mode);
	send_script(
	    &s, "exit 3",
	    &(struct start_request){.flags = START_USER, .uid = mapped ? getuid() : 65534, .gid = mapped ? getgid() : 65534});
	follow(&s, 1, &own, false);
	assert_int_equal(own.end.status, 3 << 8);
	end_agent(&s);
	start_agent(&s, mode);
	send_script(&s, "exit 3", &(struct start_request){.flags = START_USER, .uid = getuid() + 1, .gid = getgid()});
	follow(&s, 1, &other, false);
	assert_true(other.failed);
	assert_int_equal(other.failure.error, EPERM);
	end_agent(&s);
}

/* ---- Several processes, signals. ---- */

static void many_processes_live_at_once(void **state)
{
	enum { COUNT = 150 };
	const char *const argv[] = {"sleep", "60", NULL};
	unsigned started = 0, ended = 0;
	struct sandbox s;
	struct msg_in m;

	start_agent(&s, mode_of(state));
	for (uint32_t id = 1; id <= COUNT; id++)
		send_start(&s, id, 0, "/", argv, plain_env);
	while (ended < COUNT && next_message(&s, &m)) {
		if (m.type == MSG_EXITED) {
			assert_int_equal(m.exited.status, SIGKILL);
			ended++;
			continue;
		}
		assert_int_equal(m.type, MSG_STARTED);
		if (++started < COUNT)
			continue;
		for (uint32_t id = COUNT; id >= 1; id--)
			assert_int_equal(channel_send_signal(&s.channel, id, SIGKILL, false, NULL), 0);
	}
	assert_int_equal(ended, COUNT);
	end_agent(&s);
}

static void processes_can_follow_one_another(void **state)
{
	enum mode mode = mode_of(state);
	struct sandbox s;

	start_agent(&s, mode);
	for (uint32_t id = 1; id <= 100; id++) {
		char script[32];
		const char *const argv[] = {"sh", "-c", script, NULL};
		struct outcome o = {.master = -EBADF};

		(void) snprintf(script, sizeof script, "exit %u", id);
		send_start(&s, id, 0, "/", argv, plain_env);
		follow(&s, id, &o, false);
		assert_int_equal(o.end.status, (int) id << 8);
	}
	end_agent(&s);
}

static void signals_reach_the_process_or_its_group(void **state)
{
	enum mode mode = mode_of(state);

	for (int to_group = 0; to_group <= 1; to_group++) {
		const char *const argv[] = {
		    "sh", "-c",
		    "trap 'echo parent; exit 7' INT; sh -c 'trap \"echo child; exit\" INT; echo ready; sleep 2 "
		    "& wait' & wait; wait",
		    NULL};
		struct outcome o = {.master = -EBADF};
		char text[256];
		struct sandbox s;

		start_agent(&s, mode);
		send_start(&s, 1, START_ONE_SHOT, "/", argv, plain_env);
		follow(&s, 1, &o, true);
		assert_int_equal(read(s.out, text, 6), 6);
		assert_int_equal(channel_send_signal(&s.channel, 99, SIGKILL, true, NULL), 0); /* nobody's */
		assert_int_equal(channel_send_signal(&s.channel, 1, SIGINT, to_group != 0, NULL), 0);
		follow(&s, 1, &o, false);
		assert_int_equal(o.end.status, 7 << 8);
		assert_int_equal(agent_status(&s), 0);
		read_output(&s, text, sizeof text);
		assert_non_null(strstr(text, "parent"));
		if (to_group == 0)
			assert_null(strstr(text, "child"));
		end_agent(&s);
	}
}

/* ---- Terminals. ---- */

static void read_terminal(int master, char *text, size_t size, const char *until)
{
	size_t have = 0;

	text[0] = '\0';
	while (have < size - 1) {
		struct pollfd p = {.fd = master, .events = POLLIN};
		ssize_t n;

		if (poll(&p, 1, PATIENCE_MSEC) <= 0)
			fail_msg("the terminal says nothing more after \"%s\"", text);
		n = read(master, text + have, size - 1 - have);
		if (n <= 0)
			return; /* EIO: nobody has the other side open any more */
		have += (size_t) n;
		text[have] = '\0';
		if (until != NULL && strstr(text, until) != NULL)
			return;
	}
}

static void start_on_terminal(struct sandbox *s, enum mode mode, const char *script, struct outcome *o)
{
	const char *const argv[] = {"sh", "-c", script, NULL};

	*o = (struct outcome){.master = -EBADF};
	start_agent(s, mode);
	send_start(s, 1, START_ONE_SHOT | START_TTY, "/", argv, plain_env);
	follow(s, 1, o, true);
	assert_true(o->started);
	assert_true(o->master >= 0);
}

static void a_terminal_has_its_size_and_follows(void **state)
{
	enum mode mode = mode_of(state);
	struct outcome o;
	struct sandbox s;
	char text[1024];

	start_on_terminal(&s, mode, "trap 'stty size; exit 6' WINCH; stty size; while :; do sleep 0.01; done", &o);
	read_terminal(o.master, text, sizeof text, "24 80");
	assert_int_equal(channel_send_resize(&s.channel, 99, 1, 1, NULL), 0); /* nobody's */
	assert_int_equal(channel_send_resize(&s.channel, 1, 50, 132, NULL), 0);
	read_terminal(o.master, text, sizeof text, "50 132");
	follow(&s, 1, &o, false);
	assert_int_equal(o.end.status, 6 << 8);
	fd_close(&o.master);
	end_agent(&s);
}

static void a_terminal_is_the_controlling_one(void **state)
{
	enum mode mode = mode_of(state);
	struct outcome o;
	struct sandbox s;
	char text[1024];

	start_on_terminal(&s, mode,
			  "test -t 0 && test -t 1 && test -t 2 && : >/dev/tty && trap 'echo got; exit 8' INT && echo ready && "
			  "while :; do sleep 0.01; done",
			  &o);
	read_terminal(o.master, text, sizeof text, "ready");
	assert_int_equal(write(o.master, "\003", 1), 1);
	read_terminal(o.master, text, sizeof text, "got");
	follow(&s, 1, &o, false);
	assert_int_equal(o.end.status, 8 << 8);
	fd_close(&o.master);
	end_agent(&s);
}

static void output_on_a_terminal_survives_the_end_of_the_process(void **state)
{
	enum mode mode = mode_of(state);
	static char text[65536];
	struct outcome o;
	struct sandbox s;
	size_t lines = 0;

	/* Less than the terminal's buffer holds, so that the process can end before anybody reads. */
	start_on_terminal(&s, mode, "stty -opost; i=0; while [ $i -lt 500 ]; do echo 123456; i=$((i + 1)); done", &o);
	follow(&s, 1, &o, false);
	assert_int_equal(agent_status(&s), 0);
	read_terminal(o.master, text, sizeof text, NULL);
	for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++)
		lines++;
	assert_int_equal(lines, 500);
	fd_close(&o.master);
	end_agent(&s);
}

static void a_resize_after_the_end_is_no_error(void **state)
{
	enum mode mode = mode_of(state);
	const char *const argv[] = {"true", NULL};
	struct outcome o = {.master = -EBADF};
	struct sandbox s;

	start_agent(&s, mode);
	send_start(&s, 1, 0, "/", argv, plain_env);
	follow(&s, 1, &o, false);
	assert_int_equal(channel_send_resize(&s.channel, 1, 50, 132, NULL), 0);
	assert_int_equal(channel_send_signal(&s.channel, 1, SIGKILL, true, NULL), 0);
	o = (struct outcome){.master = -EBADF};
	send_start(&s, 2, 0, "/", argv, plain_env);
	follow(&s, 2, &o, false);
	assert_int_equal(o.end.status, 0);
	end_agent(&s);
}

/* ---- The image. ---- */

static void the_image_is_sealed_and_static(void **state)
{
	cleanup_fd int fd = agent_memfd(NULL);
	cleanup_free char *bytes = NULL;
	size_t size;

	(void) state;
	assert_true(fd >= 0);
	assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	assert_int_equal(fcntl(fd, F_GET_SEALS) & 0xf, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(ftruncate(fd, 1), -1);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(fd_read_all(fd, 1 << 20, &bytes, &size), 0);
	assert_int_equal(size, agent_image_size);
	assert_memory_equal(bytes, "\177ELF", 4);
	assert_true(size < 64 * 1024);
	assert_null(memmem(bytes, size, "ld-musl", 7));
}

#define AS_PLAIN_PROCESS(test)                                                                                                   \
	{                                                                                                                        \
#test, test, NULL, NULL, (void *) (uintptr_t) &plain_mode                                                        \
	}
#define IN_PID_NAMESPACE(test)                                                                                                   \
	{                                                                                                                        \
#test " (pid namespace)", test, NULL, NULL, (void *) (uintptr_t) &namespace_mode                                 \
	}
#define IN_BOTH_MODES(test) AS_PLAIN_PROCESS(test), IN_PID_NAMESPACE(test)

int main(void)
{
	static const enum mode plain_mode = PLAIN, namespace_mode = PID_NAMESPACE;
	const struct CMUnitTest tests[] = {
	    IN_BOTH_MODES(exit_codes_and_signals_are_told),
	    IN_BOTH_MODES(usage_is_told),
	    IN_BOTH_MODES(failed_starts_say_why),
	    IN_BOTH_MODES(the_path_of_the_given_environment_is_searched),
	    IN_BOTH_MODES(large_argument_lists_pass_or_are_told),
	    IN_BOTH_MODES(only_the_three_standard_descriptors_are_open),
	    IN_BOTH_MODES(signals_and_umask_are_at_their_defaults),
	    AS_PLAIN_PROCESS(the_process_leads_a_session_of_its_own),
	    AS_PLAIN_PROCESS(the_agent_cannot_be_read_by_its_children),
	    IN_BOTH_MODES(daemons_die_with_the_one_shot_process),
	    IN_BOTH_MODES(everything_dies_when_the_channel_ends),
	    AS_PLAIN_PROCESS(the_end_is_told_after_a_half_close),
	    IN_BOTH_MODES(a_broken_supervisor_ends_the_sandbox),
	    IN_PID_NAMESPACE(a_process_cannot_stop_or_kill_pid_1),
	    IN_BOTH_MODES(a_channel_is_descriptor_3_of_its_process),
	    IN_BOTH_MODES(a_program_is_executed_in_place_of_the_first_argument),
	    IN_BOTH_MODES(a_file_that_is_no_program_is_refused),
	    IN_BOTH_MODES(another_user_is_refused),
	    IN_BOTH_MODES(many_processes_live_at_once),
	    IN_BOTH_MODES(processes_can_follow_one_another),
	    IN_BOTH_MODES(signals_reach_the_process_or_its_group),
	    IN_BOTH_MODES(a_terminal_has_its_size_and_follows),
	    IN_BOTH_MODES(a_terminal_is_the_controlling_one),
	    IN_BOTH_MODES(output_on_a_terminal_survives_the_end_of_the_process),
	    IN_BOTH_MODES(a_resize_after_the_end_is_no_error),
	    cmocka_unit_test(the_image_is_sealed_and_static),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
