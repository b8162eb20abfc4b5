/* What `zwinger serve` is told: one table of options, which flags, the configuration file (the same names with "_" for "-"), help
 * and the man page's test read. Flags count more than the file; a list given by flags replaces that of the file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "policy/policy.h"

struct serve_options {
	struct strv listen, allow_hosts, allow_origins;
	char *state; /* NULL: the default */
	char *ceiling, *policy, *templates, *config, *print_key_file;
	char *tls, *tls_cert, *tls_key; /* tls is "self-signed" or NULL */
	char *domain;                   /* as given, perhaps with a port */
	char *on_restart;               /* "end" or "adopt" */
	char *log, *log_format;         /* a file or NULL; "text" or "json" */
	const char *own_policy; /* of `zwinger mcp`: a document that every sandbox gets, whatever the ceiling; not an option */
	bool allow_plain_http, help, version;
	uint64_t max_sandboxes;
	usec_t max_timeout, keep_record, drain, adopt_wait;
};

enum option_kind { OPTION_TEXT, OPTION_PATH, OPTION_LIST, OPTION_SWITCH, OPTION_COUNT, OPTION_TIME, OPTION_CHOICE };

struct serve_option {
	const char *name; /* "max-timeout" */
	enum option_kind kind;
	const char *value, *help; /* value NULL: a switch */
	size_t offset;            /* in struct serve_options */
	const char *choices;      /* "end|adopt" */
	bool flag_only;           /* not in the file */
};

const struct serve_option *serve_option_at(size_t index); /* NULL behind the last one */
/* NULL when there is none; `size` bytes of `name`. */
const struct serve_option *serve_option_find(const char *name, size_t size);

/* Sets one. `value` is NULL for a switch that is on, "false" for one that is off. -EINVAL with a sentence that does not name the
 * option. */
int serve_option_set(struct serve_options *o, const struct serve_option *option, const char *value, struct zw_error *e);

/* Defaults, the file, the flags. argv[0] is not looked at. -EINVAL with a sentence. */
int serve_options_read(int argc, char **argv, struct serve_options *ret, struct zw_error *e);
void serve_options_done(struct serve_options *o);

/* One line a flag; owned by the caller. */
char *serve_options_help(void);

/* ---- config.c ---- */

/* Sets what the file says. -EINVAL with a sentence that names file, line and key. */
int config_read(const char *path, struct serve_options *o, struct zw_error *e);
