#include "daemon/sandbox-files.h"

#include "agent/files-image.h"
#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/files-client.h"
#include "daemon/sandbox.h"

/* Code inside may go on holding its end of the line: the end of the program is known from the supervisor. The answer may be of a
 * program before: its client is not the sandbox's any more, and nothing is to be done. */
static void on_answer(void *arg, const json_t *m, int *fd)
{
	struct sandbox_files *f = arg;
	uint32_t id = (uint32_t) json_integer_value(json_object_get(m, "id"));

	(void) fd;
	if (m == NULL || f->client == NULL || id != f->id || json_object_get(m, "pid") != NULL)
		return;
	files_client_end(f->client, "the program has ended"); /* on_gone() frees it */
}

/* It broke its protocol, or closed its line: the next use starts another one. */
static void on_gone(void *arg, const char *why)
{
	struct sandbox_files *f = arg;
	struct files_client *c = take_ptr(&f->client);

	(void) why;
	files_client_free(c);
}

void sandbox_files_end(struct sandbox *s, const char *why)
{
	for (size_t i = 0; i < SANDBOX_FILES_KINDS; i++)
		if (s->files[i].client != NULL)
			files_client_end(s->files[i].client, why);
}

struct files_client *sandbox_files_as(struct sandbox *s, bool root)
{
	struct sandbox_files *f = &s->files[root ? SANDBOX_FILES_ROOT : SANDBOX_FILES_USER];
	struct files_ends ends;
	struct zw_error e = {0};
	cleanup_fd int program = -EBADF;
	json_t *m;
	int r;

	if (f->client != NULL)
		return f->client;
	program = files_memfd(&e);
	if (program < 0 || files_client_new(s->all->daemon->base, on_gone, f, &f->client, &ends, &e) < 0) {
		f->client = NULL;
		return NULL;
	}
	m = json_pack("{ss s[ss] s{} sn so sn sb sb sb sb}", "t", "start", "argv", "zwinger-files",
		      root ? PLAN_ROOT_HOME : s->home, "env", "cwd", "user", root ? json_integer(0) : json_null(), "tty",
		      "lasting", 1, "tree", 0, "channel", 1, "program", 1);
	{
		const int fds[] = {ends.in, ends.out, ends.err, ends.channel, program};

		r = session_ask(s->session, m, fds, 5, on_answer, f, &f->id);
	}
	fd_close(&ends.in);
	fd_close(&ends.out);
	fd_close(&ends.err);
	fd_close(&ends.channel);
	if (r == 0)
		return f->client;
	files_client_free(take_ptr(&f->client));
	return NULL;
}

struct files_client *sandbox_files(struct sandbox *s)
{
	return sandbox_files_as(s, false);
}
