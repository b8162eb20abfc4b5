/* Refused calls for people: the name, and the arguments as what they mean where that says what was tried. Pointers are shown as
 * they are: what they point to belongs to a process that can change it at any time. */
#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/seccomp-table.h"
#include "kernel/uapi.h"

/* One letter an argument: p pointer, x hexadecimal, d decimal, o file mode, and the named kinds below. */
struct format {
	char name[20], kinds[7];
};

static const struct format formats[] = {
    {"mount", "pppxp"},
    {"umount2", "px"},
    {"pivot_root", "pp"},
    {"chroot", "p"},
    {"move_mount", "dpdpx"},
    {"open_tree", "dpx"},
    {"open_tree_attr", "dpxpd"},
    {"fsopen", "px"},
    {"fsconfig", "ddppd"},
    {"fsmount", "dxx"},
    {"fspick", "dpx"},
    {"mount_setattr", "dpxpd"},
    {"setns", "dC"},
    {"unshare", "C"},
    {"clone", "Cpppp"},
    {"ptrace", "ddpp"},
    {"process_vm_readv", "dpdpdx"},
    {"process_vm_writev", "dpdpdx"},
    {"kcmp", "ddddd"},
    {"pidfd_getfd", "ddx"},
    {"bpf", "dpd"},
    {"perf_event_open", "pdddx"},
    {"userfaultfd", "x"},
    {"fanotify_init", "xx"},
    {"keyctl", "dpppp"},
    {"add_key", "pppdd"},
    {"request_key", "pppd"},
    {"open_by_handle_at", "dpx"},
    {"reboot", "xxxp"},
    {"swapon", "px"},
    {"swapoff", "p"},
    {"kexec_load", "pdpx"},
    {"init_module", "pdp"},
    {"finit_module", "dpx"},
    {"delete_module", "px"},
    {"acct", "p"},
    {"quotactl", "xpdp"},
    {"sethostname", "pd"},
    {"setdomainname", "pd"},
    {"iopl", "d"},
    {"ioperm", "ddd"},
    {"vhangup", ""},
    {"settimeofday", "pp"},
    {"clock_settime", "dp"},
    {"clock_adjtime", "dp"},
    {"adjtimex", "p"},
    {"syslog", "dpd"},
    {"personality", "x"},
    {"open", "pxo"},
    {"openat", "dpxo"},
    {"creat", "po"},
    {"chmod", "po"},
    {"fchmod", "do"},
    {"fchmodat", "dpo"},
    {"fchmodat2", "dpox"},
    {"mknod", "pox"},
    {"mknodat", "dpox"},
    {"socket", "FTd"},
    {"socketpair", "FTdp"},
    {"ioctl", "dIp"},
    {"fcntl", "dLx"},
    {"prctl", "Ppppp"},
    {"prlimit64", "ddpp"},
    {"sched_setscheduler", "ddp"},
    {"sched_setattr", "dpx"},
    {"seccomp", "dxp"},
    {"execve", "ppp"},
    {"execveat", "dpppx"},
    {"connect", "dpd"},
    {"fork", ""},
    {"vfork", ""},
    {"memfd_create", "px"},
};

struct word {
	uint32_t value;
	const char *text;
};

static const struct word families[] = {
    {1, "AF_UNIX"},       {2, "AF_INET"},   {3, "AF_AX25"},    {4, "AF_IPX"},         {5, "AF_APPLETALK"}, {8, "AF_ATMPVC"},
    {9, "AF_X25"},        {10, "AF_INET6"}, {15, "AF_KEY"},    {16, "AF_NETLINK"},    {17, "AF_PACKET"},   {20, "AF_ATMSVC"},
    {21, "AF_RDS"},       {24, "AF_PPPOX"}, {26, "AF_LLC"},    {28, "AF_MPLS"},       {29, "AF_CAN"},      {30, "AF_TIPC"},
    {31, "AF_BLUETOOTH"}, {33, "AF_RXRPC"}, {35, "AF_PHONET"}, {36, "AF_IEEE802154"}, {37, "AF_CAIF"},     {38, "AF_ALG"},
    {39, "AF_NFC"},       {40, "AF_VSOCK"}, {41, "AF_KCM"},    {42, "AF_QIPCRTR"},    {43, "AF_SMC"},      {44, "AF_XDP"},
    {45, "AF_MCTP"},
};
static const struct word types[] = {{1, "SOCK_STREAM"},    {2, "SOCK_DGRAM"}, {3, "SOCK_RAW"},    {4, "SOCK_RDM"},
				    {5, "SOCK_SEQPACKET"}, {6, "SOCK_DCCP"},  {10, "SOCK_PACKET"}};
