/* zwinger policy: look at a policy without running anything. */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "policy/policy.h"
#include "policy/text.h"

enum { EXIT_REFUSED = 125 };

static const char usage[] = "usage: zwinger policy check [--json] FILE...\n"
			    "       zwinger policy explain FILE...\n"
			    "       zwinger policy presets [NAME]\n"
			    "       zwinger policy keys\n"
			    "\n"
			    "check    each file alone: prints every error with file, line and key; exits 0 when all\n"
			    "         are valid (and lists what they use that this build does not have yet), else 125\n"
			    "explain  what the code will be able to read, write, reach and use, the files merged in\n"
			    "         the order given\n"
			    "presets  the built-in policies; with a name, its text\n"
			    "keys     every key with its default and its flag of zwinger run\n"
			    "\n"
			    "FILE is YAML or JSON; - is standard input, @NAME a built-in policy.\n"
			    "See zwinger-policy(1).\n";

static int print(const char *text)
{
	if (fputs(text, stdout) < 0 || fflush(stdout) != 0) {
		log_error("cannot write to standard output: %s", strerror(errno));
		return EXIT_REFUSED;
	}
	return 0;
}

static void print_errors(const struct policy_errors *errors)
{
	for (size_t i = 0; i < errors->count; i++) {
		cleanup_free char *text = policy_error_text(&errors->items[i]);

		log_error("%s", text);
	}
}

/* Reads files into a policy, later ones on top; 0 or -EINVAL with entries in `errors`. */
static int load(char *const *files, int count, struct policy *ret, struct policy_errors *errors)
{
	struct policy_stack *stack = policy_stack_new();
	bool usable = true;
	int r;

	for (int i = 0; i < count; i++)
		if (policy_stack_add(stack, files[i], errors) < 0)
			usable = false;
	r = usable ? policy_stack_resolve(stack, ret, errors) : -EINVAL;
	policy_stack_free(stack);
	return r;
}

/* At least one, and none of them a flag that was misspelt or stands too late. */
static bool are_files(const char *verb, int argc, char *const *argv)
{
	if (argc == 0)
		log_error("policy %s: expected a file; see zwinger policy --help", verb);
	for (int i = 0; i < argc; i++)
		if (argv[i][0] == '-' && argv[i][1] != '\0') {
			cleanup_free char *word = text_quote(argv[i]);

			log_error("policy %s: expected a file, got the flag %s; see zwinger policy --help", verb, word);
			return false;
		}
	return argc > 0;
}

/* ---- Check. ---- */

struct check {
	bool json;
	const char *file;
	json_t *files;   /* the documents of --json */
	json_t *unbuilt; /* of the file at hand */
};

static void note_unbuilt(void *ctx, const char *key, const char *sentence)
{
	struct check *c = ctx;

	if (c->json)
		(void) json_array_append_new(c->unbuilt, json_pack("{s:s,s:s}", "key", key, "message", sentence));
	else
		(void) printf("%s: %s: %s\n", c->file, key, sentence);
}

static json_t *errors_to_json(const struct policy_errors *errors)
{
	json_t *list = json_array();

	for (size_t i = 0; i < errors->count; i++) {
		const struct policy_error *e = &errors->items[i];
		json_t *line = e->line > 0 ? json_integer(e->line) : json_null();

		(void) json_array_append_new(list, json_pack("{s:s?,s:o,s:s?,s:s,s:s?}", "file", e->file, "line", line, "key",
							     e->key, "message", e->message, "suggestion", e->suggestion));
	}
	return list;
}

static bool check_file(struct check *c, char *file)
{
	cleanup_free char *label = text_escape(file, 4096); /* a name may hold bytes that JSON and terminals do not take */
	struct policy_errors errors = {0};
	struct policy policy;
	bool valid;

	c->file = label;
	c->unbuilt = json_array();
	valid = load(&file, 1, &policy, &errors) == 0;
	if (valid) {
		if (!c->json)
			(void) printf("%s: valid\n", label);
		(void) policy_unbuilt(&policy, note_unbuilt, c);
		policy_done(&policy);
	}
	if (c->json)
		(void) json_array_append_new(c->files, json_pack("{s:s,s:b,s:o,s:O}", "file", label, "valid", valid, "errors",
								 errors_to_json(&errors), "unbuilt", c->unbuilt));
	else
		print_errors(&errors);
	json_decref(c->unbuilt);
	policy_errors_done(&errors);
	return valid;
}

static int print_document(json_t *files, bool valid)
{
	json_t *document = json_pack("{s:s,s:b,s:O}", "schema", "zwinger.policy-check/1", "valid", valid, "files", files);
	cleanup_free char *text = json_dumps(document, JSON_INDENT(2));
	cleanup_free char *lines = xasprintf("%s\n", text != NULL ? text : "");

	json_decref(document);
	return print(lines);
}

static int check(int argc, char **argv)
{
	struct check c = {0};
	bool valid = true;
	int r;

	if (argc > 0 && strcmp(argv[0], "--json") == 0) {
		c.json = true;
		argc--;
		argv++;
	}
	if (!are_files("check", argc, argv))
		return EXIT_REFUSED;
	c.files = json_array();
	for (int i = 0; i < argc; i++)
		valid = check_file(&c, argv[i]) && valid;
	r = c.json ? print_document(c.files, valid) : print("");
	json_decref(c.files);
	return r != 0 || valid ? r : EXIT_REFUSED;
}

/* ---- Explain, presets, keys. ---- */

static int explain(int argc, char **argv)
{
	struct policy_errors errors = {0};
	struct policy policy;
	int r = EXIT_REFUSED;

	if (!are_files("explain", argc, argv))
		return EXIT_REFUSED;
	if (load(argv, argc, &policy, &errors) == 0) {
		cleanup_free char *text = policy_explain(&policy);

		r = print(text);
		policy_done(&policy);
	}
	print_errors(&errors);
	policy_errors_done(&errors);
	return r;
}

static int presets(int argc, char **argv)
{
	size_t count;
	const struct policy_preset *p = policy_presets(&count);

	for (size_t i = 0; i < count && argc == 0; i++)
		(void) printf("%-16s %s\n", p[i].name, p[i].summary);
	for (size_t i = 0; i < count && argc > 0; i++)
		if (strcmp(p[i].name + (argv[0][0] == '@' ? 0 : 1), argv[0]) == 0)
			return print(p[i].text);
	if (argc > 0) {
		log_error("policy presets: there is no built-in policy \"%s\" (zwinger policy presets lists them)", argv[0]);
		return EXIT_REFUSED;
	}
	return print("");
}

static int keys(int argc, char **argv)
{
	struct policy_key k;

	(void) argc;
	(void) argv;
	for (size_t i = 0; policy_key_at(i, &k); i++)
		(void) printf("%s\t%s\t%s\t%s\t%s\n", k.key, k.type, k.def != NULL ? k.def : "-", k.flag != NULL ? k.flag : "-",
			      k.help);
	return print("");
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {{"check", check}, {"explain", explain}, {"presets", presets}, {"keys", keys}};

int cli_policy(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return print(usage);
	if (argc < 2) {
		log_error("policy: expected check, explain, presets or keys; see zwinger policy --help");
		return EXIT_REFUSED;
	}
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(verbs[i].name, argv[1]) == 0)
			return verbs[i].run(argc - 2, argv + 2);
	log_error("policy: unknown verb \"%s\"; expected check, explain, presets or keys", argv[1]);
	return EXIT_REFUSED;
}
