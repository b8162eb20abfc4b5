#include "daemon/json-in.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hex.h"
#include "base/mem.h"
#include "policy/policy.h"
#include "policy/text.h"

enum { NUMBER_SIZE_MAX = 64 };

struct reader {
	const char *at, *end;
	struct json_faults *faults;
	char path[JSON_PATH_SIZE];
	size_t path_size;
	unsigned depth;
	size_t values;
	struct buf text; /* the string that is being read */
};

/* ---- Faults. ---- */

static struct json_fault *next_fault(struct json_faults *f, const char *path)
{
	struct json_fault *fault;

	if (f->count == JSON_FAULTS_MAX)
		return NULL;
	fault = &f->items[f->count++];
	*fault = (struct json_fault){0};
	(void) snprintf(fault->path, sizeof fault->path, "%s", path);
	return fault;
}

void json_fault_add(struct json_faults *f, const char *path, const char *expected, const char *fmt, ...)
{
	struct json_fault *fault = next_fault(f, path);
	va_list ap;

	if (fault == NULL)
		return;
	va_start(ap, fmt);
	(void) vsnprintf(fault->message, sizeof fault->message, fmt, ap);
	va_end(ap);
	(void) snprintf(fault->expected, sizeof fault->expected, "%s", expected != NULL ? expected : "");
}

static json_t *text_or_null(const char *text)
{
	size_t bad;

	if (text[0] == '\0')
		return json_null();
	if (text_is_utf8(text, strlen(text), &bad))
		return json_string_nocheck(text);
	return json_stringn_nocheck(text, bad); /* cut inside a character */
}

json_t *json_faults_list(const struct json_faults *f)
{
	json_t *list;

	if (f->count == 0)
		return NULL;
	list = json_array();
	for (size_t i = 0; i < f->count; i++) {
		const struct json_fault *fault = &f->items[i];
		json_t *o = json_object(), *path = text_or_null(fault->path);

		(void) json_object_set_new(o, "path", json_is_null(path) ? json_string("") : path);
		(void) json_object_set_new(o, "message", text_or_null(fault->message));
		(void) json_object_set_new(o, "expected", text_or_null(fault->expected));
		(void) json_object_set_new(o, "suggestion", text_or_null(fault->suggestion));
		(void) json_array_append_new(list, o);
	}
	return list;
}

/* ---- Reading. ---- */

static json_t *fail(struct reader *r, const char *message)
{
	json_fault_add(r->faults, r->path, NULL, "%s", message);
	return NULL;
}

/* Names come from the peer: what could drive a terminal is escaped, what is too long is cut. Returns the size to go back to. */
static size_t enter_name(struct reader *r, const char *name)
{
	cleanup_free char *shown = text_escape(name, 60);
	size_t before = r->path_size;
	int n = snprintf(r->path + before, sizeof r->path - before, "%s%s", before > 0 ? "." : "", shown);

	r->path_size = n > 0 && (size_t) n < sizeof r->path - before ? before + (size_t) n : sizeof r->path - 1;
	return before;
}

static size_t enter_index(struct reader *r, size_t index)
{
	size_t before = r->path_size;
	int n = snprintf(r->path + before, sizeof r->path - before, "[%zu]", index);

	r->path_size = n > 0 && (size_t) n < sizeof r->path - before ? before + (size_t) n : sizeof r->path - 1;
	return before;
}

static void leave(struct reader *r, size_t before)
{
	r->path_size = before;
	r->path[before] = '\0';
}

static void skip_space(struct reader *r)
{
	while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
		r->at++;
}

/* The next byte behind white space, which is left there; -1: the end. */
static int peek(struct reader *r)
{
	skip_space(r);
	return r->at < r->end ? (unsigned char) *r->at : -1;
}

static int hex4(struct reader *r)
{
	int value = 0;

	if (r->end - r->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = *r->at++;
		int digit = hex_digit(c);

		if (digit < 0)
			return -1;
		value = value * 16 + digit;
	}
	return value;
}

static void add_character(struct buf *b, unsigned c)
{
	const char bytes[4] = {(char) (c < 0x80      ? c
				       : c < 0x800   ? 0xc0 | c >> 6
				       : c < 0x10000 ? 0xe0 | c >> 12
						     : 0xf0 | c >> 18),
			       (char) (0x80 | (c < 0x800     ? c & 0x3f
					       : c < 0x10000 ? c >> 6 & 0x3f
							     : c >> 12 & 0x3f)),
			       (char) (0x80 | (c < 0x10000 ? c & 0x3f : c >> 6 & 0x3f)), (char) (0x80 | (c & 0x3f))};

	(void) buf_add(b, bytes, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4); /* no longer than what it was read from */
}

