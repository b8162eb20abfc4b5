/* zwinger-files in a sandbox: started on first use, again when it has ended. */
#pragma once

#include <stdbool.h>

struct files_client;
struct request;
struct sandbox;

/* The one that acts as `user`. NULL: it cannot be started now. The sandbox runs. */
struct files_client *sandbox_files(struct sandbox *s);
/* As `user`, or (s->has_root) as root, with a HOME of its own. */
struct files_client *sandbox_files_as(struct sandbox *s, bool root);
/* All calls end with ESHUTDOWN before it returns. */
void sandbox_files_end(struct sandbox *s, const char *why);

/* ---- files-json.c and api-files.c, for all interfaces. ---- */

/* Refuses with what an error of a files_call means. */
void refuse_files(struct request *r, int error);
/* Takes the request over: the file's bytes, or the part that a Range asks for. Cut off when the sandbox is paused or ends. */
void api_files_send(struct request *r, struct sandbox *s, bool root, const char *path);
