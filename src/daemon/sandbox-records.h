/* The records of sandboxes in the store: what a client was told of exists is found after a crash too. A row is written before the
 * answer that names the sandbox, and again with what changes of it; its end is written before anybody is told of the end.
 *
 * Not kept are the environment, which may hold secrets and is of no use to what has ended, and what was said by processes. */
#pragma once

#include "base/err.h"

struct sandbox;
struct sandboxes;

/* Writes the row, new or again. 0 or negative errno: -ENOSPC, or another that it could not be written for. */
int sandbox_record_keep(const struct sandbox *s);
/* Its row goes. One that cannot be removed now is too old at the next start. */
void sandbox_record_forget(const struct sandbox *s);
/* At the start, before anything is created: into the table. What ran is STARTING there, until it is taken over or ended
 * (sandbox-outlive.h). What is older than --keep-record goes. */
int sandbox_records_load(struct sandboxes *all, struct zw_error *e);