/* Behind "\u". */
static bool read_unicode(struct reader *r)
{
	int c = hex4(r), low;

	if (c < 0)
		return fail(r, "a \\u escape has not four hexadecimal digits") != NULL;
	if (c >= 0xdc00 && c <= 0xdfff)
		return fail(r, "a \\u escape is the second half of a surrogate pair alone") != NULL;
	if (c >= 0xd800 && c <= 0xdbff) {
		bool pair = r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u';

		r->at += pair ? 2 : 0;
		low = pair ? hex4(r) : -1;
		if (low < 0xdc00 || low > 0xdfff)
			return fail(r, "a \\u escape is the first half of a surrogate pair alone") != NULL;
		c = 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff);
	}
	add_character(&r->text, (unsigned) c);
	return true;
}

static bool read_escape(struct reader *r)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found;
	char c = r->at < r->end ? *r->at++ : '\0';

	if (c == 'u')
		return read_unicode(r);
	found = c != '\0' ? strchr(from, c) : NULL;
	if (found == NULL)
		return fail(r, "a text has an unknown escape") != NULL;
	(void) buf_add(&r->text, &to[found - from], 1);
	return true;
}

/* A text into r->text, which is never NULL then. */
static bool read_text(struct reader *r)
{
	r->text.size = 0;
	(void) buf_add(&r->text, "", 0);
	r->at++;
	for (;;) {
		const char *start = r->at;

		while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char) *r->at >= 0x20)
			r->at++;
		(void) buf_add(&r->text, start, (size_t) (r->at - start));
		if (r->at == r->end)
			return fail(r, "a text has no end") != NULL;
		if (*r->at == '"')
			break;
		if (*r->at != '\\')
			return fail(r, "a text has a control character that is not escaped") != NULL;
		r->at++;
		if (!read_escape(r))
			return false;
	}
	r->at++;
	return true;
}

static bool digits(struct reader *r)
{
	const char *start = r->at;

	while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
		r->at++;
	return r->at > start;
}

/* The grammar of RFC 8259 section 6: no plus, no leading zero, digits on both sides of the point. */
static bool scan_number(struct reader *r, bool *ret_whole)
{
	*ret_whole = true;
	if (*r->at == '-')
		r->at++;
	if (r->at < r->end && *r->at == '0')
		r->at++;
	else if (!digits(r))
		return false;
	if (r->at < r->end && *r->at == '.') {
		*ret_whole = false;
		r->at++;
		if (!digits(r))
			return false;
	}
	if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
		*ret_whole = false;
		r->at++;
		if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
			r->at++;
		if (!digits(r))
			return false;
	}
	return true;
}

static json_t *read_number(struct reader *r)
{
	const char *start = r->at;
	char text[NUMBER_SIZE_MAX + 1];
	size_t size;
	bool whole;
	double real;

	if (!scan_number(r, &whole))
		return fail(r, "expected a value of JSON");
	size = (size_t) (r->at - start);
	if (size > NUMBER_SIZE_MAX)
		return fail(r, "a number has too many digits");
	memcpy(text, start, size);
	text[size] = '\0';
	if (whole) {
		bool negative = text[0] == '-';
		uint64_t value;

		if (parse_whole(text + negative, &value) < 0 || value > (uint64_t) INT64_MAX)
			return fail(r, "a whole number does not fit 64 bits");
		return json_integer(negative ? -(json_int_t) value : (json_int_t) value);
	}
	real = strtod(text, NULL); /* the grammar was checked; no locale is ever set */
	return isfinite(real) ? json_real(real) : fail(r, "a number is not finite");
}

static json_t *read_value(struct reader *r);

static bool read_name(struct reader *r, const json_t *object)
{
	if (peek(r) != '"')
		return fail(r, "expected a member's name in quotes") != NULL;
	if (!read_text(r))
		return false;
	if (memchr(r->text.data, '\0', r->text.size) != NULL)
		return fail(r, "the name of a member has NUL") != NULL;
	if (json_object_get(object, r->text.data) == NULL)
		return true;
	(void) enter_name(r, r->text.data);
	return fail(r, "the member is there twice") != NULL;
}

static bool read_member(struct reader *r, json_t *object)
{
	cleanup_free char *name = NULL;
	json_t *value;
	size_t before;

	if (!read_name(r, object))
		return false;
	name = xstrdup(r->text.data);
	before = enter_name(r, name);
	if (peek(r) != ':')
		return fail(r, "expected a colon behind the name of a member") != NULL;
	r->at++;
	value = read_value(r);
	if (value == NULL)
		return false;
	leave(r, before);
	if (json_object_set_new_nocheck(object, name, value) == 0)
		return true;
	return fail(r, "there is not enough memory") != NULL;
}

