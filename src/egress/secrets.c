#include "egress/secrets.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

/* A value in pages of its own: kept out of core dumps and of children, and locked as far as RLIMIT_MEMLOCK goes, so that it does
 * not reach the swap. A replaced or revoked one stays, because a response may still echo it. */
struct value {
	char *text; /* NUL-terminated; start of the mapping */
	size_t size, mapped;
	char *name;
	bool in_use;
	struct value *next; /* newest first */
};

struct secrets {
	struct value *newest;
};

struct secrets *secrets_new(void)
{
	return xcalloc(1, sizeof(struct secrets));
}

static size_t whole_pages(size_t size)
{
	size_t page = (size_t) sysconf(_SC_PAGESIZE);

	return (size + page - 1) / page * page;
}

static void *map(size_t size, int flags)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* MAP_LOCKED rather than mlock(2): the broker's filter needs no further system call. It fails beyond RLIMIT_MEMLOCK, which is no
 * reason to go without the secret. NULL when the pages cannot be kept out of dumps: then there is no secret. */
static char *map_hidden(size_t size)
{
	char *p = map(size, MAP_LOCKED);

	if (p == NULL)
		p = map(size, 0);
	if (p == NULL)
		return NULL;
	if (madvise(p, size, MADV_DONTDUMP) < 0 || madvise(p, size, MADV_DONTFORK) < 0) {
		(void) munmap(p, size);
		return NULL;
	}
	return p;
}

static struct value *value_free(struct value *v)
{
	explicit_bzero(v->text, v->mapped);
	(void) munmap(v->text, v->mapped);
	free(v->name);
	free(v);
	return NULL;
}

static struct value *value_new(const char *name, const char *text, size_t size)
{
	size_t mapped = whole_pages(size + 1);
	char *hidden = map_hidden(mapped);
	struct value *v;

	if (hidden == NULL)
		return NULL;
	memcpy(hidden, text, size);
	v = xcalloc(1, sizeof *v);
	*v = (struct value){.text = hidden, .size = size, .mapped = mapped, .name = xstrdup(name), .in_use = true};
	return v;
}

void secrets_free(struct secrets *s)
{
	if (s == NULL)
		return;
	while (s->newest != NULL) {
		struct value *v = s->newest;

		s->newest = v->next;
		v = value_free(v);
	}
	free(s);
}

static struct value *current(const struct secrets *s, const char *name)
{
	struct value *v = s->newest;

	while (v != NULL && !(v->in_use && strcmp(v->name, name) == 0))
		v = v->next;
	return v;
}

/* A value that came back (a file that was restored) is taken up again, so that switching between two does not grow the list. */
static struct value *earlier(const struct secrets *s, const char *name, const char *text, size_t size)
{
	struct value *v = s->newest;

	while (v != NULL && !(v->size == size && strcmp(v->name, name) == 0 && memcmp(v->text, text, size) == 0))
		v = v->next;
	return v;
}

int secrets_set(struct secrets *s, const char *name, const char *value, size_t size)
{
	struct value *old = current(s, name);
	struct value *v;

	if (old != NULL)
		old->in_use = false;
	if (value == NULL)
		return 0;
	v = earlier(s, name, value, size);
	if (v != NULL) {
		v->in_use = true;
		return 0;
	}
	v = value_new(name, value, size);
	if (v == NULL)
		return -ENOMEM;
	v->next = s->newest;
	s->newest = v;
	return 0;
}

const char *secrets_get(const struct secrets *s, const char *name, size_t *ret_size)
{
	const struct value *v = current(s, name);

	if (v == NULL)
		return NULL;
	*ret_size = v->size;
	return v->text;
}

void secrets_each(const struct secrets *s, void (*f)(void *ctx, const char *value, size_t size), void *ctx)
{
	for (const struct value *v = s->newest; v != NULL; v = v->next)
		f(ctx, v->text, v->size);
}
