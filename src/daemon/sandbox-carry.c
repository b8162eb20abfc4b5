#include "daemon/sandbox-carry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/files-client.h"
#include "daemon/sandbox-outlive.h"
#include "daemon/sandbox.h"

static const char *const roots[CARRY_ROOTS_MAX] = {".", "/tmp", "/var/tmp", "/dev/shm"};

size_t carry_root_count(enum isolation_level level)
{
	return level == ISOLATION_PROCESS ? 1 : ARRAY_SIZE(roots);
}

const char *carry_root(size_t index)
{
	return roots[index];
}

static void set(struct problem *p, enum problem_code code, const char *message)
{
	p->code = code;
	(void) snprintf(p->message, sizeof p->message, "%s", message);
}

void carry_problem(int error, bool packing, struct problem *p)
{
	if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
		set(p, PROBLEM_INSUFFICIENT_STORAGE, "the files do not fit into the new sandbox");
		return;
	}
	if (error == ESHUTDOWN) {
		set(p, PROBLEM_UNAVAILABLE,
		    packing ? "the sandbox, or its program that works on files, has ended" : "the new sandbox has ended");
		return;
	}
	if (packing && (error == E2BIG || error == ENAMETOOLONG)) {
		set(p, PROBLEM_CONFLICT, "its folders are nested too deep to be carried");
		return;
	}
	p->code = error == EACCES || error == EPERM ? PROBLEM_PERMISSION_DENIED : PROBLEM_UNAVAILABLE;
	(void) snprintf(p->message, sizeof p->message, "its files cannot be %s: %s", packing ? "read" : "written",
			error < FILES_NOT_REGULAR ? strerror(error) : "they were changed meanwhile");
}

int carry_show(struct sandbox *s, struct problem *p)
{
	/* The one variable that is not the original's: programs read there who they are (e2b/create.c). */
	if (json_object_get(s->env, "E2B_SANDBOX_ID") != NULL)
		(void) json_object_set_new(s->env, "E2B_SANDBOX_ID", json_string(s->id));
	s->hidden = false;
	sandbox_outlive_begin(s);
	sandbox_set_timeout(s, s->timeout); /* and writes the record */
	if (!s->unkept)
		return 0;
	set(p, PROBLEM_INSUFFICIENT_STORAGE, "the record of a new sandbox cannot be written");
	return -EINVAL;
}
