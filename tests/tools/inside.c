/* One small static program that tests run inside a sandbox: it does one thing, given by its first argument, and says what came of
 * it on one line. Static, so that it needs nothing of the sandbox's files but itself. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char **args;
static int arg_count;

static const char *text(int i, const char *otherwise)
{
	return i < arg_count ? args[i] : otherwise;
}

static long number(int i, long otherwise)
{
	return i < arg_count ? strtol(args[i], NULL, 0) : otherwise;
}

static const char *error_name(int e)
{
	const char *name = strerrorname_np(e);
	return e == 0 ? "ok" : name ? name : "?";
}

static double now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

static void say(const char *line)
{
	size_t size = strlen(line);
	while (size > 0) {
		ssize_t n = write(1, line, size);
		if (n < 0)
			return;
		line += n;
		size -= (size_t) n;
	}
}

/* hog MIB [SECONDS]: touch so much memory, then keep it for a while */
static int hog(void)
{
	long want = number(2, 64);
	for (long i = 0; i < want; i++) {
		char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED) {
			printf("mmap: %s after %ld\n", error_name(errno), i);
			return 3;
		}
		memset(p, (int) i | 1, 1 << 20);
	}
	printf("touched %ld\n", want);
	fflush(stdout);
	sleep((unsigned) number(3, 0));
	return 0;
}

/* hog-child MIB: the same in a child; says how it ended */
static int hog_child(void)
{
	pid_t child = fork();
	if (child == 0)
		_exit(hog());
	int status = 0;
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("child killed by %d\n", WTERMSIG(status));
	else
		printf("child exited %d\n", WEXITSTATUS(status));
	return 0;
}

static void burn(double seconds)
{
	double end = now(CLOCK_PROCESS_CPUTIME_ID) + seconds;
	while (now(CLOCK_PROCESS_CPUTIME_ID) < end)
		;
}

/* spin MILLISECONDS [PROCESSES]: use so much processor time in each of the processes */
static int spin(void)
{
	long processes = number(3, 1);
	for (long i = 1; i < processes; i++)
		if (fork() == 0) {
			burn((double) number(2, 1000) / 1e3);
			_exit(0);
		}
	burn((double) number(2, 1000) / 1e3);
	while (wait(NULL) > 0)
		;
	puts("spun");
	return 0;
}

/* spin-orphans MILLISECONDS: the time is used by processes whose parents are gone, one after the other */
static int spin_orphans(void)
{
	long rounds = number(2, 1000) / 100;
	int pipes[2];
	if (pipe(pipes) < 0)
		return 3;
	for (long i = 0; i < rounds; i++) {
		pid_t child = fork();
		if (child == 0) {
			if (fork() == 0) {
				burn(0.1);
				(void) !write(pipes[1], "x", 1);
			}
			_exit(0);
		}
		waitpid(child, NULL, 0);
		char c;
		if (read(pipes[0], &c, 1) != 1)
			return 3;
	}
	puts("spun");
	return 0;
}

static void *sleeper(void *p)
{
	pause();
	return p;
}

/* processes N, threads N: start them at once, say how many there were and why it ended */
static int processes(void)
{
	long want = number(2, 100), n = 0;
	int error = 0;
	for (; n < want; n++) {
		pid_t p = fork();
		if (p < 0) {
			error = errno;
			break;
		}
		if (p == 0) {
			pause();
			_exit(0);
		}
	}
	printf("%ld %s\n", n, error_name(error));
	return 0;
}

static int threads(void)
{
	long want = number(2, 100), n = 0;
	int error = 0;
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (; n < want && error == 0; n++) {
		pthread_t t;
		error = pthread_create(&t, &attr, sleeper, NULL);
	}
	printf("%ld %s\n", error ? n - 1 : n, error_name(error));
	return 0;
}

/* forkbomb: as many as there can be, for ever */
static int forkbomb(void)
{
	while (number(2, 1))
		(void) !fork();
	return 0;
}

