/* The first process of every sandbox. agent.h has the theory of operation, protocol.h the messages. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/agent.h"

enum { AGENT_FAULT = 70 }; /* exit status when the channel carries nonsense: the supervisor is broken */

/* ---- The channel. The supervisor is trusted; sizes are checked all the same. ---- */

/* Reads all of it. False at the end of the channel. Descriptors that come with the bytes go into `fds`, which may be NULL. */
static bool read_all(void *data, size_t size, int fds[START_FDS_MAX], size_t *nfds)
{
	char *p = data;

	while (size > 0) {
		union {
			char buf[CMSG_SPACE(START_FDS_MAX * sizeof(int))];
			struct cmsghdr align;
		} control;
		struct iovec iov = {.iov_base = p, .iov_len = size};
		struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
		ssize_t n;

		if (fds != NULL) {
			msg.msg_control = control.buf;
			msg.msg_controllen = sizeof control.buf;
		}
		n = recvmsg(AGENT_CHANNEL_FD, &msg, MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		for (struct cmsghdr *c = fds != NULL ? CMSG_FIRSTHDR(&msg) : NULL; c != NULL; c = CMSG_NXTHDR(&msg, c)) {
			size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || count > START_FDS_MAX - *nfds)
				return false;
			memcpy(fds + *nfds, CMSG_DATA(c), count * sizeof(int));
			*nfds += count;
		}
		p += n;
		size -= (size_t) n;
	}
	return true;
}

