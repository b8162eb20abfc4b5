/* Built-in rule sets of network.allow: '@pip', '@npm', '@git-https', '@apt'. Each opens what one client needs to fetch packages,
 * and no more: GET (and HEAD) to the sources that the client itself is configured for on this host, so that mirrors work and no
 * name of any source is built in here. Where nothing is configured, the installed client is asked for its own default.
 *
 * What is read. pip: PIP_* of the environment, its configuration files in its own order, then its built-in index and file
 * storage. npm: npm_config_*, the user's and the global npmrc (not that of a project), then `npm config get registry`. apt:
 * sources.list and sources.list.d. git: the remotes and submodules in the workspace's .git/config, after url.<base>.insteadOf
 * (includes are not followed).
 *
 * What is not. Pages of an index that link to other hosts than pip's own default does need a rule of the user's for those. Names
 * that resolve to private addresses need network.hosts or an address rule, as always. A proxy that a client is configured for is
 * an error: the broker connects directly. So are credentials in a URL, which the code inside would see; `secret` on a rule is for
 * that.
 *
 * '@git-https' trusts the workspace: whoever can write its .git/config, such as the code of an earlier run whose changes were
 * applied, decides which https repositories the next run may fetch from. Where that matters, name the repository in a rule of
 * one's own. */
#pragma once

#include "base/err.h"
#include "policy/network.h"
#include "sandbox/plan.h"

/* Where a rule set looks. Strings are borrowed. */
struct rule_set_source {
	char *const *environment; /* of the caller, NULL-terminated "NAME=value" */
	const char *root;         /* put in front of every absolute path of a configuration file: "", but in tests */
	const char *search;       /* folders with the programs of clients, separated by ':' */
	const char *workspace;    /* folder on the host, or NULL */
};

/* What is to be set inside beside the rules. */
struct rule_set_inside {
	struct policy_env *variables;
	size_t variable_count;
	struct plan_file *files;
	size_t file_count;
	const char *binds[4]; /* folders of the host to be shown read-only in the same place, static text */
	size_t bind_count;
};

/* Adds the rules of `preset` to `n`, labelled with `label`, and fills *ret. 0, or -EINVAL and the like with a sentence that names
 * the file and the remedy. */
int rule_set_collect(const char *preset, const char *label, const struct rule_set_source *from, struct network *n,
		     struct rule_set_inside *ret, struct zw_error *e);
void rule_set_inside_done(struct rule_set_inside *inside);

/* The same for a plan: reads this process's environment and host, adds to plan->network, plan->files and plan->binds, and sets
 * those variables that the policy leaves open. The mounts and the environment of the plan have been made before. */
int rule_set_expand(const char *preset, struct plan *plan, struct zw_error *e);
