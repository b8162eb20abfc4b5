/* zwinger doctor: what this host can enforce, level by level, with the remedy for each lack. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/doctor-checks.h"
#include "isolation/level.h"
#include "isolation/notes.h"
#include "policy/policy.h"
#include "sandbox/result.h"
#include "sandbox/run.h"

struct level_report {
	enum isolation_level level;
	bool works;
	struct result result;
};

/* Runs /bin/true at the level with the default policy, best-effort, so that every lack is named. */
static void try_level(enum isolation_level level, struct level_report *ret)
{
	static char command[] = "/bin/true";
	char *argv[] = {command, NULL};
	struct policy_stack *stack = policy_stack_new();
	struct policy_errors errors = {0};
	struct policy policy = {0};
	struct plan plan = {.root_fd = -EBADF};
	cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const struct run_streams streams = {.in = -EBADF, .out = null, .err = null, .tty = -EBADF};

	*ret = (struct level_report){.level = level};
	result_init(&ret->result);
	if (policy_stack_add_flag(stack, "--isolation", isolation_name(level), &errors) == 0 &&
	    policy_stack_add_flag(stack, "--best-effort", NULL, &errors) == 0 &&
	    policy_stack_resolve(stack, &policy, &errors) == 0) {
		if (plan_make(&policy, argv, &plan, &errors) == 0) {
			const struct isolation_ops *ops = isolation_find(level);
			struct zw_error e = {0};

			if (ops->prepare != NULL && ops->prepare(&plan, &e) < 0) {
				policy_errors_add(&errors, NULL, 0, NULL, NULL, "%s", e.text);
			} else {
				sandbox_run(&plan, ops, NULL, &streams, &ret->result);
				ret->works = result_exit_status(&ret->result) == 0;
			}
			ret->result.plan = NULL;
			plan_done(&plan);
		}
		policy_done(&policy);
	}
	if (errors.count > 0)
		(void) snprintf(ret->result.reason, sizeof ret->result.reason, "%s", errors.items[0].message);
	policy_errors_done(&errors);
	policy_stack_free(stack);
}

/* Words in lines of at most 100 columns, each behind `indent`. */
static void print_wrapped(const char *text, const char *indent)
{
	size_t column = 0;

	while (*text != '\0') {
		size_t n = strcspn(text, " ");

		if (column + n > 100 && column > 0) {
			(void) putchar('\n');
			column = 0;
		}
		column += (size_t) printf("%s%.*s", column == 0 ? indent : " ", (int) n, text);
		text += n;
		text += *text == ' ';
	}
	(void) putchar('\n');
}

/* What each means of the process level leaves open, which the container level does not. */
static void print_open(void)
{
	size_t count;
	const struct isolation_note *notes = isolation_process_notes(&count);

	(void) printf("  what this level leaves open:\n");
	for (size_t i = 0; i < count; i++) {
		if (notes[i].leaves[0] == '\0')
			continue;
		(void) printf("  %s\n", control_name(notes[i].control));
		print_wrapped(notes[i].leaves, "      ");
	}
}

static void print_level(const struct level_report *r)
{
	(void) printf("\nlevel %-12s %s%s%s\n", isolation_name(r->level), r->works ? "works" : "DOES NOT WORK",
		      r->works ? "" : ": ", r->works ? "" : r->result.reason);
	if (!r->works)
		return;
	for (size_t i = 0; i < CONTROL_MAX; i++) {
		const struct control_state *c = &r->result.controls[i];

		if (c->mechanism == NULL)
			continue;
		(void) printf("  %-14s %s", control_name((enum control) i), c->mechanism);
		(void) printf("%s%s\n", c->why != NULL ? ": " : "", c->why != NULL ? c->why : "");
	}
	if (r->level == ISOLATION_PROCESS)
		print_open();
}

static json_t *level_to_json(const struct level_report *r)
{
	json_t *controls = json_object(), *lacks = json_array();

	for (size_t i = 0; i < CONTROL_MAX; i++) {
		const struct control_state *c = &r->result.controls[i];

		if (c->mechanism == NULL)
			continue;
		(void) json_object_set_new(controls, control_name((enum control) i), json_string(c->mechanism));
		if (c->why != NULL)
			(void) json_array_append_new(
			    lacks, json_pack("{ss ss}", "control", control_name((enum control) i), "why", c->why));
	}
	return json_pack("{ss sb ss so so}", "level", isolation_name(r->level), "works", (int) r->works, "reason",
			 r->result.reason, "enforcement", controls, "not_enforced", lacks);
}

static int run_checks(json_t *list, bool json)
{
	int lacks = 0;

	for (size_t i = 0; i < doctor_check_count; i++) {
		const struct doctor_check *c = &doctor_checks[i];
		struct zw_error e = {0};
		bool ok;

		if (c->applies != NULL && !c->applies())
			continue;
		ok = doctor_try(c, &e) == 0;
		lacks += !ok;
		(void) json_array_append_new(list, json_pack("{ss ss sb sb ss? ss?}", "check", c->name, "serves", c->serves, "ok",
							     (int) ok, "required", (int) c->required, "found", ok ? NULL : e.text,
							     "remedy", ok ? NULL : c->remedy));
		if (json)
			continue;
		(void) printf("  %-6s%-20s %s\n", ok ? "ok" : "lacks", c->name, c->serves);
		if (!ok)
			(void) printf("        %s\n        remedy: %s\n", e.text, c->remedy);
	}
	return lacks;
}

