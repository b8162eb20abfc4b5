/* Runs a command under a system-call filter alone, and prints each refused or reported call. For trying real programs:
 *
 *   seccomp-exec [-p strict|default|debug] [-n] [-r exec,connect,open,clone] [-a NAME] [-d NAME] [-l FILE] COMMAND [ARG...]
 *
 * -n: as without namespaces. -r: report these calls as well. -l: where the lines go (default stderr). */
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/seccomp.h"

struct options {
	struct seccomp_spec spec;
	int allow[64], deny[64];
	FILE *log;
};

static void print_call(FILE *log, const char *verdict, const struct seccomp_notif *n)
{
	char text[256];

	seccomp_format(&n->data, text, sizeof(text));
	fprintf(log, "%s[%u] %s\n", verdict, n->pid, text);
	fflush(log);
}

static void serve(const struct options *o, int listener)
{
	struct seccomp_notif n;
	int err = EPERM;

	if (seccomp_receive(listener, &n) < 0)
		return;
	if (seccomp_judge(&o->spec, &n.data, &err) == SECCOMP_VERDICT_CONTINUE) {
		print_call(o->log, "reported", &n);
		(void) seccomp_continue(listener, n.id);
	} else {
		print_call(o->log, strerrorname_np(err), &n);
		(void) seccomp_deny(listener, n.id, err);
	}
}

static int watch(const struct options *o, int listener, pid_t pid)
{
	cleanup_fd int pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
	struct pollfd fds[] = {{.fd = listener, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
	int status = 0;

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[0].revents & POLLIN)
			serve(o, listener);
		else if (fds[1].revents)
			break;
		if (fds[0].revents & (POLLHUP | POLLERR))
			fds[0].fd = -1;
	}
	(void) waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void child(const struct seccomp_filter *f, int sock, char **argv)
{
	cleanup_fd int listener = -EBADF;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(125);
	listener = seccomp_install(f);
	if (listener < 0) {
		fprintf(stderr, "seccomp-exec: cannot install: %s\n", strerror(-listener));
		_exit(125);
	}
	if (fd_send(sock, "x", 1, &listener, 1) < 0)
		_exit(125);
	fd_close(&listener);
	fd_close(&sock);
	execvp(argv[0], argv);
	fprintf(stderr, "seccomp-exec: %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int run(struct options *o, char **argv)
{
	struct seccomp_filter f = {0};
	struct zw_error e = {0};
	int pair[2], listener = -EBADF;
	size_t one = 1;
	char byte;
	pid_t pid;

	if (seccomp_filter_make(&o->spec, &f, &e) < 0) {
		fprintf(stderr, "seccomp-exec: %s\n", e.text);
		return 125;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return 125;
	pid = fork();
	if (pid == 0)
		child(&f, pair[1], argv);
	(void) close(pair[1]);
	if (fd_recv(pair[0], &byte, 1, &listener, &one) <= 0 || one != 1)
		return 125;
	seccomp_tune_listener(listener);
	return watch(o, listener, pid);
}

static void set_profile(struct options *o, const char *name)
{
	o->spec.profile = strcmp(name, "strict") == 0  ? SECCOMP_STRICT
			  : strcmp(name, "debug") == 0 ? SECCOMP_DEBUG
						       : SECCOMP_DEFAULT;
}

int main(int argc, char **argv)
{
	static struct options o = {.spec = {.profile = SECCOMP_DEFAULT}};
	int c;

	o.log = stderr;
	o.spec.allow = o.allow;
	o.spec.deny = o.deny;
	while ((c = getopt(argc, argv, "+p:nr:a:d:l:")) != -1) {
		switch (c) {
		case 'p':
			set_profile(&o, optarg);
			break;
		case 'n':
			o.spec.no_namespaces = true;
			break;
		case 'r':
			o.spec.notify_exec = strstr(optarg, "exec") != NULL;
			o.spec.notify_connect = strstr(optarg, "connect") != NULL;
			o.spec.notify_open = strstr(optarg, "open") != NULL;
			break;
		case 'a':
			o.allow[o.spec.allow_count++] = seccomp_number(optarg);
			break;
		case 'd':
			o.deny[o.spec.deny_count++] = seccomp_number(optarg);
			break;
		case 'l':
			o.log = fopen(optarg, "ae");
			break;
		default:
			return 125;
		}
	}
	if (optind >= argc || !o.log)
		return 125;
	return run(&o, argv + optind);
}
