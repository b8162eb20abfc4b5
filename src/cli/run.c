/* zwinger run: from a command line to an exit status. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/audit.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/plan-checks.h"
#include "cli/result-file.h"
#include "cli/run-options.h"
#include "isolation/level.h"
#include "policy/policy.h"
#include "sandbox/controls.h"
#include "sandbox/plan.h"
#include "sandbox/result.h"
#include "sandbox/run.h"
#include "sandbox/terminal.h"

enum { EXIT_REFUSED = 125 };

/* What a run needs from beginning to end. */
struct run {
	struct run_options options;
	struct policy_stack *stack;
	struct policy policy;
	struct plan plan;
	bool has_policy, has_plan;
	struct result_file file;
	bool has_file;
	struct result result;
	struct run_streams streams;
	int input; /* of --stdin */
};

/* ---- From flags to a plan. ---- */

static int load_policy(struct run *run, struct policy_errors *errors)
{
	struct policy_stack *stack = run->stack;
	int r = 0;

	for (size_t i = 0; i < run->options.policy_count; i++)
		if (policy_stack_add(stack, run->options.policies[i], errors) < 0)
			r = -EINVAL;
	for (size_t i = 0; i < run->options.flag_count; i++) {
		const struct run_flag *f = &run->options.flags[i];

		if (policy_stack_add_flag(stack, f->name, f->value, errors) < 0)
			r = -EINVAL;
	}
	/* Also after a fault: all of them are told at once. */
	if (policy_stack_resolve(stack, &run->policy, errors) < 0)
		r = -EINVAL;
	else
		run->has_policy = true;
	return errors->count > 0 ? -EINVAL : r;
}

/* The terminal whose size counts: the one that is looked at. */
static int find_terminal(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (isatty(fd) == 1)
			return fd;
	return -EBADF;
}

static int make_plan(struct run *run, struct policy_errors *errors)
{
	int r = load_policy(run, errors);

	if (r < 0)
		return r;
	r = plan_check_built(&run->policy, errors);
	if (r < 0)
		return r;
	r = plan_make(&run->policy, run->options.command, &run->plan, errors);
	if (r < 0)
		return r;
	run->has_plan = true;
	r = plan_prepare_level(&run->plan, errors);
	if (r < 0)
		return r;
	if (run->options.tty) {
		uint16_t rows = 24, columns = 80;

		run->streams.tty = find_terminal();
		if (run->streams.tty >= 0)
			(void) terminal_size(run->streams.tty, &rows, &columns);
		plan_set_tty(&run->plan, rows, columns);
	}
	return 0;
}

static void refuse(struct run *run, struct policy_errors *errors)
{
	cleanup_free char *id = plan_make_id();

	policy_stack_locate(run->stack, errors);
	run->result.status = STATUS_REFUSED;
	run->result.errors = *errors;
	run->result.isolation = run->has_policy ? run->policy.isolation : ISOLATION_CONTAINER;
	run->result.captured = run->options.json;
	run->result.changes.known = true;
	(void) snprintf(run->result.id, sizeof run->result.id, "%s", run->has_plan ? run->plan.id : id != NULL ? id : "zw-");
	(void) snprintf(run->result.reason, sizeof run->result.reason, "%zu error%s in the policy; nothing was run",
			errors->count, errors->count == 1 ? "" : "s");
	*errors = (struct policy_errors){0};
}

/* ---- The run. ---- */

/* Left ignored by a shell that runs us in the background or by a careless parent: the contract is that these end the sandbox.
 * nohup's SIGHUP stays ignored. */
static void reset_signals(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGQUIT, SIGTSTP};
	struct sigaction by_default = {.sa_handler = SIG_DFL};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		(void) sigaction(numbers[i], &by_default, NULL);
}

