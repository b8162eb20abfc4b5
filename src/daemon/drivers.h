/* The interpreters of contexts: what is started inside for a language, and what it gets to read first. The programs are parts of
 * the daemon (drivers/); drivers/protocol.md has what is spoken with them. */
#pragma once

#include <event2/buffer.h>
#include <jansson.h>
#include <stdbool.h>

struct driver {
	const char *language; /* as CONTEXT has it: "python" */
	const char *name;     /* of the program that is started: "python3" */
	const char *needs;    /* the program whose presence tells that there is the language */
	bool typed;           /* it takes something that strips types besides */
	bool by_signal;       /* an interrupt is SIGINT to what runs; else a message */
	bool exit_is_result;  /* ending the interpreter is a result like others (a shell's exit), not a death */
};

/* By its name or a usual short one ("js"), in any case of letters, with blanks around it; NULL: no such language. */
const struct driver *driver_find(const char *language);
/* All, in a fixed order; NULL behind the last. */
const struct driver *driver_at(size_t index);
/* The argv to start, owned by the caller; NULL: out of memory. */
json_t *driver_command(const struct driver *d);
/* Adds the first messages. `native`: not IPython's shell, even where it is installed. 0 or -ENOMEM. */
int driver_greet(const struct driver *d, bool native, struct evbuffer *out);
