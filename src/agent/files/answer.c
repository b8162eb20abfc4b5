/* Answers are gathered in one buffer, which goes out before the program waits. The pipe blocks: whoever reads slowly slows us. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/files.h"

void answer_flush(struct files *f)
{
	size_t sent = 0;

	while (sent < f->out_size) {
		ssize_t n = write(FILES_ANSWER_FD, f->out + sent, f->out_size - sent);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			_exit(0); /* the daemon is gone, and with it soon the sandbox */
		sent += (size_t) n;
	}
	f->out_size = 0;
}

/* Returns where the answer begins. */
static size_t begin(struct files *f, const struct job *j, uint16_t type)
{
	const struct files_answer head = {.type = type, .id = j->id};

	if (sizeof f->out - f->out_size < sizeof head + FILES_BODY_MAX)
		answer_flush(f);
	memcpy(f->out + f->out_size, &head, sizeof head);
	f->out_size += sizeof head;
	return f->out_size - sizeof head;
}

static void add(struct files *f, const void *data, size_t size)
{
	memcpy(f->out + f->out_size, data, size);
	f->out_size += size;
}

/* Returns the bytes of the answer. */
static size_t end(struct files *f, size_t start)
{
	uint32_t size = (uint32_t) (f->out_size - start - sizeof(struct files_answer));

	memcpy(f->out + start + offsetof(struct files_answer, size), &size, sizeof size);
	return f->out_size - start;
}

/* ---- Entries. ---- */

int describe(const char *path, unsigned flags, struct described *ret)
{
	ret->path = path;
	ret->flags = flags;
	return lstat(path, &ret->st) < 0 ? errno : 0;
}

/* Where the link leads in the end, as the kernel says it. 0: nowhere that has a path. */
static size_t real_target(const char *path, char *ret)
{
	char link[32] = "/proc/self/fd/", digits[12];
	size_t at = strlen(link), count = 0;
	int fd = open(path, O_PATH | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	for (int number = fd; number > 0 || count == 0; number /= 10)
		digits[count++] = (char) ('0' + number % 10);
	while (count > 0)
		link[at++] = digits[--count];
	n = readlink(link, ret, FILES_PATH_MAX - 1);
	close_fd(&fd);
	return n > 0 && ret[0] == '/' ? (size_t) n : 0;
}

static size_t target_of(const struct described *d, char *ret)
{
	size_t size = (d->flags & FILES_REAL) != 0 ? real_target(d->path, ret) : 0;
	ssize_t n;

	if (size > 0)
		return size;
	n = readlink(d->path, ret, FILES_PATH_MAX - 1);
	return n > 0 ? (size_t) n : 0;
}

static uint8_t cached_name(struct files *f, unsigned which, uint32_t id, const char **ret)
{
	if (!f->names[which].valid || f->names[which].id != id) {
		f->names[which].valid = true;
		f->names[which].id = id;
		f->names[which].size =
		    (uint8_t) (which == 0 ? user_name(id, f->names[0].name) : group_name(id, f->names[1].name));
	}
	*ret = f->names[which].name;
	return f->names[which].size;
}

static void add_entry(struct files *f, const struct described *d)
{
	char target[FILES_PATH_MAX], metadata[FILES_METADATA_MAX];
	const char *user, *group;
	struct stat followed;
	struct files_stat s = {
	    .size = (uint64_t) d->st.st_size,
	    .mtime = d->st.st_mtim.tv_sec,
	    .mtime_nsec = (uint32_t) d->st.st_mtim.tv_nsec,
	    .mode = d->st.st_mode,
	    .uid = d->st.st_uid,
	    .gid = d->st.st_gid,
	    .path_size = (uint16_t) strlen(d->path),
	};

	if (S_ISLNK(d->st.st_mode)) {
		s.target_size = (uint16_t) target_of(d, target);
		s.target_mode = stat(d->path, &followed) == 0 ? followed.st_mode : 0;
	}
	s.user_size = cached_name(f, 0, s.uid, &user);
	s.group_size = cached_name(f, 1, s.gid, &group);
	if ((d->flags & FILES_METADATA) != 0)
		s.metadata_size = (uint16_t) metadata_read(d->path, -1, metadata);
	add(f, &s, sizeof s);
	add(f, d->path, s.path_size);
	add(f, target, s.target_size);
	add(f, user, s.user_size);
	add(f, group, s.group_size);
	add(f, metadata, s.metadata_size);
}

size_t answer_entry(struct files *f, const struct job *j, const struct described *d)
{
	size_t start = begin(f, j, FILES_ENTRY);

	add_entry(f, d);
	return end(f, start);
}

void answer_opened(struct files *f, const struct job *j, uint64_t offset, uint64_t length, const struct described *d)
{
	const struct files_opened body = {.length = length, .offset = offset};
	size_t start = begin(f, j, FILES_OPENED);

	add(f, &body, sizeof body);
	if (d != NULL)
		add_entry(f, d);
	(void) end(f, start);
}

void answer_event(struct files *f, const struct job *j, enum files_event_kind kind, const char *path, bool folder,
		  const struct described *d)
{
	const struct files_event body = {
	    .kind = (uint16_t) kind, .path_size = (uint16_t) strlen(path), .has_entry = d != NULL, .folder = folder};
	size_t start = begin(f, j, FILES_EVENT);

	add(f, &body, sizeof body);
	add(f, path, body.path_size);
	if (d != NULL)
		add_entry(f, d);
	(void) end(f, start);
}

static enum step send_done(struct files *f, const struct job *j, const struct files_done *body, const struct described *d)
{
	size_t start = begin(f, j, FILES_DONE);

	add(f, body, sizeof *body);
	if (d != NULL)
		add_entry(f, d);
	(void) end(f, start);
	return STEP_DONE;
}

enum step done_with(struct files *f, const struct job *j, int error, uint32_t flags, const struct described *d)
{
	const struct files_done body = {.error = error, .flags = flags | (d != NULL ? FILES_DONE_ENTRY : 0), .bytes = j->count};

	return send_done(f, j, &body, d);
}

enum step done(struct files *f, const struct job *j, int error)
{
	return done_with(f, j, error, 0, NULL);
}

enum step done_user(struct files *f, const struct job *j, uint32_t uid, uint32_t gid)
{
	const struct files_done body = {.uid = uid, .gid = gid};

	return send_done(f, j, &body, NULL);
}
