#include "client/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "policy/text.h"

enum kind { KIND_SWITCH, KIND_TEXT, KIND_LIST };

#define AT(member) offsetof(struct client_options, member)

static const struct option {
	const char *name;
	char letter;
	enum kind kind;
	const char *value, *help;
	size_t offset;
	int verbs;
} table[] = {
    {"--template", 0, KIND_TEXT, "NAME", "the template of the sandbox", AT(template), VERB_CREATE},
    {"--policy", 'p', KIND_TEXT, "FILE", "its policy: YAML or JSON, - is standard input, @NAME a built-in one", AT(policy),
     VERB_CREATE},
    {"--name", 0, KIND_TEXT, "NAME", "a name to know it by", AT(name), VERB_CREATE},
    {"--timeout", 0, KIND_TEXT, "TIME", "how long it may live; of exec: how long the command may take", AT(timeout),
     VERB_CREATE | VERB_EXEC | VERB_FORK},
    {"--on-timeout", 0, KIND_TEXT, "kill|pause", "what happens then", AT(on_timeout), VERB_CREATE},
    {"--metadata", 0, KIND_LIST, "KEY=VALUE", "a note on it, or of ps: only those with it (repeatable)", AT(metadata),
     VERB_CREATE | VERB_PS},
    {"--env", 'e', KIND_LIST, "NAME=VALUE", "a variable of the environment inside (repeatable)", AT(env),
     VERB_CREATE | VERB_EXEC},
    {"--count", 0, KIND_TEXT, "N", "how many", AT(count), VERB_FORK},
    {"--interactive", 'i', KIND_SWITCH, NULL, "pass standard input on", AT(interactive), VERB_EXEC},
    {"--tty", 't', KIND_SWITCH, NULL, "give the command a terminal of its own", AT(tty), VERB_EXEC},
    {"--cwd", 0, KIND_TEXT, "DIR", "the working directory inside", AT(cwd), VERB_EXEC},
    {"--user", 'u', KIND_TEXT, "USER", "the user inside", AT(user), VERB_EXEC | VERB_CP},
    {"--all", 'a', KIND_SWITCH, NULL, "also those that have ended", AT(all), VERB_PS},
    {"--follow", 'f', KIND_SWITCH, NULL, "stay, and print what comes", AT(follow), VERB_LOGS},
    {"--signal", 's', KIND_TEXT, "SIGNAL", "which signal (TERM)", AT(signal), VERB_KILL},
    {"--url", 0, KIND_TEXT, "URL", "where the daemon is: http://, https:// or unix:PATH", AT(url), VERB_ALL},
    {"--key-file", 0, KIND_TEXT, "FILE", "a file with the key, or what serve --print-key-file wrote", AT(key_file), VERB_ALL},
    {"--state", 0, KIND_TEXT, "DIR", "the state directory of a daemon on this host", AT(state), VERB_ALL},
    {"--cacert", 0, KIND_TEXT, "FILE", "the certificate to trust for https", AT(cacert), VERB_ALL},
    {"--json", 0, KIND_SWITCH, NULL, "print what the daemon says as JSON", AT(json), VERB_ALL & ~VERB_MCP},
    {"--help", 'h', KIND_SWITCH, NULL, "this text", AT(help), VERB_ALL},
    {"--version", 0, KIND_SWITCH, NULL, "the version", AT(version), VERB_ALL},
};

static const struct option *find(const struct client_verb *verb, const char *word, size_t size)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const struct option *o = &table[i];

		if ((o->verbs & (int) verb->bit) == 0)
			continue;
		if (word[1] == '-' ? strlen(o->name) == size && strncmp(o->name, word, size) == 0 : o->letter == word[1])
			return o;
	}
	return NULL;
}

static int unknown(const struct client_verb *verb, const char *word, size_t size, struct zw_error *e)
{
	cleanup_free char *name = xstrndup(word, size);
	cleanup_free char *shown = text_quote(name);
	struct nearest n = nearest_to(name);

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if ((table[i].verbs & (int) verb->bit) != 0)
			nearest_try(&n, table[i].name);
	if (n.best != NULL)
		return zw_error(e, EINVAL, "there is no flag %s (did you mean \"%s\"?); see zwinger %s --help", shown, n.best,
				verb->name);
	return zw_error(e, EINVAL, "there is no flag %s; see zwinger %s --help", shown, verb->name);
}