static int diagnose(bool json)
{
	static const enum isolation_level levels[] = {ISOLATION_CONTAINER, ISOLATION_PROCESS};
	static const enum isolation_level later[] = {ISOLATION_GVISOR, ISOLATION_MICROVM, ISOLATION_WASM};
	json_t *checks = json_array(), *reports = json_array();
	struct utsname host;
	bool works = true;

	(void) uname(&host);
	if (!json)
		(void) printf("zwinger %s on %s %s %s, as %s\n\nwhat was tried:\n", ZWINGER_VERSION, host.sysname, host.release,
			      host.machine, geteuid() == 0 ? "root" : "an ordinary user");
	(void) run_checks(checks, json);
	(void) fflush(stdout);
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
		struct level_report report;

		try_level(levels[i], &report);
		if (levels[i] == ISOLATION_CONTAINER)
			works = report.works;
		(void) json_array_append_new(reports, level_to_json(&report));
		if (!json)
			print_level(&report);
		result_done(&report.result);
	}
	for (size_t i = 0; i < ARRAY_SIZE(later); i++)
		if (!json)
			(void) printf("\nlevel %-12s not built yet\n", isolation_name(later[i]));
	if (json) {
		json_t *document = json_pack("{ss ss ss sO sO}", "schema", "zwinger.doctor/1", "version", ZWINGER_VERSION,
					     "kernel", host.release, "checks", checks, "levels", reports);

		(void) json_dumpf(document, stdout, JSON_INDENT(2));
		(void) fputc('\n', stdout);
		json_decref(document);
	}
	json_decref(checks);
	json_decref(reports);
	return works ? 0 : 1;
}

/* The probes lie beside the program: in the build tree, or below PREFIX/lib/zwinger. */
static char *find_battery(const char *self)
{
	static const char *const places[] = {"../lib/zwinger/boundary/battery.sh", "../../lib/zwinger/boundary/battery.sh"};
	cleanup_free char *folder = xstrdup(self);
	char *slash = strrchr(folder, '/');

	if (slash == NULL)
		return NULL;
	*slash = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char *path = xasprintf("%s/%s", folder, places[i]);
		struct stat st;

		if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
			return path;
		free(path);
	}
	return NULL;
}

/* A growing argument vector; the strings are never freed, the program becomes another. */
struct args {
	char **items;
	size_t count;
};

static void add_arg(struct args *a, char *text)
{
	a->items = xrealloc(a->items, a->count + 2, sizeof *a->items);
	a->items[a->count++] = text;
	a->items[a->count] = NULL;
}

/* The resource probes stop by themselves at caps; a limit holds when it stops them earlier. So each cap lies a little above its
 * limit; without a limit the probes' own cap stays, and what reaches it fails. */
static void add_cap(struct args *a, const char *name, uint64_t limit, uint64_t unit, uint64_t above)
{
	if (limit == ZW_UNLIMITED)
		return;
	add_arg(a, xstrdup("-c"));
	add_arg(a, xasprintf("%s=%llu", name, (unsigned long long) ((limit + unit - 1) / unit + above)));
}

static void add_caps(struct args *a, const struct policy *p)
{
	uint64_t disk = p->limits.disk;

	if (p->filesystem.scratch.size > disk)
		disk = p->filesystem.scratch.size;
	add_cap(a, "mem_cap", p->limits.memory, 1 << 20, 88);
	add_cap(a, "proc_cap", p->limits.processes, 1, 44);
	add_cap(a, "disk_cap", disk, 1 << 20, 88);
	add_cap(a, "inode_cap", p->filesystem.scratch.inodes, 1, 1000);
	add_cap(a, "flood_cap", p->limits.output, 1 << 20, 8);
	add_cap(a, "fd_cap", p->limits.open_files, 1, 100);
	if (p->limits.cpu_time == ZW_UNLIMITED || p->limits.cpu_time > 120 * USEC_PER_SEC)
		return;
	add_cap(a, "cpu_cap", p->limits.cpu_time, USEC_PER_SEC, 2);
	add_arg(a, xstrdup("-t"));
	add_arg(a, xasprintf("%llu", (unsigned long long) (p->limits.cpu_time / USEC_PER_SEC + 20)));
}

/* The default policy has no limit for what is written to the caller's folders, and the probes write there. */
#define DEFAULT_DISK "200M"

/* The probes are started from another folder. */
static char *absolute(const char *policy)
{
	cleanup_free char *cwd = policy[0] == '@' || policy[0] == '/' ? NULL : getcwd(NULL, 0);

	return cwd != NULL ? xasprintf("%s/%s", cwd, policy) : xstrdup(policy);
}

