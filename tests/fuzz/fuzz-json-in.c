/* JSON of requests against any bytes, beside another reader: what we take it takes and means the same; and what we write of it is
 * what we read. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/json-in.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct json_field fields[] = {
    {"command", JSON_IN_LIST | JSON_IN_TEXTS},  {"env", JSON_IN_OBJECT | JSON_IN_TEXTS}, {"stdin", JSON_IN_TEXT | JSON_IN_NUL},
    {"timeout", JSON_IN_TEXT | JSON_IN_NUMBER}, {"n", JSON_IN_WHOLE | JSON_IN_REQUIRED}, {NULL, 0},
};

static void check_faults(const struct json_faults *f)
{
	json_t *list = json_faults_list(f);
	char *text = json_dumps(list, 0);

	if (f->count > 0 && text == NULL)
		abort();
	free(text);
	json_decref(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json_faults faults = {0}, members = {0};
	json_t *ours = json_in_parse((const char *) data, size, &faults), *theirs;
	uint64_t n;

	check_faults(&faults);
	if ((ours == NULL) != (faults.count > 0))
		abort();
	if (ours == NULL)
		return 0;
	theirs = json_loadb((const char *) data, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	/* A key with an escaped NUL, and very small numbers, are treated differently: only what both take must be the same. */
	if (theirs != NULL && json_equal(ours, theirs) == 0)
		abort();
	if (json_in_check(ours, fields, &members) != (members.count == 0))
		abort();
	(void) json_in_usec(json_object_get(ours, "timeout"), "timeout", &n, &members);
	(void) json_in_size(json_object_get(ours, "n"), "n", &n, &members);
	check_faults(&members);
	json_decref(theirs);
	json_decref(ours);
	return 0;
}