/* files N: open so many */
static int files(void)
{
	long want = number(2, 100), n = 0;
	while (n < want && open("/dev/null", O_RDONLY) >= 0)
		n++;
	printf("%ld %s\n", n, error_name(n < want ? errno : 0));
	return 0;
}

/* fill PATH MIB: write so much into a file */
static int fill(void)
{
	static char block[1 << 20];
	signal(SIGXFSZ, SIG_IGN);
	memset(block, 'x', sizeof(block));
	int fd = open(text(2, "/tmp/fill"), O_CREAT | O_WRONLY | O_TRUNC, 0644);
	if (fd < 0) {
		printf("0 %s\n", error_name(errno));
		return 0;
	}
	long want = number(3, 1), n = 0;
	size_t rest = 0;
	int error = 0;
	while (n < want && error == 0) {
		ssize_t done = write(fd, block, sizeof(block));
		if (done == (ssize_t) sizeof(block))
			n++;
		else if (done > 0)
			rest += (size_t) done;
		else
			error = errno;
		if (rest > 0 && error == 0)
			error = write(fd, block, 1) < 0 ? errno : 0;
	}
	printf("%ld %s\n", n, error_name(error));
	return 0;
}

/* inodes FOLDER N: make so many empty files */
static int inodes(void)
{
	char path[4096];
	long want = number(3, 100), n = 0;
	for (; n < want; n++) {
		snprintf(path, sizeof(path), "%s/f%ld", text(2, "/tmp"), n);
		int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
		if (fd < 0)
			break;
		close(fd);
	}
	printf("%ld %s\n", n, error_name(n < want ? errno : 0));
	return 0;
}

/* flood FD BYTES: write lines of 64 bytes */
static int flood(void)
{
	char block[65536];
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = i % 64 == 63 ? '\n' : 'a' + (char) (i / 64 % 26);
	long left = number(3, 1 << 20);
	int fd = (int) number(2, 1);
	while (left > 0) {
		size_t size = left < (long) sizeof(block) ? (size_t) left : sizeof(block);
		ssize_t n = write(fd, block, size);
		if (n <= 0)
			return 4;
		left -= n;
	}
	return 0;
}

static long call(const char *name)
{
	if (!strcmp(name, "mount"))
		return mount("none", "/tmp", "tmpfs", 0, NULL);
	if (!strcmp(name, "umount2"))
		return umount2("/tmp", MNT_DETACH);
	if (!strcmp(name, "ptrace"))
		return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	if (!strcmp(name, "unshare"))
		return syscall(SYS_unshare, CLONE_NEWUSER);
	if (!strcmp(name, "bpf"))
		return syscall(SYS_bpf, 0, NULL, 0);
	if (!strcmp(name, "keyctl"))
		return syscall(SYS_keyctl, 0, -3, 0, 0, 0);
	if (!strcmp(name, "perf_event_open"))
		return syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0);
	if (!strcmp(name, "setns"))
		return syscall(SYS_setns, 0, 0);
	if (!strcmp(name, "reboot"))
		return syscall(SYS_reboot, 0, 0, 0, NULL);
	if (!strcmp(name, "io_uring_setup"))
		return syscall(425, 0, NULL);
	if (!strcmp(name, "clone3"))
		return syscall(435, NULL, 0);
	if (!strcmp(name, "chroot"))
		return syscall(SYS_chroot, "/tmp");
	errno = EINVAL;
	return -1;
}

/* call NAME [COUNT] [THREADS]: a system call that should be refused, so often; says the last error */
static void *call_many(void *unused)
{
	(void) unused;
	for (long i = number(3, 1); i > 1; i--)
		call(text(2, ""));
	return NULL;
}

static int calls(void)
{
	pthread_t t[64];
	long count = number(4, 0);
	for (long i = 0; i < count && i < 64; i++)
		pthread_create(&t[i], NULL, call_many, NULL);
	call_many(NULL);
	for (long i = 0; i < count && i < 64; i++)
		pthread_join(t[i], NULL);
	errno = 0;
	long r = call(text(2, ""));
	printf("%s\n", r < 0 ? error_name(errno) : "ok");
	return 0;
}

