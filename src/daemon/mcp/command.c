/* `zwinger mcp`: MCP on standard input and output. Without --url it is a daemon of its own without any listener, whose state is a
 * temporary directory; with it a client of one (src/client/mcp.c). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/mcp/mcp.h"

static const char help_text[] =
    "usage: zwinger mcp [--policy FILE|@NAME]...\n"
    "       zwinger mcp --url URL --key-file FILE\n"
    "\n"
    "An MCP server on standard input and output, with a sandbox behind its tools. No daemon is needed.\n"
    "\n"
    "  --policy FILE|@NAME        what the sandboxes may read, write, reach and use (repeatable: later ones count more)\n"
    "  --url URL                  through the daemon there; --key-file, --state and --cacert as with zwinger exec\n"
    "  --help                     this text\n"
    "\n"
    "See zwinger-mcp(1).\n";

/* ---- The state directory. ---- */

/* All of it is ours alone (0700). */
static void remove_below(int dirfd)
{
	DIR *dir = fdopendir(dirfd);

	if (dir == NULL) {
		(void) close(dirfd);
		return;
	}
	for (const struct dirent *d = readdir(dir); d != NULL; d = readdir(dir)) {
		int below;

		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || unlinkat(dirfd, d->d_name, 0) == 0)
			continue;
		below = openat(dirfd, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below >= 0)
			remove_below(below);
		(void) unlinkat(dirfd, d->d_name, AT_REMOVEDIR); /* what is left is seen when the directory itself is removed */
	}
	(void) closedir(dir);
}

static void remove_state(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		remove_below(fd);
	if (rmdir(path) < 0)
		log_error("cannot remove %s: %s", path, strerror(errno));
}

static char *make_state(void)
{
	const char *base = getenv("TMPDIR");
	char *path = xasprintf("%s/zwinger-mcp.XXXXXX", base != NULL && base[0] == '/' ? base : "/tmp");

	if (mkdtemp(path) != NULL)
		return path;
	log_error("cannot make a temporary directory %s: %s", path, strerror(errno));
	free(path);
	return NULL;
}

/* ---- The policy. ---- */

/* The merged document, owned by the caller; NULL with the faults told. */
static char *read_policies(const struct strv *files)
{
	struct policy_stack *stack = policy_stack_new();
	struct policy_errors errors = {0};
	struct policy policy = {0};
	char *text = NULL;
	int r = 0;

	if (files->count == 0)
		r = policy_stack_add_text(stack, "default", "version: 1\n", strlen("version: 1\n"), &errors);
	for (size_t i = 0; i < files->count && r == 0; i++)
		r = policy_stack_add(stack, files->items[i], &errors);
	if (r == 0)
		r = policy_stack_resolve(stack, &policy, &errors);
	if (r == 0)
		text = policy_stack_json(stack);
	for (size_t i = 0; i < errors.count; i++) {
		cleanup_free char *line = policy_error_text(&errors.items[i]);

		log_error("%s", line);
	}
	policy_done(&policy);
	policy_errors_done(&errors);
	policy_stack_free(stack);
	return text;
}

static int serve(const struct strv *files)
{
	cleanup_free char *policy = read_policies(files), *state = NULL;
	struct serve_options options;
	struct zw_error e = {0};
	int status = DAEMON_REFUSED;

	if (policy == NULL)
		return DAEMON_REFUSED;
	if (serve_options_read(1, NULL, &options, &e) < 0) { /* the defaults */
		log_error("%s", e.text);
		serve_options_done(&options);
		return DAEMON_REFUSED;
	}
	state = make_state();
	if (state != NULL) {
		options.state = xstrdup(state);
		options.own_policy = policy;
		options.drain = 0;
		status = daemon_mcp(&options);
		remove_state(state);
	} else {
		status = DAEMON_FAILED;
	}
	serve_options_done(&options);
	return status;
}

int mcp_command(int argc, char **argv)
{
	struct strv files = {0};
	int status;

	files.items = xcalloc((size_t) argc + 1, sizeof *files.items);
	for (int i = 1; i < argc; i++) {
		static const char flag[] = "--policy";

		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			free(files.items);
			return fd_write_all(STDOUT_FILENO, help_text, strlen(help_text)) == 0 ? 0 : DAEMON_FAILED;
		}
		if (strncmp(argv[i], "--policy=", sizeof flag) == 0) {
			files.items[files.count++] = argv[i] + sizeof flag;
		} else if (strcmp(argv[i], flag) == 0 && i + 1 < argc) {
			files.items[files.count++] = argv[++i];
		} else {
			if (strcmp(argv[i], flag) == 0)
				log_error("--policy needs a value: FILE or @NAME");
			else
				log_error("there is no flag \"%.100s\"; see zwinger mcp --help", argv[i]);
			free(files.items);
			return DAEMON_REFUSED;
		}
	}
	status = serve(&files);
	free(files.items);
	return status;
}