static int open_input(struct run *run, struct zw_error *e)
{
	run->streams.in = STDIN_FILENO;
	if (run->options.input == NULL)
		return 0;
	run->input = open(run->options.input, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	if (run->input < 0)
		return zw_errno(e, errno, "cannot open %s for standard input", run->options.input);
	run->streams.in = run->input;
	return 0;
}

/* NULL *ret without one. The code inside must not be able to write its own record. */
static int open_audit(const struct run *run, struct audit **ret, struct zw_error *e)
{
	const char *path = run->plan.audit_file;

	*ret = NULL;
	if (path == NULL)
		return 0;
	if (audit_path_is_exposed(&run->plan, path))
		return zw_error(e, EACCES,
				"audit.file: %s lies in a folder that the code inside can write to; choose another place", path);
	return audit_open(path, ret, e);
}

static int start(struct run *run, struct zw_error *e)
{
	const struct isolation_ops *ops = isolation_find(run->plan.isolation);
	struct observer observer = {0};
	struct zw_error fault = {0};
	struct audit *audit = NULL;
	int r;

	if (ops == NULL)
		return zw_error(e, ENOSYS, "isolation level %s is not part of this build", isolation_name(run->plan.isolation));
	r = open_audit(run, &audit, e);
	if (r < 0)
		return r;
	if (audit != NULL)
		observer = audit_observer(audit);
	reset_signals();
	sandbox_run(&run->plan, ops, audit != NULL ? &observer : NULL, &run->streams, &run->result);
	policy_stack_locate(run->stack, &run->result.errors);
	if (audit_close(audit, &fault) < 0)
		log_error("%s", fault.text);
	return 0;
}

/* ---- What is told. ---- */

static void print_errors(const struct result *r)
{
	for (size_t i = 0; i < r->errors.count; i++) {
		cleanup_free char *text = policy_error_text(&r->errors.items[i]);

		log_error("%s", text);
	}
}

static void print_dropped(const struct result *r, const struct stream_result *s, const char *name)
{
	char limit[32];

	if (r->captured || r->status == STATUS_OUTPUT_LIMIT)
		return; /* told elsewhere */
	if (s->error != 0)
		log_line("%s: %llu bytes could not be handed on: %s", name, (unsigned long long) s->dropped, strerror(s->error));
	else if (s->dropped > 0 && r->plan != NULL && s->bytes > r->plan->limits.output)
		log_line("%s: %llu bytes over the output limit of %s were dropped", name, (unsigned long long) s->dropped,
			 format_bytes(r->plan->limits.output, limit, sizeof limit));
}

static void print_details(const struct result *r)
{
	for (size_t i = 0; i < r->step_count; i++)
		log_debug("%-28s %6llu us", r->steps[i].name, (unsigned long long) r->steps[i].took);
	for (size_t i = 0; i < CONTROL_MAX; i++)
		if (r->controls[i].mechanism != NULL)
			log_debug("%s: %s%s%s", control_name((enum control) i), r->controls[i].mechanism,
				  r->controls[i].why != NULL ? ": " : "", r->controls[i].why != NULL ? r->controls[i].why : "");
	log_debug("%s", r->reason);
}

static void print_ending(const struct result *r)
{
	const char *line = result_line(r);

	print_dropped(r, &r->out, "stdout");
	print_dropped(r, &r->err, "stderr");
	print_details(r);
	if (r->errors.count > 0)
		print_errors(r);
	else if (line != NULL && result_exit_status(r) == EXIT_REFUSED)
		log_error("%s", line);
	else if (line != NULL)
		log_line("%s", line);
}

/* Documents first: what they say must not be lost to a terminal that is gone. */
static int report(struct run *run)
{
	int status = result_exit_status(&run->result);
	struct zw_error e = {0};

	if (!run->options.verbose)
		run->result.step_count = 0;
	if (run->has_file) {
		cleanup_free char *text = result_to_json(&run->result, false);

		if (result_file_write(&run->file, text, &e) < 0) {
			log_error("%s", e.text);
			status = EXIT_REFUSED;
		}
	}
	if (run->options.json) {
		cleanup_free char *text = result_to_json(&run->result, true);
		int r = fd_write_stream(STDOUT_FILENO, text, strlen(text));

		if (r == 0)
			r = fd_write_stream(STDOUT_FILENO, "\n", 1);
		if (r < 0) {
			log_error("cannot write the result: %s", strerror(-r));
			status = EXIT_REFUSED;
		}
	}
	print_ending(&run->result);
	return status;
}

static int print_plan(const struct run *run)
{
	cleanup_free char *text = plan_to_json(&run->plan);
	int r = cli_print(text);

	return r != 0 ? r : cli_print("\n");
}

static int run_command(struct run *run)
{
	struct policy_errors errors = {0};
	struct zw_error e = {0};

	if (run->options.result != NULL) {
		if (result_file_open(run->options.result, &run->file, &e) < 0) {
			log_error("%s", e.text);
			return EXIT_REFUSED;
		}
		run->has_file = true;
	}
	if (make_plan(run, &errors) < 0 || plan_check_sources(&run->plan, &errors) < 0) {
		refuse(run, &errors);
		return report(run);
	}
	if (run->options.plan)
		return print_plan(run);
	if (run->has_file && audit_path_is_led(&run->plan, run->options.result)) {
		log_error("--result: %s leads through a link in a folder that the code inside can write to; choose another place",
			  run->options.result);
		result_file_done(&run->file);
		run->has_file = false;
		return EXIT_REFUSED;
	}
	if (open_input(run, &e) < 0 || start(run, &e) < 0) {
		policy_errors_add(&errors, NULL, 0, NULL, NULL, "%s", e.text);
		refuse(run, &errors);
	}
	return report(run);
}

static int show(const struct run_options *o)
{
	cleanup_free char *help = NULL;

	if (o->version)
		return cli_print("zwinger " ZWINGER_VERSION "\n");
	help = run_options_help();
	return cli_print(help);
}

int cli_run(int argc, char **argv)
{
	struct run run = {.input = -EBADF, .file = {.folder = -EBADF, .fd = -EBADF}};
	struct zw_error e = {0};
	int status;

	run.streams = (struct run_streams){.in = STDIN_FILENO, .out = STDOUT_FILENO, .err = STDERR_FILENO, .tty = -EBADF};
	run.stack = policy_stack_new();
	result_init(&run.result);
	if (run_options_parse(argc, argv, &run.options, &e) < 0) {
		log_error("%s", e.text);
		policy_stack_free(run.stack);
		run_options_done(&run.options);
		return EXIT_REFUSED;
	}
	if (run.options.help || run.options.version) {
		status = show(&run.options);
	} else {
		log_set_level(run.options.quiet ? LOG_QUIET : run.options.verbose ? LOG_VERBOSE : LOG_NORMAL);
		run.streams.capture = run.options.json;
		status = run_command(&run);
	}
	result_done(&run.result);
	if (run.has_plan)
		plan_done(&run.plan);
	if (run.has_policy)
		policy_done(&run.policy);
	policy_stack_free(run.stack);
	result_file_done(&run.file);
	fd_close(&run.input);
	run_options_done(&run.options);
	return status;
}
