/* The protocol between the supervisor and the agent (pid 1 of a sandbox). Theory of operation:
 *
 * The channel is a SOCK_STREAM Unix socket, fd 3 in the agent. Every message is a header and a body of at most MSG_BODY_MAX
 * bytes, little-endian, packed. Fds ride on the first byte of a message (SCM_RIGHTS). The supervisor treats every byte from the
 * agent as hostile: it checks type, size and every field, and a wrong message ends the sandbox. The agent trusts the supervisor.
 *
 * supervisor -> agent: START (argv, environment, cwd, flags; fds: stdin, stdout, stderr unless tty, then the channel, then the
 * program, where flags name them), SIGNAL, RESIZE, CONNECT (to a port inside). agent -> supervisor: STARTED (pid inside; fd: the
 * terminal's master when one was asked for), EXEC_FAILED (errno), EXITED (wait status, rusage), CONNECTED (errno, or 0 and fd:
 * the connection, which may not be complete yet).
 *
 * A START with START_ONE_SHOT makes the agent exit as soon as the process has: the kernel then kills whatever is left of the pid
 * namespace (pid_namespaces(7)); without a pid namespace (START_NO_PIDNS) the agent, a child subreaper, kills its descendants
 * first. When the channel ends, the agent ends at once in the same way. */
#pragma once

#include <stdint.h>

#define AGENT_CHANNEL_FD 3

/* Process level, where there is no pid namespace. The supervisor starts the agent with AGENT_SCOPED as argv[1] when the agent is
 * in a Landlock domain that scopes signals (ABI 6): then kill(-1) reaches the sandbox alone, all of it at once. fd 4 is then a
 * Landlock ruleset that each process of the sandbox enters before it is executed, so that none can signal or trace the agent,
 * which stays in the outer domain. With AGENT_UNSCOPED fd 4 is /proc/thread-self/children of the agent, opened before Landlock
 * closed /proc. */
#define AGENT_EXTRA_FD 4
/* In both cases fd 5, if open, is the master of the terminal for the first process that asks for one: TIOCGPTPEER counts as
 * opening the slave by its path, and all terminals of a user lie in one folder, so a single one is allowed beforehand. */
#define AGENT_TERMINAL_FD 5
#define AGENT_SCOPED "scoped"
#define AGENT_UNSCOPED "unscoped"

/* As argv[1] of a pid 1 with CAP_SETUID and CAP_SETGID: there is a root too. agent.h says what it does with them. */
#define AGENT_WITH_ROOT "root"

enum msg_type {
	MSG_START = 1,
	MSG_SIGNAL = 2,
	MSG_RESIZE = 3,
	MSG_CONNECT = 4,
	MSG_STARTED = 0x81,
	MSG_EXEC_FAILED = 0x82,
	MSG_EXITED = 0x83,
	MSG_CONNECTED = 0x84,
};

#define MSG_BODY_MAX (4u << 20)       /* supervisor to agent: argv and environment */
#define MSG_BODY_MAX_FROM_AGENT 4096u /* agent to supervisor, until file operations come */

struct msg_header {
	uint32_t size; /* of the body */
	uint16_t type;
	uint16_t reserved; /* 0 */
	uint32_t id;       /* of the process: chosen by the supervisor in START, repeated in all that concerns it */
};

enum start_flags {
	START_TTY = 1,
	START_ONE_SHOT = 2,
	START_NO_PIDNS = 4,
	START_CHANNEL = 8,  /* one more descriptor, which becomes START_CHANNEL_FD of the process */
	START_PROGRAM = 16, /* the last descriptor is the program: executed in place of argv[0], which is only its name. No script
			       (its interpreter could not open it again) */
	START_USER =
	    32, /* `uid` and `gid` hold. Any but the agent's own, and with AGENT_WITH_ROOT 0 and 0, are refused with EPERM */
};

#define START_CHANNEL_FD 3
#define START_GROUPS_MAX 2
#define START_FDS_MAX (5 + START_GROUPS_MAX)

/* Body of START: this, then `cwd`, then argc strings, then envc strings, each NUL-terminated, and nothing behind. */
struct msg_start {
	uint32_t flags;
	uint32_t argc, envc;
	uint16_t rows, columns; /* with START_TTY */
	uint32_t uid, gid;      /* with START_USER */
	uint32_t groups;        /* so many descriptors before the program's: the process writes "0" to each, which makes it a
				   member of that control group */
};

struct msg_signal {
	int32_t signal;
	uint32_t to_group; /* 1: to the process group of the process */
};

struct msg_resize {
	uint16_t rows, columns;
};

/* The header's id is the request's, repeated in CONNECTED. */
struct msg_connect {
	uint16_t port;
	uint16_t reserved; /* 0 */
};

struct msg_connected {
	int32_t error; /* errno, 0 with a descriptor */
};

struct msg_started {
	int32_t pid;
};

enum exec_stage { EXEC_STAGE_FORK, EXEC_STAGE_TTY, EXEC_STAGE_CWD, EXEC_STAGE_EXEC };

struct msg_exec_failed {
	int32_t error; /* errno */
	uint32_t stage;
};

struct msg_exited {
	int32_t status; /* as from wait4(2) */
	uint32_t reserved;
	uint64_t utime, stime; /* usec, of the process and its reaped children */
	uint64_t max_rss;      /* bytes, of the largest */
};
