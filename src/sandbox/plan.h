/* The plan: a policy resolved against this host, this caller and this command. Flat data; what is built from it reads no policy,
 * no environment and no configuration. Printable with `zwinger run --plan`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/err.h"
#include "kernel/cgroup.h"
#include "kernel/seccomp.h"
#include "kernel/transit.h"
#include "policy/policy.h"

enum { PLAN_MOUNTS_MAX = 64 };
#define PLAN_ROOT_HOME "/root"

enum plan_mount_kind { PLAN_READ, PLAN_WRITE, PLAN_WORKSPACE };

struct plan_mount {
	enum plan_mount_kind kind;
	char *source; /* absolute, on the host */
	char *target; /* absolute, inside */
	bool writable;
	bool is_dir;   /* of the source, as found through `fd` */
	uint64_t size; /* ZW_UNLIMITED, or the most that may be written (a sized write mount is filled inside and committed at the
			  end) */
	int fd;        /* O_PATH on the source, opened once with openat2 and no magic links; the one look at the path */
	uid_t owner_uid; /* of the source: who files made there belong to when the mount is id-mapped */
	gid_t owner_gid;
	bool everybody_writes; /* mode o+w of the source */
};

/* A file of the synthetic /etc: text that the build writes. */
struct plan_file {
	char *path; /* below the root, absolute */
	char *data;
	size_t size;
	mode_t mode;
};

struct plan_link {
	char *path, *target;
};

/* A piece of the system tree (host root or a root directory), shown read-only. */
struct plan_bind {
	char *source; /* absolute, on the host */
	char *target; /* absolute, inside */
	bool is_dir;
};

/* One of env, file, command is set. */
struct secret_source {
	char *name, *env, *file;
	char **command; /* NULL-terminated */
};

struct plan {
	char *id;   /* "zw-" and 20 lower-case base-32 digits from getrandom(2) */
	char *name; /* of the policy, or NULL */
	enum isolation_level isolation;
	bool best_effort;

	bool privileged;  /* root with the capabilities for it: detached mounts made by the supervisor, uid range of its own */
	uid_t caller_uid; /* who files outside belong to */
	gid_t caller_gid;
	uid_t inside_uid; /* as seen inside */
	gid_t inside_gid;
	bool has_root; /* uid and gid 0 are there too, with a home of their own (PLAN_ROOT_HOME): nobody outside, and without any
			  capability */
	char *root;    /* NULL: the host's system tree, else an absolute directory */
	int root_fd;   /* O_PATH on `root`, -EBADF for host */

	struct plan_mount *mounts;
	size_t mount_count;
	struct plan_bind *binds; /* the read-only system tree: "/usr", "/etc/alternatives", ... */
	size_t bind_count;
	struct plan_file *files;
	size_t file_count;
	struct plan_link *links;
	size_t link_count;
	uint64_t scratch_size, scratch_inodes;
	bool scratch_exec;

	char **argv, **env; /* NULL-terminated */
	size_t argc, envc;
	char *cwd, *home, *user, *hostname; /* user: the name of inside_uid */
	bool tty;
	uint16_t rows, columns;

	struct {
		usec_t time, cpu_time;
		struct cgroup_limits cgroup; /* memory, swap, processes, cpu, io */
		uint64_t open_files, file_size, disk, output;
		bool output_kill, kernel;
	} limits;

	struct seccomp_spec syscalls; /* allow and deny point into the two arrays below */
	int *syscall_allow, *syscall_deny;

	struct network *network; /* NULL: no rules, and no port is published */
	char **names;            /* that the rules name exactly: 198.18.1.0 stands for the first, and so on */
	size_t name_count;
	struct transit transit;        /* no listeners: the sandbox has loopback alone */
	bool trust;                    /* a CA of this run is to be trusted inside */
	struct secret_source *secrets; /* that rules use */
	size_t secret_count;
	bool audit_exec, audit_network;
	enum audit_files audit_files;
	char *audit_file;  /* absolute, or NULL */
	char *policy_json; /* what is shown inside at /run/zwinger/policy.json */
};

/* Resolves. Faults that the user can mend (a missing source, a target twice, a target in /proc) go into `errors`, all at once.
 * `argv` is the command. */
int plan_make(const struct policy *policy, char *const *argv, struct plan *ret, struct policy_errors *errors);
/* The same for a session: no command, who lives there is called `user` and is at home in /home/user, and there may be a `root`.
 */
int plan_make_session(const struct policy *policy, struct plan *ret, struct policy_errors *errors);
void plan_done(struct plan *plan);

/* The command gets a terminal of this size inside; TERM is the caller's unless the policy sets one. */
void plan_set_tty(struct plan *plan, uint16_t rows, uint16_t columns);

/* A fresh id of a run, owned by the caller. */
char *plan_make_id(void); /* NULL when the kernel gives no random bytes */

/* The plan as pretty-printed JSON, owned by the caller. */
char *plan_to_json(const struct plan *plan);
