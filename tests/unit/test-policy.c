/* A policy from text and flags to struct: defaults, every key, merging, all errors at once. */
#include "policy-helpers.h"

#include <errno.h>
#include <unistd.h>

static void absent_keys_take_the_documented_defaults(void **state)
{
	struct policy p = policy_of("");

	(void) state;
	assert_null(p.name);
	assert_int_equal(p.isolation, ISOLATION_CONTAINER);
	assert_false(p.best_effort);
	assert_string_equal(p.root, "host");
	assert_int_equal(p.filesystem.read_count + p.filesystem.write_count, 0);
	assert_int_equal(p.filesystem.scratch.size, 256u << 20);
	assert_int_equal(p.filesystem.scratch.inodes, 65536);
	assert_true(p.filesystem.scratch.exec);
	assert_false(p.filesystem.workspace.present);
	assert_int_equal(p.network.allow_count, 0);
	assert_false(p.network.has_allow);
	assert_true(p.network.limits.bytes_out == ZW_UNLIMITED);
	assert_int_equal(p.limits.time, 60 * USEC_PER_SEC);
	assert_int_equal(p.limits.cpu_time, 60 * USEC_PER_SEC);
	assert_true(p.limits.cpus == 0);
	assert_int_equal(p.limits.memory, 512u << 20);
	assert_int_equal(p.limits.swap, 0);
	assert_int_equal(p.limits.processes, 256);
	assert_int_equal(p.limits.open_files, 1024);
	assert_true(p.limits.file_size == ZW_UNLIMITED);
	assert_true(p.limits.disk == ZW_UNLIMITED);
	assert_int_equal(p.limits.output, 8u << 20);
	assert_int_equal(p.limits.on_output_limit, OUTPUT_TRUNCATE);
	assert_true(p.limits.io_read_bps == ZW_UNLIMITED && p.limits.io_write_bps == ZW_UNLIMITED);
	assert_false(p.limits.kernel);
	assert_int_equal(p.syscalls.profile, PROFILE_DEFAULT);
	assert_int_equal(p.process.user, 1000);
	assert_int_equal(p.process.group, 1000);
	assert_string_equal(p.process.hostname, "zwinger");
	assert_null(p.process.cwd);
	assert_true(p.audit.exec && p.audit.network);
	assert_int_equal(p.audit.files, AUDIT_FILES_ON);
	assert_null(p.audit.file);
	policy_done(&p);
	policy_done(&p); /* harmless twice */
}

static const char full[] =
    "version: 1\n"
    "name: quarterly-report\n"
    "isolation: container\n"
    "enforcement: strict\n"
    "root: host\n"
    "filesystem:\n"
    "  read:  [ {source: ./data, target: /data} ]\n"
    "  write: [ {source: /srv/out, target: /out, size: 200M} ]\n"
    "  scratch: {size: 256M, inodes: 65536, exec: true}\n"
    "  workspace: {source: ., target: /work, mode: cow, size: 1G}\n"
    "network:\n"
    "  allow:\n"
    "    - {host: api.example.org, ports: [443], protocol: https, methods: [GET], paths: [\"/v1/*\"],\n"
    "       secret: {name: example_token, header: Authorization, format: \"Bearer {}\"}}\n"
    "    - {host: \"*.mirror.example.org\"}\n"
    "    - {address: 10.1.0.0/16, ports: [5432, \"8000-8010\"]}\n"
    "    - '@pip'\n"
    "  hosts: {db.internal: 10.1.2.3, api.example.org: \"127.0.0.1:8443\"}\n"
    "  limits: {bytes_out: null, bytes_in: null, requests: null, connections: 7}\n"
    "  proxy_env: false\n"
    "  publish: [8080, \"127.0.0.1:9000:8081\"]\n"
    "  ask: false\n"
    "secrets:\n"
    "  example_token: {env: EXAMPLE_TOKEN}\n"
    "limits: {time: 30s, cpu_time: 20s, cpus: 1.5, memory: 512M, swap: 0, processes: 128, open_files: 1024, file_size: 1G,\n"
    "         disk: 1G, output: 8M, on_output_limit: truncate, io_read_bps: null, io_write_bps: null, kernel: false}\n"
    "syscalls: {profile: default, allow: [], deny: []}\n"
    "env: {set: {LANG: C.UTF-8, PORT: 8080}, pass: [TZ]}\n"
    "process: {cwd: /work, user: 1000, group: 1000, hostname: zwinger}\n"
    "lsm: {apparmor: null, selinux: null}\n"
    "audit: {file: null, exec: true, files: trace, network: true}\n";

