#include "daemon/key-json.h"

json_t *key_json(const struct key *k, const char *text)
{
	char created[TIMESTAMP_SIZE], expires[TIMESTAMP_SIZE];
	json_t *o;

	format_timestamp(k->created, created);
	if (k->expires != 0)
		format_timestamp(k->expires, expires);
	o = json_pack("{s:s, s:s?, s:s, s:s, s:s?}", "id", k->id, "name", k->name, "scope", scope_name(k->scope), "created_at",
		      created, "expires_at", k->expires != 0 ? expires : NULL);
	if (o != NULL && text != NULL)
		(void) json_object_set_new(o, "key", json_string(text));
	return o;
}