/* The policies as `zwinger run` would merge them; their faults are printed. */
static int resolve_policies(char *const *policies, size_t count, struct policy *ret)
{
	struct policy_stack *stack = policy_stack_new();
	struct policy_errors errors = {0};
	int r = count == 0 ? policy_stack_add_flag(stack, "--disk", DEFAULT_DISK, &errors) : 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = policy_stack_add(stack, policies[i], &errors);
	if (r == 0)
		r = policy_stack_resolve(stack, ret, &errors);
	for (size_t i = 0; i < errors.count; i++) {
		cleanup_free char *text = policy_error_text(&errors.items[i]);

		log_error("%s", text);
	}
	policy_errors_done(&errors);
	policy_stack_free(stack);
	return r;
}

/* Runs the boundary probes inside a sandbox of the given policies. */
static int run_boundary(char *const *policies, size_t count, bool all)
{
	static const char *const places[] = {"-B", "-b", "/in", "-o", "/out"};
	static const char *const levels[] = {"-l", "core", "-l", "hard"};
	static const char *const mounts[] = {"--ro", "{BIN}:/in", "--rw", "{OUT}:/out", "--"};
	struct args a = {0};
	struct policy policy;
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *battery;

	if (n <= 0) {
		log_error("cannot find the path of this program: %s", strerror(errno));
		return 125;
	}
	self[n] = '\0';
	battery = find_battery(self);
	if (battery == NULL) {
		log_error("the boundary probes are not installed beside %s: run `make install`, or use the build tree", self);
		return 125;
	}
	if (resolve_policies(policies, count, &policy) < 0)
		return 125;
	add_arg(&a, battery);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		add_arg(&a, xstrdup(places[i]));
	for (size_t i = 0; i < ARRAY_SIZE(levels) && !all; i++)
		add_arg(&a, xstrdup(levels[i]));
	add_caps(&a, &policy);
	policy_done(&policy);
	add_arg(&a, xstrdup("--"));
	add_arg(&a, self);
	add_arg(&a, xstrdup("run"));
	for (size_t i = 0; i < count; i++) {
		add_arg(&a, xstrdup("--policy"));
		add_arg(&a, absolute(policies[i]));
	}
	if (count == 0) {
		add_arg(&a, xstrdup("--disk"));
		add_arg(&a, xstrdup(DEFAULT_DISK));
	}
	for (size_t i = 0; i < ARRAY_SIZE(mounts); i++)
		add_arg(&a, xstrdup(mounts[i]));
	(void) execv(battery, a.items);
	log_error("cannot run %s: %s", battery, strerror(errno));
	return 125;
}

static const char usage[] =
    "usage: zwinger doctor [--json]\n"
    "       zwinger doctor --boundary [--all] [--policy FILE]...\n"
    "\n"
    "Says what this host can enforce, level by level, by trying it, with the remedy for each lack.\n"
    "\n"
    "  --json           one JSON document (schema zwinger.doctor/1)\n"
    "  --boundary       attack a sandbox of your own policy: runs the boundary probes inside and prints a verdict a line\n"
    "  --all            also the probes of what a policy may well allow (running what was written, files that host tools obey)\n"
    "  --policy FILE    the policy to attack (repeatable; default: the default policy with a disk limit of 200M)\n"
    "  --help           this text\n"
    "\n"
    "Exit status: 0 when the container level works with the default policy (with --boundary: when no probe failed), 1 when not,\n"
    "2 when the probes cannot be run, 125 for a wrong flag or policy.\n";

int cli_doctor(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {"boundary", no_argument, NULL, 'b'},
						{"all", no_argument, NULL, 'a'},  {"policy", required_argument, NULL, 'p'},
						{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	cleanup_free char **policies = xcalloc((size_t) argc + 1, sizeof *policies);
	size_t count = 0;
	bool json = false, boundary = false, all = false;

	opterr = 0;
	for (;;) {
		int c = getopt_long(argc, argv, ":h", options, NULL);

		if (c < 0)
			break;
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'b':
			boundary = true;
			break;
		case 'a':
			all = true;
			break;
		case 'p':
			policies[count++] = optarg;
			break;
		case 'h':
			(void) fputs(usage, stdout);
			return 0;
		case ':':
			log_error("doctor: %s needs a value: FILE", argv[optind - 1]);
			return 125;
		default:
			log_error("doctor: wrong flag %s; see zwinger doctor --help", argv[optind - 1]);
			return 125;
		}
	}
	if (optind < argc || ((count > 0 || all) && !boundary)) {
		log_error("doctor: %s; see zwinger doctor --help", optind < argc ? "takes no argument"
								   : all         ? "--all needs --boundary"
										 : "--policy needs --boundary");
		return 125;
	}
	if (json && boundary) {
		log_error("doctor: --json and --boundary exclude each other");
		return 125;
	}
	for (size_t i = 0; i < count; i++)
		if (strcmp(policies[i], "-") == 0) {
			log_error("doctor: every probe reads the policy again: give a file, not standard input");
			return 125;
		}
	return boundary ? run_boundary(policies, count, all) : diagnose(json);
}