static void the_complete_schema_is_understood(void **state)
{
	struct policy p = policy_of(full);
	const struct policy_rule *r = p.network.allow;

	(void) state;
	assert_string_equal(p.name, "quarterly-report");
	assert_int_equal(p.filesystem.read_count, 1);
	assert_string_equal(p.filesystem.read[0].target, "/data");
	assert_int_equal(p.filesystem.read[0].source[0], '/');
	assert_string_equal(p.filesystem.write[0].source, "/srv/out");
	assert_int_equal(p.filesystem.write[0].size, 200u << 20);
	assert_true(p.filesystem.workspace.present);
	assert_int_equal(p.filesystem.workspace.mode, WORKSPACE_COW);
	assert_int_equal(p.network.allow_count, 4);
	assert_true(p.network.has_allow && r[0].has_methods && r[0].has_paths && !r[1].has_methods);
	assert_string_equal(r[0].secret.format, "Bearer {}");
	assert_int_equal(r[1].ports[0].first, 443);
	assert_string_equal(r[2].address, "10.1.0.0/16");
	assert_int_equal(r[2].port_count, 2);
	assert_int_equal(r[2].ports[1].last, 8010);
	assert_string_equal(r[3].preset, "@pip");
	assert_int_equal(r[3].port_count, 0);
	assert_string_equal(p.network.hosts[1].target, "127.0.0.1:8443");
	assert_int_equal(p.network.limits.connections, 7);
	assert_int_equal(p.network.publish[0].host_port, 8080);
	assert_string_equal(p.network.publish[0].bind, "127.0.0.1");
	assert_int_equal(p.network.publish[1].host_port, 9000);
	assert_int_equal(p.network.publish[1].port, 8081);
	assert_string_equal(p.secrets[0].name, "example_token");
	assert_true(p.limits.cpus == 1.5);
	assert_string_equal(p.env.set[1].value, "8080");
	assert_string_equal(p.env.pass.items[0], "TZ");
	assert_int_equal(p.audit.files, AUDIT_FILES_TRACE);
	policy_done(&p);
}

static void null_means_no_limit(void **state)
{
	struct policy p = policy_of(
	    "limits: {time: null, cpu_time: null, memory: null, swap: null, processes: null, output: null, cpus: null}\n"
	    "filesystem: {scratch: {size: null, inodes: null}}\n");

	(void) state;
	assert_true(p.limits.time == ZW_UNLIMITED && p.limits.cpu_time == ZW_UNLIMITED && p.limits.memory == ZW_UNLIMITED);
	assert_true(p.limits.swap == ZW_UNLIMITED && p.limits.processes == ZW_UNLIMITED && p.limits.output == ZW_UNLIMITED);
	assert_true(p.filesystem.scratch.size == ZW_UNLIMITED && p.filesystem.scratch.inodes == ZW_UNLIMITED);
	policy_done(&p);
	assert_refused("limits:\n  memory:\n", 2, "limits.memory", "null is a word");
	assert_refused("limits: {memory: ~}\n", 1, "limits.memory", "expected a size");
	assert_refused("limits: {memory: \"null\"}\n", 1, "limits.memory", "expected a size");
	assert_refused("limits: {kernel: null}\n", 1, "limits.kernel", "expected true or false");
	assert_refused("env: {pass: null}\n", 1, "env.pass", "expected a list");
}

static void a_section_with_everything_commented_out_says_nothing(void **state)
{
	struct policy p = policy_of("limits:\n#  memory: 1G\nfilesystem:\n  workspace:\nsecrets:\n");

	(void) state;
	assert_int_equal(p.limits.memory, 512u << 20);
	assert_false(p.filesystem.workspace.present);
	policy_done(&p);
}