/* crash SIGNAL: end by that signal, the way a fault does */
static int crash(void)
{
	int which = (int) number(2, SIGSEGV);
	signal(which, SIG_DFL);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, which);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	if (which == SIGSEGV)
		*(volatile int *) (uintptr_t) number(3, 8) = 1;
	kill(getpid(), which);
	pause();
	return 0;
}

/* core: crash in a child; says whether the kernel made a core dump */
static int core(void)
{
	pid_t child = fork();
	if (child == 0) {
		struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
		(void) setrlimit(RLIMIT_CORE, &r);
		prctl(PR_SET_DUMPABLE, 1);
		abort();
	}
	int status = 0;
	waitpid(child, &status, 0);
	puts(WIFSIGNALED(status) && WCOREDUMP(status) ? "dumped" : "no dump");
	return 0;
}

/* keep-pipes SECONDS: leave a grandchild that keeps stdout and stderr open, and exit with 7 */
static int keep_pipes(void)
{
	say("before\n");
	if (fork() == 0) {
		setsid();
		if (fork() == 0) {
			sleep((unsigned) number(2, 60));
			say("late\n");
		}
		_exit(0);
	}
	wait(NULL);
	return 7;
}

/* daemon PATH: leave a daemon of its own session that writes a growing number into the file, and exit */
static int make_daemon(void)
{
	if (fork() == 0) {
		setsid();
		if (fork() != 0)
			_exit(0);
		for (int fd = 0; fd < 3; fd++)
			close(fd);
		for (long n = 0;; n++) {
			int fd = open(text(2, "heartbeat"), O_CREAT | O_WRONLY | O_TRUNC, 0644);
			if (fd >= 0) {
				dprintf(fd, "%ld", n);
				close(fd);
			}
			usleep(20000);
		}
	}
	wait(NULL);
	usleep(100000);
	return 0;
}

/* connect ADDRESS PORT [udp]: says ok or the error */
static int connect_to(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((unsigned short) number(3, 80))};
	inet_pton(AF_INET, text(2, "127.0.0.1"), &a.sin_addr);
	int s = socket(AF_INET, strcmp(text(4, ""), "udp") ? SOCK_STREAM : SOCK_DGRAM, 0);
	if (s < 0) {
		printf("socket %s\n", error_name(errno));
		return 0;
	}
	printf("%s\n", connect(s, (struct sockaddr *) &a, sizeof(a)) < 0 ? error_name(errno) : "ok");
	return 0;
}

/* connect-unix PATH (@ for abstract) [dgram] */
static int connect_unix(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const char *path = text(2, "");
	size_t size = strlen(path);
	if (size >= sizeof(a.sun_path))
		return 3;
	memcpy(a.sun_path, path, size + 1);
	if (path[0] == '@')
		a.sun_path[0] = 0;
	int s = socket(AF_UNIX, strcmp(text(3, ""), "dgram") ? SOCK_STREAM : SOCK_DGRAM, 0);
	if (s < 0) {
		printf("socket %s\n", error_name(errno));
		return 0;
	}
	int r = connect(s, (struct sockaddr *) &a, (socklen_t) (offsetof(struct sockaddr_un, sun_path) + size));
	printf("%s\n", r < 0 ? error_name(errno) : "ok");
	return 0;
}

