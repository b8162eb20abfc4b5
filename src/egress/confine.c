#include "egress/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/securebits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/control.h"
#include "kernel/caps.h"
#include "kernel/idmap.h"
#include "kernel/landlock.h"
#include "kernel/rlimit.h"
#include "kernel/seccomp.h"

/* Where the broker cannot have an id of its own (idmap_broker), the one that everybody takes for nobody. */
#define NOBODY ((uid_t) 65534)

enum { DESCRIPTORS_WANTED = 32768 };

int confine_to_parent(int sock, struct zw_error *e)
{
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return zw_errno(e, errno, "cannot bind the broker's life to the supervisor's");
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return zw_errno(e, errno, "cannot see who started the broker");
	/* It may have died before it was asked to say so. */
	if (getppid() != peer.pid)
		return zw_error(e, ESRCH, "the supervisor that started the broker is gone");
	return 0;
}

int confine_descriptors(struct zw_error *e)
{
	int r = fd_sanitize_stdio();

	if (r == 0 && close_range(CONTROL_FD + 1, ~0U, 0) < 0)
		r = -errno;
	return r < 0 ? zw_errno(e, -r, "cannot close descriptors that the broker inherited") : 0;
}

struct step_context {
	int sock;
	struct confinement *ret;
};

static int limit_resources(struct step_context *c)
{
	int64_t r = rlimit_apply(RLIMIT_CORE, 0);

	if (r < 0)
		return (int) r;
	r = rlimit_apply(RLIMIT_NOFILE, DESCRIPTORS_WANTED);
	if (r < 0)
		return (int) r;
	c->ret->descriptors = (long) r;
	return 0;
}

static int become(uid_t id)
{
	return setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0 ? -errno : 0;
}

/* Root gives up being root. In a user namespace that has no other user, or where changing was taken away, the rest must do: no
 * file is left to be opened by whatever user it is. */
static int change_user(struct step_context *c)
{
	int r;

	(void) c;
	if (geteuid() != 0 && getuid() != 0)
		return 0;
	/* Keeps the capabilities over the change, for the steps that need them. */
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 && errno != EPERM)
		return -errno;
	if (setgroups(0, NULL) < 0 && errno != EPERM)
		return -errno;
	r = become(idmap_broker(getppid()));
	if (r == -EINVAL)
		r = become(NOBODY);
	return r == -EINVAL || r == -EPERM ? 0 : r;
}

/* The bounding set can only be emptied by who may; for others no_new_privs keeps it from mattering. */
static int drop_capabilities(struct step_context *c)
{
	int r = caps_drop_all();

	(void) c;
	return r == -EPERM ? caps_drop_sets() : r;
}

static int forbid_privileges(struct step_context *c)
{
	(void) c;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* Neither ptrace(2) nor /proc/PID/mem nor a core dump for others of the user. */
static int hide(struct step_context *c)
{
	(void) c;
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

static int close_files(struct step_context *c)
{
	cleanup_fd int ruleset = -EBADF;
	int abi = landlock_abi();

	if (abi == -ENOSYS || abi == -EOPNOTSUPP)
		return 0;
	if (abi < 0)
		return abi;
	ruleset = landlock_ruleset((unsigned) abi, true);
	if (ruleset < 0)
		return ruleset;
	c->ret->landlock_abi = abi;
	return landlock_enforce(ruleset);
}

static int filter_calls(struct step_context *c)
{
	static const struct seccomp_spec spec = {.profile = SECCOMP_BROKER};
	struct seccomp_filter filter;
	int r = seccomp_filter_make(&spec, &filter, NULL);

	(void) c;
	if (r < 0)
		return r;
	r = seccomp_install(&filter);
	seccomp_filter_done(&filter);
	return r < 0 ? r : 0;
}

static int follow_parent(struct step_context *c)
{
	return confine_to_parent(c->sock, NULL);
}

static const struct {
	const char *what;
	int (*run)(struct step_context *c);
} steps[] = {
    {"limit resources", limit_resources},     {"change the user", change_user},
    {"drop capabilities", drop_capabilities}, {"forbid new privileges", forbid_privileges},
    {"hide from others of its user", hide},   {"end with the supervisor", follow_parent},
    {"close the file system", close_files},   {"filter system calls", filter_calls},
};

int confine(int sock, struct confinement *ret, struct zw_error *e)
{
	struct step_context c = {.sock = sock, .ret = ret};

	*ret = (struct confinement){0};
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int r = steps[i].run(&c);

		if (r < 0)
			return zw_errno(e, -r, "the network broker cannot %s", steps[i].what);
	}
	return 0;
}
