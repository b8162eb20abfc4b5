/* zwinger-files in a sandbox: started on first use, again when it has ended. */
#pragma once

struct files_client;
struct request;
struct sandbox;

/* NULL: it cannot be started now. The sandbox runs. */
struct files_client *sandbox_files(struct sandbox *s);

/* ---- files-json.c and api-files.c, for all interfaces. ---- */

/* Refuses with what an error of a files_call means. */
void refuse_files(struct request *r, int error);
/* Takes the request over: the file's bytes, or the part that a Range asks for. Cut off when the sandbox is paused or ends. */
void api_files_send(struct request *r, struct sandbox *s, const char *path);
