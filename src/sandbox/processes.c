#include "sandbox/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

enum {
	PROC_NUMBERS_MAX = 4096, /* processes looked at in one walk */
	MEMFDS_MAX = 16384,
	SIGNAL_ROUNDS = 64,
	PF_EXITING = 0x4, /* flags of proc_pid_stat(5); the bit is old and stable */
};

/* Pids found and not looked at yet, and those that were: the tree is walked breadth first. */
struct queue {
	pid_t *pids;
	size_t count, room;
};

static void queue_add(struct queue *q, pid_t pid)
{
	if (q->count >= PROC_NUMBERS_MAX)
		return;
	if (q->count == q->room) {
		q->room = q->room == 0 ? 64 : q->room * 2;
		q->pids = xrealloc(q->pids, q->room, sizeof *q->pids);
	}
	q->pids[q->count++] = pid;
}

/* The number at *p, which is moved behind it. */
static uint64_t next_number(const char **p)
{
	char *end;
	uint64_t n;

	n = strtoull(*p, &end, 10);
	*p = end;
	return n;
}

static void add_numbers(struct queue *q, const char *list)
{
	while (*list != '\0') {
		uint64_t n;

		if (!isdigit((unsigned char) *list)) {
			list++;
			continue;
		}
		n = next_number(&list);
		if (n > 0 && n <= INT32_MAX)
			queue_add(q, (pid_t) n);
	}
}

static ssize_t read_proc(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];

	(void) snprintf(path, sizeof path, "/proc/%d/%s", (int) pid, name);
	return fd_read_file_at(AT_FDCWD, path, buf, size);
}

/* Every thread has its own list of the children it made (CONFIG_PROC_CHILDREN). -ENOENT where the kernel has none. */
static int add_children(struct queue *q, pid_t pid)
{
	char path[64], buf[8192];
	struct dirent *d;
	int result = 0;
	DIR *tasks;

	(void) snprintf(path, sizeof path, "/proc/%d/task", (int) pid);
	tasks = opendir(path);
	if (tasks == NULL)
		return 0; /* it is gone */
	for (d = readdir(tasks); d != NULL; d = readdir(tasks)) {
		ssize_t n;

		if (!isdigit((unsigned char) d->d_name[0]))
			continue;
		(void) snprintf(path, sizeof path, "%.20s/children", d->d_name);
		n = fd_read_file_at(dirfd(tasks), path, buf, sizeof buf);
		if (n > 0)
			add_numbers(q, buf);
		else if (n == -ENOENT && faccessat(dirfd(tasks), d->d_name, F_OK, 0) == 0)
			result = -ENOENT;
	}
	(void) closedir(tasks);
	return result;
}

/* proc_pid_stat(5). The name may hold anything, so what follows is found from its last parenthesis. */
static bool read_stat(pid_t pid, struct process *ret)
{
	static const unsigned at_parent = 4, at_session = 6, at_flags = 9, at_utime = 14, at_cstime = 17, at_threads = 20,
			      at_resident = 24;
	usec_t tick = USEC_PER_SEC / (usec_t) sysconf(_SC_CLK_TCK);
	uint64_t flags = 0, page = (uint64_t) sysconf(_SC_PAGESIZE);
	const char *name, *p;
	char buf[1024];

	*ret = (struct process){.pid = pid};
	if (read_proc(pid, "stat", buf, sizeof buf) <= 0)
		return false;
	name = strchr(buf, '(');
	p = strrchr(buf, ')');
	if (name == NULL || p == NULL || p[1] != ' ')
		return false;
	(void) snprintf(ret->comm, sizeof ret->comm, "%.*s", (int) (p - name - 1), name + 1);
	ret->dying = p[2] == 'Z' || p[2] == 'X';
	ret->zombie = ret->dying;
	p += 3;
	for (unsigned field = at_parent; field <= at_resident; field++) {
		uint64_t value = next_number(&p);

		if (field == at_parent)
			ret->parent = (pid_t) value;
		else if (field == at_session)
			ret->session = (pid_t) value;
		else if (field == at_flags)
			flags = value;
		else if (field >= at_utime && field <= at_cstime)
			ret->cpu += value * tick;
		else if (field == at_threads)
			ret->threads = value;
		else if (field == at_resident)
			ret->resident = value * page;
	}
	ret->dying = ret->dying || (flags & PF_EXITING) != 0;
	return true;
}

