/* A policy in sentences: what the code inside will be able to read, write, reach and use. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "policy/network-parts.h"
#include "policy/policy.h"
#include "policy/schema.h"
#include "policy/text.h"

enum { EXPLAIN_MAX = 4 * 1024 * 1024, LABEL_WIDTH = 13 };

/* One line of a paragraph: the label in front of the first one only. */
struct page {
	struct buf text;
	const char *label;
};

static void start(struct page *p, const char *label)
{
	p->label = label;
}

__attribute__((format(printf, 2, 3))) static void line(struct page *p, const char *fmt, ...)
{
	cleanup_free char *text = NULL, *safe = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	/* Paths and names of a stranger's policy go to a terminal. */
	safe = text_escape(text != NULL ? text : fmt, 8192);
	(void) buf_addf(&p->text, "%-*s%s\n", LABEL_WIDTH, p->label, safe);
	p->label = "";
}

static const char *bytes(uint64_t n, char *buf, size_t size)
{
	return n == ZW_UNLIMITED ? "no limit" : format_bytes(n, buf, size);
}

static const char *word_of(const char *key, unsigned value)
{
	return schema_find(key)->choices[value];
}

static char *join(const struct strv *v)
{
	struct buf b = buf_new(EXPLAIN_MAX);

	(void) buf_adds(&b, "");
	for (size_t i = 0; i < v->count; i++)
		(void) buf_addf(&b, "%s%s", i > 0 ? ", " : "", v->items[i]);
	return b.data;
}

static void explain_runs(struct page *p, const struct policy *policy)
{
	start(p, "Runs");
	line(p, "at the level %s, as user %u:%u of the host \"%s\"", isolation_name(policy->isolation),
	     (unsigned) policy->process.user, (unsigned) policy->process.group, policy->process.hostname);
	if (policy->process.cwd != NULL)
		line(p, "in the folder %s", policy->process.cwd);
	line(p, "%s",
	     policy->best_effort ? "also when a control cannot be enforced here; the result then lists it (best-effort)"
				 : "only when every control can be enforced here (strict)");
}

static void explain_mount(struct page *p, const struct policy_mount *m)
{
	char size[32];

	if (m->size != ZW_UNLIMITED && m->size != 0)
		line(p, "%s: %s of this host, at most %s", m->target, m->source, bytes(m->size, size, sizeof size));
	else if (strcmp(m->source, m->target) == 0)
		line(p, "%s of this host", m->source);
	else
		line(p, "%s: %s of this host", m->target, m->source);
}

static void explain_read(struct page *p, const struct policy *policy)
{
	start(p, "Read");
	if (strcmp(policy->root, "host") == 0)
		line(p, "the programs and libraries of this host (/usr and what belongs to it), not its /etc, /home, /root, "
			"/run, /var");
	else
		line(p, "the system in %s", policy->root);
	for (size_t i = 0; i < policy->filesystem.read_count; i++)
		explain_mount(p, &policy->filesystem.read[i]);
	if (policy->filesystem.workspace.present && policy->filesystem.workspace.mode == WORKSPACE_RO)
		explain_mount(p, &policy->filesystem.workspace.mount);
	line(p, "everything that it may write");
}

static void explain_workspace(struct page *p, const struct policy *policy)
{
	const struct policy_mount *m = &policy->filesystem.workspace.mount;

	if (!policy->filesystem.workspace.present || policy->filesystem.workspace.mode == WORKSPACE_RO)
		return;
	explain_mount(p, m);
	if (policy->filesystem.workspace.mode == WORKSPACE_COW)
		line(p, "  (the workspace: changes are kept aside, a person applies or discards them)");
	else
		line(p, "  (the workspace: changes are made in place)");
}

static void explain_write(struct page *p, const struct policy *policy)
{
	char size[32];

	start(p, "Write");
	for (size_t i = 0; i < policy->filesystem.write_count; i++)
		explain_mount(p, &policy->filesystem.write[i]);
	explain_workspace(p, policy);
	line(p, "%s: private, gone at the end, %s%s",
	     policy->isolation == ISOLATION_PROCESS ? "one folder, in HOME and TMPDIR" : "/tmp and its home folder",
	     policy->filesystem.scratch.size == ZW_UNLIMITED ? "limited by the memory alone"
							     : bytes(policy->filesystem.scratch.size, size, sizeof size),
	     policy->filesystem.scratch.exec ? "" : ", nothing there can be executed");
	if (policy->limits.disk != ZW_UNLIMITED)
		line(p, "at most %s in all", bytes(policy->limits.disk, size, sizeof size));
	if (policy->limits.file_size != ZW_UNLIMITED)
		line(p, "at most %s in one file", bytes(policy->limits.file_size, size, sizeof size));
	if (policy->filesystem.write_count == 0 && !policy->filesystem.workspace.present)
		line(p, "nothing that stays behind");
}

