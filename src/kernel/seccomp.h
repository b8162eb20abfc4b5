/* System-call filters (seccomp(2), seccomp_unotify(2)). Refused calls go to a notifier so that they can be recorded with their
 * arguments; allowed calls never leave the kernel. The filter is a search tree over call numbers, so that the kernel builds its
 * bitmap of always-allowed calls quickly when the filter is installed. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* The last one is no profile of a policy: it is what the network broker leaves itself (seccomp-broker.c), where anything else
 * kills the process. The switches and lists of a spec mean nothing with it. */
enum seccomp_profile { SECCOMP_STRICT, SECCOMP_DEFAULT, SECCOMP_DEBUG, SECCOMP_BROKER };

/* What the filter must do. Every spec is a pure value: equal specs give equal filters. */
struct seccomp_spec {
	enum seccomp_profile profile;
	bool no_namespaces; /* process level: also refuse what only a namespace would contain (inet sockets, unix sockets by name,
			       ...) */
	bool fixed_processors;   /* sched_setaffinity answered EPERM, unrecorded: affinity holds the number of processors */
	bool notify_exec;        /* report execve/execveat, then let them go on */
	bool notify_connect;     /* report connect, then let it go on */
	bool notify_open;        /* report open/openat/creat, then let them go on */
	const int *allow, *deny; /* call numbers that the policy adds or takes away; deny wins */
	size_t allow_count, deny_count;
};

struct seccomp_filter {
	const struct sock_filter *insns;
	unsigned short count;
	struct sock_filter *owned; /* NULL when it is one of the prebuilt ones */
};

/* A prebuilt filter when the spec is one of those made at build time, else compiled now. 0, or negative errno: -EPERM when the
 * allow list names a call that no policy may open again (mounts, namespaces, the machine as a whole), with the reason in the
 * sentence. */
int seccomp_filter_make(const struct seccomp_spec *spec, struct seccomp_filter *ret, struct zw_error *e);
void seccomp_filter_done(struct seccomp_filter *f);

/* For the places where no listener can be had: every recorded refusal becomes the same errno from the kernel, and calls that were
 * only to be reported are allowed. The walls stay as they are, the record is lost. `f` owns its instructions afterwards. */
void seccomp_filter_without_notify(struct seccomp_filter *f);

/* Installs the filter in the calling thread, with a notification listener. Async-signal-safe: only raw system calls. Needs
 * no_new_privs. Returns the listener fd (close-on-exec; never 0, as stdin is open), 0 for a filter made by
 * seccomp_filter_without_notify, or negative errno. -EBUSY: a filter further out (a container's) has a listener already, and the
 * kernel gives only one to a process tree. */
int seccomp_install(const struct seccomp_filter *f);

/* Name <-> number of this architecture. -ENOENT when unknown. The name is static or NULL. */
int seccomp_number(const char *name);
const char *seccomp_name(int nr);

/* Is this denial a harmless probe, or worth a record? All notified calls end here or with "continue". */
enum seccomp_verdict { SECCOMP_VERDICT_DENY, SECCOMP_VERDICT_CONTINUE };

/* What the supervisor must answer for a notified call, by the same table that made the filter: deny with *ret_errno, or continue
 * (exec, connect, open, clone that were only to be reported). */
enum seccomp_verdict seccomp_judge(const struct seccomp_spec *spec, const struct seccomp_data *data, int *ret_errno);

/* The notifier. Receive fills `n`; -ENOENT when the caller is already dead (not an error). It waits when nothing is there: poll
 * first. Respond returns 0, -ENOENT likewise. seccomp_deny with err 0 makes the call return 0 without being done. */
int seccomp_receive(int listener, struct seccomp_notif *n);
int seccomp_deny(int listener, uint64_t id, int err);
int seccomp_continue(int listener, uint64_t id);
/* Answers with a result, the call not being made: somebody has done it on the caller's behalf. */
int seccomp_return(int listener, uint64_t id, int64_t value);
/* 0 while the call still waits for its answer: what was opened by the caller's pid before is then really the caller's. -ENOENT.
 */
int seccomp_alive(int listener, uint64_t id);
/* Faster wake-ups where the kernel has them (6.6); never an error. */
void seccomp_tune_listener(int listener);

/* Copies memory of the notified process, then makes sure that the notification is still valid, so that the bytes belong to that
 * process. Bytes may be changed by other threads of it: use for records, never for decisions. Returns bytes read or negative
 * errno. */
ssize_t seccomp_peek(int listener, const struct seccomp_notif *n, uint64_t addr, void *buf, size_t size);
/* The same for a NUL-terminated string; always terminated, cut at size-1. */
ssize_t seccomp_peek_string(int listener, const struct seccomp_notif *n, uint64_t addr, char *buf, size_t size);

/* Was it made by the native call table? Whoever lets a call go on by its number must know: i386's 94 is fchmod, not lchown. */
bool seccomp_is_native(const struct seccomp_data *data);

/* The name of a notified call for records: "mount"; "i386_20", "x32_39" for calls of other tables, "syscall_500" for unknown
 * ones. */
void seccomp_label(const struct seccomp_data *data, char *buf, size_t size);

/* Name and arguments of a notified call, for the audit: "mount(0x7ffe0000, 0, 0x10, 0x1, 0)", "socket(AF_PACKET, SOCK_RAW, 768)".
 */
void seccomp_format(const struct seccomp_data *data, char *buf, size_t size);