static void json_is_a_policy_too(void **state)
{
	struct policy p =
	    policy_of("\n\t {\"version\": 1,\t\"name\": \"\\ud83d\\ude00\", \"limits\": {\"memory\": 1073741824, \"cpus\": 0.5,\n"
		      "\"processes\": null}, \"env\": {\"set\": {\"A\": \"b\\tc\"}}}");

	(void) state;
	assert_string_equal(p.name, "\xf0\x9f\x98\x80");
	assert_int_equal(p.limits.memory, 1u << 30);
	assert_true(p.limits.cpus == 0.5 && p.limits.processes == ZW_UNLIMITED);
	assert_string_equal(p.env.set[0].value, "b\tc");
	policy_done(&p);
	assert_refused("{\"limits\":\n {\"memory\": \"1G\",\n  \"tiem\": 5}}", 3, "limits.tiem", "time");
	assert_refused("{\"name\": \"a\",\n\"name\": \"b\"}", 2, NULL, "duplicate object key");
	assert_refused("{\"name\": \"a\",}", 1, NULL, "expected JSON");
	assert_refused("{\"limits\": {\"processes\": 1e3}}", 1, "limits.processes", "whole number");
	assert_refused("{name: a}", 1, NULL, "expected JSON");
}

static void every_error_of_a_file_is_told_at_once(void **state)
{
	static const char text[] = "version: 2\n"
				   "nmae: x\n"
				   "memory: 1G\n"
				   "limits:\n"
				   "  memory: lots\n"
				   "  proceses: 5\n"
				   "  time: 30\n"
				   "filesystem:\n"
				   "  write:\n"
				   "    - {source: a, target: /ok}\n"
				   "    - {sorce: b, target: /b}\n"
				   "isolation: contaner\n";
	struct policy_errors errors = {0};
	struct policy p;

	(void) state;
	assert_int_equal(resolve_text(text, &p, &errors), -EINVAL);
	assert_true(has_error(&errors, 1, "version", "expected 1"));
	assert_true(has_error(&errors, 2, "nmae", "name"));
	assert_true(has_error(&errors, 3, "memory", "limits.memory"));
	assert_true(has_error(&errors, 5, "limits.memory", "expected a size such as 512M or 1G, or null, got \"lots\""));
	assert_true(has_error(&errors, 6, "limits.proceses", "processes"));
	assert_true(has_error(&errors, 7, "limits.time", "30s"));
	assert_true(has_error(&errors, 11, "filesystem.write[1].sorce", "source"));
	assert_true(has_error(&errors, 11, "filesystem.write[1]", "source is missing"));
	assert_true(has_error(&errors, 12, "isolation", "container"));
	assert_int_equal(errors.count, 9);
	assert_string_equal(errors.items[0].file, "p.yaml");
	policy_errors_done(&errors);
}

static void an_error_reads_as_one_line(void **state)
{
	struct policy_errors errors = {0};
	char *text;

	(void) state;
	policy_errors_add(&errors, "a.yaml", 3, "limits.tiem", "time", "unknown key");
	policy_errors_add(&errors, "flag --memory", 0, "limits.memory", NULL, "expected a size, got \"x\"");
	policy_errors_add(&errors, "a.yaml", 3, "limits.tiem", "time", "unknown key");
	assert_int_equal(errors.count, 2);
	text = policy_error_text(&errors.items[0]);
	assert_string_equal(text, "a.yaml:3: limits.tiem: unknown key (did you mean \"time\"?)");
	free(text);
	text = policy_error_text(&errors.items[1]);
	assert_string_equal(text, "flag --memory: expected a size, got \"x\"");
	free(text);
	policy_errors_done(&errors);
}

static void booleans_are_true_and_false_only(void **state)
{
	(void) state;
	assert_refused("limits: {kernel: yes}", 1, "limits.kernel", "true");
	assert_refused("limits: {kernel: Off}", 1, "limits.kernel", "false");
	assert_refused("limits: {kernel: 1}", 1, "limits.kernel", "true");
	assert_refused("limits: {kernel: \"true\"}", 1, "limits.kernel", "true");
	assert_refused("audit: {files: on}", 1, "audit.files", "false, true or trace");
}

