/* The policy as a C struct: what the code inside may read, write, reach and use. This is the decoded, merged, defaulted and
 * validated form of schema version 1; nothing in it has touched the host yet (no path is opened, no user looked up).
 * ZW_UNLIMITED stands for `null`. Strings are never NULL unless a comment says so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

enum isolation_level { ISOLATION_PROCESS, ISOLATION_CONTAINER, ISOLATION_GVISOR, ISOLATION_MICROVM, ISOLATION_WASM };
enum policy_profile { PROFILE_STRICT, PROFILE_DEFAULT, PROFILE_DEBUG };
enum workspace_mode { WORKSPACE_COW, WORKSPACE_RW, WORKSPACE_RO };
enum on_output_limit { OUTPUT_TRUNCATE, OUTPUT_KILL };
enum audit_files { AUDIT_FILES_OFF, AUDIT_FILES_ON, AUDIT_FILES_TRACE };
enum net_protocol { NET_TCP, NET_TLS, NET_HTTP, NET_HTTPS, NET_UDP };
enum network_limit_action { NETWORK_LIMIT_DENY, NETWORK_LIMIT_KILL };

struct strv { /* a list of strings, owned */
	char **items;
	size_t count;
};

struct policy_mount {
	char *source;  /* absolute, or as seen from the folder of the policy file, already joined: always absolute here */
	char *target;  /* absolute, normalised, no "." or ".." */
	uint64_t size; /* bytes; ZW_UNLIMITED when not said. Write mounts and workspace only */
};

struct port_range {
	uint16_t first, last;
};

struct policy_secret_use {
	char *name;        /* NULL: the rule uses no secret */
	char *header;      /* NULL with placeholder */
	char *format;      /* with "{}" */
	char *placeholder; /* NULL with header */
};

struct policy_rule {
	char *host;    /* NULL when address or preset is set */
	char *address; /* address or CIDR, textual, validated */
	char *preset;  /* "@pip"... */
	struct port_range *ports;
	size_t port_count;
	enum net_protocol protocol;
	struct strv methods, paths;
	bool has_methods, has_paths; /* absent and empty are different */
	uint64_t request_max;
	struct policy_secret_use secret;
};

struct policy_host {
	char *name, *target;
};

struct policy_publish {
	char *bind; /* "127.0.0.1" by default */
	uint16_t host_port, port;
};

struct policy_secret {
	char *name, *env, *file; /* one of env, file, command is set */
	struct strv command;
};

struct policy_env {
	char *name, *value;
};

struct policy {
	char *name; /* NULL when not given */
	enum isolation_level isolation;
	bool best_effort;
	char *root; /* "host", a directory, or an image reference */

	struct {
		struct policy_mount *read, *write;
		size_t read_count, write_count;
		struct {
			uint64_t size, inodes;
			bool exec;
		} scratch;
		struct {
			bool present;
			struct policy_mount mount;
			enum workspace_mode mode;
		} workspace;
	} filesystem;

	struct {
		struct policy_rule *allow;
		size_t allow_count;
		bool has_allow; /* absent is not the same as an empty list, though both open nothing */
		struct policy_host *hosts;
		size_t host_count;
		struct {
			uint64_t bytes_out, bytes_in, requests, connections;
			uint64_t rate; /* bytes a second, both directions together */
			enum network_limit_action on_limit;
		} limits;
		bool proxy_env, ask;
		struct policy_publish *publish;
		size_t publish_count;
		char *ca_file; /* NULL when not given */
	} network;

	struct policy_secret *secrets;
	size_t secret_count;

	struct {
		usec_t time, cpu_time;
		double cpus; /* 0: all */
		uint64_t memory, swap, processes, open_files, file_size, disk, output, io_read_bps, io_write_bps;
		enum on_output_limit on_output_limit;
		bool kernel;
	} limits;

	struct {
		enum policy_profile profile;
		struct strv allow, deny; /* names, checked against the table of system calls */
	} syscalls;

	struct {
		struct policy_env *set;
		size_t set_count;
		struct strv pass;
	} env;

	struct {
		char *cwd; /* NULL: the workspace, else HOME */
		uid_t user;
		gid_t group;
		char *hostname;
	} process;

	struct {
		char *apparmor, *selinux; /* NULL when not asked for */
	} lsm;

	struct {
		char *file; /* NULL when not asked for */
		bool exec, network;
		enum audit_files files;
	} audit;
};

/* Releases the contents. NULL-safe for every member. */
void policy_done(struct policy *p);

