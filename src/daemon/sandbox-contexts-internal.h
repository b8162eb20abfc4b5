/* Between sandbox-contexts.c and sandbox-contexts-outlive.c. */
#pragma once

#include "daemon/sandbox-contexts.h"

/* ---- sandbox-contexts-outlive.c: nothing in a sandbox that ends with the daemon. ---- */

/* Adds what is to be held to the descriptors of an interpreter's start. */
size_t sandbox_context_hold(const struct sandbox_context *x, int fds[], size_t have, json_t *message);
/* It was asked for; notes of one before are forgotten. */
void sandbox_context_note_start(struct sandbox_context *x, uint32_t process);
void sandbox_context_note(const struct sandbox_context *x);
void sandbox_context_forget_note(struct sandbox_context *x);

/* ---- sandbox-contexts.c ---- */

/* Gives it its context; frees it when that fails. 0 or -ENOMEM. */
int sandbox_context_prepare(struct sandbox_context *x, const struct driver *driver);
/* The interpreter is this process. With `held` its supervisor tells more of it. 0 or negative errno. */
int sandbox_context_interpreter(struct sandbox_context *x, uint32_t process, const json_t *held);
void sandbox_context_interpreter_ended(struct sandbox_context *x, const json_t *exited);