static void wrong_types_are_refused(void **state)
{
	(void) state;
	assert_refused("- a\n", 1, NULL, "expected a map");
	assert_refused("name: 5", 1, "name", "in quotes");
	assert_refused("limits: []", 1, "limits", "expected a map");
	assert_refused("limits: {processes: \"5\"}", 1, "limits.processes", "without quotes");
	assert_refused("limits: {processes: 1.5}", 1, "limits.processes", "whole number");
	assert_refused("limits: {memory: [1]}", 1, "limits.memory", "got a list");
	assert_refused("limits: {memory: -5}", 1, "limits.memory", "expected a size");
	assert_refused("limits: {memory: 1M}", 1, "limits.memory", "at least 4M");
	assert_refused("limits: {time: 0s}", 1, "limits.time", "at least 1ms");
	assert_refused("limits: {processes: 0}", 1, "limits.processes", "at least 1");
	assert_refused("limits: {cpus: 0}", 1, "limits.cpus", "0.01");
	assert_refused("filesystem: {read: [5]}", 1, "filesystem.read[0]", "SRC[:DST]");
	assert_refused("filesystem: {read: {source: a}}", 1, "filesystem.read", "expected a list");
	assert_refused("process: {user: 0}", 1, "process.user", "without uid 0");
	assert_refused("process: {user: 4294967295}", 1, "process.user", "at most");
	assert_refused("process: {hostname: a_b}", 1, "process.hostname", "host name");
	assert_refused("syscalls: {allow: [reed]}", 1, "syscalls.allow[0]", "read");
	assert_refused("env: {set: {\"A=B\": c}}", 1, "env.set.A=B", "without \"=\"");
	assert_refused("env: {set: {A: {value: c}}}", 1, "env.set.A", "expected a text");
	assert_refused("root: /", 1, "root", "host");
}

static void targets_are_checked(void **state)
{
	static const char *const reserved[] = {"/proc",        "/proc/x",    "/sys",     "/dev/shm", "/etc/passwd",
					       "/run/zwinger", "/usr/lib/x", "/bin",     "/lib64",   "/",
					       "/run",         "/tmp",       "//proc//x"};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		char *text = xasprintf("filesystem: {read: [{source: /a, target: %s}]}", reserved[i]);

		assert_refused(text, 1, "filesystem.read[0].target", "expected a");
		free(text);
	}
	assert_refused("filesystem: {read: [{source: a, target: b}]}", 1, "filesystem.read[0].target", "absolute");
	assert_refused("filesystem: {read: [{source: a, target: /b/../c}]}", 1, "filesystem.read[0].target", "\"..\"");
	assert_refused("filesystem: {read: [/usr/share/x]}", 1, "filesystem.read[0]", "give a target");
	assert_refused("filesystem: {read: [\"a:/x\"],\n write: [\"b:/x/\"]}", 2, "filesystem.write[0]",
		       "taken by filesystem.read[0]");
	assert_refused("filesystem: {read: [\"a:/work\"],\n workspace: {source: .}}", 2, "filesystem.workspace", "taken by");
	assert_refused("filesystem: {read: [\"~/data:/d\"]}", 1, "filesystem.read[0]", "not expanded");
	assert_refused("filesystem: {workspace: {mode: rw}}", 1, "filesystem.workspace", "source is missing");
}

static void a_missing_target_is_the_path_of_the_source(void **state)
{
	struct policy p = policy_of("filesystem: {read: [/srv/./a//b, {source: /srv/x/../y}, \"/srv/c:/d\"]}");

	(void) state;
	assert_string_equal(p.filesystem.read[0].source, "/srv/a/b");
	assert_string_equal(p.filesystem.read[0].target, "/srv/a/b");
	assert_string_equal(p.filesystem.read[1].source, "/srv/x/../y");
	assert_string_equal(p.filesystem.read[1].target, "/srv/y");
	assert_string_equal(p.filesystem.read[2].target, "/d");
	assert_true(p.filesystem.read[0].size == ZW_UNLIMITED);
	policy_done(&p);
}

