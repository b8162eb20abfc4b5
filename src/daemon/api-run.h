/* What a request says of a command (COMMAND), for all routes that take one. */
#pragma once

#include "daemon/api.h"
#include "daemon/processes.h"

/* Rows of a table of fields. */
#define COMMAND_FIELDS                                                                                                           \
	{"command", JSON_IN_LIST | JSON_IN_TEXTS}, {"shell", JSON_IN_TEXT},                                                      \
	    {"env", JSON_IN_OBJECT | JSON_IN_TEXTS | JSON_IN_NULL}, {"cwd", JSON_IN_TEXT | JSON_IN_NULL},                        \
	    {"user", JSON_IN_TEXT | JSON_IN_WHOLE | JSON_IN_NULL},                                                               \
	{                                                                                                                        \
		"timeout", JSON_IN_TEXT | JSON_IN_NUMBER | JSON_IN_NULL                                                          \
	}

/* False with faults. Pointers lead into `body`. */
bool command_read(const json_t *body, struct process_wish *ret, struct json_faults *f);
/* A process that could not be started: refuses. */
void refuse_start(struct request *r, const struct process *p);

void api_run_add(struct daemon *d);
void api_sandboxes_add(struct daemon *d);
void api_processes_add(struct daemon *d);
void api_files_add(struct daemon *d);
void api_watch_add(struct daemon *d);
void api_fork_add(struct daemon *d);
/* `value`, or `missing` when it is NULL or null: 1 ms to --max-timeout. False with a fault added. */
bool read_life(const struct request *r, const json_t *value, usec_t missing, usec_t *ret, struct json_faults *f);
void api_contexts_add(struct daemon *d);
void api_record_add(struct daemon *d);
void api_logs_add(struct daemon *d);
