#include "sandbox/summary.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/mem.h"
#include "policy/network.h"

static json_t *number_or_null(uint64_t value)
{
	return value == ZW_UNLIMITED ? json_null() : json_integer((json_int_t) value);
}

static json_t *seconds_or_null(usec_t value)
{
	return value == ZW_UNLIMITED ? json_null() : json_real((double) value / (double) USEC_PER_SEC);
}

static json_t *limits_to_json(const struct plan *plan)
{
	const struct cgroup_limits *c = &plan->limits.cgroup;
	json_t *cpus = c->cpu_quota == ZW_UNLIMITED ? json_null() : json_real((double) c->cpu_quota / 100000);

	return json_pack("{so so so so so so so so so so so so ss}", "time_seconds", seconds_or_null(plan->limits.time),
			 "cpu_time_seconds", seconds_or_null(plan->limits.cpu_time), "cpus", cpus, "memory_bytes",
			 number_or_null(c->memory), "swap_bytes", number_or_null(c->swap), "processes",
			 number_or_null(c->processes), "open_files", number_or_null(plan->limits.open_files), "file_size_bytes",
			 number_or_null(plan->limits.file_size), "disk_bytes", number_or_null(plan->limits.disk), "output_bytes",
			 number_or_null(plan->limits.output), "io_read_bps", number_or_null(c->io_read_bps), "io_write_bps",
			 number_or_null(c->io_write_bps), "on_output_limit", plan->limits.output_kill ? "kill" : "truncate");
}

static json_t *scratch_to_json(const struct plan *plan)
{
	return json_pack("{so so sb}", "size_bytes", number_or_null(plan->scratch_size), "inodes",
			 number_or_null(plan->scratch_inodes), "exec", (int) plan->scratch_exec);
}

static const char *mount_kind(const struct plan_mount *m)
{
	if (m->kind == PLAN_WORKSPACE)
		return m->writable ? "workspace-rw" : "workspace-ro";
	return m->writable ? "write" : "read";
}

/* `outside`: with the host's paths. */
static json_t *mounts_to_json(const struct plan *plan, bool outside)
{
	json_t *list = json_array();

	for (size_t i = 0; i < plan->mount_count; i++) {
		const struct plan_mount *m = &plan->mounts[i];
		json_t *item =
		    json_pack("{ss ss so}", "target", m->target, "kind", mount_kind(m), "size_bytes", number_or_null(m->size));

		if (outside)
			(void) json_object_set_new(item, "source", json_string(m->source));
		(void) json_array_append_new(list, item);
	}
	return list;
}

static char *print_json(json_t *document, size_t flags)
{
	char *text = document != NULL ? json_dumps(document, flags) : NULL;

	json_decref(document);
	return text != NULL ? text : xstrdup("{}");
}

static json_t *strings_to_json(char *const *strings, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++) {
		json_t *s = json_string(strings[i]);

		/* Bytes that are not UTF-8 cannot be a JSON string: shown as null rather than altered. */
		(void) json_array_append_new(list, s != NULL ? s : json_null());
	}
	return list;
}

static json_t *ports_to_json(const struct network_rule *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->port_count; i++) {
		cleanup_free char *range = xasprintf("%u-%u", r->ports[i].first, r->ports[i].last);

		(void) json_array_append_new(list, r->ports[i].first == r->ports[i].last ? json_integer(r->ports[i].first)
											 : json_string(range));
	}
	return list;
}

/* What an agent needs to know to stay inside of it; the names of secrets are not its affair. */
static json_t *rule_to_json(const struct network_rule *r)
{
	static const char *const protocols[] = {
	    [NET_TCP] = "tcp", [NET_TLS] = "tls", [NET_HTTP] = "http", [NET_HTTPS] = "https", [NET_UDP] = "udp"};
	char address[NET_ADDRESS_TEXT];
	json_t *rule = json_pack("{so ss}", "ports", ports_to_json(r), "protocol", protocols[r->protocol]);

	if (r->pattern != NULL) {
		(void) json_object_set_new(rule, "host", json_string(r->pattern));
	} else {
		cleanup_free char *prefix = xasprintf("%s/%u", network_address_text(&r->prefix.address, address), r->prefix.bits);

		(void) json_object_set_new(rule, "address", json_string(prefix));
	}
	if (r->has_methods)
		(void) json_object_set_new(rule, "methods", strings_to_json(r->methods.items, r->methods.count));
	if (r->has_paths)
		(void) json_object_set_new(rule, "paths", strings_to_json(r->paths.items, r->paths.count));
	return rule;
}