static char *list_ports(const struct policy_rule *r)
{
	struct buf b = buf_new(EXPLAIN_MAX);

	(void) buf_adds(&b, "");
	for (size_t i = 0; i < r->port_count; i++)
		if (r->ports[i].first == r->ports[i].last)
			(void) buf_addf(&b, "%s%u", i > 0 ? ", " : "", r->ports[i].first);
		else
			(void) buf_addf(&b, "%s%u-%u", i > 0 ? ", " : "", r->ports[i].first, r->ports[i].last);
	return b.data;
}

static void explain_requests(struct page *p, const struct policy_rule *r)
{
	cleanup_free char *methods = join(&r->methods), *paths = join(&r->paths);
	char size[32];

	if (r->has_methods)
		line(p, "  requests: %s", r->methods.count > 0 ? methods : "none, the list of methods is empty");
	if (r->has_paths)
		line(p, "  paths: %s", r->paths.count > 0 ? paths : "none, the list of paths is empty");
	if (r->request_max != ZW_UNLIMITED)
		line(p, "  bodies of requests: at most %s", bytes(r->request_max, size, sizeof size));
	if (r->secret.name == NULL)
		return;
	if (r->secret.header != NULL)
		line(p, "  with the secret %s in the header %s, which is added outside and never visible inside", r->secret.name,
		     r->secret.header);
	else
		line(p, "  with the secret %s in place of the placeholder in any header; it is never visible inside",
		     r->secret.name);
	if (r->protocol == NET_HTTP)
		line(p, "  (http is not encrypted: everyone on the way to the server can read the secret)");
}

static void explain_rule(struct page *p, const struct policy_rule *r)
{
	static const char *const seen[] = {
	    [NET_TCP] = "any bytes",
	    [NET_TLS] = "TLS for this name, passed on unread",
	    [NET_HTTP] = "each request is checked",
	    [NET_HTTPS] = "each request is checked: TLS ends at the broker and begins again",
	    [NET_UDP] = "any datagrams",
	};
	cleanup_free char *ports = list_ports(r);
	const char *protocol = word_of("network.allow[].protocol", r->protocol), *what = seen[r->protocol];
	struct net_prefix range;

	if (r->preset != NULL) {
		line(p, "what the rule set %s names", r->preset);
		return;
	}
	if (r->host != NULL && strncmp(r->host, "*.", 2) == 0)
		line(p, "every subdomain of %s (not %s itself), port %s, %s: %s", r->host + 2, r->host + 2, ports, protocol,
		     what);
	else
		line(p, "%s, port %s, %s: %s", r->host != NULL ? r->host : r->address, ports, protocol, what);
	if (r->address != NULL && network_prefix_parse(r->address, &range) && network_special_within(&range))
		line(p, "  (private and other special addresses in that range only by a rule of their own)");
	explain_requests(p, r);
}

static bool is_covered(const struct policy *policy, const char *name)
{
	for (size_t i = 0; i < policy->network.allow_count; i++) {
		const struct policy_rule *r = &policy->network.allow[i];

		if (r->preset != NULL || (r->host != NULL && network_pattern_covers(r->host, name) > 0))
			return true;
	}
	return false;
}

static void explain_hosts(struct page *p, const struct policy *policy)
{
	for (size_t i = 0; i < policy->network.host_count; i++) {
		const struct policy_host *host = &policy->network.hosts[i];

		if (is_covered(policy, host->name))
			line(p, "%s means %s, in place of what DNS says", host->name, host->target);
		else
			line(p, "(%s would mean %s, but no rule allows that name: nothing is opened)", host->name, host->target);
	}
}