static const struct word ioctls[] = {
    {TIOCSTI, "TIOCSTI"},   {TIOCLINUX, "TIOCLINUX"},     {TIOCCONS, "TIOCCONS"},
    {TIOCSETD, "TIOCSETD"}, {TIOCVHANGUP, "TIOCVHANGUP"}, {FS_IOC_FSSETXATTR, "FS_IOC_FSSETXATTR"},
};
static const struct word fcntls[] = {{1024, "F_SETLEASE"}, {1026, "F_NOTIFY"}, {1040, "F_SETDELEG"}};
static const struct word prctls[] = {
    {PR_SET_MM, "PR_SET_MM"},           {PR_SET_IO_FLUSHER, "PR_SET_IO_FLUSHER"},     {PR_SCHED_CORE, "PR_SCHED_CORE"},
    {PR_CAP_AMBIENT, "PR_CAP_AMBIENT"}, {PR_SET_MEMORY_MERGE, "PR_SET_MEMORY_MERGE"},
};
static const struct word clone_flags[] = {
    {CLONE_NEWNS, "CLONE_NEWNS"},   {CLONE_NEWCGROUP, "CLONE_NEWCGROUP"}, {CLONE_NEWUTS, "CLONE_NEWUTS"},
    {CLONE_NEWIPC, "CLONE_NEWIPC"}, {CLONE_NEWUSER, "CLONE_NEWUSER"},     {CLONE_NEWPID, "CLONE_NEWPID"},
    {CLONE_NEWNET, "CLONE_NEWNET"},
};

struct text {
	char *buf;
	size_t size, used;
};

static void __attribute__((format(printf, 2, 3))) append(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->buf + t->used, t->size - t->used, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->used = t->used + (size_t) n < t->size ? t->used + (size_t) n : t->size - 1;
}

static void append_word(struct text *t, const struct word *words, size_t count, uint32_t value, const char *otherwise)
{
	for (size_t i = 0; i < count; i++) {
		if (words[i].value == value) {
			append(t, "%s", words[i].text);
			return;
		}
	}
	append(t, otherwise[0] == 'd' ? "%" PRIu32 : "0x%" PRIx32, value);
}

static void append_flags(struct text *t, uint64_t value)
{
	const char *separator = "";

	for (size_t i = 0; i < ARRAY_SIZE(clone_flags); i++) {
		if (value & clone_flags[i].value) {
			append(t, "%s%s", separator, clone_flags[i].text);
			value &= ~(uint64_t) clone_flags[i].value;
			separator = "|";
		}
	}
	if (value || !*separator)
		append(t, "%s0x%" PRIx64, separator, value);
}

static void append_argument(struct text *t, char kind, uint64_t value)
{
	uint32_t low = (uint32_t) value;

	if (kind == 'd')
		append(t, "%" PRId32, (int32_t) low);
	else if (kind == 'o')
		append(t, "0%" PRIo32, low);
	else if (kind == 'C')
		append_flags(t, value);
	else if (kind == 'F')
		append_word(t, families, ARRAY_SIZE(families), low, "d");
	else if (kind == 'T')
		append_word(t, types, ARRAY_SIZE(types), low & 0xf, "d");
	else if (kind == 'I')
		append_word(t, ioctls, ARRAY_SIZE(ioctls), low, "x");
	else if (kind == 'L')
		append_word(t, fcntls, ARRAY_SIZE(fcntls), low, "d");
	else if (kind == 'P')
		append_word(t, prctls, ARRAY_SIZE(prctls), low, "d");
	else
		append(t, value ? "0x%" PRIx64 : "%" PRIx64, value);
}

static void append_name(struct text *t, const struct seccomp_data *data, const char *name)
{
	if (data->arch != seccomp_numbers.arch)
		append(t, "%s_%d", data->arch == AUDIT_ARCH_I386 ? "i386" : "foreign", data->nr);
	else if (name)
		append(t, "%s", name);
	else if (data->nr >= 0 && ((uint32_t) data->nr & SECCOMP_X32_BIT))
		append(t, "x32_%d", data->nr & ~(int) SECCOMP_X32_BIT);
	else
		append(t, "syscall_%d", data->nr);
}

void seccomp_label(const struct seccomp_data *data, char *buf, size_t size)
{
	struct text t = {.buf = buf, .size = size};

	if (size > 0)
		append_name(&t, data, data->arch == seccomp_numbers.arch ? seccomp_name(data->nr) : NULL);
}

void seccomp_format(const struct seccomp_data *data, char *buf, size_t size)
{
	struct text t = {.buf = buf, .size = size};
	const char *name = data->arch == seccomp_numbers.arch ? seccomp_name(data->nr) : NULL;
	const char *kinds = "xxxxxx";

	if (size == 0)
		return;
	for (size_t i = 0; name && i < ARRAY_SIZE(formats); i++) {
		if (strcmp(formats[i].name, name) == 0)
			kinds = formats[i].kinds;
	}
	append_name(&t, data, name);
	append(&t, "(");
	for (size_t i = 0; kinds[i]; i++) {
		append(&t, "%s", i ? ", " : "");
		append_argument(&t, kinds[i], data->args[i]);
	}
	append(&t, ")");
}
