/* What the files of the rule sets share. */
#pragma once

#include "base/buf.h"
#include "sandbox/rule-sets.h"

enum {
	RULE_SET_FILE_MAX = 1024 * 1024,
	RULE_SET_URL_MAX = 2048,
	RULE_SET_ANSWER_MAX = 4096,
	RULE_SET_RULES_MAX = 256,
	RULE_SET_PATHS_MAX = 256, /* of one rule */
};

/* One rule set while it is being collected. */
struct rule_set {
	const struct rule_set_source *from;
	struct rule_set_inside *inside;
	struct policy_rule *rules; /* merged: one for each host, port, protocol and list of methods */
	size_t rule_count;
};

/* An http or https URL in parts. */
struct source_url {
	bool https, is_address;
	char host[NETWORK_NAME_SIZE]; /* canonical name, or address in its usual form */
	uint16_t port;
	char path[RULE_SET_URL_MAX]; /* decoded, without slash at its end: "" or "/..." */
	char text[RULE_SET_URL_MAX]; /* as it was written */
};

/* ---- rule-sets.c ---- */

/* `what` says where the URL stands, for the sentence: "pip's index-url (PIP_INDEX_URL)". Refuses credentials, queries, hosts that
 * mean this machine itself, and a proxy that the environment has for it. */
int rule_set_url(const struct rule_set *s, const char *what, const char *url, struct source_url *ret, struct zw_error *e);
/* Is it http: or https:, in any case of letters? */
bool rule_set_is_web(const char *url);
/* GET, or `method` when it is not NULL, below `path` (NULL: anywhere). A path is a glob of a policy. */
int rule_set_allow(struct rule_set *s, const struct source_url *u, const char *method, const char *path, struct zw_error *e);
/* Of the caller, NULL when not set or empty. */
const char *rule_set_variable(const struct rule_set *s, const char *name);
/* For inside. The value is copied. */
void rule_set_define(struct rule_set *s, const char *name, const char *value);
void rule_set_add_file(struct rule_set *s, const char *path, const struct buf *text);
int rule_set_no_proxy(const char *what, struct zw_error *e);

/* ---- rule-set-host.c ---- */

/* The text of a configuration file: 1, 0 when there is none, or negative errno with a sentence. *ret is owned by the caller and
 * has no NUL inside. */
int rule_set_read(const struct rule_set *s, const char *path, char **ret, struct zw_error *e);
/* The next line of a text, without its end: changes the text. NULL behind the last one. */
char *rule_set_line(char **text);
/* The text without white space around it: changes it. */
char *rule_set_trim(char *text);
/* Asks a client on this host, with nothing in its environment but PATH, HOME and LANG, for at most 5 s: what it prints, with exit
 * status 0. `argv[0]` is looked for in `search`; every one that is found is asked until one answers. 0 or -ENOENT. */
int rule_set_ask(const struct rule_set *s, const char *const argv[], char ret[RULE_SET_ANSWER_MAX]);

/* ---- One file for each rule set. ---- */

int rule_set_pip(struct rule_set *s, struct zw_error *e);
int rule_set_npm(struct rule_set *s, struct zw_error *e);
int rule_set_apt(struct rule_set *s, struct zw_error *e);
int rule_set_git(struct rule_set *s, struct zw_error *e);
