#include "daemon/serve-options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "policy/text.h"

#define AT(member) offsetof(struct serve_options, member)

static const struct serve_option table[] = {
    {"listen", OPTION_LIST, "ADDR",
     "HOST:PORT, [V6]:PORT, :PORT (every address) or unix:PATH; port 0 takes a free one (127.0.0.1:7575)", AT(listen), NULL,
     false},
    {"state", OPTION_PATH, "DIR", "where all state is kept", AT(state), NULL, false},
    {"ceiling", OPTION_PATH, "FILE", "a policy that no request may exceed", AT(ceiling), NULL, false},
    {"policy", OPTION_PATH, "FILE", "what a sandbox gets when the request says nothing", AT(policy), NULL, false},
    {"templates", OPTION_PATH, "DIR", "each NAME.yaml in it is a policy that requests may name", AT(templates), NULL, false},
    {"config", OPTION_PATH, "FILE", "these options from a file, with _ for -", AT(config), NULL, true},
    {"print-key-file", OPTION_PATH, "FILE", "write address, first key and pid to FILE as JSON, once it listens",
     AT(print_key_file), NULL, false},
    {"tls", OPTION_CHOICE, "self-signed", "HTTPS with a certificate that is made once", AT(tls), "self-signed", false},
    {"tls-cert", OPTION_PATH, "FILE", "HTTPS with this certificate (PEM, with its chain)", AT(tls_cert), NULL, false},
    {"tls-key", OPTION_PATH, "FILE", "and its private key", AT(tls_key), NULL, false},
    {"allow-plain-http", OPTION_SWITCH, NULL, "listen without TLS where other machines can connect", AT(allow_plain_http), NULL,
     false},
    {"domain", OPTION_TEXT, "NAME[:PORT]", "the domain below which ports of sandboxes have names", AT(domain), NULL, false},
    {"allow-host", OPTION_LIST, "NAME", "serve requests for this host name too", AT(allow_hosts), NULL, false},
    {"allow-origin", OPTION_LIST, "ORIGIN", "let pages of this origin make requests", AT(allow_origins), NULL, false},
    {"on-restart", OPTION_CHOICE, "end|adopt", "what happens to sandboxes that outlived a crash (end)", AT(on_restart),
     "end|adopt", false},
    {"adopt-wait", OPTION_TIME, "D", "with adopt: how long sandboxes wait for the next daemon before they end (60s)",
     AT(adopt_wait), NULL, false},
    {"max-sandboxes", OPTION_COUNT, "N", "how many sandboxes at once (1000)", AT(max_sandboxes), NULL, false},
    {"max-timeout", OPTION_TIME, "D", "the longest life that a request may ask for (24h)", AT(max_timeout), NULL, false},
    {"keep-record", OPTION_TIME, "D", "how long an ended sandbox can be asked about (24h)", AT(keep_record), NULL, false},
    {"drain", OPTION_TIME, "D", "how long requests may go on after SIGTERM (10s)", AT(drain), NULL, false},
    {"log", OPTION_PATH, "FILE", "log there, not on standard error", AT(log), NULL, false},
    {"log-format", OPTION_CHOICE, "json|text", "the form of log lines (text)", AT(log_format), "json|text", false},
    {"help", OPTION_SWITCH, NULL, "this text", AT(help), NULL, true},
    {"version", OPTION_SWITCH, NULL, "the version", AT(version), NULL, true},
};

const struct serve_option *serve_option_at(size_t index)
{
	return index < ARRAY_SIZE(table) ? &table[index] : NULL;
}

const struct serve_option *serve_option_find(const char *name, size_t size)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (strlen(table[i].name) == size && memcmp(table[i].name, name, size) == 0)
			return &table[i];
	return NULL;
}

/* ---- Values. ---- */

static bool is_choice(const char *choices, const char *value)
{
	size_t n = strlen(value);

	for (const char *p = choices; n > 0; p++) {
		size_t m = strcspn(p, "|");

		if (m == n && memcmp(p, value, n) == 0)
			return true;
		p += m;
		if (*p == '\0')
			return false;
	}
	return false;
}

