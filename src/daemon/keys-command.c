#include "daemon/keys-command.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/key-json.h"
#include "policy/policy.h"
#include "policy/text.h"

struct command {
	const char *state, *name, *scope, *expires, *id;
	bool json, help;
};

/* The flags of one verb. */
struct flag {
	const char *name, *value, *help;
	size_t offset; /* of a const char *, or a bool when `value` is NULL */
	bool add_only;
};

#define AT(member) offsetof(struct command, member)

static const struct flag flags[] = {
    {"--name", "N", "what the key is for, for people", AT(name), true},
    {"--scope", "S", "use, create (the default) or admin", AT(scope), true},
    {"--expires", "D", "how long it holds: 30m, 24h", AT(expires), true},
    {"--state", "DIR", "the state directory of the daemon", AT(state), false},
    {"--json", NULL, "print JSON", AT(json), false},
    {"--help", NULL, "this text", AT(help), false},
};

static int print(const char *text)
{
	int r = fd_write_all(STDOUT_FILENO, text, strlen(text));

	if (r == 0)
		return 0;
	log_error("cannot write to standard output: %s", strerror(-r));
	return DAEMON_FAILED;
}

static int print_json(json_t *o)
{
	cleanup_free char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	cleanup_free char *line = text != NULL ? xasprintf("%s\n", text) : NULL;

	json_decref(o);
	return line != NULL ? print(line) : DAEMON_FAILED;
}

/* ---- The verbs. ---- */

static int read_expiry(const char *text, usec_t *ret, struct zw_error *e)
{
	uint64_t seconds;
	usec_t in;
	cleanup_free char *shown = text_quote(text);

	if (parse_whole(text, &seconds) == 0 && seconds <= UINT32_MAX)
		in = seconds * USEC_PER_SEC;
	else if (parse_usec(text, &in) < 0 || in == ZW_UNLIMITED)
		return zw_error(e, EINVAL, "--expires: expected a duration such as 30m or 24h, got %s", shown);
	if (in < USEC_PER_SEC || in > 100 * UINT64_C(31536000) * USEC_PER_SEC)
		return zw_error(e, EINVAL, "--expires: expected 1 s to 100 years, got %s", shown);
	*ret = now_realtime() + in;
	return 0;
}

static int check_add(const struct command *c, usec_t *ret_expires, struct zw_error *e)
{
	cleanup_free char *shown = text_quote(c->scope);

	*ret_expires = 0;
	if (scope_find(c->scope) == SCOPE_NONE)
		return zw_error(e, EINVAL, "--scope: expected use, create or admin, got %s", shown);
	return c->expires != NULL ? read_expiry(c->expires, ret_expires, e) : 0;
}

static int add(const struct command *c, struct keys *keys, struct zw_error *e)
{
	char text[KEY_TEXT_SIZE], line[KEY_TEXT_SIZE + 1];
	const struct key *key;
	usec_t expires;
	int r = check_add(c, &expires, e);

	if (r == 0)
		r = keys_add(keys, c->name, scope_find(c->scope), expires, text, &key, e);
	if (r < 0)
		return r;
	if (c->json) {
		r = print_json(key_json(key, text));
	} else {
		/* The key alone, for $(...); what else there is to say goes to the person. */
		(void) snprintf(line, sizeof line, "%s\n", text);
		r = print(line);
		log_line("this is the only time that the key is shown; its id is %s", key->id);
	}
	sodium_memzero(text, sizeof text);
	return r;
}

static int list(const struct command *c, struct keys *keys, struct zw_error *e)
{
	json_t *all = json_array();
	int r = 0;

	(void) e;
	for (size_t i = 0; i < keys->count; i++)
		(void) json_array_append_new(all, key_json(&keys->items[i], NULL));
	if (c->json)
		return print_json(json_pack("{s:o}", "keys", all));
	for (size_t i = 0; i < keys->count && r == 0; i++) {
		const struct key *k = &keys->items[i];
		char created[TIMESTAMP_SIZE], expires[TIMESTAMP_SIZE] = "never";
		cleanup_free char *line = NULL;

		format_timestamp(k->created, created);
		if (k->expires != 0)
			format_timestamp(k->expires, expires);
		line = xasprintf("%s  %-6s  %s  %-24s  %s\n", k->id, scope_name(k->scope), created, expires,
				 k->name != NULL ? k->name : "");
		r = print(line);
	}
	json_decref(all);
	return r;
}