/* Without lists of children: all of /proc, again and again, until no process turns up whose parent is known. */
static void add_tree_by_parents(struct queue *q, pid_t agent)
{
	bool more = true;

	while (more) {
		DIR *proc = opendir("/proc");
		struct dirent *d;

		more = false;
		if (proc == NULL)
			return;
		for (d = readdir(proc); d != NULL; d = readdir(proc)) {
			const char *text = d->d_name;
			pid_t pid;
			struct process p;
			bool known = false, child = false;

			if (!isdigit((unsigned char) text[0]))
				continue;
			pid = (pid_t) next_number(&text);
			if (!read_stat(pid, &p))
				continue;
			child = p.parent == agent;
			for (size_t i = 0; i < q->count; i++) {
				known |= q->pids[i] == pid;
				child |= q->pids[i] == p.parent;
			}
			if (known || !child || q->count >= PROC_NUMBERS_MAX)
				continue;
			queue_add(q, pid);
			more = true;
		}
		(void) closedir(proc);
	}
}

void processes_walk(pid_t agent, bool with_agent, bool (*found)(void *ctx, const struct process *p), void *ctx)
{
	struct queue q = {0};
	struct process p;

	queue_add(&q, agent);
	for (size_t i = 0; i < q.count; i++)
		if (add_children(&q, q.pids[i]) == -ENOENT) {
			q.count = 1;
			add_tree_by_parents(&q, agent);
			break;
		}
	for (size_t i = with_agent ? 0 : 1; i < q.count; i++)
		if (read_stat(q.pids[i], &p) && !found(ctx, &p))
			break;
	free(q.pids);
}

static bool kill_is_pending(const char *status, const char *key)
{
	const char *p = strstr(status, key);

	return p != NULL && (strtoull(p + strlen(key), NULL, 16) & UINT64_C(1) << (SIGKILL - 1)) != 0;
}

/* The pid that the innermost namespace gives it: the last one of NSpid (proc_pid_status(5)). */
static pid_t pid_inside(pid_t pid, bool *ret_kill_pending)
{
	char buf[4096];
	const char *p;
	uint64_t last = 0;

	*ret_kill_pending = false;
	if (read_proc(pid, "status", buf, sizeof buf) <= 0)
		return 0;
	*ret_kill_pending = kill_is_pending(buf, "\nSigPnd:") || kill_is_pending(buf, "\nShdPnd:");
	p = strstr(buf, "\nNSpid:");
	if (p == NULL)
		return 0;
	p += strlen("\nNSpid:");
	while (*p == ' ' || *p == '\t' || isdigit((unsigned char) *p)) {
		if (isdigit((unsigned char) *p))
			last = next_number(&p);
		else
			p++;
	}
	return (pid_t) last;
}

struct measure {
	pid_t agent, main_inside;
	struct processes_sum *sum;
};

static bool measure_one(void *ctx, const struct process *p)
{
	struct measure *m = ctx;
	bool kill_pending;

	m->sum->cpu += p->cpu;
	if (p->pid == m->agent)
		return true;
	m->sum->processes++;
	m->sum->tasks += p->threads;
	m->sum->resident += p->resident;
	if (p->resident > m->sum->largest.resident)
		m->sum->largest = *p;
	if (m->main_inside > 0 && m->sum->main.pid == 0 && pid_inside(p->pid, &kill_pending) == m->main_inside) {
		m->sum->main = *p;
		m->sum->main.dying |= kill_pending;
	}
	return true;
}

void processes_measure(pid_t agent, pid_t main_inside, struct processes_sum *ret)
{
	struct measure m = {.agent = agent, .main_inside = main_inside, .sum = ret};

	*ret = (struct processes_sum){0};
	processes_walk(agent, true, measure_one, &m);
}

struct top {
	struct process *list;
	size_t count, max;
};

static bool top_one(void *ctx, const struct process *p)
{
	struct top *top = ctx;
	size_t at = top->count;

	if (p->dying)
		return true;
	while (at > 0 && top->list[at - 1].resident < p->resident)
		at--;
	if (at == top->max)
		return true;
	if (top->count < top->max)
		top->count++;
	memmove(&top->list[at + 1], &top->list[at], (top->count - 1 - at) * sizeof *p);
	top->list[at] = *p;
	return true;
}

