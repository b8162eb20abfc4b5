/* sandbox_info: what the sandbox is, from its policy and from what its supervisor holds. Nothing of the host that the code inside
 * could not see itself: no source of a mount, no secret. */
#include <errno.h>
#include <event2/buffer.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/drivers.h"
#include "daemon/mcp/mcp.h"
#include "daemon/processes.h"

/* ---- From the policy. ---- */

static json_t *targets(const json_t *mounts)
{
	json_t *list = json_array(), *m, *target;
	size_t i;

	json_array_foreach(mounts, i, m)
	{
		target = json_is_string(m) ? m : json_object_get(m, "target");
		if (target == NULL)
			target = json_object_get(m, "source"); /* it stands inside where it does outside */
		if (json_is_string(target))
			(void) json_array_append(list, target);
	}
	return list;
}

static json_t *filesystem(const struct sandbox *s, const json_t *policy)
{
	const json_t *fs = json_object_get(policy, "filesystem"), *workspace = json_object_get(fs, "workspace");
	const char *mode = json_string_value(json_object_get(workspace, "mode"));
	json_t *read = targets(json_object_get(fs, "read")), *write = targets(json_object_get(fs, "write")),
	       *target = json_object_get(workspace, "target");

	if (target == NULL)
		target = json_object_get(workspace, "source");
	(void) json_array_append_new(write, json_string(s->home));
	(void) json_array_append_new(write, json_string("/tmp"));
	if (json_is_string(target))
		(void) json_array_append(mode != NULL && strcmp(mode, "ro") == 0 ? read : write, target);
	return json_pack("{ss so so}", "home", s->home, "read", read, "write", write);
}

static json_t *network(const json_t *policy)
{
	static const char *const told[] = {"host", "address", "preset", "ports", "protocol", "methods", "paths"};
	const json_t *allow = json_object_get(json_object_get(policy, "network"), "allow");
	json_t *list = json_array(), *rule;
	size_t i;

	json_array_foreach(allow, i, rule)
	{
		json_t *o;

		if (json_is_string(rule)) {
			(void) json_array_append(list, rule);
			continue;
		}
		o = json_object();
		for (size_t k = 0; k < ARRAY_SIZE(told); k++)
			if (json_object_get(rule, told[k]) != NULL)
				(void) json_object_set(o, told[k], json_object_get(rule, told[k]));
		(void) json_array_append_new(list, o);
	}
	return json_pack("{ss so}", "access", json_array_size(list) > 0 ? "rules" : "none", "allow", list);
}

static json_t *denied(const json_t *policy)
{
	const json_t *allow = json_object_get(json_object_get(policy, "network"), "allow");
	json_t *list = json_array();

	(void) json_array_append_new(list, json_array_size(allow) > 0
					       ? json_string("network: every connection that no rule of network.allow permits")
					       : json_string("network: every connection and look-up; network.allow is empty"));
	(void) json_array_append_new(list,
				     json_string("files: writing outside of what filesystem.write says, and reading what of the "
						 "host the policy does not name"));
	(void) json_array_append_new(list, json_string("system calls that syscalls.profile of the policy does not have"));
	return list;
}

/* ---- The languages, looked up inside. ---- */

static json_t *languages_of(const struct process *p)
{
	json_t *list = json_array();
	struct evbuffer *out = p->streams[STREAM_OUT].captured.head;
	char *line;
	const struct driver *d;

	while (out != NULL && (line = evbuffer_readln(out, NULL, EVBUFFER_EOL_LF)) != NULL) {
		for (size_t i = 0; (d = driver_at(i)) != NULL; i++)
			/* Whether types can be taken away is known once such code is run. */
			if (strcmp(d->needs, line) == 0 && !d->typed)
				(void) json_array_append_new(list, json_string(d->language));
		free(line);
	}
	return list;
}

static void say(struct evbuffer *text, const char *name, const json_t *value)
{
	cleanup_free char *dumped = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

	mcp_say_line(text, "%s: %s", name, dumped != NULL ? dumped : "");
}

static void over(struct mcp_call *c, struct process *p)
{
	static const char *const shown[] = {"isolation", "limits", "network", "filesystem", "languages", "denied"};
	const struct sandbox *s = p->sandbox;
	json_t *policy = json_loads(s->policy.text, 0, NULL), *o;
	struct evbuffer *text = mcp_text_begin(c);

	o = json_pack("{ss sO? so so so so sO?}", "isolation", isolation_name(s->policy.isolation), "limits", s->limits,
		      "network", network(policy), "filesystem", filesystem(s, policy), "languages", languages_of(p), "denied",
		      denied(policy), "enforcement", s->enforcement);
	json_decref(policy);
	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		say(text, shown[i], json_object_get(o, shown[i]));
	mcp_call_end(c, o, mcp_text_end(c, text), NULL, false);
}

static void ended(void *arg, struct process *p)
{
	struct mcp_call *c = arg;

	c->stop = NULL;
	over(c, p);
}

static void started(void *arg, struct process *p)
{
	struct mcp_call *c = arg;

	if (p->failed) /* no shell: nor is anything else known */
		over(c, p);
	else if (c->canceled)
		process_kill(p);
}

static void stop(struct mcp_call *c)
{
	process_kill(c->work);
}

void mcp_sandbox_info(struct mcp_call *c, struct sandbox *s)
{
	static const char lookup[] = "; do command -v $p > /dev/null && echo $p; done";
	struct evbuffer *line = evbuffer_new();
	struct process_wish wish = {.user = -1, .timeout = 10 * USEC_PER_SEC, .tree = true, .capture = true};
	const struct driver *d;
	struct process *p;
	int error = ENOMEM;

	(void) evbuffer_add_printf(line, "for p in");
	for (size_t i = 0; (d = driver_at(i)) != NULL; i++)
		if (!d->typed)
			(void) evbuffer_add_printf(line, " %s", d->needs);
	(void) evbuffer_add(line, lookup, sizeof lookup); /* with its NUL */
	wish.shell = (const char *) evbuffer_pullup(line, -1);
	if (wish.shell != NULL)
		error = process_start(s, &wish, started, ended, c, &p);
	evbuffer_free(line);
	if (error != 0) {
		mcp_call_fail(c, NULL, "the sandbox cannot be looked at: %s", strerror(error));
		return;
	}
	c->work = p;
	c->stop = stop;
}
