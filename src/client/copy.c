#include "client/copy.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "client/show.h"
#include "client/verbs.h"

char *copy_path(const struct copy *c, const char *what, const char *path)
{
	cleanup_free char *start = remote_path("/v1/sandboxes/%s/files", c->id, NULL);
	cleanup_free char *query = path != NULL ? remote_path("?path=%s", path, NULL) : xstrdup("");
	cleanup_free char *user = c->user != NULL && path != NULL ? remote_path("&user=%s", c->user, NULL) : xstrdup("");

	return xasprintf("%s%s%s%s", start, what, query, user);
}

bool copy_entry_is(const json_t *entry, const char *type)
{
	const char *is = json_string_value(json_object_get(entry, "type"));

	return is != NULL && strcmp(is, type) == 0;
}

mode_t copy_entry_mode(const json_t *entry)
{
	const char *text = json_string_value(json_object_get(entry, "mode"));
	mode_t mode = 0;

	if (text == NULL || text[0] == '\0' || strlen(text) > 5 || strspn(text, "01234567") != strlen(text))
		return 0600;
	for (; *text != '\0'; text++)
		mode = mode * 8 + (mode_t) (*text - '0');
	return mode & 0777;
}

/* "ID:PATH": what stands before the first colon has no slash. */
static char *split(const char *word, const char **ret_path)
{
	const char *colon = strchr(word, ':');
	size_t size = colon != NULL ? (size_t) (colon - word) : 0;

	if (size == 0 || memchr(word, '/', size) != NULL || word[0] == '.')
		return NULL;
	*ret_path = colon[1] != '\0' ? colon + 1 : ".";
	return xstrndup(word, size);
}

int verb_cp(const struct client_options *o)
{
	const char *path = NULL, *other_path = NULL;
	cleanup_free char *from = split(o->words[0], &path), *to = split(o->words[1], &other_path);
	struct remote remote;
	struct copy c = {.remote = &remote, .id = from != NULL ? from : to, .user = o->user};
	int r;

	if ((from == NULL) == (to == NULL)) {
		log_error("cp: one of the two must be ID:PATH, the other a path here (./a:b for a name with a colon)");
		return EXIT_REFUSED;
	}
	r = client_connect(o, &remote);
	if (r != 0)
		return r;
	r = from != NULL ? copy_out_of(&c, path, o->words[1]) : copy_into(&c, o->words[0], other_path);
	if (o->json && r == 0) {
		json_t *document = json_pack("{ss sI}", "sandbox_id", c.id, "entries", (json_int_t) c.entries);

		r = show_json(document);
		json_decref(document);
	}
	remote_done(&remote);
	return r;
}
