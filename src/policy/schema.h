/* The schema of a policy as a table: decoder, defaults, flags, help, suggestions and release all read the same rows. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/node.h"
#include "policy/policy.h"
#include "policy/syntax.h"

enum value_type {
	VALUE_BOOL,    /* bool */
	VALUE_COUNT,   /* uint64_t, whole number */
	VALUE_SIZE,    /* uint64_t, bytes */
	VALUE_TIME,    /* usec_t */
	VALUE_CPUS,    /* double; null is 0 */
	VALUE_ID,      /* uid_t or gid_t */
	VALUE_PORT,    /* uint16_t */
	VALUE_CHOICE,  /* enum or bool: the index of the word in `choices` */
	VALUE_TEXT,    /* char * */
	VALUE_PATH,    /* char *, on the host, made absolute by the folder of its source */
	VALUE_ROOT,    /* char *, "host", a directory on the host, or an image */
	VALUE_STRINGS, /* struct strv */
	VALUE_PORTS,   /* struct port_range *, count */
	VALUE_RECORDS, /* array of structs, count: a list of maps */
	VALUE_NAMED,   /* the same from a map whose keys are names; the name is the first member of the struct */
	VALUE_SECTION, /* a map whose keys have rows of their own; needs a row only for `expand`, `present` or `finish` */
	VALUE_VERSION, /* nothing is stored */
};

struct decoder;
struct row;

/* The long form (a map) of a value that was written as a scalar; NULL with the fault filled. The result is the caller's. */
typedef struct node *row_expand(const struct node *scalar, struct fault *f);

/* Looks at a decoded struct as a whole and completes it. `node` is the map, `key` its full name. */
typedef void row_finish(struct decoder *d, void *record, const struct node *node, const char *key);

/* Puts what a flag says into the tree of flags. False with the fault filled. */
typedef bool row_flag(struct node *flags, const struct row *row, const char *value, const struct source *source, struct fault *f);

struct row {
	const char *key; /* "limits.memory", "filesystem.read[].source", "secrets.*.env" */
	enum value_type type;
	size_t offset, size; /* of the member in its struct */
	size_t count;        /* offset of the member that holds the number of elements */
	size_t present;      /* offset of a bool that is set when the key is there; 0: none */
	size_t element;      /* size of an element of records */
	uint64_t min, max;   /* max 0: no upper bound */
	bool nullable;       /* null is allowed: no limit, or not asked for */
	bool required;
	bool scalar_only; /* records: only the short form may be written */
	bool numbers;     /* text: a number may stand without quotes */
	const char *const *choices;
	const char *def; /* as it would be written; NULL: stays zero */
	syntax_check *check;
	row_expand *expand;
	row_finish *finish;
	const char *flag, *value, *flag_value; /* flag_value: what a flag without a value stands for */
	row_flag *apply;
	const char *help;
	const char *about; /* of the key, where the flag's help says something else */
};

const struct row *schema_rows(size_t *ret_count);

/* The row of a pattern, or NULL. */
const struct row *schema_find(const char *pattern);

/* True when some row lies below the pattern: "limits" for "limits.memory". */
bool schema_is_section(const char *pattern);

/* True when `row` is a member, at any depth of sections, of the struct that the prefix stands for ("" or "network.allow[]"). */
bool schema_belongs(const struct row *row, const char *prefix);

/* Calls back with the name of each key directly below the prefix; names may come several times. */
void schema_each_key(const char *prefix, void (*found)(void *ctx, const char *name, size_t size), void *ctx);

/* The full key that ends in the word ("memory" → "limits.memory"), or NULL. */
const char *schema_key_ending(const char *word);

const struct row *schema_flag(const char *flag);

/* Releases what the rows of a struct own. */
void schema_release(const char *prefix, void *base);
