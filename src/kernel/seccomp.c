/* Filters for callers: made, installed, named, judged. */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "kernel/seccomp-table.h"
#include "kernel/uapi.h"

enum { FILTER_MAX = 4096 }; /* BPF_MAXINSNS */

static const struct seccomp_call *call_of(int nr)
{
	if (nr < 0 || nr >= SECCOMP_CALLS_MAX || seccomp_numbers.row[nr] < 0)
		return NULL;
	return &seccomp_calls[seccomp_numbers.row[nr]];
}

int seccomp_number(const char *name)
{
	for (int nr = 0; nr < SECCOMP_CALLS_MAX; nr++) {
		const struct seccomp_call *call = call_of(nr);

		if (call && strcmp(call->name, name) == 0)
			return nr;
	}
	return -ENOENT;
}

const char *seccomp_name(int nr)
{
	const struct seccomp_call *call = call_of(nr);

	return call ? call->name : NULL;
}

/* What a policy may not open again, whoever asks: an error instead of a list entry without effect. */
static int check_allowed(const struct seccomp_spec *spec, int nr, struct zw_error *e)
{
	const struct seccomp_call *call = call_of(nr);

	if (!call)
		return zw_error(e, EINVAL, "system call %d cannot be allowed: it is unknown", nr);
	if (call->lock == LOCK_WALL)
		return zw_error(e, EPERM, "system call %s cannot be allowed: %s", call->name, seccomp_why_text(call->why));
	if (call->lock == LOCK_FREE && spec->no_namespaces && call->process != RULE_SAME)
		return zw_error(e, EPERM, "system call %s cannot be allowed without namespaces: %s", call->name,
				seccomp_why_text(call->why));
	return 0;
}

static int check_spec(const struct seccomp_spec *spec, struct zw_error *e)
{
	if ((unsigned) spec->profile > SECCOMP_BROKER)
		return zw_error(e, EINVAL, "unknown system call profile %d", (int) spec->profile);
	for (size_t i = 0; i < spec->allow_count; i++) {
		int r = check_allowed(spec, spec->allow[i], e);

		if (r < 0)
			return r;
	}
	return 0;
}

static bool find_prebuilt(const struct seccomp_spec *spec, struct seccomp_filter *ret)
{
	uint32_t key = seccomp_spec_key(spec);

	if (spec->allow_count > 0 || spec->deny_count > 0)
		return false;
	for (size_t i = 0; i < seccomp_prebuilt_count; i++) {
		const struct seccomp_prebuilt *p = &seccomp_prebuilt[i];

		if (p->key == key) {
			*ret = (struct seccomp_filter){.insns = p->insns, .count = p->count};
			return true;
		}
	}
	return false;
}

int seccomp_filter_make(const struct seccomp_spec *spec, struct seccomp_filter *ret, struct zw_error *e)
{
	struct sock_filter *insns;
	int r = check_spec(spec, e);

	if (r < 0)
		return r;
	if (find_prebuilt(spec, ret))
		return 0;
	insns = xcalloc(FILTER_MAX, sizeof(*insns));
	r = seccomp_compile(&seccomp_numbers, spec, insns, FILTER_MAX);
	if (r < 0) {
		free(insns);
		return zw_errno(e, -r, "cannot compile the system call filter");
	}
	*ret = (struct seccomp_filter){.insns = insns, .count = (unsigned short) r, .owned = insns};
	return 0;
}

void seccomp_filter_without_notify(struct seccomp_filter *f)
{
	struct sock_filter *insns = xcalloc(f->count, sizeof(*insns));

	for (size_t i = 0; i < f->count; i++) {
		insns[i] = f->insns[i];
		if (insns[i].code == (BPF_RET | BPF_K) && (insns[i].k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF) {
			uint32_t err = insns[i].k & SECCOMP_RET_DATA;

			insns[i].k = err ? VERDICT_QUIET(err) : VERDICT_ALLOW;
		}
	}
	free(f->owned);
	*f = (struct seccomp_filter){.insns = insns, .count = f->count, .owned = insns};
}

void seccomp_filter_done(struct seccomp_filter *f)
{
	if (!f)
		return;
	free(f->owned);
	*f = (struct seccomp_filter){0};
}

static bool needs_notifier(const struct seccomp_filter *f)
{
	for (size_t i = 0; i < f->count; i++) {
		if (f->insns[i].code == (BPF_RET | BPF_K) && (f->insns[i].k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF)
			return true;
	}
	return false;
}

/* No SECCOMP_FILTER_FLAG_SPEC_ALLOW: since 5.16 it changes nothing unless the host asked for mitigations of seccomp tasks, and
 * then the host wants them for untrusted code above all. No TSYNC: the caller has one thread. WAIT_KILLABLE_RECV (5.19) keeps a
 * call that the supervisor has already received from being restarted, and so recorded twice, by a signal. */
int seccomp_install(const struct seccomp_filter *f)
{
	struct sock_fprog program = {.len = f->count, .filter = (struct sock_filter *) (uintptr_t) f->insns};
	unsigned long flags = needs_notifier(f) ? SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV : 0;
	long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);

	if (r < 0 && errno == EINVAL && flags)
		r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (r < 0)
		return -errno;
	return (int) r;
}

enum seccomp_verdict seccomp_judge(const struct seccomp_spec *spec, const struct seccomp_data *data, int *ret_errno)
{
	uint32_t verdict = seccomp_decide(&seccomp_numbers, spec, data);

	if (verdict == VERDICT_REPORT)
		return SECCOMP_VERDICT_CONTINUE;
	/* A call that this spec's filter would not have sent here is refused as well: never let go on what nobody foresaw. */
	*ret_errno = (verdict & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF ? (int) (verdict & SECCOMP_RET_DATA) : EPERM;
	return SECCOMP_VERDICT_DENY;
}

bool seccomp_is_native(const struct seccomp_data *data)
{
	return data->arch == seccomp_numbers.arch && data->nr >= 0 && data->nr < SECCOMP_CALLS_MAX;
}
