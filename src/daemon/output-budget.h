/* How much memory the output of all processes may have together: what each may keep (limits.output) is for the operator to say,
 * how many processes write is for the code inside.
 *
 * Where the bound is reached, the sandbox that keeps most gives up the oldest of it: first of processes that have ended. What a
 * reader still needs and what is captured for an answer is not given up, so there may be no room: then nothing more is captured.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct process;

/* True when `more` bytes may be held, for which others may have had to give up some. Counts nothing. */
bool output_budget_ask(struct process *p, size_t more);
/* `kept`: as chunks, which may be given up. */
void output_budget_add(struct process *p, size_t bytes, bool kept);
void output_budget_take(struct process *p, size_t bytes, bool kept);
