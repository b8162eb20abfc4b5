/* zwinger-files: works on files inside a sandbox for whoever is outside. files-protocol.h has the theory of operation, files.h
 * the shape of what runs here. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/files/files.h"

enum { FILES_FAULT = 70 }; /* exit status when requests are nonsense: the daemon is broken */

static const struct operation operations[] = {
    [FILES_READ] = {.step = read_step, .takes_pipe = true},
    [FILES_WRITE] = {.step = write_step, .release = write_release, .takes_pipe = true},
    [FILES_STAT] = {.step = stat_step},
    [FILES_LIST] = {.step = list_step},
    [FILES_MKDIR] = {.step = mkdir_step},
    [FILES_MOVE] = {.step = move_step, .release = move_release},
    [FILES_REMOVE] = {.step = remove_step, .release = remove_release},
    [FILES_WATCH] = {.step = watch_step},
    [FILES_USER] = {.step = user_step},
    [FILES_PACK] = {.step = pack_step, .release = pack_release, .takes_pipe = true},
    [FILES_UNPACK] = {.step = unpack_step, .takes_pipe = true},
};

const struct operation *operation_of(const struct job *j)
{
	return &operations[j->type];
}

void close_fd(int *fd)
{
	if (*fd >= 0)
		(void) close(*fd);
	*fd = -1;
}

void *job_state(struct job *j, size_t size)
{
	void *p;

	if (j->state_map != NULL)
		return j->state_map;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	j->state_map = p;
	j->state_size = size;
	return p;
}

enum step wait_for(struct job *j, int fd, short events)
{
	j->wait_fd = fd;
	j->wait_events = events;
	return STEP_WAIT;
}

static void release(struct files *f, struct job *j)
{
	if (operation_of(j)->release != NULL)
		operation_of(j)->release(f, j);
	close_fd(&j->pipe);
	close_fd(&j->file);
	close_fd(&j->folder);
	if (j->state_map != NULL)
		(void) munmap(j->state_map, j->state_size);
	j->used = false;
	while (f->used > 0 && !f->jobs[f->used - 1].used)
		f->used--;
}

static void run_step(struct files *f, struct job *j)
{
	j->wait_fd = -1;
	j->state = operation_of(j)->step(f, j);
	j->fresh = false;
	if (j->state == STEP_DONE)
		release(f, j);
}

/* ---- Requests. The daemon is trusted; sizes are checked all the same. ---- */

static struct job *find_job(struct files *f, uint32_t id)
{
	for (size_t i = 0; i < f->used; i++)
		if (f->jobs[i].used && f->jobs[i].id == id)
			return &f->jobs[i];
	return NULL;
}

/* Leaves the paths as they are: they are large, and written by whoever uses them. */
static struct job *new_job(struct files *f)
{
	struct job *j = NULL;

	for (size_t i = 0; i < f->used && j == NULL; i++)
		if (!f->jobs[i].used)
			j = &f->jobs[i];
	if (j == NULL && f->used < FILES_JOBS_MAX)
		j = &f->jobs[f->used++];
	if (j == NULL)
		return NULL;
	memset(j, 0, offsetof(struct job, path));
	j->path[0] = j->other[0] = j->final[0] = '\0';
	j->used = j->fresh = true;
	j->pipe = j->file = j->folder = j->wait_fd = -1;
	return j;
}

static void commit_or_cancel(struct files *f, const struct files_request *r)
{
	struct job *j = find_job(f, r->id);

	if (j == NULL) /* over already, which has been told */
		return;
	if (r->type == FILES_CANCEL && j->type == FILES_MOVE) {
		j->ended = true; /* it has to clear up first, or is past that */
	} else if (r->type == FILES_CANCEL) {
		(void) done(f, j, ECANCELED);
		release(f, j);
	} else if (j->type == FILES_WRITE || j->type == FILES_UNPACK) {
		j->committed = true;
		j->length = r->length;
		j->state = STEP_AGAIN;
	}
}

static int take_paths(struct files *f, struct job *j, const struct files_request *r)
{
	const char *path = f->in.bytes + sizeof *r;
	int error;

	if (j->type == FILES_USER) { /* a name, not a path */
		if (r->path_size > FILES_USER_MAX)
			return ENOENT;
		memcpy(j->path, path, r->path_size);
		j->path[r->path_size] = '\0';
		return 0;
	}
	error = path_clean(f->home, path, r->path_size, j->path);
	if (error == 0 && r->other_size > 0)
		error = path_clean(f->home, path + r->path_size, r->other_size, j->other);
	return error;
}

static bool is_well_formed(const struct files_request *r, size_t size)
{
	return size >= sizeof *r && r->type >= FILES_READ && r->type <= FILES_UNPACK && r->path_size < FILES_PATH_MAX &&
	       r->other_size < FILES_PATH_MAX && r->data_size <= FILES_WHOLE_MAX && r->metadata_size <= FILES_METADATA_MAX &&
	       size == sizeof *r + r->path_size + r->other_size + r->metadata_size + r->data_size;
}