size_t processes_largest(pid_t agent, struct process *list, size_t max)
{
	struct top top = {.list = list, .max = max};

	processes_walk(agent, false, top_one, &top);
	return top.count;
}

struct search {
	pid_t pid;
	bool found;
};

static bool search_one(void *ctx, const struct process *p)
{
	struct search *s = ctx;

	s->found |= p->pid == s->pid;
	return !s->found;
}

int processes_kill(pid_t agent, pid_t pid)
{
	/* First the handle, then the look whether it still is one of ours: after that the number cannot come to mean another. */
	cleanup_fd int fd = (int) syscall(SYS_pidfd_open, pid, 0);
	struct search s = {.pid = pid};

	if (fd < 0)
		return -errno;
	processes_walk(agent, false, search_one, &s);
	if (!s.found)
		return -ESRCH;
	return syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) < 0 ? -errno : 0;
}

struct find {
	pid_t inside, found;
	bool dying;
};

static bool find_one(void *ctx, const struct process *p)
{
	struct find *f = ctx;
	bool kill_pending;

	if (pid_inside(p->pid, &kill_pending) != f->inside)
		return true;
	f->found = p->pid;
	f->dying = p->dying || kill_pending;
	return false;
}

pid_t processes_find(pid_t agent, pid_t inside, bool *ret_dying)
{
	struct find f = {.inside = inside};

	processes_walk(agent, false, find_one, &f);
	if (ret_dying != NULL)
		*ret_dying = f.dying;
	return f.found;
}

struct dying {
	pid_t agent;
	bool any;
};

static bool dying_one(void *ctx, const struct process *p)
{
	struct dying *d = ctx;
	bool kill_pending;

	if (p->zombie)
		d->any = p->parent == d->agent;
	else
		d->any = p->dying || (pid_inside(p->pid, &kill_pending) != 0 && kill_pending);
	return !d->any;
}

bool processes_any_dying(pid_t agent)
{
	struct dying d = {.agent = agent};

	processes_walk(agent, false, dying_one, &d);
	return d.any;
}

struct members {
	pid_t root; /* 0: all */
	struct process *list;
	size_t count;
	usec_t cpu;
};

static void members_add(struct members *m, const struct process *p)
{
	if (m->count % 64 == 0)
		m->list = xrealloc(m->list, m->count + 64, sizeof *m->list);
	m->list[m->count++] = *p;
}

/* Parents come before their children. */
static bool member_one(void *ctx, const struct process *p)
{
	struct members *m = ctx;
	bool in = m->root == 0 || p->pid == m->root || p->session == m->root;

	for (size_t i = 0; i < m->count && !in; i++)
		in = m->list[i].pid == p->parent;
	if (!in)
		return true;
	members_add(m, p);
	m->cpu += p->cpu;
	return true;
}

usec_t processes_tree_cpu(pid_t agent, pid_t root)
{
	struct members m = {.root = root};

	processes_walk(agent, false, member_one, &m);
	free(m.list);
	return m.cpu;
}

/* The handle first, then the look whether the number still is that process's. */
static void signal_process(const struct process *p, int number)
{
	cleanup_fd int fd = (int) syscall(SYS_pidfd_open, p->pid, 0);
	struct process now;

	if (fd >= 0 && read_stat(p->pid, &now) && now.session == p->session && now.parent == p->parent)
		(void) syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
}

static bool is_listed(const struct members *m, pid_t pid)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->list[i].pid == pid)
			return true;
	return false;
}

/* Signals those that are not in `known`, which they join. Children come before their parents, whose death would give them another
 * one. Returns how many there were. */
static size_t signal_members(pid_t agent, struct members *known, int number)
{
	struct members m = {.root = known->root};
	size_t news = 0;

	processes_walk(agent, false, member_one, &m);
	for (size_t i = m.count; i-- > 0;) {
		if (m.list[i].zombie || is_listed(known, m.list[i].pid))
			continue;
		news++;
		signal_process(&m.list[i], number);
		members_add(known, &m.list[i]);
	}
	free(m.list);
	return news;
}

/* One that has a SIGKILL or SIGSTOP coming starts nothing any more, so a few rounds find them all. Returns how many the last one
 * found. */
static size_t signal_until_none(pid_t agent, pid_t root, int number)
{
	struct members known = {.root = root};
	size_t news = 1;

	for (int round = 0; round < SIGNAL_ROUNDS && news > 0; round++)
		news = signal_members(agent, &known, number);
	free(known.list);
	return news;
}

