/* Notified system calls: refused ones, recorded and answered with their errno, and ones that are only reported and go on. Nothing
 * decided here rests on memory of the caller: what is read from it (addresses, paths) may be changed by another of its threads in
 * the same moment, and serves the record alone. The refusal itself rests on the call's number and registers, by the filter's own
 * table.
 *
 * A flood. Each answer costs us some microseconds, and 256 threads may ask without end. After FLOOD_AFTER times of the same
 * refusal the answer is put off, longer with each, and all put-off answers together pass through a leaky bucket; meanwhile the
 * thread sleeps in its system call. So the sender pays, and the supervisor stays at a few percent of one CPU. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/hidden.h"
#include "sandbox/network.h"
#include "sandbox/processes.h"
#include "sandbox/supervise.h"

enum { FLOOD_AFTER = 100, DNS_PORT = 53 };

#define FLOOD_STEP (10 * UINT64_C(1))        /* usec more for each further one ... */
#define FLOOD_DELAY_MAX (10 * USEC_PER_MSEC) /* ... up to this */
#define FLOOD_PRICE UINT64_C(1000)           /* usec of the bucket: 1,000 a second */
#define REPORT_PRICE UINT64_C(400)           /* of a call that goes on: 2,500 a second ... */
#define REPORT_BURST (1 * USEC_PER_SEC)      /* ... after 2,500 at once */
#define BATCH (4 * USEC_PER_MSEC)            /* late answers go out together: one wake-up for several */

/* -ENOENT: the caller was killed meanwhile. Anything else would leave a call waiting for ever. */
static void check(struct supervisor *s, int r, const char *what)
{
	struct zw_error e = {0};

	if (r == 0 || r == -ENOENT)
		return;
	(void) zw_errno(&e, -r, "cannot %s a notified system call", what);
	supervisor_fault(s, &e);
}

static void answer(struct supervisor *s, uint64_t id, int error)
{
	int r = error != 0 ? seccomp_deny(s->sandbox->listener, id, error) : seccomp_continue(s->sandbox->listener, id);

	check(s, r, "answer");
}

static void answer_later(struct supervisor *s, uint64_t id, int error, usec_t due)
{
	struct notify *n = &s->notify;
	size_t at = (n->first + n->count) % LATE_MAX;

	due = (due + BATCH - 1) / BATCH * BATCH;
	/* In order: the last one is the latest. */
	if (n->count > 0) {
		usec_t last = n->late[(at + LATE_MAX - 1) % LATE_MAX].due;

		due = due > last ? due : last;
	}
	n->late[at] = (struct late_reply){.id = id, .error = error, .due = due};
	n->count++;
	if (n->count == 1)
		s->due[DUE_REPLY] = due;
	n->paused = n->count == LATE_MAX;
}

void notify_due(struct supervisor *s)
{
	struct notify *n = &s->notify;
	usec_t now = now_monotonic();

	while (n->count > 0 && n->late[n->first].due <= now) {
		answer(s, n->late[n->first].id, n->late[n->first].error);
		n->first = (n->first + 1) % LATE_MAX;
		n->count--;
		n->paused = false;
	}
	s->due[DUE_REPLY] = n->count > 0 ? n->late[n->first].due : ZW_UNLIMITED;
}

/* When an answer of this price may go out, if it may be `burst` ahead of its turn. */
static usec_t bucket_turn(usec_t *next, usec_t now, usec_t price, usec_t burst)
{
	if (*next + burst < now)
		*next = now - burst;
	*next += price;
	return *next;
}

/* `times`: how often this very denial has been seen, 0 when it is one of too many different ones. */
static void answer_denial(struct supervisor *s, uint64_t id, int error, uint64_t times)
{
	usec_t now = now_monotonic(), delay, turn;

	if (times > 0 && times <= FLOOD_AFTER) {
		answer(s, id, error);
		return;
	}
	delay = (times > FLOOD_AFTER ? times - FLOOD_AFTER : FLOOD_DELAY_MAX) * FLOOD_STEP;
	delay = delay < FLOOD_DELAY_MAX ? delay : FLOOD_DELAY_MAX;
	turn = bucket_turn(&s->notify.next_denial, now, FLOOD_PRICE, 0);
	answer_later(s, id, error, turn > now + delay ? turn : now + delay);
}

static void answer_report(struct supervisor *s, uint64_t id)
{
	usec_t now = now_monotonic(), turn = bucket_turn(&s->notify.next_report, now, REPORT_PRICE, REPORT_BURST);

	if (turn <= now)
		answer(s, id, 0);
	else
		answer_later(s, id, 0, turn);
}