static void explain_published(struct page *p, const struct policy *policy)
{
	for (size_t i = 0; i < policy->network.publish_count; i++) {
		const struct policy_publish *port = &policy->network.publish[i];
		bool own = strncmp(port->bind, "127.", 4) == 0 || strcmp(port->bind, "::1") == 0;

		line(p, "from %s, %s port %u leads to its port %u", own ? "this host" : "wherever this host can be reached",
		     port->bind, port->host_port, port->port);
	}
}

static void explain_reach(struct page *p, const struct policy *policy)
{
	bool rules = policy->network.allow_count > 0;

	start(p, "Reach");
	if (!rules)
		line(p, "no network: only itself, on its own loopback");
	for (size_t i = 0; i < policy->network.allow_count; i++)
		explain_rule(p, &policy->network.allow[i]);
	explain_hosts(p, policy);
	if (policy->network.ask)
		line(p, "other names when a person agrees");
	else if (rules)
		line(p, "nothing else: other names do not exist inside, and nobody outside is asked for them");
	if (rules && policy->network.proxy_env)
		line(p, "(also by way of a proxy inside, which HTTP_PROXY and its like name)");
	if (rules && policy->network.ca_file != NULL)
		line(p, "(servers are verified by the certificates in %s too)", policy->network.ca_file);
	explain_published(p, policy);
}

static void explain_network_limit(struct page *p, uint64_t limit, bool size, const char *what)
{
	char text[32];

	if (limit == ZW_UNLIMITED)
		return;
	if (size)
		line(p, "%s %s", bytes(limit, text, sizeof text), what);
	else
		line(p, "%llu %s", (unsigned long long) limit, what);
}

static void explain_network_limits(struct page *p, const struct policy *policy)
{
	bool kill = policy->network.limits.on_limit == NETWORK_LIMIT_KILL;

	explain_network_limit(p, policy->network.limits.bytes_out, true, "sent to the network");
	explain_network_limit(p, policy->network.limits.bytes_in, true, "received from the network");
	explain_network_limit(p, policy->network.limits.requests, false, "HTTP requests");
	explain_network_limit(p, policy->network.limits.connections, false, "connections");
	if (policy->network.limits.bytes_out != ZW_UNLIMITED || policy->network.limits.bytes_in != ZW_UNLIMITED ||
	    policy->network.limits.requests != ZW_UNLIMITED || policy->network.limits.connections != ZW_UNLIMITED)
		line(p, "  (in the whole run; %s)", kill ? "beyond that it is ended" : "what goes beyond that is refused");
	explain_network_limit(p, policy->network.limits.rate, true, "a second of the network, both directions together");
}

static void explain_use(struct page *p, const struct policy *policy)
{
	char a[32], b[32];

	start(p, "Use");
	line(p, "%s of memory, %s swap",
	     policy->limits.memory == ZW_UNLIMITED ? "any amount" : bytes(policy->limits.memory, a, sizeof a),
	     policy->limits.swap == 0              ? "no"
	     : policy->limits.swap == ZW_UNLIMITED ? "any amount"
						   : bytes(policy->limits.swap, b, sizeof b));
	if (policy->limits.cpus > 0)
		line(p, "the time of %g processor%s", policy->limits.cpus, policy->limits.cpus > 1 ? "s" : "");
	else
		line(p, "all processors");
	if (policy->limits.processes != ZW_UNLIMITED)
		line(p, "%llu processes and threads", (unsigned long long) policy->limits.processes);
	else
		line(p, "any number of processes and threads");
	if (policy->limits.open_files != ZW_UNLIMITED)
		line(p, "%llu open files a process", (unsigned long long) policy->limits.open_files);
	if (policy->limits.io_read_bps != ZW_UNLIMITED)
		line(p, "%s a second read from disks", bytes(policy->limits.io_read_bps, a, sizeof a));
	if (policy->limits.io_write_bps != ZW_UNLIMITED)
		line(p, "%s a second written to disks", bytes(policy->limits.io_write_bps, a, sizeof a));
	explain_network_limits(p, policy);
	if (policy->limits.kernel)
		line(p, "(limits that the kernel cannot hold here are refused)");
}

