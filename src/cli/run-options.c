#include "cli/run-options.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "policy/policy.h"
#include "policy/text.h"

/* Flags of the run itself. `apply` gets NULL for a flag without a value. */
static const struct own_flag {
	const char *name;
	char letter;
	const char *value, *help;
	void (*apply)(struct run_options *o, const char *value);
} own_flags[];

static void add_policy(struct run_options *o, const char *value)
{
	o->policies = xrealloc(o->policies, o->policy_count + 1, sizeof *o->policies);
	o->policies[o->policy_count++] = value;
}

static void set_input(struct run_options *o, const char *value)
{
	o->input = value;
}

static void set_result(struct run_options *o, const char *value)
{
	o->result = value;
}

#define SWITCH(member)                                                                                                           \
	static void set_##member(struct run_options *o, const char *value)                                                       \
	{                                                                                                                        \
		(void) value;                                                                                                    \
		o->member = true;                                                                                                \
	}
SWITCH(tty)
SWITCH(json)
SWITCH(plan)
SWITCH(quiet)
SWITCH(verbose)
SWITCH(help)
SWITCH(version)

static const struct own_flag own_flags[] = {
    {"--policy", 'p', "FILE", "YAML or JSON; - is standard input, @NAME a built-in policy (repeatable)", add_policy},
    {"--tty", 't', NULL, "give the program a terminal of its own", set_tty},
    {"--stdin", 0, "FILE", "read standard input from FILE, not from the caller", set_input},
    {"--json", 0, NULL, "capture the output, print one result document", set_json},
    {"--result", 0, "FILE", "write the result document to FILE", set_result},
    {"--plan", 0, NULL, "print the resolved plan as JSON and run nothing", set_plan},
    {"--quiet", 'q', NULL, "print nothing about the ending", set_quiet},
    {"--verbose", 'v', NULL, "print the steps of the start and what holds each limit", set_verbose},
    {"--help", 'h', NULL, "this text", set_help},
    {"--version", 0, NULL, "the version", set_version},
};

/* A flag of either table. */
struct found_flag {
	const struct own_flag *own;
	const struct policy_flag *policy;
	const char *value_name; /* NULL: takes none */
};

static bool find_flag(const char *name, size_t size, char letter, struct found_flag *ret)
{
	size_t count;
	const struct policy_flag *flags = policy_flags(&count);

	for (size_t i = 0; i < ARRAY_SIZE(own_flags); i++) {
		const struct own_flag *f = &own_flags[i];

		if (letter != 0 ? f->letter == letter : strlen(f->name) == size && strncmp(f->name, name, size) == 0) {
			*ret = (struct found_flag){.own = f, .value_name = f->value};
			return true;
		}
	}
	for (size_t i = 0; i < count; i++)
		if (letter != 0 ? flags[i].letter == letter
				: strlen(flags[i].name) == size && strncmp(flags[i].name, name, size) == 0) {
			*ret = (struct found_flag){.policy = &flags[i], .value_name = flags[i].value};
			return true;
		}
	return false;
}

static int unknown_flag(const char *name, size_t size, struct zw_error *e)
{
	cleanup_free char *word = xstrndup(name, size);
	cleanup_free char *shown = text_quote(word);
	struct nearest n = nearest_to(word);
	size_t count;
	const struct policy_flag *flags = policy_flags(&count);

	for (size_t i = 0; i < ARRAY_SIZE(own_flags); i++)
		nearest_try(&n, own_flags[i].name);
	for (size_t i = 0; i < count; i++)
		nearest_try(&n, flags[i].name);
	if (n.best != NULL)
		return zw_error(e, EINVAL, "there is no flag %s (did you mean \"%s\"?); see zwinger run --help", shown, n.best);
	return zw_error(e, EINVAL, "there is no flag %s; see zwinger run --help", shown);
}

static void apply_flag(struct run_options *o, const struct found_flag *f, const char *value)
{
	if (f->own != NULL) {
		f->own->apply(o, value);
		return;
	}
	o->flags = xrealloc(o->flags, o->flag_count + 1, sizeof *o->flags);
	o->flags[o->flag_count++] = (struct run_flag){.name = f->policy->name, .value = value};
}