static bool read_element(struct reader *r, json_t *list)
{
	size_t before = enter_index(r, json_array_size(list));
	json_t *value = read_value(r);

	if (value == NULL)
		return false;
	leave(r, before);
	if (json_array_append_new(list, value) == 0)
		return true;
	return fail(r, "there is not enough memory") != NULL;
}

/* An object or a list, whose first byte is next. Takes over `into`. */
static json_t *read_many(struct reader *r, json_t *into, char close, bool (*one)(struct reader *r, json_t *into))
{
	bool good = into != NULL && ++r->depth <= JSON_IN_DEPTH_MAX;

	if (!good)
		(void) fail(r, into == NULL ? "there is not enough memory" : "the document is nested more than 64 deep");
	r->at++;
	if (good && peek(r) == close) {
		r->at++;
		r->depth--;
		return into;
	}
	while (good) {
		int next;

		good = one(r, into);
		next = good ? peek(r) : -1;
		if (next == ',' || next == close)
			r->at++;
		if (next == close) {
			r->depth--;
			return into;
		}
		if (good && next != ',') {
			good = false;
			(void) fail(r, close == '}' ? "expected a comma or the end of the object"
						    : "expected a comma or the end of the list");
		}
	}
	json_decref(into);
	return NULL;
}

static json_t *read_word(struct reader *r)
{
	static const char *const words[] = {"null", "true", "false"};
	json_t *const values[] = {json_null(), json_true(), json_false()};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t n = strlen(words[i]);

		if ((size_t) (r->end - r->at) >= n && memcmp(r->at, words[i], n) == 0) {
			r->at += n;
			return values[i];
		}
	}
	return fail(r, "expected a value of JSON");
}

static json_t *read_string(struct reader *r)
{
	json_t *value;

	if (!read_text(r))
		return NULL;
	value = json_stringn_nocheck(r->text.data, r->text.size);
	return value != NULL ? value : fail(r, "there is not enough memory");
}

static json_t *read_value(struct reader *r)
{
	int c = peek(r);

	if (++r->values > JSON_IN_VALUES_MAX)
		return fail(r, "the document has more than 100000 values");
	switch (c) {
	case '{':
		return read_many(r, json_object(), '}', read_member);
	case '[':
		return read_many(r, json_array(), ']', read_element);
	case '"':
		return read_string(r);
	case 't':
	case 'f':
	case 'n':
		return read_word(r);
	case -1:
		return fail(r, "the document ends too early");
	default:
		return c == '-' || (c >= '0' && c <= '9') ? read_number(r) : fail(r, "expected a value of JSON");
	}
}

json_t *json_in_parse(const char *text, size_t size, struct json_faults *f)
{
	struct reader r = {.at = text, .end = text + size, .faults = f, .text = buf_new(size + 1)};
	size_t bad;
	json_t *value;

	if (!text_is_utf8(text, size, &bad)) {
		json_fault_add(f, "", NULL, "the document is not UTF-8 without NUL at byte %zu", bad);
		return NULL;
	}
	value = read_value(&r);
	if (value != NULL && peek(&r) >= 0) {
		json_decref(value);
		value = fail(&r, "something follows the document");
	}
	buf_done(&r.text);
	return value;
}

/* ---- Checking. ---- */

static unsigned kind_of(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return JSON_IN_OBJECT;
	case JSON_ARRAY:
		return JSON_IN_LIST;
	case JSON_STRING:
		return JSON_IN_TEXT;
	case JSON_INTEGER:
		return JSON_IN_WHOLE | JSON_IN_NUMBER;
	case JSON_REAL:
		return JSON_IN_NUMBER;
	case JSON_TRUE:
	case JSON_FALSE:
		return JSON_IN_BOOL;
	case JSON_NULL:
		break;
	}
	return JSON_IN_NULL;
}

static const char *describe(unsigned kinds, char *buf, size_t size)
{
	static const struct {
		unsigned kind;
		const char *name;
	} names[] = {{JSON_IN_TEXT, "a text"},        {JSON_IN_WHOLE, "a whole number"}, {JSON_IN_NUMBER, "a number"},
		     {JSON_IN_BOOL, "true or false"}, {JSON_IN_LIST, "a list"},          {JSON_IN_OBJECT, "an object"},
		     {JSON_IN_NULL, "null"}};
	size_t n = 0;

	buf[0] = '\0';
	if ((kinds & JSON_IN_NUMBER) != 0)
		kinds &= ~(unsigned) JSON_IN_WHOLE;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if ((kinds & names[i].kind) != 0 && n < size)
			n += (size_t) snprintf(
			    buf + n, size - n, "%s%s%s", n > 0 ? " or " : "", names[i].name,
			    (kinds & JSON_IN_TEXTS) != 0 && (names[i].kind & (JSON_IN_LIST | JSON_IN_OBJECT)) != 0 ? " of texts"
														   : "");
	return buf;
}

