#include "daemon/sandbox-files.h"

#include "agent/files-image.h"
#include "base/fd.h"
#include "daemon/daemon.h"
#include "daemon/files-client.h"
#include "daemon/sandbox.h"

/* Code inside may go on holding its end of the line: the end of the program is known from the supervisor. The answer may be of a
 * program before: its client is not the sandbox's any more, and nothing is to be done. */
static void on_answer(void *arg, const json_t *m, int *fd)
{
	struct sandbox *s = arg;
	uint32_t id = (uint32_t) json_integer_value(json_object_get(m, "id"));
	struct files_client *c = s->files;

	(void) fd;
	if (m == NULL || c == NULL || id != s->files_id || json_object_get(m, "pid") != NULL)
		return;
	files_client_end(c, "the program has ended"); /* on_gone() frees it */
}

/* It broke its protocol, or closed its line: the next use starts another one. */
static void on_gone(void *arg, const char *why)
{
	struct sandbox *s = arg;
	struct files_client *c = s->files;

	(void) why;
	s->files = NULL;
	files_client_free(c);
}

struct files_client *sandbox_files(struct sandbox *s)
{
	struct files_ends ends;
	struct zw_error e = {0};
	cleanup_fd int program = -EBADF;
	json_t *m;
	int r;

	if (s->files != NULL)
		return s->files;
	program = files_memfd(&e);
	if (program < 0 || files_client_new(s->all->daemon->base, on_gone, s, &s->files, &ends, &e) < 0) {
		s->files = NULL;
		return NULL;
	}
	m = json_pack("{ss s[ss] s{} sn sn sn sb sb sb sb}", "t", "start", "argv", "zwinger-files", s->home, "env", "cwd", "user",
		      "tty", "lasting", 1, "tree", 0, "channel", 1, "program", 1);
	{
		const int fds[] = {ends.in, ends.out, ends.err, ends.channel, program};

		r = session_ask(s->session, m, fds, 5, on_answer, s, &s->files_id);
	}
	fd_close(&ends.in);
	fd_close(&ends.out);
	fd_close(&ends.err);
	fd_close(&ends.channel);
	if (r == 0)
		return s->files;
	files_client_free(s->files);
	s->files = NULL;
	return NULL;
}