static int revoke_key(const struct command *c, struct keys *keys, struct zw_error *e)
{
	int r = keys_revoke(keys, c->id, e);

	if (r == 0 && c->json)
		return print_json(json_pack("{s:s, s:b}", "id", c->id, "revoked", 1));
	return r;
}

static const struct verb {
	const char *name, *argument, *help;
	int (*run)(const struct command *c, struct keys *keys, struct zw_error *e);
} verbs[] = {
    {"add", NULL, "make a key and print it, this once", add},
    {"list", NULL, "id, scope, creation, expiry and name of each key", list},
    {"revoke", "ID", "end a key; holds within a second", revoke_key},
};

/* ---- Arguments. ---- */

static int help(void)
{
	cleanup_buf struct buf b = buf_new(16 * 1024);

	(void) buf_adds(&b, "usage: zwinger keys add|list|revoke [ID] [FLAG...]\n\nKeys of the HTTP interface.\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		(void) buf_addf(&b, "  %-6s %-2s          %s\n", verbs[i].name,
				verbs[i].argument != NULL ? verbs[i].argument : "", verbs[i].help);
	(void) buf_adds(&b, "\n");
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		(void) buf_addf(&b, "  %-10s %-5s   %s%s\n", flags[i].name, flags[i].value != NULL ? flags[i].value : "",
				flags[i].help, flags[i].add_only ? " (add)" : "");
	(void) buf_adds(&b, "\nSee zwinger-serve(1).\n");
	return print(b.data);
}

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

static const struct flag *find_flag(const char *word, size_t size, const struct verb *verb)
{
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (strlen(flags[i].name) == size && memcmp(flags[i].name, word, size) == 0 &&
		    (!flags[i].add_only || strcmp(verb->name, "add") == 0))
			return &flags[i];
	return NULL;
}

static int take_word(char **argv, int *at, const struct verb *verb, struct command *c, struct zw_error *e)
{
	const char *word = argv[*at], *equals = strchr(word, '=');
	cleanup_free char *shown = text_quote(word);
	const struct flag *f = find_flag(word, equals != NULL ? (size_t) (equals - word) : strlen(word), verb);

	if (f == NULL && word[0] != '-' && verb->argument != NULL && c->id == NULL) {
		c->id = word;
		return 0;
	}
	if (f == NULL)
		return zw_error(e, EINVAL, "keys %s does not know %s; see zwinger keys --help", verb->name, shown);
	if (f->value == NULL) {
		*(bool *) ((char *) c + f->offset) = true;
		return equals == NULL ? 0 : zw_error(e, EINVAL, "%s takes no value", f->name);
	}
	word = equals != NULL ? equals + 1 : argv[++*at];
	if (word == NULL)
		return zw_error(e, EINVAL, "%s needs a value: %s", f->name, f->value);
	*(const char **) ((char *) c + f->offset) = word;
	return 0;
}

static int run_in_state(const struct verb *verb, const struct command *c, struct zw_error *e)
{
	cleanup_free char *path = c->state != NULL ? xstrdup(c->state) : state_default(e);
	struct state state = {.fd = -EBADF, .lock_fd = -EBADF};
	struct store store = {0};
	struct keys keys = {0};
	int r = path != NULL ? state_open(path, &state, e) : e->code;

	if (r == 0)
		r = store_open(state.path, &store, e);
	if (r == 0)
		r = keys_open(&store, &keys, e);
	if (r == 0)
		r = verb->run(c, &keys, e);
	keys_done(&keys);
	store_done(&store);
	state_done(&state);
	return r;
}

int keys_command(int argc, char **argv)
{
	struct command c = {.scope = "create"};
	const struct verb *verb = argc > 1 ? find_verb(argv[1]) : NULL;
	struct zw_error e = {0};
	int r = 0;

	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
		return help();
	if (verb == NULL) {
		log_error("keys: expected add, list or revoke; see zwinger keys --help");
		return DAEMON_REFUSED;
	}
	for (int i = 2; i < argc && r == 0; i++)
		r = take_word(argv, &i, verb, &c, &e);
	if (r == 0 && c.help)
		return help();
	if (r == 0 && verb->argument != NULL && c.id == NULL)
		r = zw_error(&e, EINVAL, "keys %s needs an %s", verb->name, verb->argument);
	if (r == 0)
		r = run_in_state(verb, &c, &e);
	if (r >= 0)
		return r;
	log_error("%s", e.text);
	return r == -EINVAL || r == -EPERM ? DAEMON_REFUSED : DAEMON_FAILED;
}
