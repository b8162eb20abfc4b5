/* How entries and faults of a sandbox's files look on /v1. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct files_client;
struct files_entry;
struct request;
struct sandbox;

/* "file", "directory", "symlink"... of a st_mode. Static text. */
const char *files_type(uint32_t mode);
json_t *files_entry_to_json(const struct files_entry *e);
/* A text as it is when it is UTF-8, else with escapes. */
json_t *files_text(const char *text);
bool files_is_utf8(const char *text);
/* The bytes of a path, percent-encoded. */
json_t *files_percent(const char *path);

/* ?path= of a request. False with the request refused. */
bool files_path_of(struct request *r, const char **ret);
/* The line to a sandbox's files. NULL with the request refused. */
struct files_client *files_client_as(struct request *r, struct sandbox *s, bool root);
/* Of the user that ?user= names. */
struct files_client *files_client_of(struct request *r, struct sandbox *s);