static void send_message(uint16_t type, uint32_t id, const void *body, size_t size, int fd)
{
	struct msg_header header = {.size = (uint32_t) size, .type = type, .id = id};
	struct iovec iov[2] = {{.iov_base = &header, .iov_len = sizeof header},
			       {.iov_base = (void *) (uintptr_t) body, .iov_len = size}};
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

	if (fd >= 0) {
		struct cmsghdr *c;

		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof control.buf;
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	/* A few dozen bytes: they go out whole or not at all. When the supervisor is gone, the end of the channel tells us next.
	 */
	while (sendmsg(AGENT_CHANNEL_FD, &msg, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

/* ---- Processes. ---- */

static struct process *find_process(struct agent *a, uint32_t id)
{
	for (size_t i = 0; i < a->used; i++)
		if (a->processes[i].pid != 0 && a->processes[i].id == id)
			return &a->processes[i];
	return NULL;
}

static struct process *free_slot(struct agent *a)
{
	for (size_t i = 0; i < a->used; i++)
		if (a->processes[i].pid == 0)
			return &a->processes[i];
	return a->used < PROCESS_MAX ? &a->processes[a->used++] : NULL;
}

static void close_if(int fd)
{
	if (fd >= 0)
		(void) close(fd);
}

static uint64_t usec_of(const struct timeval *t)
{
	return (uint64_t) t->tv_sec * 1000000 + (uint64_t) t->tv_usec;
}

bool report_end(struct agent *a, pid_t pid, int status, const struct rusage *usage)
{
	for (size_t i = 0; i < a->used; i++) {
		struct process *p = &a->processes[i];
		struct msg_exited body = {
		    .status = status,
		    .utime = usec_of(&usage->ru_utime),
		    .stime = usec_of(&usage->ru_stime),
		    .max_rss = (uint64_t) usage->ru_maxrss * 1024,
		};

		if (p->pid != pid)
			continue;
		send_message(MSG_EXITED, p->id, &body, sizeof body, -1);
		close_if(p->master);
		close_if(p->slave);
		own_proc_release(p);
		p->pid = 0;
		return p->one_shot;
	}
	return false;
}

static _Noreturn void end_sandbox(struct agent *a)
{
	if (!a->pid_namespace) {
		end_descendants(a);
		_exit(0);
	}
	/* Our exit is the end of everything in the namespace; but whom the kernel reaps then, his time is counted by nobody. In
	 * most runs nobody is left, and the kernel would look through every process of the host to find that out. */
	if (reap(false, NULL, NULL) >= 0) {
		(void) kill(-1, SIGKILL);
		while (reap(true, NULL, NULL) > 0)
			;
	}
	_exit(0);
}

static void reap_all(struct agent *a)
{
	bool over = false;

	for (;;) {
		struct rusage usage;
		int status;
		pid_t pid = reap(false, &status, &usage);

		if (pid <= 0)
			break;
		over |= report_end(a, pid, status, &usage);
	}
	if (over)
		end_sandbox(a);
}

/* ---- Messages. ---- */

/* Takes `count` NUL-terminated strings from *text into `list`, and ends the list with NULL. False when they are not all there. */
static bool take_strings(char **text, const char *end, char **list, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		char *nul = memchr(*text, '\0', (size_t) (end - *text));

		if (nul == NULL)
			return false;
		list[i] = *text;
		*text = nul + 1;
	}
	list[count] = NULL;
	return true;
}

/* Reads and decodes the body of a START into one mapping: the strings first, then the two arrays that point to them. */
static bool read_start(const struct msg_header *header, struct start *s)
{
	size_t text_size = header->size - sizeof s->fixed, room;
	char *text, *cwd[2];

	if (header->size <= sizeof s->fixed || header->size > MSG_BODY_MAX || !read_all(&s->fixed, sizeof s->fixed, NULL, NULL))
		return false;
	if (s->fixed.groups > START_GROUPS_MAX || s->fixed.argc == 0 || s->fixed.argc > text_size || s->fixed.envc > text_size)
		return false;
	room = (text_size + sizeof(char *) - 1) / sizeof(char *) * sizeof(char *);
	s->map_size = room + ((size_t) s->fixed.argc + s->fixed.envc + 2) * sizeof(char *);
	s->map = mmap(NULL, s->map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->map == MAP_FAILED)
		return false;
	text = s->map;
	s->argv = (char **) (void *) (text + room);
	s->env = s->argv + s->fixed.argc + 1;
	if (!read_all(text, text_size, NULL, NULL))
		return false;
	if (!take_strings(&text, (char *) s->map + text_size, cwd, 1) ||
	    !take_strings(&text, (char *) s->map + text_size, s->argv, s->fixed.argc) ||
	    !take_strings(&text, (char *) s->map + text_size, s->env, s->fixed.envc))
		return false;
	s->cwd = cwd[0];
	return text == (char *) s->map + text_size;
}

static bool is_own_user(const struct agent *a, const struct start *s)
{
	return (s->fixed.flags & START_USER) == 0 || (s->fixed.uid == geteuid() && s->fixed.gid == getegid()) ||
	       (a->has_root && start_is_root(s));
}

static void start_process(struct agent *a, const struct start *s, bool have_fds)
{
	struct process *slot = free_slot(a);
	struct msg_exec_failed failed = {.stage = EXEC_STAGE_FORK};
	struct msg_started started;

	if (!have_fds)
		failed.error = EMFILE;
	else if (!is_own_user(a, s))
		failed.error = EPERM;
	else
		failed.error = slot != NULL ? spawn(a, s, slot, &failed.stage) : EAGAIN;
	if (failed.error != 0) {
		send_message(MSG_EXEC_FAILED, s->id, &failed, sizeof failed, -1);
		if ((s->fixed.flags & START_ONE_SHOT) != 0)
			end_sandbox(a);
		return;
	}
	started.pid = slot->pid;
	send_message(MSG_STARTED, s->id, &started, sizeof started, slot->master);
}

static bool handle_start(struct agent *a, const struct msg_header *header, const int fds[START_FDS_MAX], size_t nfds)
{
	struct start s = {.id = header->id, .nfds = nfds};

	if (!read_start(header, &s))
		return false;
	memcpy(s.fds, fds, sizeof s.fds);
	/* Fewer arrive than were sent when the limit of open files does not leave room for them (unix(7), MSG_CTRUNC). */
	start_process(a, &s, nfds == start_fds_wanted(&s) && raise_fds(s.fds, nfds));
	for (size_t i = 0; i < nfds; i++)
		(void) close(s.fds[i]);
	return munmap(s.map, s.map_size) == 0;
}

static bool handle_signal(struct agent *a, const struct msg_header *header)
{
	struct msg_signal body;
	const struct process *p;

	if (header->size != sizeof body || !read_all(&body, sizeof body, NULL, NULL))
		return false;
	p = find_process(a, header->id);
	/* Its pid cannot be another's: nobody but us reaps it. One that has ended already is no fault. */
	if (p != NULL)
		(void) kill(body.to_group != 0 ? -p->pid : p->pid, body.signal);
	return true;
}

static bool handle_resize(struct agent *a, const struct msg_header *header)
{
	struct msg_resize body;
	const struct process *p;

	if (header->size != sizeof body || !read_all(&body, sizeof body, NULL, NULL))
		return false;
	p = find_process(a, header->id);
	if (p != NULL && p->master >= 0) {
		const struct winsize size = {.ws_row = body.rows, .ws_col = body.columns};

		(void) ioctl(p->master, TIOCSWINSZ, &size);
	}
	return true;
}

/* On the loopback an answer, the refusal too, is there before connect(2) returns; only a server with a full backlog lets us wait,
 * and then the supervisor waits in our place. */
static int connect_to(const struct sockaddr *address, socklen_t size, int *ret_error)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
	socklen_t error_size = sizeof error;

	if (fd < 0) {
		*ret_error = errno;
		return -1;
	}
	if (connect(fd, address, size) < 0 && errno != EINPROGRESS)
		error = errno;
	else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) < 0)
		error = errno;
	if (error != 0) {
		*ret_error = error;
		(void) close(fd);
		return -1;
	}
	return fd;
}