static bool has_nul(const json_t *value)
{
	const char *name;
	json_t *each;
	size_t i;

	if (json_is_string(value))
		return strlen(json_string_value(value)) != json_string_length(value);
	json_array_foreach(value, i, each)
	{
		if (has_nul(each))
			return true;
	}
	json_object_foreach((json_t *) value, name, each)
	{
		if (has_nul(each))
			return true;
	}
	return false;
}

static bool only_texts(const json_t *value)
{
	const char *name;
	json_t *each;
	size_t i;

	json_array_foreach(value, i, each)
	{
		if (!json_is_string(each))
			return false;
	}
	json_object_foreach((json_t *) value, name, each)
	{
		if (!json_is_string(each))
			return false;
	}
	return true;
}

static void check_member(const json_t *value, const struct json_field *field, struct json_faults *f)
{
	char expected[100];

	(void) describe(field->kinds, expected, sizeof expected);
	if ((kind_of(value) & field->kinds) == 0 || ((field->kinds & JSON_IN_TEXTS) != 0 && !only_texts(value)))
		json_fault_add(f, field->name, expected, "expected %s", expected);
	else if ((field->kinds & JSON_IN_NUL) == 0 && has_nul(value))
		json_fault_add(f, field->name, NULL, "a text has NUL");
}

static void add_unknown(const char *name, const struct json_field *fields, struct json_faults *f)
{
	cleanup_free char *shown = text_escape(name, 60);
	struct nearest n = nearest_to(name);
	struct json_fault *fault = next_fault(f, shown);

	for (const struct json_field *field = fields; field->name != NULL; field++)
		nearest_try(&n, field->name);
	if (fault == NULL)
		return;
	(void) snprintf(fault->message, sizeof fault->message, "the request has no such member");
	if (n.best != NULL)
		(void) snprintf(fault->suggestion, sizeof fault->suggestion, "%s", n.best);
}

static const struct json_field *find_field(const struct json_field *fields, const char *name)
{
	for (const struct json_field *field = fields; field->name != NULL; field++)
		if (strcmp(field->name, name) == 0)
			return field;
	return NULL;
}

bool json_in_check(const json_t *document, const struct json_field *fields, struct json_faults *f)
{
	size_t before = f->count;
	const char *name;
	json_t *value;

	if (!json_is_object(document)) {
		json_fault_add(f, "", "an object", "expected an object");
		return false;
	}
	if (fields == NULL) {
		if (has_nul(document))
			json_fault_add(f, "", NULL, "a text has NUL");
		return f->count == before;
	}
	json_object_foreach((json_t *) document, name, value)
	{
		const struct json_field *field = find_field(fields, name);

		if (field != NULL)
			check_member(value, field, f);
		else
			add_unknown(name, fields, f);
	}
	for (const struct json_field *field = fields; field->name != NULL; field++)
		if ((field->kinds & JSON_IN_REQUIRED) != 0 && json_object_get(document, field->name) == NULL)
			json_fault_add(f, field->name, NULL, "the member is missing");
	return f->count == before;
}

const char *json_in_text(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

/* A number in units of 1/scale; not negative. */
static bool from_number(const json_t *value, uint64_t scale, uint64_t *ret)
{
	double scaled = json_number_value(value) * (double) scale;
	uint64_t whole;

	if (json_is_integer(value)) {
		json_int_t n = json_integer_value(value);

		whole = (uint64_t) n;
		return n >= 0 && !__builtin_mul_overflow(whole, scale, ret) && *ret < ZW_UNLIMITED;
	}
	if (!(scaled >= 0 && scaled < 9e18))
		return false;
	*ret = (uint64_t) scaled;
	return true;
}

bool json_in_usec(const json_t *value, const char *path, usec_t *ret, struct json_faults *f)
{
	usec_t t;

	if (json_is_string(value) ? parse_usec(json_string_value(value), &t) == 0 && t != ZW_UNLIMITED
				  : json_is_number(value) && from_number(value, USEC_PER_SEC, &t)) {
		*ret = t;
		return true;
	}
	json_fault_add(f, path, "a duration such as \"30s\", or a number of seconds", "expected a duration");
	return false;
}

bool json_in_size(const json_t *value, const char *path, uint64_t *ret, struct json_faults *f)
{
	uint64_t n;

	if (json_is_string(value) ? parse_size(json_string_value(value), &n) == 0 && n != ZW_UNLIMITED
				  : json_is_number(value) && from_number(value, 1, &n)) {
		*ret = n;
		return true;
	}
	json_fault_add(f, path, "a size such as \"512M\", or a number of bytes", "expected a size");
	return false;
}