static void set_text(char **at, const char *value)
{
	free(*at);
	*at = xstrdup(value);
}

static int wrong(const char *expected, const char *value, struct zw_error *e)
{
	cleanup_free char *shown = text_quote(value);

	return zw_error(e, EINVAL, "expected %s, got %s", expected, shown);
}

static int set_switch(bool *at, const char *value, struct zw_error *e)
{
	*at = value == NULL || strcmp(value, "true") == 0;
	return *at || strcmp(value, "false") == 0 ? 0 : wrong("true or false", value, e);
}

/* "24h", or a number of seconds. */
static int set_time(usec_t *at, const char *value, struct zw_error *e)
{
	uint64_t seconds;

	if (parse_whole(value, &seconds) == 0 && seconds < UINT32_MAX) {
		*at = seconds * USEC_PER_SEC;
		return 0;
	}
	return parse_usec(value, at) == 0 && *at != ZW_UNLIMITED ? 0 : wrong("a duration such as 30s, 10m or 24h", value, e);
}

static void append(struct strv *list, const char *value)
{
	list->items = xrealloc(list->items, list->count + 1, sizeof *list->items);
	list->items[list->count++] = xstrdup(value);
}

static void clear(struct strv *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->items[i]);
	free(list->items);
	*list = (struct strv){0};
}

int serve_option_set(struct serve_options *o, const struct serve_option *option, const char *value, struct zw_error *e)
{
	void *at = (char *) o + option->offset;
	uint64_t count;

	switch (option->kind) {
	case OPTION_SWITCH:
		return set_switch(at, value, e);
	case OPTION_TIME:
		return set_time(at, value, e);
	case OPTION_COUNT:
		if (parse_whole(value, &count) < 0 || count < 1 || count > 1000000)
			return wrong("a whole number from 1 to 1000000", value, e);
		*(uint64_t *) at = count;
		return 0;
	case OPTION_CHOICE:
		if (!is_choice(option->choices, value))
			return wrong(option->choices, value, e);
		set_text(at, value);
		return 0;
	case OPTION_LIST:
		append(at, value);
		return 0;
	case OPTION_TEXT:
	case OPTION_PATH:
		break;
	}
	if (value[0] == '\0')
		return zw_error(e, EINVAL, "expected %s, got nothing", option->value);
	set_text(at, value);
	return 0;
}

/* ---- Flags. ---- */

static int unknown_flag(const char *word, struct zw_error *e)
{
	cleanup_free char *name = xstrndup(word, strcspn(word, "="));
	cleanup_free char *shown = text_quote(name);
	struct nearest n = nearest_to(strncmp(name, "--", 2) == 0 ? name + 2 : name);

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		nearest_try(&n, table[i].name);
	if (word[0] != '-')
		return zw_error(e, EINVAL, "%s is no flag, and there is nothing else to say; see zwinger serve --help", shown);
	if (n.best != NULL)
		return zw_error(e, EINVAL, "there is no flag %s (did you mean \"--%s\"?); see zwinger serve --help", shown,
				n.best);
	return zw_error(e, EINVAL, "there is no flag %s; see zwinger serve --help", shown);
}

struct flag {
	const struct serve_option *option;
	const char *value; /* NULL: a switch */
};

/* The flag at argv[*at], which is moved to its last word. */
static int read_flag(char **argv, int *at, struct flag *ret, struct zw_error *e)
{
	const char *word = strcmp(argv[*at], "-h") == 0 ? "--help" : argv[*at], *equals = strchr(word, '=');
	size_t size = equals != NULL ? (size_t) (equals - word) : strlen(word);

	ret->option = size > 2 && strncmp(word, "--", 2) == 0 ? serve_option_find(word + 2, size - 2) : NULL;
	if (ret->option == NULL)
		return unknown_flag(word, e);
	ret->value = equals != NULL ? equals + 1 : NULL;
	if (ret->option->kind == OPTION_SWITCH)
		return equals == NULL ? 0 : zw_error(e, EINVAL, "--%s takes no value", ret->option->name);
	if (equals == NULL)
		ret->value = argv[++*at];
	if (ret->value == NULL)
		return zw_error(e, EINVAL, "--%s needs a value: %s", ret->option->name, ret->option->value);
	return 0;
}

