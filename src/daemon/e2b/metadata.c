/* The metadata filter of GET /v2/sandboxes. The client encodes each key and value, then all of them as a form, then the form as a
 * value of the query. */
#include <string.h>

#include "base/hex.h"
#include "base/mem.h"
#include "daemon/e2b/e2b.h"
#include "policy/text.h"

enum { PAIRS_MAX = 256 };

/* In place. A '%' that begins no byte stands for itself, as for clients that encode less often. */
static void decode(char *text, bool plus)
{
	char *to = text;

	for (const char *p = text; *p != '\0'; p++) {
		int high = p[0] == '%' ? hex_digit(p[1]) : -1, low = high >= 0 ? hex_digit(p[2]) : -1;

		if (low >= 0 && (high > 0 || low > 0)) { /* an encoded NUL would end the text */
			*to++ = (char) (high * 16 + low);
			p += 2;
		} else {
			*to++ = (char) (plus && p[0] == '+' ? ' ' : p[0]);
		}
	}
	*to = '\0';
}

static bool is_text(const char *text)
{
	size_t bad;

	return text_is_utf8(text, strlen(text), &bad);
}

json_t *e2b_metadata_filter(const char *form)
{
	cleanup_free char *copy = xstrdup(form);
	json_t *filter = json_object();
	char *rest = copy;
	size_t count = 0;
	bool good = true;

	for (char *pair = strsep(&rest, "&"); pair != NULL && good; pair = strsep(&rest, "&")) {
		char *value = strchr(pair, '=');

		if (*pair == '\0')
			continue;
		if (value != NULL)
			*value++ = '\0';
		for (int i = 0; i < 2; i++) {
			decode(pair, i == 0);
			if (value != NULL)
				decode(value, i == 0);
		}
		good = ++count <= PAIRS_MAX && is_text(pair) && (value == NULL || is_text(value)) &&
		       json_object_set_new(filter, pair, json_string(value != NULL ? value : "")) == 0;
	}
	if (good)
		return filter;
	json_decref(filter);
	return NULL;
}