static void rules_hold_together(void **state)
{
	(void) state;
	assert_refused("network: {allow: [{ports: [1]}]}", 1, "network.allow[0]", "host, address or preset, got none");
	assert_refused("network: {allow: [{host: a.test, address: 1.2.3.4}]}", 1, "network.allow[0]",
		       "got both host and address");
	assert_refused("network: {allow: [{host: a.test, methods: [GET]}]}", 1, "network.allow[0]",
		       "methods needs protocol http");
	assert_refused("network: {allow: [{host: a.test, protocol: https, methods: [get]}]}", 1, "network.allow[0].methods[0]",
		       "GET");
	assert_refused("network: {allow: [{host: a.test, protocol: https, paths: [v1]}]}", 1, "network.allow[0].paths[0]", "/v1");
	assert_refused("network: {allow: [{host: a.test, ports: []}]}", 1, "network.allow[0]", "opens nothing");
	assert_refused("network: {allow: [{host: a.test, ports: [0]}]}", 1, "network.allow[0].ports[0]", "65535");
	assert_refused("network: {allow: [{host: a.test, ports: [\"9-8\"]}]}", 1, "network.allow[0].ports[0]", "range");
	assert_refused("network: {allow: ['@pipp']}", 1, "network.allow[0]", "@pip");
	assert_refused("network: {allow: [\"a.test:\"]}", 1, "network.allow[0]", "expected ports");
	assert_refused("network: {publish: [8080,\n 8080]}", 2, "network.publish[1]", "already");
	assert_refused("network: {hosts: {a.test: b.test}}", 1, "network.hosts.a.test", "expected an address");
	assert_refused("network: {allow: [{host: a.test, protocol: https, secret: {name: tokn, header: X}}]}\n"
		       "secrets: {token: {env: T}}",
		       1, "network.allow[0].secret.name", "token");
	assert_refused("network: {hosts: {a.test: 1.2.3.4, A.Test.: 1.2.3.5}}", 1, "network.hosts.A.Test.", "there twice");
	assert_refused("secrets: {a: {env: X, file: y}}", 1, "secrets.a", "both env and file");
	assert_refused("secrets: {a: {}}", 1, "secrets.a", "got none");
	assert_refused("secrets: {a: {command: []}}", 1, "secrets.a", "empty");
}

static void short_rules_name_host_and_ports(void **state)
{
	struct policy p = policy_of("network: {allow: [Api.Example.ORG., \"a.test:80,8000-8010\", \"10.0.0.0/8:5432\", "
				    "\"[2001:db8::1]:80\", \"2001:db8::2\",\n"
				    " {host: h.test, protocol: http}]}");
	const struct policy_rule *r = p.network.allow;

	(void) state;
	assert_string_equal(r[0].host, "api.example.org");
	assert_int_equal(r[0].ports[0].first, 443);
	assert_int_equal(r[1].port_count, 2);
	assert_int_equal(r[1].ports[1].last, 8010);
	assert_string_equal(r[2].address, "10.0.0.0/8");
	assert_int_equal(r[2].ports[0].first, 5432);
	assert_string_equal(r[3].address, "2001:db8::1");
	assert_string_equal(r[4].address, "2001:db8::2");
	assert_int_equal(r[5].ports[0].first, 80);
	policy_done(&p);
}

static void absent_empty_and_one_entry_differ(void **state)
{
	struct policy absent = policy_of(""), empty = policy_of("network: {allow: []}"),
		      one = policy_of("network: {allow: [a.test]}");

	(void) state;
	assert_false(absent.network.has_allow);
	assert_true(empty.network.has_allow && empty.network.allow_count == 0);
	assert_int_equal(one.network.allow_count, 1);
	assert_int_equal(policy_unbuilt(&empty, NULL, NULL), 0);
	assert_int_equal(policy_unbuilt(&one, NULL, NULL), 0);
	policy_done(&absent);
	policy_done(&empty);
	policy_done(&one);
}

static void add(struct policy_stack *s, const char *text)
{
	struct policy_errors errors = {0};

	assert_int_equal(policy_stack_add_text(s, "t", text, strlen(text), &errors), 0);
	assert_int_equal(errors.count, 0);
}