/* open PATH...: a line for each */
static int open_them(void)
{
	for (int i = 2; i < arg_count; i++) {
		int fd = open(args[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		printf("%s\n", fd < 0 ? error_name(errno) : "ok");
		if (fd >= 0)
			close(fd);
	}
	return 0;
}

/* descriptors: the open ones */
static int descriptors(void)
{
	for (int fd = 0; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("%d ", fd);
	puts("");
	return 0;
}

/* signals: print the name of what arrives, until TERM */
static int signals(void)
{
	sigset_t set;
	sigfillset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
	say("ready\n");
	for (;;) {
		int got = 0;
		if (sigwait(&set, &got) != 0)
			continue;
		char line[64];
		snprintf(line, sizeof(line), "SIG%s\n", sigabbrev_np(got));
		say(line);
		if (got == SIGTERM)
			return 9;
	}
}

/* dispositions: which signals are ignored or blocked on entry */
static int dispositions(void)
{
	sigset_t set;
	sigprocmask(SIG_SETMASK, NULL, &set);
	for (int s = 1; s < 65; s++) {
		struct sigaction a;
		if (sigaction(s, NULL, &a) == 0 && a.sa_handler != SIG_DFL)
			printf("ignored %d ", s);
		if (sigismember(&set, s) == 1)
			printf("blocked %d ", s);
	}
	puts("");
	return 0;
}

/* limit NUMBER: soft and hard of a resource */
static int limit(void)
{
	struct rlimit r;
	if (getrlimit((int) number(2, RLIMIT_NOFILE), &r) < 0)
		return 3;
	printf("%ld %ld\n", (long) r.rlim_cur, (long) r.rlim_max);
	return 0;
}

/* copy: copies stdin to stdout, 64 KiB at a time */
static int copy(void)
{
	static char block[65536];
	for (;;) {
		ssize_t n = read(0, block, sizeof(block));
		if (n <= 0)
			return n < 0 ? 3 : 0;
		for (ssize_t done = 0; done < n;) {
			ssize_t w = write(1, block + done, (size_t) (n - done));
			if (w <= 0)
				return 4;
			done += w;
		}
	}
}

static int sleep_ms(void)
{
	usleep((useconds_t) number(2, 1000) * 1000);
	puts("slept");
	return 0;
}

static int self_ids(void)
{
	printf("%d %d %d %d\n", (int) getuid(), (int) geteuid(), (int) getgid(), (int) getegid());
	return 0;
}

/* The walls as seen from inside, in one line. Every call that fails is made three times and the answer of two counts: a fault
 * that is injected into this process as well hits it once, a wall stands every time. */
static long majority(long a, long b, long c)
{
	return a == b || a == c ? a : b;
}

#define ONCE(expression)                                                                                                         \
	({                                                                                                                       \
		long result_ = (long) (expression);                                                                              \
		result_ < 0 ? -errno : result_;                                                                                  \
	})
#define AGAIN(expression)                                                                                                        \
	({                                                                                                                       \
		long first_ = ONCE(expression), second_ = first_ < 0 ? ONCE(expression) : first_;                                \
		second_ < 0 ? majority(first_, second_, ONCE(expression)) : second_;                                             \
	})

static long connects(int family, int type, const char *address)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9)};
	inet_pton(AF_INET, address, &a.sin_addr);
	long s = AGAIN(socket(family, type, 0));
	return s < 0 ? s : AGAIN(connect((int) s, (struct sockaddr *) &a, sizeof(a)));
}

