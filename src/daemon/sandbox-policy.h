/* From what a request asks for to the policy that a supervisor gets: template, the request's own over it, and the ceiling. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "daemon/problem.h"
#include "policy/policy.h"

struct sandbox_policy {
	char *text;     /* for the launcher */
	char *template; /* its name; NULL: none was named */
	char *root;     /* NULL: the host's system tree */
	enum isolation_level isolation;
	usec_t time, cpu_time; /* of each command and execution; ZW_UNLIMITED */
	uint64_t output;       /* bytes of each stream, ZW_UNLIMITED */
	bool output_kill;      /* what is over ends the process */
};

struct sandbox_policies {
	struct policy ceiling;
	char *defaults;              /* lowest of every stack */
	const char *operator_policy; /* --policy, or NULL */
	const char *folder;          /* --templates, or NULL */
	const char *own;             /* a document that every sandbox gets; no ceiling then. NULL: requests decide */
};

int sandbox_policies_init(struct sandbox_policies *s, const char *ceiling, const char *operator_policy, const char *folder,
			  struct zw_error *e);
void sandbox_policies_done(struct sandbox_policies *s);

/* `policy` is an object, "@preset" or NULL, `template` a name or NULL. 0, or -EINVAL with a problem, whose `errors` are the
 * caller's then. */
int sandbox_policy_make(const struct sandbox_policies *s, const json_t *policy, const char *template, struct sandbox_policy *ret,
			struct problem *p);
/* The same from the text of an older one, which the ceiling may not have been above; `policy` over it, `template` its new name.
 */
int sandbox_policy_remake(const struct sandbox_policies *s, const char *text, const json_t *policy, const char *template,
			  struct sandbox_policy *ret, struct problem *p);
/* What the text of one says. 0 (policy_done is the caller's) or -EINVAL. */
int sandbox_policy_read(const char *text, struct policy *ret);
int sandbox_policy_copy(const struct sandbox_policy *p, struct sandbox_policy *ret); /* 0 */
void sandbox_policy_done(struct sandbox_policy *p);

bool sandbox_is_template(const struct sandbox_policies *s, const char *name);
/* The names of all templates, in order. Owned by the caller. */
json_t *sandbox_templates(const struct sandbox_policies *s);