static bool is_power_of_ten(uint64_t n)
{
	while (n >= 10 && n % 10 == 0)
		n /= 10;
	return n == 1;
}

static const char *name_of_thread(pid_t pid, char *buf, size_t size)
{
	char path[32];
	ssize_t n;

	(void) snprintf(path, sizeof path, "/proc/%d/comm", (int) pid);
	n = fd_read_file_at(AT_FDCWD, path, buf, size);
	if (n <= 0)
		return NULL;
	buf[strcspn(buf, "\n")] = '\0';
	return buf;
}

static uint64_t record(struct supervisor *s, struct denial *what, const struct seccomp_notif *n)
{
	uint64_t times = denials_add(&s->result->denials, what);
	bool summary = times > 10;
	char comm[32], detail[256];

	if (s->workload->denied != NULL)
		s->workload->denied(s, what, n != NULL ? (pid_t) n->pid : 0);
	if (s->observer == NULL || times == 0 || (summary && !is_power_of_ten(times)))
		return times;
	what->count = times;
	if (n != NULL && !summary) {
		what->pid = (pid_t) n->pid;
		what->comm = name_of_thread((pid_t) n->pid, comm, sizeof comm);
		seccomp_format(&n->data, detail, sizeof detail);
		what->detail = detail;
	}
	s->observer->event(s->observer->ctx, &(struct event){.kind = summary ? EVENT_DENIALS_SUMMARISED : EVENT_DENIAL,
							     .when = now_realtime(),
							     .sandbox_id = s->plan->id,
							     .denial = what});
	return times;
}

void supervisor_denial(struct supervisor *s, struct denial *what)
{
	(void) record(s, what, NULL);
}

/* Address and port of a connect that the empty network namespace is going to refuse. False for what stays inside: loopback, and
 * the unspecified address, which means loopback to connect(2). */
static bool foreign_address(const void *addr, size_t size, char *ret_host, unsigned *ret_port)
{
	struct sockaddr_in6 six;
	struct sockaddr_in four;
	sa_family_t family;

	if (size < sizeof family)
		return false;
	memcpy(&family, addr, sizeof family);
	if (family == AF_INET && size >= sizeof four) {
		uint32_t host;

		memcpy(&four, addr, sizeof four);
		host = ntohl(four.sin_addr.s_addr);
		*ret_port = ntohs(four.sin_port);
		return host != INADDR_ANY && host >> 24 != IN_LOOPBACKNET &&
		       inet_ntop(AF_INET, &four.sin_addr, ret_host, INET6_ADDRSTRLEN) != NULL;
	}
	if (family == AF_INET6 && size >= sizeof six - sizeof six.sin6_scope_id) {
		six = (struct sockaddr_in6){0};
		memcpy(&six, addr, size < sizeof six ? size : sizeof six);
		*ret_port = ntohs(six.sin6_port);
		if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) || IN6_IS_ADDR_LOOPBACK(&six.sin6_addr))
			return false;
		if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr) &&
		    (six.sin6_addr.s6_addr[12] == IN_LOOPBACKNET || six.sin6_addr.s6_addr32[3] == 0))
			return false;
		return inet_ntop(AF_INET6, &six.sin6_addr, ret_host, INET6_ADDRSTRLEN) != NULL;
	}
	return false;
}

/* Without a network /etc/resolv.conf names a name server on loopback that nobody runs: a connect there is a look-up that is going
 * to fail. Its name is in a datagram that does not come by here. */
static bool is_lookup(const void *addr, size_t size)
{
	struct sockaddr_in four;

	if (size < sizeof four)
		return false;
	memcpy(&four, addr, sizeof four);
	return four.sin_family == AF_INET && ntohl(four.sin_addr.s_addr) == INADDR_LOOPBACK && ntohs(four.sin_port) == DNS_PORT;
}

static bool is_own_loopback(const struct net_address *a)
{
	if (a->family == AF_INET)
		return ntohl(a->v4.s_addr) >> 24 == IN_LOOPBACKNET || a->v4.s_addr == INADDR_ANY;
	return IN6_IS_ADDR_LOOPBACK(&a->v6) || IN6_IS_ADDR_UNSPECIFIED(&a->v6);
}

/* With rules: what ends in a socket of the broker is its affair to record. The rest the kernel refuses, by a reset or for want of
 * a route. Port 0 is what look-ups sort addresses with; nothing can be sent there. */