static int connect_inside(uint16_t port, int *ret_error)
{
	const struct sockaddr_in four = {
	    .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = connect_to((const struct sockaddr *) &four, sizeof four, ret_error);

	return fd >= 0 ? fd : connect_to((const struct sockaddr *) &six, sizeof six, ret_error);
}

static bool handle_connect(const struct msg_header *header)
{
	struct msg_connect body;
	struct msg_connected answer = {0};
	int fd, error = 0;

	if (header->size != sizeof body || !read_all(&body, sizeof body, NULL, NULL))
		return false;
	fd = connect_inside(body.port, &error);
	answer.error = fd < 0 ? error : 0;
	send_message(MSG_CONNECTED, header->id, &answer, sizeof answer, fd);
	close_if(fd);
	return true;
}

static void handle_message(struct agent *a)
{
	struct msg_header header;
	int fds[START_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1};
	size_t nfds = 0;
	bool good;

	if (!read_all(&header, sizeof header, fds, &nfds))
		end_sandbox(a);
	switch (header.type) {
	case MSG_START:
		good = handle_start(a, &header, fds, nfds);
		break;
	case MSG_SIGNAL:
		good = handle_signal(a, &header);
		break;
	case MSG_RESIZE:
		good = handle_resize(a, &header);
		break;
	case MSG_CONNECT:
		good = handle_connect(&header);
		break;
	default:
		good = false;
		break;
	}
	if (!good) {
		if (!a->pid_namespace)
			end_descendants(a);
		_exit(AGENT_FAULT);
	}
}

/* ---- Start-up and the loop. ---- */

static void wake(int sig)
{
	(void) sig;
}

/* kill(-1) with a domain that does not scope signals would end every process of this user: so besides the supervisor's word for
 * it, we try it on our parent, which is outside. */
static bool is_scoped(const char *mode)
{
	return mode != NULL && strcmp(mode, AGENT_SCOPED) == 0 && kill(getppid(), 0) < 0 && errno == EPERM;
}

/* The raw calls: libc's look for other threads. The saved ids are the effective ones, so that none is left to go back to. */
static bool take_root(struct agent *a)
{
	struct {
		uint32_t version;
		int32_t pid;
	} header = {.version = 0x20080522}; /* _LINUX_CAPABILITY_VERSION_3 */
	const uint32_t none[6] = {0};
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (uid == 0 || gid == 0 || syscall(SYS_setresgid, 0, gid, gid) < 0 || syscall(SYS_setresuid, 0, uid, uid) < 0)
		return false;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &header, none) < 0)
		return false;
	a->has_root = true;
	return true;
}

static bool set_up(struct agent *a, const char *mode)
{
	struct sigaction on_child = {.sa_handler = wake, .sa_flags = SA_NOCLDSTOP};
	sigset_t all;

	(void) sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, NULL) < 0 || sigaction(SIGCHLD, &on_child, NULL) < 0)
		return false;
	a->pid_namespace = getpid() == 1;
	if (a->pid_namespace && mode != NULL && strcmp(mode, AGENT_WITH_ROOT) == 0 && !take_root(a))
		return false;
	/* Not readable by /proc and not traceable by what runs inside under the same uid. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || fcntl(AGENT_CHANNEL_FD, F_SETFD, FD_CLOEXEC) < 0)
		return false;
	a->processes = mmap(NULL, PROCESS_MAX * sizeof *a->processes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (a->processes == MAP_FAILED)
		return false;
	/* Whoever executed us has set it; it would be lost if credentials had changed since. If the supervisor is dead already,
	 * the channel has ended and says so. Without a pid namespace dying at once would leave descendants behind: there the
	 * channel's end is what ends us. */
	if (a->pid_namespace)
		return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return false;
	if (mode != NULL && fcntl(AGENT_TERMINAL_FD, F_SETFD, FD_CLOEXEC) == 0)
		a->terminal_fd = AGENT_TERMINAL_FD;
	if (mode != NULL && strcmp(mode, AGENT_SCOPED) == 0) {
		a->scoped = is_scoped(mode);
		return a->scoped && fcntl(AGENT_EXTRA_FD, F_SETFD, FD_CLOEXEC) == 0;
	}
	if (mode != NULL) {
		a->children_fd = AGENT_EXTRA_FD;
		return fcntl(AGENT_EXTRA_FD, F_SETFD, FD_CLOEXEC) == 0;
	}
	a->children_fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	return true;
}

int main(int argc, char **argv)
{
	struct agent a = {.children_fd = -1, .terminal_fd = -1};
	struct pollfd channel = {.fd = AGENT_CHANNEL_FD, .events = POLLIN};
	sigset_t only_child;

	if (!set_up(&a, argc > 1 ? argv[1] : NULL))
		return AGENT_FAULT;
	(void) sigfillset(&only_child);
	(void) sigdelset(&only_child, SIGCHLD);
	for (;;) {
		int n = ppoll(&channel, 1, NULL, &only_child);

		if (n < 0 && errno != EINTR)
			end_sandbox(&a);
		/* Ends first: a signal for a process that has just ended must not be tried on it. */
		reap_all(&a);
		if (n > 0)
			handle_message(&a);
	}
}