static void explain_end(struct page *p, const struct policy *policy)
{
	char size[32], time[32];

	start(p, "Ends when");
	line(p, "the command ends; whatever it started ends with it");
	if (policy->limits.time != ZW_UNLIMITED)
		line(p, "%s have passed", format_usec(policy->limits.time, time, sizeof time));
	if (policy->limits.cpu_time != ZW_UNLIMITED)
		line(p, "it used %s of processor time", format_usec(policy->limits.cpu_time, time, sizeof time));
	if (policy->limits.time == ZW_UNLIMITED && policy->limits.cpu_time == ZW_UNLIMITED)
		line(p, "(no time limit)");
	if (policy->limits.memory != ZW_UNLIMITED)
		line(p, "its memory limit kills the main process");
	if (policy->limits.output == ZW_UNLIMITED)
		return;
	if (policy->limits.on_output_limit == OUTPUT_KILL)
		line(p, "it wrote more than %s to stdout, or to stderr", bytes(policy->limits.output, size, sizeof size));
	else
		line(p, "(not by output: what is over %s of stdout, or of stderr, is dropped and counted)",
		     bytes(policy->limits.output, size, sizeof size));
}

static void explain_environment(struct page *p, const struct policy *policy)
{
	cleanup_free char *pass = join(&policy->env.pass);

	start(p, "Environment");
	line(p, "PATH HOME USER LANG TERM TMPDIR, made for the sandbox");
	for (size_t i = 0; i < policy->env.set_count; i++)
		line(p, "%s=%s", policy->env.set[i].name, policy->env.set[i].value);
	if (policy->env.pass.count > 0)
		line(p, "from the caller: %s", pass);
}

static void explain_calls(struct page *p, const struct policy *policy)
{
	cleanup_free char *allow = join(&policy->syscalls.allow), *deny = join(&policy->syscalls.deny);

	start(p, "Calls");
	line(p, "the system calls of the profile %s", word_of("syscalls.profile", policy->syscalls.profile));
	if (policy->syscalls.allow.count > 0)
		line(p, "also %s", allow);
	if (policy->syscalls.deny.count > 0)
		line(p, "but not %s", deny);
}

static void explain_secrets(struct page *p, const struct policy *policy)
{
	start(p, "Secrets");
	for (size_t i = 0; i < policy->secret_count; i++) {
		const struct policy_secret *s = &policy->secrets[i];

		line(p, "%s, from %s %s; never visible inside", s->name,
		     s->env != NULL    ? "the variable"
		     : s->file != NULL ? "the file"
				       : "the command",
		     s->env != NULL    ? s->env
		     : s->file != NULL ? s->file
				       : s->command.items[0]);
	}
}

static void explain_records(struct page *p, const struct policy *policy)
{
	start(p, "Recorded");
	line(p, "its end, what it used, each attempt on a wall%s%s%s", policy->audit.exec ? ", what it executed" : "",
	     policy->audit.files != AUDIT_FILES_OFF ? ", files it changed" : "", policy->audit.network ? ", connections" : "");
	if (policy->audit.files == AUDIT_FILES_TRACE)
		line(p, "also refused opens of files, which costs time");
	if (policy->audit.file != NULL)
		line(p, "as events in %s", policy->audit.file);
}

/* What no host can hold at this level; what a host lacks beyond that, zwinger doctor says. */
static void explain_gaps(struct page *p, const struct policy *policy)
{
	start(p, "Not held");
	if (policy->isolation == ISOLATION_PROCESS) {
		line(p, "the level process has no namespaces: files keep their own paths, the host's name and /proc stay as they "
			"are,");
		line(p, "and sizes of single folders, another root and some limits are refused");
	}
	line(p, "faults of the kernel itself; zwinger doctor tells which controls this host can enforce");
}

static void add_unbuilt(void *ctx, const char *key, const char *sentence)
{
	line(ctx, "%s: %s", key, sentence);
}

char *policy_explain(const struct policy *policy)
{
	struct page p = {.text = buf_new(EXPLAIN_MAX), .label = ""};

	start(&p, policy->name != NULL ? "Policy" : "");
	if (policy->name != NULL)
		line(&p, "%s", policy->name);
	explain_runs(&p, policy);
	explain_read(&p, policy);
	explain_write(&p, policy);
	explain_reach(&p, policy);
	explain_use(&p, policy);
	explain_end(&p, policy);
	explain_environment(&p, policy);
	explain_calls(&p, policy);
	explain_secrets(&p, policy);
	explain_records(&p, policy);
	explain_gaps(&p, policy);
	start(&p, "Not built");
	(void) policy_unbuilt(policy, add_unbuilt, &p);
	return p.text.data;
}