static void apply(struct client_options *o, const struct option *option, char *value)
{
	void *at = (char *) o + option->offset;

	if (option->kind == KIND_SWITCH) {
		*(bool *) at = true;
	} else if (option->kind == KIND_TEXT) {
		*(const char **) at = value;
	} else {
		struct strv *list = at;

		list->items = xrealloc(list->items, list->count + 1, sizeof *list->items);
		list->items[list->count++] = value;
	}
}

/* "-it" is "-i -t"; "-sKILL" is not offered, "-s KILL" is. */
static int read_letters(const struct client_verb *verb, char **argv, int *at, struct client_options *o, struct zw_error *e)
{
	const char *word = argv[*at];

	for (size_t i = 1; word[i] != '\0'; i++) {
		const char letter[] = {'-', word[i], '\0'};
		const struct option *option = find(verb, letter, 2);
		char *value = NULL;

		if (option == NULL)
			return unknown(verb, letter, 2, e);
		if (option->kind != KIND_SWITCH) {
			value = word[i + 1] == '\0' ? argv[*at + 1] : NULL;
			if (value == NULL)
				return zw_error(e, EINVAL, "-%c needs a value: %s", word[i], option->value);
			(*at)++;
		}
		apply(o, option, value);
	}
	return 0;
}

static int read_long(const struct client_verb *verb, char **argv, int *at, struct client_options *o, struct zw_error *e)
{
	char *word = argv[*at], *equals = strchr(word, '='), *value = equals != NULL ? equals + 1 : NULL;
	size_t size = equals != NULL ? (size_t) (equals - word) : strlen(word);
	const struct option *option = find(verb, word, size);

	if (option == NULL)
		return unknown(verb, word, size, e);
	if (option->kind == KIND_SWITCH && value != NULL)
		return zw_error(e, EINVAL, "%s takes no value", option->name);
	if (option->kind != KIND_SWITCH && value == NULL) {
		value = argv[*at + 1];
		if (value == NULL)
			return zw_error(e, EINVAL, "%s needs a value: %s", option->name, option->value);
		(*at)++;
	}
	apply(o, option, value);
	return 0;
}

int client_options_read(const struct client_verb *verb, int argc, char **argv, struct client_options *ret, struct zw_error *e)
{
	size_t before = 0; /* words among the options */
	int at = 1, r = 0;

	ret->words = xcalloc((size_t) argc + 1, sizeof *ret->words);
	for (; at < argc && r == 0; at++) {
		if (strcmp(argv[at], "--") == 0) {
			at++;
			break;
		}
		if (argv[at][0] == '-' && argv[at][1] == '-')
			r = read_long(verb, argv, &at, ret, e);
		else if (argv[at][0] == '-' && argv[at][1] != '\0')
			r = read_letters(verb, argv, &at, ret, e);
		else if (verb->command && before > 0)
			break; /* the first is the sandbox, the second begins the command */
		else
			ret->words[before++] = argv[at];
	}
	for (; at < argc && r == 0; at++)
		ret->words[before++] = argv[at];
	ret->word_count = before;
	if (r < 0 || ret->help || ret->version)
		return r;
	if (before < verb->words_min || before > verb->words_max)
		return zw_error(e, EINVAL, "expected: zwinger %s %s", verb->name, verb->usage);
	return 0;
}

void client_options_done(struct client_options *o)
{
	free(o->metadata.items);
	free(o->env.items);
	free(o->words);
	*o = (struct client_options){0};
}

char *client_options_help(const struct client_verb *verb)
{
	struct buf b = buf_new(64 * 1024);

	(void) buf_addf(&b, "usage: zwinger %s %s\n\n%s\n\n", verb->name, verb->usage, verb->help);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const struct option *o = &table[i];
		char letter[] = {'-', o->letter, ',', ' ', '\0'};
		cleanup_free char *flag =
		    xasprintf("%s%s %s", o->letter != 0 ? letter : "    ", o->name, o->value != NULL ? o->value : "");

		if ((o->verbs & (int) verb->bit) != 0)
			(void) buf_addf(&b, "  %-30s %s\n", flag, o->help);
	}
	(void) buf_adds(&b, "\nWithout --url the daemon is that of ZWINGER_URL (key: ZWINGER_KEY), else the one of --state.\nSee "
			    "zwinger-client(1).\n");
	return b.data;
}
