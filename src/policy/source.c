#include "policy/source.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "policy/text.h"

/* One look at the path. Non-blocking, so that neither a device nor a pipe without a writer can hold us in open(2); no magic
 * links, so that a name under /proc does not turn into somebody's open file. */
static int open_policy(const char *path)
{
	struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, .resolve = RESOLVE_NO_MAGICLINKS};
	long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);

	return fd < 0 ? -errno : (int) fd;
}

static int refuse(struct policy_errors *errors, const char *label, int err)
{
	if (err == ELOOP)
		policy_errors_add(
		    errors, label, 0, NULL, NULL,
		    "cannot open the policy: the name leads through a link of /proc or in a circle; use - for standard input");
	else
		policy_errors_add(errors, label, 0, NULL, NULL, "cannot open the policy: %s", strerror(err));
	return -err;
}

static int check_kind(int fd, const char *label, bool is_stdin, struct policy_errors *errors)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return refuse(errors, label, errno);
	if (S_ISREG(st.st_mode) && st.st_size > SOURCE_SIZE_MAX) {
		policy_errors_add(errors, label, 0, NULL, NULL, "expected a policy of at most %d bytes, got %llu",
				  SOURCE_SIZE_MAX, (unsigned long long) st.st_size);
		return -EFBIG;
	}
	if (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) || (is_stdin && !S_ISDIR(st.st_mode) && !S_ISBLK(st.st_mode)))
		return 0;
	policy_errors_add(errors, label, 0, NULL, NULL, "expected a regular file or a pipe, got %s",
			  S_ISDIR(st.st_mode) ? "a directory" : "a device or socket");
	return -EINVAL;
}

/* A named pipe was opened without waiting; wait for its writer here, else it would read as empty. */
static int wait_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
		return -errno;
	while (poll(&p, 1, -1) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int read_policy(int fd, const char *label, char **ret, size_t *ret_size, struct policy_errors *errors)
{
	int r = fd_read_all(fd, SOURCE_SIZE_MAX, ret, ret_size);

	if (r == -EFBIG)
		policy_errors_add(errors, label, 0, NULL, NULL, "expected a policy of at most %d bytes, got more",
				  SOURCE_SIZE_MAX);
	else if (r < 0)
		policy_errors_add(errors, label, 0, NULL, NULL, "cannot read the policy: %s", strerror(-r));
	return r;
}

int source_read(const char *ref, const char *label, char **ret, size_t *ret_size, struct policy_errors *errors)
{
	cleanup_fd int fd = -EBADF;
	int r;

	if (strcmp(ref, "-") == 0) {
		r = check_kind(STDIN_FILENO, label, true, errors);
		return r < 0 ? r : read_policy(STDIN_FILENO, label, ret, ret_size, errors);
	}
	fd = open_policy(ref);
	if (fd < 0)
		return refuse(errors, label, -fd);
	r = check_kind(fd, label, false, errors);
	if (r < 0)
		return r;
	r = wait_readable(fd);
	if (r < 0)
		return refuse(errors, label, -r);
	return read_policy(fd, label, ret, ret_size, errors);
}

static unsigned line_at(const char *text, size_t offset)
{
	unsigned line = 1;

	for (size_t i = 0; i < offset; i++)
		line += text[i] == '\n';
	return line;
}

static bool looks_like_json(const char *text)
{
	return text[strspn(text, " \t\r\n")] == '{';
}

int source_parse(const struct source *source, const char *text, size_t size, struct node **ret, struct policy_errors *errors)
{
	size_t offset;

	if (size > SOURCE_SIZE_MAX) {
		policy_errors_add(errors, source->label, 0, NULL, NULL, "expected a policy of at most %d bytes, got %zu",
				  SOURCE_SIZE_MAX, size);
		return -EINVAL;
	}
	if (!text_is_utf8(text, size, &offset)) {
		policy_errors_add(errors, source->label, line_at(text, offset), NULL, NULL,
				  "expected UTF-8 text, got the byte 0x%02x", (unsigned) (unsigned char) text[offset]);
		return -EINVAL;
	}
	if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3; /* a byte order mark, as some editors write it */
		size -= 3;
	}
	return looks_like_json(text) ? json_parse(source, text, size, ret, errors) : yaml_parse(source, text, size, ret, errors);
}
