/* What an interpreter says on its channel (drivers/protocol.md): hostile input, made into what may be believed. */
#pragma once

#include <event2/buffer.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum context_message_type { MESSAGE_READY, MESSAGE_UNSUPPORTED, MESSAGE_RESULT, MESSAGE_ERROR, MESSAGE_DONE };
enum context_kind { KIND_NATIVE, KIND_IPYTHON };

struct context_message {
	enum context_message_type type;
	enum context_kind kind;                        /* ready */
	unsigned id;                                   /* all but ready and unsupported */
	bool ok, interrupted;                          /* done */
	int exit_status;                               /* done; 0 to 255, -1: it has none */
	json_t *result;                                /* ours: only members of a RESULT, each of its kind */
	const char *reason, *name, *value, *traceback; /* good as long as the message is */
	json_t *document;
};

/* How many bytes of `in` are the head and the body of the first message: 1 when all are there, 0 when not yet, -EPROTO. */
int context_message_size(struct evbuffer *in, size_t *ret_head, size_t *ret_size);
/* 0 or -EPROTO. context_message_done() in both cases. */
int context_message_decode(const char *text, size_t size, struct context_message *ret);
void context_message_done(struct context_message *m);
