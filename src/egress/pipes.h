/* Pipes through which relays splice. A relay borrows one only while bytes are under way, so that idle connections hold none. */
#pragma once

#include <stddef.h>

/* How many bytes one splice(2) asks for, and what the first few pipes hold. All pipes of a user share an allowance of the kernel
 * (pipe(7), pipe-user-pages-soft), beyond which new ones hold hardly anything. So the others stay as small as they are made, and
 * many busy connections do not starve each other, nor the user's further programs. */
enum { PIPE_WANTED = 512 * 1024 };

struct pipes;

struct pipe_ends {
	int read, write; /* -EBADF: none */
};

#define PIPE_NONE ((struct pipe_ends){.read = -EBADF, .write = -EBADF})

struct pipes *pipes_new(void);
void pipes_free(struct pipes *p);
/* An empty pipe, non-blocking. 0 or negative errno. */
int pipes_borrow(struct pipes *p, struct pipe_ends *ret);
/* Gives it back; one that is not empty is closed. *ends is PIPE_NONE then. */
void pipes_return(struct pipes *p, struct pipe_ends *ends, size_t held);
