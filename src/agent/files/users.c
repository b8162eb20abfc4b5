/* Names of users and groups from /etc/passwd and /etc/group inside: whoever lives there may have written anything into them, or
 * put a FIFO in their place. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/files.h"

enum { FILE_MAX = 1 << 20 };

struct lines {
	int fd;
	size_t size, at, total;
	char text[4096];
};

struct account {
	char name[FILES_USER_MAX + 1];
	uint32_t id, group; /* group: of passwd alone */
};

static bool open_lines(struct lines *l, const char *path)
{
	struct stat st;

	l->size = l->at = l->total = 0;
	l->fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (l->fd >= 0 && fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode))
		return true;
	close_fd(&l->fd);
	return false;
}

/* The next byte, or -1. */
static int next_byte(struct lines *l)
{
	if (l->at == l->size) {
		ssize_t n = l->total < FILE_MAX ? read(l->fd, l->text, sizeof l->text) : 0;

		if (n <= 0)
			return -1;
		l->total += (size_t) n;
		l->size = (size_t) n;
		l->at = 0;
	}
	return (unsigned char) l->text[l->at++];
}

static bool add_digit(uint32_t *value, int c)
{
	if (c < '0' || c > '9' || *value > (UINT32_MAX - 9) / 10)
		return false;
	*value = *value * 10 + (uint32_t) (c - '0');
	return true;
}

/* One line "name:password:id:group:...". 1: an account; 0: a line that is none; -1: the end. */
static int next_account(struct lines *l, struct account *a)
{
	unsigned field = 0, size = 0, digits = 0;
	bool good = true;
	int c = next_byte(l);

	if (c < 0)
		return -1;
	*a = (struct account){0};
	for (; c >= 0 && c != '\n'; c = next_byte(l)) {
		if (c == ':') {
			field++;
			continue;
		}
		if (field == 0 && size < FILES_USER_MAX)
			a->name[size++] = (char) c;
		else if (field == 0)
			good = false;
		else if (field == 2)
			good = add_digit(&a->id, c) && good && ++digits > 0;
		else if (field == 3 && (c >= '0' && c <= '9'))
			(void) add_digit(&a->group, c);
	}
	return good && size > 0 && digits > 0 ? 1 : 0;
}

/* The first account that has `name`, or with NULL the one that has `id`. */
static bool find(const char *path, const char *name, uint32_t id, struct account *ret)
{
	struct lines l;
	bool found = false;

	if (!open_lines(&l, path))
		return false;
	for (int r = 0; r >= 0 && !found;) {
		r = next_account(&l, ret);
		found = r > 0 && (name != NULL ? strcmp(ret->name, name) == 0 : ret->id == id);
	}
	close_fd(&l.fd);
	return found;
}

static size_t name_of(const char *path, uint32_t id, char *ret)
{
	struct account a;
	size_t size;

	if (!find(path, NULL, id, &a))
		return 0;
	size = strlen(a.name);
	memcpy(ret, a.name, size);
	return size;
}

size_t user_name(uint32_t uid, char *ret)
{
	return name_of("/etc/passwd", uid, ret);
}

size_t group_name(uint32_t gid, char *ret)
{
	return name_of("/etc/group", gid, ret);
}

int user_find(const char *name, uint32_t *ret_uid, uint32_t *ret_gid)
{
	struct account a;

	if (!find("/etc/passwd", name, 0, &a))
		return ENOENT;
	*ret_uid = a.id;
	*ret_gid = a.group;
	return 0;
}
