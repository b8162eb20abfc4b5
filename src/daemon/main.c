/* zwingerd: `serve`, and `keys` and `mcp`, which need the same parts. Executed by `zwinger serve`, `zwinger keys`, `zwinger mcp`.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/keys-command.h"
#include "daemon/mcp/mcp.h"

enum { MAPPED_EACH = 256 * 1024, TRIM_AT = 4 * 1024 * 1024 };

static int print(const char *text)
{
	return fd_write_all(STDOUT_FILENO, text, strlen(text)) == 0 ? 0 : DAEMON_FAILED;
}

/* All that we are allowed: each connection and each sandbox takes some. */
static void raise_descriptors(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur == l.rlim_max)
		return;
	l.rlim_cur = l.rlim_max;
	(void) setrlimit(RLIMIT_NOFILE, &l); /* it is then what it was */
}

/* Large blocks are mapped each for itself, so that what was not yet written to is not there, and what is freed is gone; else the
 * C library would soon keep blocks of up to 32 MiB. */
static void settle_memory(void)
{
	(void) mallopt(M_MMAP_THRESHOLD, MAPPED_EACH);
	(void) mallopt(M_TRIM_THRESHOLD, TRIM_AT);
}

static int serve(int argc, char **argv)
{
	struct serve_options options;
	struct zw_error e = {0};
	int status = DAEMON_REFUSED;

	if (serve_options_read(argc, argv, &options, &e) < 0) {
		log_error("%s", e.text);
	} else if (options.help) {
		cleanup_free char *text = serve_options_help();

		status = print(text);
	} else if (options.version) {
		status = print("zwinger " ZWINGER_VERSION "\n");
	} else {
		raise_descriptors();
		status = daemon_serve(&options);
	}
	serve_options_done(&options);
	return status;
}

int main(int argc, char **argv)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};

	if (fd_sanitize_stdio() < 0)
		return DAEMON_REFUSED;
	(void) syscall(SYS_close_range, 3U, ~0U, 0U); /* what a caller forgot; on kernels before 5.9 it stays */
	(void) umask(077);
	settle_memory();
	(void) sigaction(SIGPIPE, &ignore, NULL); /* cannot fail */
	if (argc > 1 && strcmp(argv[1], "keys") == 0)
		return keys_command(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "mcp") == 0) {
		raise_descriptors();
		return mcp_command(argc - 1, argv + 1);
	}
	if (argc > 1 && strcmp(argv[1], "serve") == 0)
		return serve(argc - 1, argv + 1);
	return serve(argc, argv);
}