static int apply_flags(const struct flag *flags, size_t count, struct serve_options *o, struct zw_error *e)
{
	for (size_t i = 0; i < count; i++) {
		bool first = true;

		for (size_t j = 0; j < i; j++)
			first = first && flags[j].option != flags[i].option;
		if (first && flags[i].option->kind == OPTION_LIST)
			clear((struct strv *) ((char *) o + flags[i].option->offset));
		if (serve_option_set(o, flags[i].option, flags[i].value, e) < 0)
			return zw_context(e, "--%s", flags[i].option->name);
	}
	return 0;
}

static int check_together(const struct serve_options *o, struct zw_error *e)
{
	if ((o->tls_cert == NULL) != (o->tls_key == NULL))
		return zw_error(e, EINVAL, "--tls-cert and --tls-key go together: %s is missing",
				o->tls_cert == NULL ? "--tls-cert" : "--tls-key");
	if (o->tls != NULL && o->tls_cert != NULL)
		return zw_error(e, EINVAL, "--tls self-signed and --tls-cert exclude each other");
	return 0;
}

static void set_defaults(struct serve_options *o)
{
	*o = (struct serve_options){.max_sandboxes = 1000,
				    .max_timeout = 24 * 3600 * USEC_PER_SEC,
				    .keep_record = 24 * 3600 * USEC_PER_SEC,
				    .drain = 10 * USEC_PER_SEC,
				    .adopt_wait = 60 * USEC_PER_SEC,
				    .on_restart = xstrdup("end"),
				    .log_format = xstrdup("text")};
}

int serve_options_read(int argc, char **argv, struct serve_options *ret, struct zw_error *e)
{
	cleanup_free struct flag *flags = xcalloc((size_t) argc + 1, sizeof *flags);
	const char *config = NULL;
	size_t count = 0;
	int r = 0;

	set_defaults(ret);
	for (int i = 1; i < argc && r == 0; i++) {
		r = read_flag(argv, &i, &flags[count], e);
		if (r == 0 && strcmp(flags[count].option->name, "config") == 0)
			config = flags[count].value;
		count += r == 0;
	}
	if (r == 0 && config != NULL)
		r = config_read(config, ret, e);
	if (r == 0)
		r = apply_flags(flags, count, ret, e);
	if (r == 0 && !ret->help && !ret->version)
		r = check_together(ret, e);
	if (r == 0 && ret->listen.count == 0)
		append(&ret->listen, "127.0.0.1:7575");
	return r;
}

void serve_options_done(struct serve_options *o)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		void *at = (char *) o + table[i].offset;

		if (table[i].kind == OPTION_LIST)
			clear(at);
		else if (table[i].kind == OPTION_TEXT || table[i].kind == OPTION_PATH || table[i].kind == OPTION_CHOICE)
			free(*(char **) at);
	}
	*o = (struct serve_options){0};
}

char *serve_options_help(void)
{
	struct buf b = buf_new(64 * 1024);

	(void) buf_adds(
	    &b, "usage: zwinger serve [FLAG...]\n\nServes sandboxes over HTTP. The process in the foreground is the daemon.\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		cleanup_free char *flag = xasprintf("--%s %s", table[i].name, table[i].value != NULL ? table[i].value : "");

		(void) buf_addf(&b, "  %-26s %s%s\n", flag, table[i].help, table[i].kind == OPTION_LIST ? " (repeatable)" : "");
	}
	(void) buf_adds(&b, "\nSee zwinger-serve(1).\n");
	return b.data;
}