static void report_reach(struct supervisor *s, const struct seccomp_notif *n, const char *addr)
{
	struct sockaddr_storage sa = {0};
	char text[NET_ADDRESS_TEXT];
	const char *host;
	struct net_address a;
	uint16_t port = 0;
	uint64_t times;

	memcpy(&sa, addr, sizeof(struct sockaddr_in6));
	network_address_from((struct sockaddr *) &sa, &a, &port);
	if (a.family == AF_UNSPEC || port == 0 || is_own_loopback(&a) || network_plan_listens(s->plan, &a, port)) {
		answer_report(s, n->id);
		return;
	}
	host = egress_host(s, &a, text);
	times = record(s,
		       &(struct denial){.kind = "network",
					.host = host,
					.port = port,
					.rule = host != text ? egress_nearest(s, host, port) : NULL,
					.why = "no rule of network.allow covers it"},
		       n);
	answer_denial(s, n->id, 0, times);
}

static void report_connect(struct supervisor *s, const struct seccomp_notif *n)
{
	char addr[sizeof(struct sockaddr_in6)] = {0}, host[INET6_ADDRSTRLEN];
	size_t size = n->data.args[2] < sizeof addr ? (size_t) n->data.args[2] : sizeof addr;
	unsigned port = 0;
	uint64_t times;

	if (seccomp_peek(s->sandbox->listener, n, n->data.args[1], addr, size) != (ssize_t) size) {
		answer_report(s, n->id);
		return;
	}
	if (s->plan->transit.listener_count > 0) {
		report_reach(s, n, addr);
		return;
	}
	if (foreign_address(addr, size, host, &port)) {
		times = record(s, &(struct denial){.kind = "network", .host = host, .port = port}, n);
	} else if (is_lookup(addr, size)) {
		times = record(s, &(struct denial){.kind = "dns"}, n);
	} else {
		answer_report(s, n->id);
		return;
	}
	/* The kernel refuses it by itself: there is no way out of this network namespace. */
	answer_denial(s, n->id, 0, times);
}

static void report_exec(struct supervisor *s, const struct seccomp_notif *n)
{
	uint64_t at = n->data.nr == SYS_execveat ? n->data.args[1] : n->data.args[0];
	char path[1024];

	if (s->observer != NULL && seccomp_peek_string(s->sandbox->listener, n, at, path, sizeof path) >= 0)
		s->observer->event(s->observer->ctx, &(struct event){.kind = EVENT_EXEC,
								     .when = now_realtime(),
								     .sandbox_id = s->plan->id,
								     .text = path,
								     .pid = (pid_t) n->pid});
	answer_report(s, n->id);
}

static void report_open(struct supervisor *s, const struct seccomp_notif *n)
{
	bool at = n->data.nr == SYS_openat || n->data.nr == SYS_openat2;
	char path[PATH_MAX];
	uint64_t times = 1;

	if (seccomp_peek_string(s->sandbox->listener, n, n->data.args[at ? 1 : 0], path, sizeof path) > 0 &&
	    hidden_from_inside(s->sandbox->pid, (pid_t) n->pid, at ? (int) n->data.args[0] : AT_FDCWD, path, sizeof path))
		times = record(s, &(struct denial){.kind = "file", .name = path}, n);
	answer_denial(s, n->id, 0, times);
}

static void report(struct supervisor *s, const struct seccomp_notif *n)
{
	switch (n->data.nr) {
	case SYS_connect:
		report_connect(s, n);
		break;
	case SYS_execve:
	case SYS_execveat:
		report_exec(s, n);
		break;
#ifdef SYS_open
	case SYS_open:
	case SYS_creat:
#endif
	case SYS_openat:
	case SYS_openat2:
		report_open(s, n);
		break;
	default:
		answer(s, n->id, 0);
		break;
	}
}

void notify_ready(struct supervisor *s)
{
	struct seccomp_notif n;
	char name[32];
	int error = EPERM, r;
	uint64_t times;

	r = seccomp_receive(s->sandbox->listener, &n);
	if (r < 0) {
		check(s, r, "receive");
		return;
	}
	if (seccomp_judge(&s->plan->syscalls, &n.data, &error) == SECCOMP_VERDICT_CONTINUE) {
		report(s, &n);
		return;
	}
	/* Numbers of another table (int 0x80) mean other calls: to let one go on by its number here would be a way around the
	 * filter. */
	if (s->ops->answer != NULL && seccomp_is_native(&n.data) && s->ops->answer(s->sandbox, &n))
		return;
	seccomp_label(&n.data, name, sizeof name);
	times = record(s, &(struct denial){.kind = "syscall", .name = name}, &n);
	answer_denial(s, n.id, error, times);
}