size_t processes_signal_tree(pid_t agent, pid_t root, int number)
{
	struct members known = {.root = root};
	size_t count;

	/* Stopped first: the children of one that dies before they are found would be nobody's. */
	if (number == SIGKILL)
		(void) signal_until_none(agent, root, SIGSTOP);
	count = signal_members(agent, &known, number);
	free(known.list);
	return count;
}

bool processes_tree_has(pid_t agent, pid_t root, pid_t pid)
{
	struct members m = {.root = root};
	bool has;

	processes_walk(agent, false, member_one, &m);
	has = is_listed(&m, pid);
	free(m.list);
	return has;
}

int processes_tree_open(pid_t agent, pid_t root)
{
	struct members m = {.root = root};
	int fd = -ENOENT;

	processes_walk(agent, false, member_one, &m);
	for (size_t i = 0; i < m.count && fd < 0; i++)
		if (!m.list[i].zombie)
			fd = (int) syscall(SYS_pidfd_open, m.list[i].pid, 0);
	free(m.list);
	return fd < 0 ? -ENOENT : fd;
}

bool processes_stop(pid_t agent)
{
	return signal_until_none(agent, 0, SIGSTOP) == 0;
}

void processes_continue(pid_t agent)
{
	struct members known = {.root = 0};

	(void) signal_members(agent, &known, SIGCONT);
	free(known.list);
}

struct pss {
	uint64_t sum, shmem;
};

static uint64_t rollup_value(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	if (p == NULL)
		return 0;
	p += strlen(key);
	return next_number(&p) * 1024;
}

static bool pss_one(void *ctx, const struct process *p)
{
	struct pss *pss = ctx;
	char buf[2048];
	uint64_t shmem;

	if (p->dying)
		return true;
	if (read_proc(p->pid, "smaps_rollup", buf, sizeof buf) <= 0) {
		pss->sum += p->resident; /* not ours to look into: count too much rather than too little */
		return true;
	}
	shmem = rollup_value(buf, "\nPss_Shmem:");
	pss->sum += rollup_value(buf, "\nPss:") - shmem;
	pss->shmem += shmem;
	return true;
}

uint64_t processes_pss(pid_t agent, uint64_t *ret_shmem)
{
	struct pss pss = {0};

	processes_walk(agent, false, pss_one, &pss);
	*ret_shmem = pss.shmem;
	return pss.sum;
}

struct memfd {
	ino_t inode;
	uint64_t bytes;
};

struct memfds {
	struct memfd items[MEMFDS_MAX];
	size_t count;
};

static bool memfds_of_one(void *ctx, const struct process *p)
{
	struct memfds *all = ctx;
	struct dirent *d;
	char path[32];
	DIR *dir;

	(void) snprintf(path, sizeof path, "/proc/%d/fd", (int) p->pid);
	dir = opendir(path);
	if (dir == NULL)
		return true;
	for (d = readdir(dir); d != NULL && all->count < MEMFDS_MAX; d = readdir(dir)) {
		static const char prefix[] = "/memfd:";
		char target[sizeof prefix] = "";
		struct stat st;

		if (readlinkat(dirfd(dir), d->d_name, target, sizeof target - 1) < 0 || strcmp(target, prefix) != 0)
			continue;
		if (fstatat(dirfd(dir), d->d_name, &st, 0) == 0)
			all->items[all->count++] = (struct memfd){.inode = st.st_ino, .bytes = (uint64_t) st.st_blocks * 512};
	}
	(void) closedir(dir);
	return all->count < MEMFDS_MAX;
}

static int compare_memfds(const void *a, const void *b)
{
	const struct memfd *x = a, *y = b;

	return x->inode < y->inode ? -1 : x->inode > y->inode;
}

uint64_t processes_memfd(pid_t agent)
{
	struct memfds *all = xcalloc(1, sizeof *all);
	uint64_t sum = 0;

	processes_walk(agent, false, memfds_of_one, all);
	qsort(all->items, all->count, sizeof all->items[0], compare_memfds);
	for (size_t i = 0; i < all->count; i++)
		if (i == 0 || all->items[i].inode != all->items[i - 1].inode)
			sum += all->items[i].bytes;
	free(all);
	return sum;
}