/* One flag at argv[*at], which is moved to its last word. "--name=value", "--name value", "-l value". */
static int parse_flag(int argc, char **argv, int *at, struct run_options *o, struct zw_error *e)
{
	const char *word = argv[*at], *equals = strchr(word, '='), *value = NULL;
	bool is_long = word[1] == '-';
	size_t size = is_long && equals != NULL ? (size_t) (equals - word) : strlen(word);
	struct found_flag f;

	if (!is_long && size != 2)
		return unknown_flag(word, size, e);
	if (!find_flag(word, size, is_long ? 0 : word[1], &f))
		return unknown_flag(word, size, e);
	if (is_long && equals != NULL)
		value = equals + 1;
	if (f.value_name == NULL && value != NULL)
		return zw_error(e, EINVAL, "%.*s takes no value", (int) size, word);
	if (f.value_name != NULL && value == NULL) {
		if (*at + 1 >= argc)
			return zw_error(e, EINVAL, "%.*s needs a value: %s", (int) size, word, f.value_name);
		value = argv[++*at];
	}
	apply_flag(o, &f, value);
	return 0;
}

int run_options_parse(int argc, char **argv, struct run_options *ret, struct zw_error *e)
{
	int at = 1;

	*ret = (struct run_options){0};
	for (; at < argc; at++) {
		int r;

		if (strcmp(argv[at], "--") == 0) {
			at++;
			break;
		}
		if (argv[at][0] != '-' || argv[at][1] == '\0')
			break;
		r = parse_flag(argc, argv, &at, ret, e);
		if (r < 0)
			return r;
	}
	if (at < argc)
		ret->command = argv + at;
	if (ret->help || ret->version)
		return 0;
	if (ret->quiet && ret->verbose)
		return zw_error(e, EINVAL, "--quiet and --verbose exclude each other");
	if (ret->command == NULL)
		return zw_error(e, EINVAL, "no command given: zwinger run [flags] [--] COMMAND [ARG...]");
	return 0;
}

void run_options_done(struct run_options *o)
{
	free(o->policies);
	free(o->flags);
	*o = (struct run_options){0};
}

static void help_line(struct buf *text, const char *name, char letter, const char *value, const char *help)
{
	cleanup_free char *head = NULL;

	if (letter != 0)
		head = xasprintf("-%c, %s%s%s", letter, name, value != NULL ? " " : "", value != NULL ? value : "");
	else
		head = xasprintf("    %s%s%s", name, value != NULL ? " " : "", value != NULL ? value : "");
	if (strlen(head) > 30)
		(void) buf_addf(text, "  %s\n  %30s %s\n", head, "", help);
	else
		(void) buf_addf(text, "  %-30s %s\n", head, help);
}

char *run_options_help(void)
{
	struct buf text = buf_new(SIZE_MAX / 2);
	size_t count;
	const struct policy_flag *flags = policy_flags(&count);

	(void) buf_adds(&text,
			"usage: zwinger run [--policy FILE]... [flags] [--] COMMAND [ARG...]\n\n"
			"Runs COMMAND inside a sandbox: no network, no host files but a read-only system, limits on time,\n"
			"memory, processes and output. Exits as COMMAND does; 128+N killed by signal N; 124 time limit;\n"
			"137 out of memory; 122 output limit; 125 nothing was run; 126 not executable; 127 not found.\n\n"
			"The run:\n");
	for (size_t i = 0; i < ARRAY_SIZE(own_flags); i++)
		help_line(&text, own_flags[i].name, own_flags[i].letter, own_flags[i].value, own_flags[i].help);
	(void) buf_adds(&text, "\nThe policy (flags override files; later files override earlier ones):\n");
	for (size_t i = 0; i < count; i++)
		help_line(&text, flags[i].name, flags[i].letter, flags[i].value, flags[i].help);
	(void) buf_adds(&text, "\nSizes take K M G (1024), times ms s m h. See zwinger-run(1).\n"
			       "Not built yet, and refused: workspaces in mode cow (the default: say DIR:rw or\n"
			       "DIR:ro), images, and the levels gvisor, microvm and wasm.\n");
	return text.data;
}
