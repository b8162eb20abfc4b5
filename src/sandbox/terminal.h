/* The caller's terminal while a program inside has one of its own: raw, so that every key goes inside, and as it was after every
 * ending. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct terminal {
	int fd;    /* borrowed, -EBADF: none */
	bool keys; /* its keys are the input of the program inside: raw mode is for them */
	bool raw;
};

/* Raw mode. Does nothing while we are not in the foreground: the terminal is someone else's then. Also restores it when we die by
 * a fault of ours (SIGSEGV and the like). 0 or negative errno. */
int terminal_enter(struct terminal *t);
/* As it was. Fine to call when it is not raw. */
void terminal_leave(struct terminal *t);
/* 0, or negative errno when `fd` is no terminal or has no size. */
int terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_columns);
/* Ends the input of a program that reads from `master`, as the key for it would. */
void terminal_send_end(int master);
