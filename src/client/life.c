/* The verbs that change a sandbox: create, pause, resume, fork, rm; and kill. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "client/remote.h"
#include "client/show.h"
#include "client/verbs.h"
#include "policy/source.h"
#include "policy/text.h"

int client_connect(const struct client_options *o, struct remote *ret)
{
	struct zw_error e = {0};

	if (remote_open(o, ret, &e) == 0)
		return 0;
	log_error("%s", e.text);
	return EXIT_REFUSED;
}

int client_pairs(const struct strv *list, const char *flag, json_t **ret)
{
	json_t *object = json_object();

	for (size_t i = 0; i < list->count; i++) {
		const char *equals = strchr(list->items[i], '=');
		cleanup_free char *name = equals != NULL ? xstrndup(list->items[i], (size_t) (equals - list->items[i])) : NULL;

		if (name == NULL || name[0] == '\0' || json_object_set_new(object, name, json_string(equals + 1)) < 0) {
			log_error("%s: expected NAME=VALUE in UTF-8", flag);
			json_decref(object);
			return EXIT_REFUSED;
		}
	}
	*ret = object;
	return 0;
}

static int read_count(const char *text, json_t **ret)
{
	uint64_t count = 0;

	if (parse_whole(text, &count) < 0 || count < 1 || count > 1000) {
		log_error("--count: expected 1 to 1000");
		return EXIT_REFUSED;
	}
	*ret = json_integer((json_int_t) count);
	return 0;
}

/* ---- create ---- */

static int read_policy(const char *name, json_t **ret)
{
	struct policy_errors errors = {0};
	cleanup_free char *text = NULL, *json = NULL;
	const struct source source = {.label = (char *) (uintptr_t) name};
	struct node *tree = NULL;
	size_t size;

	if (name[0] == '@') {
		*ret = json_string(name);
		return *ret != NULL ? 0 : EXIT_REFUSED;
	}
	if (source_read(name, name, &text, &size, &errors) == 0)
		(void) source_parse(&source, text, size, &tree, &errors);
	for (size_t i = 0; i < errors.count; i++) {
		cleanup_free char *line = policy_error_text(&errors.items[i]);

		log_error("%s", line);
	}
	json = errors.count == 0 && tree != NULL ? node_to_json(tree) : NULL;
	*ret = json != NULL ? json_loads(json, 0, NULL) : NULL;
	if (json != NULL && *ret == NULL)
		log_error("%s: this cannot be said in JSON", name);
	node_free(tree);
	policy_errors_done(&errors);
	return *ret != NULL ? 0 : EXIT_REFUSED;
}

static int create_body(const struct client_options *o, json_t **ret)
{
	const struct {
		const char *name, *value;
	} texts[] = {{"template", o->template}, {"name", o->name}, {"timeout", o->timeout}, {"on_timeout", o->on_timeout}};
	json_t *body = json_object(), *part = NULL;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++)
		if (texts[i].value != NULL && json_object_set_new(body, texts[i].name, json_string(texts[i].value)) < 0) {
			log_error("%s: this is no UTF-8", texts[i].name);
			r = EXIT_REFUSED;
		}
	if (r == 0 && o->policy != NULL && (r = read_policy(o->policy, &part)) == 0)
		(void) json_object_set_new(body, "policy", part);
	if (r == 0 && o->metadata.count > 0 && (r = client_pairs(&o->metadata, "--metadata", &part)) == 0)
		(void) json_object_set_new(body, "metadata", part);
	if (r == 0 && o->env.count > 0 && (r = client_pairs(&o->env, "--env", &part)) == 0)
		(void) json_object_set_new(body, "env", part);
	if (r == 0)
		*ret = body;
	else
		json_decref(body);
	return r;
}

static int show_id(const json_t *sandbox)
{
	const char *id = json_string_value(json_object_get(sandbox, "id"));
	cleanup_free char *safe = id != NULL ? show_safe(id, 64) : NULL;
	cleanup_free char *line = safe != NULL ? xasprintf("%s\n", safe) : NULL;

	if (line != NULL)
		return show_text(line);
	log_error("the daemon's answer has no id");
	return EXIT_REFUSED;
}

int verb_create(const struct client_options *o)
{
	json_t *body = NULL, *answer = NULL;
	struct remote remote;
	int r = client_connect(o, &remote);

	if (r != 0)
		return r;
	r = create_body(o, &body);
	if (r == 0)
		r = remote_ask(&remote, "POST", "/v1/sandboxes", body, &answer);
	if (r == 0)
		r = o->json ? show_json(answer) : show_id(answer);
	json_decref(answer);
	remote_done(&remote);
	return r;
}

int verb_fork(const struct client_options *o)
{
	cleanup_free char *path = remote_path("/v1/sandboxes/%s/fork", o->words[0], NULL);
	json_t *body = json_object(), *answer = NULL, *count = NULL, *item;
	struct remote remote;
	size_t i;
	int r = client_connect(o, &remote);

	if (r != 0) {
		json_decref(body);
		return r;
	}
	if (o->count != NULL && (r = read_count(o->count, &count)) == 0)
		(void) json_object_set_new(body, "count", count);
	if (o->timeout != NULL)
		(void) json_object_set_new(body, "timeout", json_string(o->timeout));
	if (r == 0)
		r = remote_ask(&remote, "POST", path, json_incref(body), &answer);
	if (r == 0 && o->json)
		r = show_json(answer);
	else if (r == 0)
		json_array_foreach(json_object_get(answer, "sandboxes"), i, item) r = r != 0 ? r : show_id(item);
	json_decref(body);
	json_decref(answer);
	remote_done(&remote);
	return r;
}

/* ---- The same for each of several; one that fails does not keep the others from it. ---- */

static int for_each(const struct client_options *o, const char *method, const char *pattern)
{
	struct remote remote;
	int status = client_connect(o, &remote);

	if (status != 0)
		return status;
	for (size_t i = 0; i < o->word_count; i++) {
		cleanup_free char *path = remote_path(pattern, o->words[i], NULL);
		json_t *answer = NULL;
		int r = remote_ask(&remote, method, path, NULL, &answer);

		if (r == 0 && o->json)
			r = show_json(answer);
		status = r != 0 ? r : status;
		json_decref(answer);
	}
	remote_done(&remote);
	return status;
}

int verb_rm(const struct client_options *o)
{
	return for_each(o, "DELETE", "/v1/sandboxes/%s");
}

int verb_pause(const struct client_options *o)
{
	return for_each(o, "POST", "/v1/sandboxes/%s/pause");
}

int verb_resume(const struct client_options *o)
{
	return for_each(o, "POST", "/v1/sandboxes/%s/resume");
}

/* ---- kill ---- */

int verb_kill(const struct client_options *o)
{
	cleanup_free char *path = remote_path("/v1/sandboxes/%s/processes/%s/signal", o->words[0], o->words[1]);
	const char *name = o->signal != NULL ? o->signal : "TERM";
	struct remote remote;
	uint64_t number;
	int r = client_connect(o, &remote);

	if (r != 0)
		return r;
	r = remote_ask(&remote, "POST", path,
		       parse_whole(name, &number) == 0 && number <= 64 ? json_pack("{sI}", "signal", (json_int_t) number)
								       : json_pack("{ss}", "signal", name),
		       NULL);
	if (r == 0 && o->json) {
		json_t *done = json_pack("{ss ss ss}", "sandbox", o->words[0], "process", o->words[1], "signal", name);

		r = show_json(done);
		json_decref(done);
	}
	remote_done(&remote);
	return r;
}