static void flag(struct policy_stack *s, const char *name, const char *value)
{
	struct policy_errors errors = {0};

	if (policy_stack_add_flag(s, name, value, &errors) != 0) {
		print_policy_errors(&errors);
		fail_msg("%s %s", name, value);
	}
}

static struct policy take(struct policy_stack *s)
{
	struct policy_errors errors = {0};
	struct policy p = {0};

	if (policy_stack_resolve(s, &p, &errors) != 0) {
		print_policy_errors(&errors);
		fail_msg("expected a policy");
	}
	policy_stack_free(s);
	return p;
}

static void maps_merge_and_lists_replace(void **state)
{
	struct policy_stack *s = policy_stack_new();
	struct policy p;

	(void) state;
	add(s, "limits: {memory: 1G, time: 5s}\nenv: {set: {A: a, B: b}, pass: [X, Y]}\nfilesystem: {read: [/srv/a, /srv/b]}\n"
	       "secrets: {t: {env: T}}\n");
	add(s, "limits: {time: 7s}\nenv: {set: {B: c}, pass: [Z]}\nfilesystem: {read: []}\nsecrets: {t: {file: /srv/t}}\n");
	p = take(s);
	assert_int_equal(p.limits.memory, 1u << 30);
	assert_int_equal(p.limits.time, 7 * USEC_PER_SEC);
	assert_int_equal(p.env.set_count, 2);
	assert_string_equal(p.env.set[0].value, "a");
	assert_string_equal(p.env.set[1].value, "c");
	assert_int_equal(p.env.pass.count, 1);
	assert_int_equal(p.filesystem.read_count, 0);
	assert_null(p.secrets[0].env);
	assert_string_equal(p.secrets[0].file, "/srv/t");
	policy_done(&p);
}

static void a_covered_fault_still_counts(void **state)
{
	static const char text[] = "limits: {memory: lots}";
	struct policy_stack *s = policy_stack_new();
	struct policy_errors errors = {0};
	struct policy p;

	(void) state;
	assert_int_equal(policy_stack_add_text(s, "a", text, strlen(text), &errors), 0);
	add(s, "limits: {memory: 1G}");
	assert_int_equal(policy_stack_resolve(s, &p, &errors), -EINVAL);
	assert_int_equal(errors.count, 1);
	policy_errors_done(&errors);
	policy_stack_free(s);
}

static void flags_override_files(void **state)
{
	struct policy_stack *s = policy_stack_new();
	struct policy p;

	(void) state;
	flag(s, "--memory", "2G");
	flag(s, "--ro", "/srv/x:/x");
	flag(s, "--ro", "/srv/y");
	flag(s, "--rw", "/srv/o:/o");
	flag(s, "--workspace", "/srv/w:/w:ro");
	flag(s, "--time", "null");
	flag(s, "--env", "A=1=2");
	flag(s, "--env", "A.B=");
	flag(s, "--env", "A=3");
	flag(s, "--pass", "HOME");
	flag(s, "--best-effort", NULL);
	flag(s, "--scratch-noexec", NULL);
	flag(s, "--user", "5:6");
	flag(s, "--publish", "9000:80");
	flag(s, "--allow", "a.test:80,81");
	flag(s, "--allow", "@pip");
	flag(s, "--hostname", "null");
	flag(s, "--isolation", "process");
	flag(s, "--cpus", "0.5");
	add(s, "limits: {memory: 1G}\nfilesystem: {read: [/srv/a], workspace: {source: /srv/q, mode: rw}}\nenv: {set: {C: c}}\n");
	p = take(s);
	assert_true(p.limits.memory == UINT64_C(2) << 30);
	assert_true(p.limits.time == ZW_UNLIMITED);
	assert_int_equal(p.filesystem.read_count, 2);
	assert_string_equal(p.filesystem.read[1].target, "/srv/y");
	assert_string_equal(p.filesystem.workspace.mount.source, "/srv/w");
	assert_int_equal(p.filesystem.workspace.mode, WORKSPACE_RO);
	assert_int_equal(p.env.set_count, 3);
	assert_string_equal(p.env.set[0].value, "c");
	assert_string_equal(p.env.set[1].value, "3");
	assert_string_equal(p.env.set[2].name, "A.B");
	assert_true(p.best_effort && !p.filesystem.scratch.exec);
	assert_int_equal(p.process.user, 5);
	assert_int_equal(p.process.group, 6);
	assert_int_equal(p.network.publish[0].host_port, 9000);
	assert_int_equal(p.network.publish[0].port, 80);
	assert_int_equal(p.network.allow_count, 2);
	assert_string_equal(p.process.hostname, "null");
	assert_int_equal(p.isolation, ISOLATION_PROCESS);
	policy_done(&p);
}