/* Takes the pipe over. */
static void start_job(struct files *f, const struct files_request *r, int pipe)
{
	struct job refused = {.id = r->id}, *j = new_job(f);
	bool wants_pipe;
	int error;

	if (j == NULL) {
		(void) done(f, &refused, EAGAIN);
		close_fd(&pipe);
		return;
	}
	j->id = r->id;
	j->type = r->type;
	j->flags = r->flags;
	j->mode = r->mode & 0777;
	j->limit = r->limit;
	j->depth = r->depth;
	j->offset = r->offset;
	j->length = r->length;
	j->pipe = pipe;
	j->metadata = f->in.bytes + sizeof *r + r->path_size + r->other_size;
	j->metadata_size = r->metadata_size;
	j->data = j->metadata + j->metadata_size;
	j->data_size = r->data_size;
	error = take_paths(f, j, r);
	wants_pipe = operation_of(j)->takes_pipe && (j->flags & FILES_WHOLE) == 0;
	if (error == 0 && wants_pipe && (pipe < 0 || fcntl(pipe, F_SETFL, O_NONBLOCK) < 0))
		error = EMFILE; /* it did not arrive (unix(7), MSG_CTRUNC) */
	if (error == 0) {
		run_step(f, j);
		return;
	}
	(void) done(f, j, error);
	j->type = FILES_STAT; /* nothing was begun that would have to be undone */
	release(f, j);
}

/* Returns false when there is no more for now. */
static bool take_request(struct files *f)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = f->in.bytes, .iov_len = sizeof f->in.bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof control.buf};
	const struct cmsghdr *c;
	ssize_t n = recvmsg(FILES_REQUEST_FD, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	int pipe = -1;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		for (size_t i = 0; i < f->used; i++)
			if (f->jobs[i].used)
				release(f, &f->jobs[i]);
		_exit(0);
	}
	c = CMSG_FIRSTHDR(&msg);
	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof pipe))
		memcpy(&pipe, CMSG_DATA(c), sizeof pipe);
	if (!is_well_formed(&f->in.head, (size_t) n))
		_exit(FILES_FAULT);
	if (f->in.head.type != FILES_COMMIT && f->in.head.type != FILES_CANCEL) {
		start_job(f, &f->in.head, pipe);
		return true;
	}
	close_fd(&pipe);
	commit_or_cancel(f, &f->in.head);
	return true;
}

/* ---- The loop. ---- */

static void run_ready(struct files *f, const struct pollfd *ready, const uint8_t *who, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (ready[i].revents != 0)
			f->jobs[who[i]].state = STEP_AGAIN;
	f->names[0].valid = f->names[1].valid = false;
	for (size_t i = 0; i < f->used; i++)
		if (f->jobs[i].used && f->jobs[i].state == STEP_AGAIN)
			run_step(f, &f->jobs[i]);
}

static void loop(struct files *f)
{
	struct pollfd fds[1 + FILES_JOBS_MAX] = {{.fd = FILES_REQUEST_FD, .events = POLLIN}};
	uint8_t who[FILES_JOBS_MAX];
	bool busy = false;
	size_t count = 0;

	for (size_t i = 0; i < f->used; i++) {
		const struct job *j = &f->jobs[i];

		if (!j->used)
			continue;
		busy |= j->state == STEP_AGAIN;
		if (j->state != STEP_WAIT || j->wait_fd < 0)
			continue;
		fds[1 + count] = (struct pollfd){.fd = j->wait_fd, .events = j->wait_events};
		who[count++] = (uint8_t) i;
	}
	answer_flush(f);
	if (poll(fds, 1 + count, busy ? 0 : -1) < 0)
		return;
	run_ready(f, fds + 1, who, count);
	/* A few at a time, so that many short ones do not keep the long ones waiting. */
	for (int i = 0; fds[0].revents != 0 && i < 16 && take_request(f); i++)
		;
}

/* Writing into a pipe that nobody reads and beyond the limit of file sizes become errors. */
static void ignore_signals(void)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};

	(void) sigaction(SIGPIPE, &ignore, NULL);
	(void) sigaction(SIGXFSZ, &ignore, NULL);
}

/* The only argument is HOME. */
int main(int argc, char **argv)
{
	struct files *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *home = argc > 1 ? argv[1] : "/";

	if (f == MAP_FAILED || path_clean("/", home, strlen(home), f->home) != 0)
		return FILES_FAULT;
	ignore_signals();
	(void) umask(0); /* modes are given when things are made: at process level nobody may change them later */
	/* Convenience, not a wall: programs beside us that look for something to trace find others first. */
	(void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void) prctl(PR_SET_NAME, "zwinger-files", 0, 0, 0);
	if (fcntl(FILES_REQUEST_FD, F_SETFD, FD_CLOEXEC) < 0)
		return FILES_FAULT;
	for (;;)
		loop(f);
}
