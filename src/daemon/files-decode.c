#include "daemon/files-decode.h"

#include <string.h>
#include <sys/stat.h>

/* What is left of a body. */
struct rest {
	const char *at;
	size_t size;
};

static bool take(struct rest *r, void *ret, size_t size)
{
	if (size > r->size)
		return false;
	memcpy(ret, r->at, size);
	r->at += size;
	r->size -= size;
	return true;
}

/* `size` bytes without NUL into `ret`, which has room for FILES_PATH_MAX, and a NUL. */
static bool take_text(struct rest *r, size_t size, char *ret)
{
	if (size >= FILES_PATH_MAX || !take(r, ret, size) || memchr(ret, '\0', size) != NULL)
		return false;
	ret[size] = '\0';
	return true;
}

/* Whoever lives inside writes its /etc/passwd: an odd name is no fault of the program, but none that we pass on. */
static void clean_name(char *name)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+$";

	if (name[strspn(name, allowed)] != '\0')
		name[0] = '\0';
}

static bool is_mode(uint32_t mode)
{
	if ((mode & ~(uint32_t) (S_IFMT | 07777)) != 0)
		return false;
	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return true;
	default:
		return false;
	}
}

/* Anybody can give a file any time. */
static int64_t clamp_time(int64_t seconds)
{
	static const int64_t first = -62135596800, last = 253402300799; /* of the years 1 and 9999 */

	if (seconds < first)
		return first;
	return seconds > last ? last : seconds;
}

static const char *check_stat(const struct files_stat *s)
{
	bool link = S_ISLNK(s->mode);

	if (!is_mode(s->mode))
		return "no file type";
	if (link ? s->target_mode != 0 && !is_mode(s->target_mode) : s->target_mode != 0 || s->target_size != 0)
		return "a wrong target";
	if (s->size > INT64_MAX || s->mtime_nsec >= 1000000000)
		return "an impossible size or time";
	if (s->user_size > FILES_USER_MAX || s->group_size > FILES_USER_MAX)
		return "too long a name";
	if (s->metadata_size > FILES_METADATA_MAX)
		return "too much metadata";
	return s->reserved != 0 ? "a reserved field set" : NULL;
}

/* Names and values in turn, each with its NUL. Bytes may be any; no name is empty or longer than one can be. */
static bool take_metadata(struct rest *r, size_t size, char *ret)
{
	bool is_name = true;

	if (!take(r, ret, size) || (size > 0 && ret[size - 1] != '\0'))
		return false;
	for (size_t at = 0; at < size; is_name = !is_name) {
		size_t length = strlen(ret + at);

		if (is_name && (length == 0 || length > FILES_METADATA_NAME_MAX))
			return false;
		at += length + 1;
	}
	return is_name;
}

static const char *take_entry(struct rest *r, struct files_decoded *d)
{
	struct files_stat s;
	const char *fault;

	if (!take(r, &s, sizeof s))
		return "half an entry";
	fault = check_stat(&s);
	if (fault != NULL)
		return fault;
	if (!take_text(r, s.path_size, d->texts[0]) || !take_text(r, s.target_size, d->texts[1]) ||
	    !take_text(r, s.user_size, d->texts[2]) || !take_text(r, s.group_size, d->texts[2] + FILES_USER_MAX + 1))
		return "no text";
	if (!take_metadata(r, s.metadata_size, d->metadata))
		return "no metadata";
	if (d->texts[0][0] != '/')
		return "a path that is not absolute";
	clean_name(d->texts[2]);
	clean_name(d->texts[2] + FILES_USER_MAX + 1);
	d->has_entry = true;
	d->entry = (struct files_entry){
	    .path = d->texts[0],
	    .target = S_ISLNK(s.mode) ? d->texts[1] : NULL,
	    .user = d->texts[2],
	    .group = d->texts[2] + FILES_USER_MAX + 1,
	    .size = s.size,
	    .mtime = clamp_time(s.mtime),
	    .mtime_nsec = s.mtime_nsec,
	    .mode = s.mode,
	    .target_mode = s.target_mode,
	    .uid = s.uid,
	    .gid = s.gid,
	    .metadata = d->metadata,
	    .metadata_size = s.metadata_size,
	};
	return NULL;
}

static const char *take_opened(struct rest *r, struct files_decoded *d)
{
	if (!take(r, &d->opened, sizeof d->opened))
		return "half an answer";
	if (d->opened.offset > INT64_MAX || (d->opened.length > INT64_MAX && d->opened.length != UINT64_MAX))
		return "an impossible range";
	return r->size > 0 ? take_entry(r, d) : NULL;
}

static const char *take_event(struct rest *r, struct files_decoded *d)
{
	const struct files_event *v = &d->event;

	if (!take(r, &d->event, sizeof d->event))
		return "half an answer";
	if (v->kind < FILES_EVENT_CREATE || v->kind > FILES_EVENT_OVERFLOW || v->has_entry > 1 || v->folder > 1)
		return "an unknown kind of event";
	if (!take_text(r, v->path_size, d->texts[3]))
		return "no text";
	if (v->kind == FILES_EVENT_OVERFLOW ? v->path_size > 0 || v->has_entry > 0 : d->texts[3][0] != '/')
		return "an event with a wrong path";
	d->path = d->texts[3];
	return v->has_entry > 0 ? take_entry(r, d) : NULL;
}

static const char *take_done(struct rest *r, struct files_decoded *d)
{
	if (!take(r, &d->done, sizeof d->done))
		return "half an answer";
	if (d->done.error < 0 || d->done.error > 4095 || (d->done.flags & ~(uint32_t) FILES_DONE_FLAGS) != 0)
		return "an unknown end";
	if (d->done.bytes > INT64_MAX)
		return "an impossible size or time";
	return (d->done.flags & FILES_DONE_ENTRY) != 0 ? take_entry(r, d) : NULL;
}

const char *files_check_head(const struct files_answer *head)
{
	if (head->reserved != 0)
		return "a reserved field set";
	if (head->type < FILES_OPENED || head->type > FILES_DONE)
		return "an unknown type";
	return head->size > FILES_BODY_MAX ? "too large an answer" : NULL;
}

const char *files_decode(const struct files_answer *head, const void *body, struct files_decoded *ret)
{
	struct rest r = {.at = body, .size = head->size};
	const char *fault;

	ret->type = head->type;
	ret->id = head->id;
	ret->has_entry = false;
	ret->path = NULL;
	switch (head->type) {
	case FILES_OPENED:
		fault = take_opened(&r, ret);
		break;
	case FILES_ENTRY:
		fault = take_entry(&r, ret);
		break;
	case FILES_EVENT:
		fault = take_event(&r, ret);
		break;
	default:
		fault = take_done(&r, ret);
		break;
	}
	return fault == NULL && r.size > 0 ? "more bytes than an answer has" : fault;
}
