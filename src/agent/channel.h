/* The supervisor's side of the agent protocol. Everything received is hostile: a message is handed out only when its type, size
 * and every field are what the protocol allows, and one wrong byte ends the channel for good (-EPROTO from then on). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/protocol.h"
#include "base/err.h"

struct channel {
	int fd; /* borrowed; non-blocking */
	bool broken;
	size_t have;   /* bytes of the message being received, header included */
	int passed_fd; /* came with it, -EBADF */
	union {
		struct msg_header header;
		unsigned char bytes[sizeof(struct msg_header) + MSG_BODY_MAX_FROM_AGENT];
	} in;
};

struct msg_in {
	uint16_t type; /* MSG_STARTED, MSG_EXEC_FAILED, MSG_EXITED, MSG_CONNECTED */
	uint32_t id;
	int fd; /* STARTED of a process with a terminal: its master side; CONNECTED: a TCP socket. Checked to be one,
		   close-on-exec; the receiver's. Else -EBADF */
	union {
		struct msg_started started;
		struct msg_exec_failed exec_failed;
		struct msg_exited exited;
		struct msg_connected connected;
	};
};

struct start_request {
	uint32_t id;
	uint32_t flags; /* enum start_flags */
	const char *cwd;
	char *const *argv, *const *env; /* NULL-terminated, argv not empty */
	int in, out, err;               /* borrowed; ignored with START_TTY */
	int channel;                    /* borrowed; with START_CHANNEL */
	int program;                    /* borrowed; with START_PROGRAM */
	uint16_t rows, columns;         /* with START_TTY */
	uint32_t uid, gid;              /* with START_USER */
	int groups[START_GROUPS_MAX];   /* borrowed: control groups to join */
	uint32_t group_count;
};

/* `fd` is the socket's end, borrowed; it is made non-blocking. */
int channel_init(struct channel *c, int fd, struct zw_error *e);
/* Closes a descriptor that was received with half a message. `fd` stays open. */
void channel_done(struct channel *c);

/* Never blocks. 1: *ret is a message; 0: nothing more for now; -EPIPE: the agent has closed its end (it is dead, or has ended the
 * sandbox); -EPROTO: the agent said something that the protocol does not know. Call it again until it does not return 1. */
int channel_receive(struct channel *c, struct msg_in *ret, struct zw_error *e);

/* Send; they wait (a START can be larger than the socket's buffer) but never longer than ten seconds without progress
 * (-ETIMEDOUT). -E2BIG when the arguments and environment exceed MSG_BODY_MAX, -EPIPE when the agent is gone. */
int channel_send_start(struct channel *c, const struct start_request *start, struct zw_error *e);
int channel_send_signal(struct channel *c, uint32_t id, int signal, bool to_group, struct zw_error *e);
/* To a port inside, over its loopback; `id` comes back in CONNECTED. */
int channel_send_connect(struct channel *c, uint32_t id, uint16_t port, struct zw_error *e);
int channel_send_resize(struct channel *c, uint32_t id, uint16_t rows, uint16_t columns, struct zw_error *e);
