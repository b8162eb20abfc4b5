/* Which levels of isolation this host has: found by building each once, when somebody asks for the first time. */
#pragma once

#include <jansson.h>

struct sandboxes;
struct sandbox_levels;

/* `call` comes once, now or soon, with a list of names that stays ours. */
void sandbox_levels(struct sandboxes *all, void (*call)(void *arg, const json_t *levels), void *arg);
struct sandbox_levels *sandbox_levels_free(struct sandbox_levels *l);
