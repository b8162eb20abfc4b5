#include "sandbox/denials.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sandbox/sandbox.h"

enum { DENIAL_TEXT_MAX = 512 }; /* what is kept of a name or host; both may be chosen inside */

static bool same_text(const char *a, const char *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return strncmp(a, b, DENIAL_TEXT_MAX) == 0;
}

static struct denial_entry *find(const struct denials *d, const struct denial *what)
{
	for (size_t i = 0; i < d->count; i++) {
		struct denial_entry *e = &d->items[i];

		if (strcmp(e->kind, what->kind) == 0 && e->port == what->port && same_text(e->name, what->name) &&
		    same_text(e->host, what->host) && same_text(e->method, what->method) && same_text(e->path, what->path))
			return e;
	}
	return NULL;
}

static char *keep_text(const char *text)
{
	return text != NULL ? xstrndup(text, DENIAL_TEXT_MAX) : NULL;
}

uint64_t denials_add(struct denials *d, const struct denial *what)
{
	uint64_t times = what->count != 0 ? what->count : 1;
	struct denial_entry *e = find(d, what);

	d->total += times;
	if (e == NULL) {
		if (d->count == DENIALS_MAX) {
			d->other += times;
			return 0;
		}
		if (d->items == NULL)
			d->items = xcalloc(DENIALS_MAX, sizeof *d->items);
		e = &d->items[d->count++];
		*e = (struct denial_entry){
		    .kind = what->kind,
		    .name = keep_text(what->name),
		    .host = keep_text(what->host),
		    .port = what->port,
		    .address = keep_text(what->address),
		    .method = keep_text(what->method),
		    .path = keep_text(what->path),
		    .rule = keep_text(what->rule),
		    .why = keep_text(what->why),
		};
	}
	e->count += times;
	return e->count;
}

void denials_done(struct denials *d)
{
	for (size_t i = 0; i < d->count; i++) {
		free(d->items[i].name);
		free(d->items[i].host);
		free(d->items[i].address);
		free(d->items[i].method);
		free(d->items[i].path);
		free(d->items[i].rule);
		free(d->items[i].why);
	}
	free(d->items);
	*d = (struct denials){0};
}
