/* A document as a tree: what YAML and JSON have in common, with the line of every value and key. (jansson's own tree shares one
 * object between all nulls and all booleans, so a line cannot be tied to it.) */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"

/* Where a tree comes from: for messages and for relative paths. */
struct source {
	char *label; /* as the user wrote it: "policy.yaml", "-", "@tutor", "flag --memory" */
	char *dir;   /* absolute folder that relative paths belong to; NULL when there is none */
};

enum node_type {
	NODE_NULL,   /* the word null */
	NODE_EMPTY,  /* nothing behind the colon: not the same as null */
	NODE_BOOL,   /* true, false; text is that word */
	NODE_NUMBER, /* text is as written */
	NODE_TEXT,
	NODE_LIST,
	NODE_MAP,
	NODE_BAD, /* was faulty and has been reported; to be passed over in silence */
};

struct node_member {
	char *key;         /* NULL in a list */
	unsigned key_line; /* 0 in a list */
	struct node *value;
};

struct node {
	enum node_type type;
	unsigned line; /* 0 when not known */
	const struct source *source;
	char *text; /* of scalars, else NULL */
	struct node_member *members;
	size_t count;
};

/* Limits of a document; a tree never grows beyond them. */
enum { NODE_DEPTH_MAX = 32, NODE_COUNT_MAX = 10000 };

struct node *node_new(enum node_type type, const char *text, unsigned line, const struct source *source);
void node_free(struct node *n);
struct node *node_clone(const struct node *n);

/* A scalar as YAML and flags write it without quotes: null, true, false, a number, nothing, or text. */
enum node_type node_plain_type(const char *text);

/* Adds and takes over `value`. `key` is copied, NULL in a list. */
void node_add(struct node *n, const char *key, unsigned key_line, struct node *value);

/* The member, or NULL; also NULL when `n` is NULL or no map. */
struct node *node_get(const struct node *n, const char *key);

/* Puts `value` at a path of maps ("limits.memory"), which are made as needed; what was there is freed. */
void node_put(struct node *root, const char *path, struct node *value);

/* The node at a path of maps, or NULL. */
struct node *node_find(const struct node *root, const char *path);

/* `over` on top of `base`: maps merge key by key, everything else replaces. Both stay the caller's; the result is new. Members of
 * the map `secrets` are taken whole, since two sources of one secret would contradict each other. */
struct node *node_merge(const struct node *base, const struct node *over);

/* The tree of a policy without faults as JSON, in which paths of the host are absolute. Owned by the caller. */
char *node_to_json(const struct node *root);

/* What a value is, for "got ...": "\"lots\"", "5", "true", "null", "a list", "nothing". Owned by the caller. */
char *node_describe(const struct node *n);
