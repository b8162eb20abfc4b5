/* The daemon's receiver against a zwinger-files that says anything. One call of each kind is under way; the first byte of the
 * input says how many bytes come with each write, and which calls are canceled meanwhile. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/files-client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct watched {
	unsigned ends, gone;
	size_t entries;
};

static void check_entry(const struct files_entry *e)
{
	if (e->path[0] != '/' || strlen(e->path) >= FILES_PATH_MAX || e->size > INT64_MAX || e->mtime_nsec >= 1000000000)
		abort();
	if ((e->target != NULL) != S_ISLNK(e->mode) || (e->target != NULL && strlen(e->target) >= FILES_PATH_MAX))
		abort();
	if (e->metadata_size > FILES_METADATA_MAX || (e->metadata_size > 0 && e->metadata[e->metadata_size - 1] != '\0'))
		abort();
	if (strlen(e->user) > FILES_USER_MAX || strpbrk(e->user, ":/\n\"") != NULL || strlen(e->group) > FILES_USER_MAX)
		abort();
}

static void on_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *entry)
{
	(void) ctx;
	if (range->offset > INT64_MAX || (range->length > INT64_MAX && range->length != UINT64_MAX))
		abort();
	if (entry != NULL)
		check_entry(entry);
	if (entry != NULL && !S_ISREG(entry->mode))
		abort();
	fd_close(&fd);
}

static void on_entry(void *ctx, const struct files_entry *entry)
{
	struct watched *w = ctx;

	check_entry(entry);
	if (++w->entries > 10)
		abort();
}

static void on_change(void *ctx, const struct files_change *change)
{
	(void) ctx;
	if (change->kind == FILES_EVENT_OVERFLOW ? change->path[0] != '\0' : change->path[0] != '/')
		abort();
	if (change->entry != NULL)
		check_entry(change->entry);
}

static void on_end(void *ctx, const struct files_end *end)
{
	struct watched *w = ctx;

	w->ends++;
	if (end->error < 0 || end->error > 4095 || (end->error != 0 && end->entry != NULL))
		abort();
	if (end->entry != NULL)
		check_entry(end->entry);
}

static void on_gone(void *ctx, const char *why)
{
	if (why == NULL || ++((struct watched *) ctx)->gone > 1)
		abort();
}

static const struct files_callbacks callbacks = {on_opened, on_entry, on_change, on_end};

/* The ids of the requests follow from their order: 64, 129, 194, ... */
static unsigned begin_all(struct files_client *c, struct watched *w, struct files_call *calls[8])
{
	static const enum files_type types[8] = {FILES_STAT,  FILES_LIST,   FILES_READ,  FILES_WRITE,
						 FILES_WATCH, FILES_REMOVE, FILES_MKDIR, FILES_USER};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		const struct files_ask ask = {.type = types[i], .path = "x", .path_size = 1, .limit = 10};

		if (files_call(c, &ask, &callbacks, w, &calls[i]) < 0)
			abort();
	}
	return ARRAY_SIZE(types);
}

static void turn(struct event_base *base)
{
	(void) event_base_loop(base, EVLOOP_NONBLOCK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct watched w = {0};
	struct files_call *calls[8];
	struct files_client *c;
	struct files_ends ends;
	struct event_base *base;
	unsigned count;
	size_t step;

	if (size < 2 || size > 60000)
		return 0;
	base = event_base_new();
	if (base == NULL || files_client_new(base, on_gone, &w, &c, &ends, NULL) < 0)
		abort();
	count = begin_all(c, &w, calls);
	turn(base);
	if ((data[0] & 0x80) != 0) {
		files_cancel(calls[1]);
		files_cancel(calls[2]);
		count -= 2;
	}
	step = (size_t) (data[0] & 0x7f) * 16 + 1;
	for (size_t at = 1; at < size && w.gone == 0; at += step) {
		if (fd_write_all(ends.out, data + at, size - at < step ? size - at : step) < 0)
			break;
		turn(base);
	}
	fd_close(&ends.out);
	turn(base);
	turn(base);
	if (w.gone != 1 || w.ends != count)
		abort();
	files_client_free(c);
	event_base_free(base);
	fd_close(&ends.in);
	fd_close(&ends.err);
	fd_close(&ends.channel);
	return 0;
}
