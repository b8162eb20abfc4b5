/* Ownership made visible: cleanup attributes and hand-over, allocation that ends the program when memory is out (one-shot
 * programs; what a peer can size is bounded before it is allocated). */
#pragma once

#include <stddef.h>
#include <stdlib.h>

#define cleanup_free __attribute__((cleanup(zw_cleanup_free)))

static inline void zw_cleanup_free(void *p)
{
	free(*(void **) p);
}

/* Evaluates to *(p) and leaves NULL behind. */
#define take_ptr(p)                                                                                                              \
	({                                                                                                                       \
		__typeof__(*(p)) taken = *(p);                                                                                   \
		*(p) = NULL;                                                                                                     \
		taken;                                                                                                           \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* All abort with one line on stderr when memory is out, and check n * size for overflow. Result is owned by the caller. */
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
