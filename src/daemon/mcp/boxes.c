/* The named sandboxes of an owner: made on first use, ended when nobody has used them for a while, made again when they are used
 * after that. The clock is the sandbox's own timeout: long while a call works in it, MCP_IDLE afterwards. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/mcp/mcp.h"

/* ---- The clock. ---- */

static usec_t at_most(const struct mcp_owner *o, usec_t t)
{
	return t < o->daemon->options->max_timeout ? t : o->daemon->options->max_timeout;
}

static struct sandbox *live_of(const struct mcp_box *b)
{
	struct sandbox *s = b->id[0] != '\0' && !b->starting ? sandbox_find(b->owner->daemon, b->id) : NULL;

	return s != NULL && (s->state == SANDBOX_RUNNING || s->state == SANDBOX_PAUSED) ? s : NULL;
}

static void set_clock(struct mcp_box *b)
{
	struct sandbox *s = live_of(b);

	if (s != NULL)
		sandbox_set_timeout(s, b->users > 0 ? b->owner->daemon->options->max_timeout : at_most(b->owner, MCP_IDLE));
}

/* ---- Boxes. ---- */

static void free_box(struct mcp_box *b)
{
	struct mcp_box **at = &b->owner->boxes;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	free(b->name);
	free(b);
}

static bool is_over(const struct mcp_box *b)
{
	return b->users == 0 && b->waiting == NULL && !b->starting && live_of(b) == NULL;
}

static struct mcp_box *find_or_make(struct mcp_owner *o, const char *name)
{
	struct mcp_box *b, *next;
	size_t count = 0;

	for (b = o->boxes; b != NULL; b = b->next)
		if (strcmp(b->name, name) == 0)
			return b;
	for (b = o->boxes; b != NULL; b = next) {
		next = b->next;
		if (is_over(b))
			free_box(b);
		else
			count++;
	}
	if (count >= MCP_BOXES_MAX)
		return NULL;
	b = xcalloc(1, sizeof *b);
	*b = (struct mcp_box){.next = o->boxes, .owner = o, .name = xstrdup(name)};
	o->boxes = b;
	return b;
}

static void enter(struct mcp_box *b, struct mcp_call *c, struct sandbox *s)
{
	c->box = b;
	b->users++;
	c->again = b->again;
	b->again = false;
	set_clock(b);
	mcp_call_ready(c, s);
}

/* ---- The beginning of a sandbox. ---- */

static void fail_all(struct mcp_call *waiting, const struct problem *p)
{
	while (waiting != NULL) {
		struct mcp_call *c = waiting;

		waiting = c->next_waiting;
		c->box = NULL;
		mcp_call_fail(c, NULL, "no sandbox could be started: %s%s%s", p->message, p->hint != NULL ? "; " : "",
			      p->hint != NULL ? p->hint : "");
	}
}

static void ready(void *arg, struct sandbox *s)
{
	struct mcp_box *b = arg;
	struct mcp_call *waiting = take_ptr(&b->waiting);

	b->starting = false;
	if (s->state != SANDBOX_RUNNING) {
		const struct problem p = s->problem;

		s->hidden = true; /* it never was */
		b->id[0] = '\0';
		fail_all(waiting, &p);
		return;
	}
	set_clock(b);
	while (waiting != NULL) {
		struct mcp_call *c = waiting;

		waiting = c->next_waiting;
		if (s->state == SANDBOX_RUNNING) {
			enter(b, c, s);
		} else {
			c->box = NULL;
			mcp_call_fail(c, NULL, "the sandbox has ended: %s", s->end_reason);
		}
	}
}

static void start(struct mcp_box *b)
{
	struct mcp_owner *o = b->owner;
	json_t *metadata = json_pack("{ss}", "mcp", o->label);
	const struct sandbox_wish wish = {.metadata = metadata, .name = b->name, .timeout = at_most(o, MCP_IDLE)};
	struct problem problem = {0};
	struct sandbox *s;

	b->again = b->id[0] != '\0';
	b->starting = true;
	if (sandbox_create(o->daemon->sandboxes, &wish, ready, b, &s, &problem) == 0) {
		memcpy(b->id, s->id, sizeof b->id);
	} else {
		struct mcp_call *waiting = take_ptr(&b->waiting);

		b->starting = false;
		b->id[0] = '\0';
		fail_all(waiting, &problem);
		json_decref(problem.errors);
	}
	json_decref(metadata);
}

void mcp_box_enter(struct mcp_call *c, const char *name)
{
	struct mcp_box *b = find_or_make(c->owner, name);
	struct sandbox *s = b != NULL ? live_of(b) : NULL;

	if (b == NULL) {
		mcp_call_fail(c, NULL, "there are %d sandboxes already; use one of them", MCP_BOXES_MAX);
		return;
	}
	if (s != NULL && s->state == SANDBOX_PAUSED) {
		mcp_call_fail(c, NULL, "the sandbox is paused; it must be resumed first");
		return;
	}
	if (s != NULL) {
		enter(b, c, s);
		return;
	}
	c->box = b;
	c->next_waiting = b->waiting;
	b->waiting = c;
	if (!b->starting)
		start(b);
}

void mcp_box_leave(struct mcp_call *c)
{
	struct mcp_box *b = c->box;

	c->box = NULL;
	if (b == NULL)
		return;
	if (c->sandbox_id[0] == '\0') {
		struct mcp_call **at = &b->waiting;

		while (*at != NULL && *at != c)
			at = &(*at)->next_waiting;
		if (*at != NULL)
			*at = c->next_waiting;
		return;
	}
	b->users--;
	set_clock(b);
}

/* ---- Owners. ---- */

void mcp_owner_end(struct mcp_owner *o, const char *reason)
{
	for (struct mcp_call *c = o->calls, *next; c != NULL; c = next) {
		next = c->next;
		mcp_call_cancel(c);
	}
	for (struct mcp_box *b = o->boxes, *next; b != NULL; b = next) {
		struct sandbox *s = b->id[0] != '\0' ? sandbox_find(o->daemon, b->id) : NULL;

		next = b->next;
		if (s != NULL)
			sandbox_end(s, "deleted", reason);
	}
}

bool mcp_owner_is_idle(struct mcp_owner *o)
{
	if (o->calls != NULL)
		return false;
	for (struct mcp_box *b = o->boxes, *next; b != NULL; b = next) {
		next = b->next;
		if (is_over(b))
			free_box(b);
	}
	return o->boxes == NULL;
}

void mcp_owner_done(struct mcp_owner *o)
{
	while (o->calls != NULL)
		mcp_call_drop(o->calls);
	while (o->boxes != NULL)
		free_box(o->boxes);
}