/* One fault of a policy: all are collected, none stops the decoding. Strings are owned; NULL where not known. */
struct policy_error {
	char *file;       /* the path as given, "flag --memory" for flags, "@tutor" for presets, "-" for stdin */
	unsigned line;    /* 0 when not known */
	char *key;        /* "limits.memory", "filesystem.write[1].source" */
	char *message;    /* what was expected, got what */
	char *suggestion; /* nearest known key or value */
};

struct policy_errors {
	struct policy_error *items;
	size_t count;
};

void policy_errors_add(struct policy_errors *errors, const char *file, unsigned line, const char *key, const char *suggestion,
		       const char *fmt, ...) __attribute__((format(printf, 6, 7)));
void policy_errors_done(struct policy_errors *errors);

/* The fault as one line without newline: "FILE:LINE: key: message (did you mean "x"?)". Owned by the caller. */
char *policy_error_text(const struct policy_error *e);

/* Where a policy comes from: a stack of documents, later ones override earlier ones (maps merge key by key, lists replace). */
struct policy_stack;

struct policy_stack *policy_stack_new(void);
void policy_stack_free(struct policy_stack *s);

/* Add a source on top. `ref` is a path, "-" (stdin) or "@NAME". Faults are collected in `errors`; the return value is 0 or
 * -EINVAL when the document cannot be used at all. Relative paths inside belong to the folder of the file ("-": the working
 * directory). */
int policy_stack_add(struct policy_stack *s, const char *ref, struct policy_errors *errors);
int policy_stack_add_text(struct policy_stack *s, const char *label, const char *text, size_t size, struct policy_errors *errors);

/* Add what one flag says ("--memory", "512M"). `value` is NULL for a flag without one. Repeatable list flags append to what other
 * flags of the same name gave, and replace what files gave. Returns 0, -ENOENT when no policy key has this flag, -EINVAL with an
 * entry in `errors` when the value is wrong. Paths are relative to the working directory. */
int policy_stack_add_flag(struct policy_stack *s, const char *flag, const char *value, struct policy_errors *errors);

/* Merge, default, decode, validate. 0 and a policy to release with policy_done, or -EINVAL with entries in `errors`. Entries that
 * are in `errors` already (of policy_stack_add) also make it fail: a fault counts although a later document covers it. */
int policy_stack_resolve(struct policy_stack *s, struct policy *ret, struct policy_errors *errors);

/* What policy_stack_resolve has merged, as JSON in which paths of the host are absolute: for another process, which adds it to a
 * stack of its own. NULL before. Owned by the caller. */
char *policy_stack_json(const struct policy_stack *s);

/* Faults that are found later, when a resolved policy meets the host, know their key and no place: adds file and line where a
 * document or flag of the stack said what the key, or the nearest section around it, is. */
void policy_stack_locate(const struct policy_stack *s, struct policy_errors *errors);

/* A flag of `zwinger run` that stands for a policy key: the one table that parser, help, man page and completion read. */
struct policy_flag {
	const char *name;  /* "--memory" */
	const char *value; /* "SIZE", NULL when it takes none */
	const char *key;   /* "limits.memory" */
	const char *help;
	char letter; /* 't' for -t, 0 when none */
};
const struct policy_flag *policy_flags(size_t *ret_count);

/* Every key of a policy, elements of lists as "filesystem.read[].source", of maps with names of one's own as "secrets.*.env". */
struct policy_key {
	const char *key;
	const char *type; /* "size", "list"... for people */
	const char *def;  /* as it would be written, NULL when there is none */
	const char *flag; /* NULL when there is none */
	const char *help;
};
bool policy_key_at(size_t index, struct policy_key *ret); /* false behind the last one */

/* The built-in presets: NULL-terminated "@name" list with texts. */
struct policy_preset {
	const char *name, *summary, *text;
};
const struct policy_preset *policy_presets(size_t *ret_count);

/* What a policy asks for that this build does not have yet. Calls back once a feature; returns how many. The sentence names the
 * key and what to do instead. */
size_t policy_unbuilt(const struct policy *p, void (*found)(void *ctx, const char *key, const char *sentence), void *ctx);

/* A person's summary: what the code will be able to read, write, reach and use. Text owned by the caller. */
char *policy_explain(const struct policy *p);

/* Sizes and times as the policy writes them: "512M", "1G", "100", "null"; "30s", "1.5s", "200ms", "2m", "1h". 0 or
 * -EINVAL/-ERANGE. */
int parse_size(const char *text, uint64_t *ret);
int parse_usec(const char *text, usec_t *ret);
const char *isolation_name(enum isolation_level level);