/* look PATH: write the line into the file */
static int look(void)
{
	char line[2048];
	struct rlimit files_limit = {0}, core_limit = {0};
	(void) AGAIN(getrlimit(RLIMIT_NOFILE, &files_limit));
	(void) AGAIN(getrlimit(RLIMIT_CORE, &core_limit));
	long bounding = 0, open_files = 0;
	for (int c = 0; c < 41; c++)
		bounding += AGAIN(prctl(PR_CAPBSET_READ, c, 0, 0, 0)) == 1;
	for (int fd = 0; fd < 64; fd++)
		open_files += AGAIN(fcntl(fd, F_GETFD)) >= 0;
	char host[65] = "";
	(void) AGAIN(gethostname(host, sizeof(host) - 1));
	struct {
		uint32_t version;
		int pid;
	} head = {0x20080522, 0};
	struct {
		uint32_t effective, permitted, inheritable;
	} caps[2] = {{0}};
	(void) AGAIN(syscall(SYS_capget, &head, caps));
	long device = AGAIN(open("/dev/null", O_RDWR | O_CLOEXEC));
	int n = snprintf(
	    line, sizeof(line),
	    "uid %ld gid %ld groups %ld pid<10 %d caps %x %x %x bounding %ld nnp %ld seccomp %ld dumpable %ld host %s nofile %ld "
	    "%ld core %ld fds %ld "
	    "usr %ld etc %ld root %ld shadow %ld home %ld sys %ld userns %ld mount %ld chroot %ld hostname %ld ptrace %ld tcp "
	    "%ld loop %ld packet %ld "
	    "netlink %ld core_pattern %ld ioctl %ld kill %ld keyctl %ld\n",
	    (long) getuid(), (long) getgid(), AGAIN(getgroups(0, NULL)), getpid() < 10, caps[0].effective | caps[1].effective,
	    caps[0].permitted | caps[1].permitted, caps[0].inheritable | caps[1].inheritable, bounding,
	    AGAIN(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)), AGAIN(prctl(PR_GET_SECCOMP, 0, 0, 0, 0)),
	    AGAIN(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)), host, (long) files_limit.rlim_cur, (long) files_limit.rlim_max,
	    (long) core_limit.rlim_max, open_files, AGAIN(open("/usr/bin/zwinger-test-x", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)),
	    AGAIN(open("/etc/zwinger-test-x", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)),
	    AGAIN(open("/zwinger-test-x", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)),
	    AGAIN(open("/etc/shadow", O_RDONLY | O_CLOEXEC)), AGAIN(open("/root", O_RDONLY | O_CLOEXEC)),
	    AGAIN(open("/sys/kernel/uevent_helper", O_WRONLY | O_CLOEXEC)), AGAIN(syscall(SYS_unshare, CLONE_NEWUSER)),
	    AGAIN(mount("none", "/tmp", "tmpfs", 0, NULL)), AGAIN(chroot("/tmp")), AGAIN(sethostname("x", 1)),
	    AGAIN(ptrace(PTRACE_ATTACH, 1, NULL, NULL)), connects(AF_INET, SOCK_STREAM, "192.0.2.1"),
	    connects(AF_INET, SOCK_STREAM, "127.0.0.1"), AGAIN(socket(AF_PACKET, SOCK_RAW, 0)),
	    AGAIN(socket(AF_NETLINK, SOCK_RAW, 12)), AGAIN(open("/proc/sys/kernel/core_pattern", O_WRONLY | O_CLOEXEC)),
	    AGAIN(ioctl((int) device, 0x5a5a5a5a, NULL)), AGAIN(kill(1, SIGUSR1)), AGAIN(syscall(SYS_keyctl, 0, -3, 0, 0, 0)));
	/* Under its name only when it is complete: whoever is killed in between leaves no mark. */
	char fresh[4096];
	snprintf(fresh, sizeof fresh, "%s.new", text(2, "mark"));
	long fd = AGAIN(open(fresh, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600));
	for (int done = 0; fd >= 0 && done < n;) {
		long w = AGAIN(write((int) fd, line + done, (size_t) (n - done)));
		if (w < 0)
			return 3;
		done += (int) w;
	}
	return fd < 0 || AGAIN(rename(fresh, text(2, "mark"))) < 0 ? 3 : 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} verbs[] = {
    {"hog", hog},
    {"hog-child", hog_child},
    {"spin", spin},
    {"spin-orphans", spin_orphans},
    {"processes", processes},
    {"threads", threads},
    {"forkbomb", forkbomb},
    {"files", files},
    {"fill", fill},
    {"inodes", inodes},
    {"flood", flood},
    {"call", calls},
    {"crash", crash},
    {"core", core},
    {"keep-pipes", keep_pipes},
    {"daemon", make_daemon},
    {"connect", connect_to},
    {"connect-unix", connect_unix},
    {"open", open_them},
    {"descriptors", descriptors},
    {"signals", signals},
    {"dispositions", dispositions},
    {"limit", limit},
    {"copy", copy},
    {"sleep", sleep_ms},
    {"ids", self_ids},
    {"look", look},
};

int main(int argc, char **argv)
{
	args = argv;
	arg_count = argc;
	for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(verbs[i].name, argv[1]))
			return verbs[i].run();
	fputs("inside: which verb?\n", stderr);
	return 64;
}
