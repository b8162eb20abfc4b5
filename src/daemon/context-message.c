#include "daemon/context-message.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/contexts.h"
#include "daemon/json-in.h"

enum { HEAD_MAX = 9 }; /* eight digits and a line feed */

int context_message_size(struct evbuffer *in, size_t *ret_head, size_t *ret_size)
{
	char head[HEAD_MAX];
	ev_ssize_t have = evbuffer_copyout(in, head, sizeof head);
	size_t size = 0, i = 0;

	for (; i < (size_t) have && head[i] >= '0' && head[i] <= '9'; i++)
		size = size * 10 + (size_t) (head[i] - '0');
	if (i == (size_t) have && have < HEAD_MAX)
		return 0;
	if (i == 0 || i == HEAD_MAX || head[i] != '\n' || size > CONTEXT_MESSAGE_MAX)
		return -EPROTO;
	if (evbuffer_get_length(in) < i + 1 + size)
		return 0;
	*ret_head = i + 1;
	*ret_size = size;
	return 1;
}

static const struct {
	const char *name;
	json_type type; /* JSON_NULL: any */
} members[] = {
    {"text", JSON_STRING}, {"html", JSON_STRING},  {"markdown", JSON_STRING}, {"svg", JSON_STRING}, {"png", JSON_STRING},
    {"jpeg", JSON_STRING}, {"pdf", JSON_STRING},   {"latex", JSON_STRING},    {"json", JSON_NULL},  {"javascript", JSON_STRING},
    {"data", JSON_OBJECT}, {"chart", JSON_OBJECT}, {"extra", JSON_OBJECT},
};

/* A text in quotes is told without them: "'a'" is the text a. */
static json_t *unquoted(json_t *text)
{
	const char *s = json_string_value(text);
	size_t n = json_string_length(text);

	if (n >= 2 && (s[0] == '\'' || s[0] == '"') && s[n - 1] == s[0])
		return json_stringn_nocheck(s + 1, n - 2);
	return json_incref(text);
}

static json_t *clean_result(const json_t *said)
{
	json_t *result = json_object();

	if (!json_is_object(said))
		return result;
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		json_t *value = json_object_get(said, members[i].name);

		if (value == NULL || (members[i].type != JSON_NULL && json_typeof(value) != members[i].type))
			continue;
		(void) json_object_set_new(result, members[i].name, i == 0 ? unquoted(value) : json_incref(value));
	}
	(void) json_object_set_new(result, "main", json_boolean(json_is_true(json_object_get(said, "main"))));
	return result;
}

static const char *text_of(const json_t *object, const char *name, const char *otherwise)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text == NULL ? otherwise : text;
}

static int take_type(const json_t *d, struct context_message *m)
{
	static const char *const types[] = {"ready", "unsupported", "result", "error", "done"};
	const char *type = text_of(d, "t", "");

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strcmp(type, types[i]) == 0) {
			m->type = (enum context_message_type) i;
			return 0;
		}
	return -EPROTO;
}

static int take_id(const json_t *d, struct context_message *m)
{
	const json_t *id = json_object_get(d, "id");

	if (!json_is_integer(id) || json_integer_value(id) < 1 || json_integer_value(id) > UINT32_MAX)
		return -EPROTO;
	m->id = (unsigned) json_integer_value(id);
	return 0;
}

static void take_done(const json_t *d, struct context_message *m)
{
	const json_t *status = json_object_get(d, "exit_status");

	m->ok = strcmp(text_of(d, "status", ""), "ok") == 0;
	m->interrupted = json_is_true(json_object_get(d, "interrupted"));
	m->exit_status = -1;
	if (json_is_integer(status) && json_integer_value(status) >= 0 && json_integer_value(status) <= 255)
		m->exit_status = (int) json_integer_value(status);
}

static void take_error(const json_t *error, struct context_message *m)
{
	m->name = text_of(error, "name", "Error");
	m->value = text_of(error, "value", "");
	m->traceback = text_of(error, "traceback", "");
}

int context_message_decode(const char *text, size_t size, struct context_message *ret)
{
	struct json_faults faults = {0};
	json_t *d = json_in_parse(text, size, &faults);

	*ret = (struct context_message){.document = d};
	if (!json_is_object(d) || take_type(d, ret) < 0)
		return -EPROTO;
	if (ret->type != MESSAGE_READY && ret->type != MESSAGE_UNSUPPORTED && take_id(d, ret) < 0)
		return -EPROTO;
	switch (ret->type) {
	case MESSAGE_READY:
		ret->kind = strcmp(text_of(d, "driver", ""), "ipython") == 0 ? KIND_IPYTHON : KIND_NATIVE;
		break;
	case MESSAGE_UNSUPPORTED:
		ret->reason = text_of(d, "reason", "it is not supported here");
		break;
	case MESSAGE_RESULT:
		ret->result = clean_result(json_object_get(d, "result"));
		break;
	case MESSAGE_ERROR:
		take_error(json_object_get(d, "error"), ret);
		break;
	case MESSAGE_DONE:
		take_done(d, ret);
		break;
	}
	return 0;
}

void context_message_done(struct context_message *m)
{
	json_decref(m->result);
	json_decref(m->document);
	*m = (struct context_message){0};
}