static void wrong_flags_are_told_at_once_and_by_name(void **state)
{
	static const struct {
		const char *flag, *value, *words;
	} wrong[] = {{"--memory", "lots", "expected a size"},
		     {"--time", "5", "5s"},
		     {"--env", "NAME", "--pass"},
		     {"--user", "0", "without uid 0"},
		     {"--user", "root", "whole number"},
		     {"--rw", "a:b", "absolute"},
		     {"--workspace", ".:/w:rx", "cow, rw or ro"},
		     {"--allow", "http://a.test/", "a.test"},
		     {"--isolation", "contaner", "container"},
		     {"--publish", "70000", "65535"},
		     {"--memory", NULL, "expected a value"},
		     {"--best-effort", "x", "takes no value"}};
	struct policy_stack *s = policy_stack_new();

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct policy_errors errors = {0};
		char *label = xasprintf("flag %s", wrong[i].flag);

		assert_int_equal(policy_stack_add_flag(s, wrong[i].flag, wrong[i].value, &errors), -EINVAL);
		if (!has_error(&errors, 0, NULL, wrong[i].words))
			print_policy_errors(&errors);
		assert_true(has_error(&errors, 0, NULL, wrong[i].words));
		assert_string_equal(errors.items[0].file, label);
		policy_errors_done(&errors);
		free(label);
	}
	assert_int_equal(policy_stack_add_flag(s, "--tty", NULL, NULL), -ENOENT);
	policy_stack_free(s);
}

static void every_flag_of_the_contract_is_in_the_table(void **state)
{
	static const char *const names[] = {
	    "--isolation", "--best-effort", "--ro",        "--rw",   "--workspace", "--scratch",  "--root", "--scratch-noexec",
	    "--allow",     "--publish",     "--memory",    "--cpus", "--time",      "--cpu-time", "--disk", "--processes",
	    "--output",    "--files",       "--file-size", "--env",  "--pass",      "--cwd",      "--user", "--hostname",
	    "--audit"};
	size_t count;
	const struct policy_flag *flags = policy_flags(&count);

	(void) state;
	assert_int_equal(count, ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		bool found = false;

		for (size_t j = 0; j < count; j++)
			found = found || strcmp(flags[j].name, names[i]) == 0;
		assert_true(found);
	}
	for (size_t j = 0; j < count; j++)
		assert_non_null(flags[j].help);
}

static void presets_are_valid_and_built(void **state)
{
	size_t count;
	const struct policy_preset *presets = policy_presets(&count);

	(void) state;
	assert_int_equal(count, 4);
	for (size_t i = 0; i < count; i++) {
		struct policy_stack *s = policy_stack_new();
		struct policy_errors errors = {0};
		struct policy p;

		assert_int_equal(policy_stack_add(s, presets[i].name, &errors), 0);
		print_policy_errors(&errors);
		p = take(s);
		assert_int_equal(policy_unbuilt(&p, NULL, NULL), 0);
		assert_int_equal(p.filesystem.scratch.exec,
				 strcmp(presets[i].name, "@tutor") != 0 && strcmp(presets[i].name, "@research") != 0);
		policy_done(&p);
	}
}

static void unknown_presets_get_the_nearest_name(void **state)
{
	struct policy_stack *s = policy_stack_new();
	struct policy_errors errors = {0};

	(void) state;
	assert_int_equal(policy_stack_add(s, "@pyhton", &errors), -EINVAL);
	assert_string_equal(errors.items[0].suggestion, "@python");
	policy_errors_done(&errors);
	policy_stack_free(s);
}