static json_t *network_to_summary(const struct plan *plan)
{
	const struct network *n = plan->network;
	json_t *allow = json_array(), *publish = json_array(), *network = json_object();

	for (size_t i = 0; n != NULL && i < n->rule_count; i++)
		(void) json_array_append_new(allow, rule_to_json(&n->rules[i]));
	for (size_t i = 0; n != NULL && i < n->publish_count; i++)
		(void) json_array_append_new(publish, json_integer(n->publish[i].port));
	(void) json_object_set_new(network, "allow", allow);
	(void) json_object_set_new(network, "publish", publish);
	if (n == NULL || n->rule_count == 0)
		return network;
	(void) json_object_set_new(network, "limits",
				   json_pack("{so so so so so}", "bytes_out", number_or_null(n->limits.bytes_out), "bytes_in",
					     number_or_null(n->limits.bytes_in), "requests", number_or_null(n->limits.requests),
					     "connections", number_or_null(n->limits.connections), "rate",
					     number_or_null(n->limits.rate)));
	return network;
}

char *summary_to_json(const struct plan *plan)
{
	json_t *document =
	    json_pack("{ss ss so so so so ss}", "schema", "zwinger.limits/1", "isolation", isolation_name(plan->isolation),
		      "limits", limits_to_json(plan), "scratch", scratch_to_json(plan), "mounts", mounts_to_json(plan, false),
		      "network", network_to_summary(plan), "home", plan->home);

	return print_json(document, JSON_INDENT(1));
}

static json_t *tree_to_json(const struct plan *plan)
{
	json_t *list = json_array();

	for (size_t i = 0; i < plan->bind_count; i++)
		(void) json_array_append_new(list, json_pack("{ss ss ss}", "target", plan->binds[i].target, "kind", "bind",
							     "source", plan->binds[i].source));
	for (size_t i = 0; i < plan->link_count; i++)
		(void) json_array_append_new(
		    list, json_pack("{ss ss ss}", "target", plan->links[i].path, "kind", "link", "to", plan->links[i].target));
	for (size_t i = 0; i < plan->file_count; i++)
		(void) json_array_append_new(list, json_pack("{ss ss sI}", "target", plan->files[i].path, "kind", "file", "bytes",
							     (json_int_t) plan->files[i].size));
	return list;
}

static json_t *syscalls_to_json(const struct plan *plan)
{
	static const char *const profiles[] = {
	    [SECCOMP_STRICT] = "strict", [SECCOMP_DEFAULT] = "default", [SECCOMP_DEBUG] = "debug"};
	const struct seccomp_spec *s = &plan->syscalls;
	json_t *allow = json_array(), *deny = json_array();

	for (size_t i = 0; i < s->allow_count; i++)
		(void) json_array_append_new(allow, json_string(seccomp_name(s->allow[i])));
	for (size_t i = 0; i < s->deny_count; i++)
		(void) json_array_append_new(deny, json_string(seccomp_name(s->deny[i])));
	return json_pack("{ss so so sb sb sb}", "profile", profiles[s->profile], "allow", allow, "deny", deny, "report_exec",
			 (int) s->notify_exec, "report_connect", (int) s->notify_connect, "report_open", (int) s->notify_open);
}

char *plan_to_json(const struct plan *plan)
{
	json_t *process = json_pack("{so so ss ss si si sb}", "argv", strings_to_json(plan->argv, plan->argc), "env",
				    strings_to_json(plan->env, plan->envc), "cwd", plan->cwd, "hostname", plan->hostname, "user",
				    (int) plan->inside_uid, "group", (int) plan->inside_gid, "tty", (int) plan->tty);
	json_t *audit = json_pack("{ss? sb sb ss}", "file", plan->audit_file, "exec", (int) plan->audit_exec, "network",
				  (int) plan->audit_network, "files",
				  plan->audit_files == AUDIT_FILES_TRACE ? "trace"
				  : plan->audit_files == AUDIT_FILES_ON  ? "on"
									 : "off");
	json_t *document = json_pack(
	    "{ss ss? ss ss sb ss so so so so so so so so}", "schema", "zwinger.plan/1", "name", plan->name, "isolation",
	    isolation_name(plan->isolation), "enforcement", plan->best_effort ? "best-effort" : "strict", "as_root",
	    (int) plan->privileged, "root", plan->root != NULL ? plan->root : "host", "mounts", mounts_to_json(plan, true),
	    "system_tree", tree_to_json(plan), "scratch", scratch_to_json(plan), "limits", limits_to_json(plan), "syscalls",
	    syscalls_to_json(plan), "network", network_to_summary(plan), "process", process, "audit", audit);

	return print_json(document, JSON_INDENT(2));
}