static void paths_belong_to_the_folder_of_their_file(void **state)
{
	char dir[] = "/tmp/zw-policy-XXXXXX", *path, *expected, *cwd = getcwd(NULL, 0);
	struct policy_errors errors = {0};
	struct policy_stack *s = policy_stack_new();
	struct policy p;
	FILE *f;

	(void) state;
	assert_non_null(mkdtemp(dir));
	path = xasprintf("%s/p.yaml", dir);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs("filesystem: {read: [\"data:/d\"]}\naudit: {file: log}\nroot: ./rootfs\n", f) > 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(policy_stack_add(s, path, &errors), 0);
	flag(s, "--rw", "out:/o");
	p = take(s);
	expected = xasprintf("%s/data", dir);
	assert_string_equal(p.filesystem.read[0].source, expected);
	free(expected);
	expected = xasprintf("%s/rootfs", dir);
	assert_string_equal(p.root, expected);
	free(expected);
	expected = xasprintf("%s/out", cwd);
	assert_string_equal(p.filesystem.write[0].source, expected);
	free(expected);
	policy_done(&p);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
	free(path);
	free(cwd);
}

static void count_feature(void *ctx, const char *key, const char *sentence)
{
	char *list = ctx;

	assert_true(strlen(sentence) > 20);
	(void) snprintf(list + strlen(list), 1000 - strlen(list), "%s ", key);
}

static void what_is_not_built_is_named(void **state)
{
	struct policy p = policy_of(
	    "isolation: gvisor\nroot: python:3.12\nlsm: {apparmor: x}\nsecrets: {a: {env: B}}\n"
	    "filesystem: {workspace: .}\nnetwork: {publish: [80], ask: true, hosts: {a.test: 1.2.3.4}, proxy_env: true}\n");
	char list[1024] = "";

	(void) state;
	assert_int_equal(policy_unbuilt(&p, count_feature, list), 5);
	assert_non_null(strstr(list, "isolation root filesystem.workspace.mode network.ask lsm.apparmor"));
	policy_done(&p);
}

static void the_summary_speaks_of_every_part(void **state)
{
	static const char *const words[] = {
	    "quarterly-report", "Read",      "/data", "Write",    "/out",       "200 MiB",   "Reach",   "5432",        "Use",
	    "512 MiB",          "Ends when", "30 s",  "Not held", "kept aside", "Not built", "Secrets", "LANG=C.UTF-8"};
	struct policy p = policy_of(full);
	char *text = policy_explain(&p);

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strstr(text, words[i]) == NULL)
			fail_msg("%s is not in the summary", words[i]);
	free(text);
	policy_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(absent_keys_take_the_documented_defaults),
	    cmocka_unit_test(the_complete_schema_is_understood),
	    cmocka_unit_test(null_means_no_limit),
	    cmocka_unit_test(a_section_with_everything_commented_out_says_nothing),
	    cmocka_unit_test(json_is_a_policy_too),
	    cmocka_unit_test(every_error_of_a_file_is_told_at_once),
	    cmocka_unit_test(an_error_reads_as_one_line),
	    cmocka_unit_test(booleans_are_true_and_false_only),
	    cmocka_unit_test(wrong_types_are_refused),
	    cmocka_unit_test(targets_are_checked),
	    cmocka_unit_test(a_missing_target_is_the_path_of_the_source),
	    cmocka_unit_test(rules_hold_together),
	    cmocka_unit_test(short_rules_name_host_and_ports),
	    cmocka_unit_test(absent_empty_and_one_entry_differ),
	    cmocka_unit_test(maps_merge_and_lists_replace),
	    cmocka_unit_test(a_covered_fault_still_counts),
	    cmocka_unit_test(flags_override_files),
	    cmocka_unit_test(wrong_flags_are_told_at_once_and_by_name),
	    cmocka_unit_test(every_flag_of_the_contract_is_in_the_table),
	    cmocka_unit_test(presets_are_valid_and_built),
	    cmocka_unit_test(unknown_presets_get_the_nearest_name),
	    cmocka_unit_test(paths_belong_to_the_folder_of_their_file),
	    cmocka_unit_test(what_is_not_built_is_named),
	    cmocka_unit_test(the_summary_speaks_of_every_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
