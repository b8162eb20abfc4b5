#include "policy/schema.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "policy/records.h"

#define KIB(n) (UINT64_C(1024) * (n))
#define YEARS(n) (UINT64_C(31536000) * (n) *USEC_PER_SEC)
#define SIZE_CEILING (UINT64_C(1) << 62)
#define PRESENT(member) offsetof(struct policy, member)
#define RECORDS_OF(count_member, element_type) .count = offsetof(struct policy, count_member), .element = sizeof(element_type)

static const char *const isolation_words[] = {"process", "container", "gvisor", "microvm", "wasm", NULL};
static const char *const enforcement_words[] = {"strict", "best-effort", NULL};
static const char *const workspace_words[] = {"cow", "rw", "ro", NULL};
static const char *const protocol_words[] = {"tcp", "tls", "http", "https", "udp", NULL};
static const char *const output_words[] = {"truncate", "kill", NULL};
static const char *const on_limit_words[] = {"deny", "kill", NULL};
static const char *const profile_words[] = {"strict", "default", "debug", NULL};
static const char *const audit_files_words[] = {"false", "true", "trace", NULL};

#define WORDS_MATCH(words, last) static_assert(ARRAY_SIZE(words) == (size_t) (last) + 2, "one word for each value of the enum")
WORDS_MATCH(isolation_words, ISOLATION_WASM);
WORDS_MATCH(workspace_words, WORKSPACE_RO);
WORDS_MATCH(protocol_words, NET_UDP);
WORDS_MATCH(output_words, OUTPUT_KILL);
WORDS_MATCH(on_limit_words, NETWORK_LIMIT_KILL);
WORDS_MATCH(profile_words, PROFILE_DEBUG);
WORDS_MATCH(audit_files_words, AUDIT_FILES_TRACE);

#define ROW(struct_type, key_text, value_type, member, ...)                                                                      \
	{.key = #key_text,                                                                                                       \
	 .type = VALUE_##value_type,                                                                                             \
	 .offset = offsetof(struct_type, member),                                                                                \
	 .size = sizeof(((struct_type *) 0)->member),                                                                            \
	 __VA_ARGS__},

static const struct row rows[] = {
#define TOP(key_text, value_type, member, ...) ROW(struct policy, key_text, value_type, member, __VA_ARGS__)
#define TOP_FLAG(key_text, value_type, member, flag_name, value_name, help_text, ...)                                            \
	ROW(struct policy, key_text, value_type, member, .flag = flag_name, .value = value_name, .help = help_text, __VA_ARGS__)
#define ELEMENT(struct_type, key_text, value_type, member, ...) ROW(struct_type, key_text, value_type, member, __VA_ARGS__)
#include "policy/schema.def"
#undef TOP
#undef TOP_FLAG
#undef ELEMENT
};

static const struct policy_flag flags[] = {
#define TOP(...)
#define TOP_FLAG(key_text, value_type, member, flag_name, value_name, help_text, ...)                                            \
	{.name = flag_name, .value = value_name, .key = #key_text, .help = help_text},
#define ELEMENT(...)
#include "policy/schema.def"
#undef TOP
#undef TOP_FLAG
#undef ELEMENT
};

/* The name of an element of VALUE_NAMED is written through its first member. */
static_assert(offsetof(struct policy_secret, name) == 0, "the name comes first");
static_assert(offsetof(struct policy_host, name) == 0, "the name comes first");
static_assert(offsetof(struct policy_env, name) == 0, "the name comes first");

const struct row *schema_rows(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(rows);
	return rows;
}

const struct policy_flag *policy_flags(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(flags);
	return flags;
}

static const char *type_word(enum value_type type)
{
	switch (type) {
	case VALUE_VERSION:
	case VALUE_COUNT:
	case VALUE_CPUS:
	case VALUE_ID:
		return "number";
	case VALUE_BOOL:
		return "true or false";
	case VALUE_SIZE:
		return "size";
	case VALUE_TIME:
		return "time";
	case VALUE_PORT:
		return "port";
	case VALUE_CHOICE:
		return "word";
	case VALUE_TEXT:
	case VALUE_ROOT:
		return "text";
	case VALUE_PATH:
		return "path";
	case VALUE_STRINGS:
	case VALUE_PORTS:
	case VALUE_RECORDS:
		return "list";
	case VALUE_NAMED:
	case VALUE_SECTION:
		return "map";
	}
	return "text";
}

bool policy_key_at(size_t index, struct policy_key *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];

		/* Rows without words are the insides of short forms: nobody writes them. */
		if (row->help == NULL || index-- > 0)
			continue;
		*ret = (struct policy_key){.key = row->key,
					   .type = type_word(row->type),
					   .def = row->def,
					   .flag = row->flag,
					   .help = row->about != NULL ? row->about : row->help};
		return true;
	}
	return false;
}

const char *isolation_name(enum isolation_level level)
{
	return isolation_words[level];
}

const struct row *schema_find(const char *pattern)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (strcmp(rows[i].key, pattern) == 0)
			return &rows[i];
	return NULL;
}

const struct row *schema_flag(const char *flag)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].flag != NULL && strcmp(rows[i].flag, flag) == 0)
			return &rows[i];
	return NULL;
}

/* What follows "prefix." in the key, or NULL. */
static const char *below(const char *key, const char *prefix)
{
	size_t size = strlen(prefix);

	if (size == 0)
		return key;
	return strncmp(key, prefix, size) == 0 && key[size] == '.' ? key + size + 1 : NULL;
}

bool schema_is_section(const char *pattern)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (below(rows[i].key, pattern) != NULL)
			return true;
	return false;
}

bool schema_belongs(const struct row *row, const char *prefix)
{
	const char *rest = below(row->key, prefix);

	return rest != NULL && strpbrk(rest, "[*") == NULL;
}

void schema_each_key(const char *prefix, void (*found)(void *ctx, const char *name, size_t size), void *ctx)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *rest = below(rows[i].key, prefix);

		if (rest != NULL && *rest != '*')
			found(ctx, rest, strcspn(rest, ".["));
	}
}

const char *schema_key_ending(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *last = strrchr(rows[i].key, '.');

		if (last != NULL && strcmp(last + 1, word) == 0 && strpbrk(rows[i].key, "[*") == NULL)
			return rows[i].key;
	}
	return NULL;
}

static void strv_release(struct strv *v)
{
	for (size_t i = 0; i < v->count; i++)
		free(v->items[i]);
	free(v->items);
	*v = (struct strv){0};
}

static void release_records(const struct row *row, char *base)
{
	char *records = *(char **) (base + row->offset);
	size_t *count = (size_t *) (base + row->count);
	cleanup_free char *prefix = xasprintf(row->type == VALUE_NAMED ? "%s.*" : "%s[]", row->key);

	for (size_t i = 0; i < *count; i++) {
		char *record = records + i * row->element;

		schema_release(prefix, record);
		if (row->type == VALUE_NAMED)
			free(*(char **) record);
	}
	free(records);
	*(char **) (base + row->offset) = NULL;
	*count = 0;
}

static void release_member(const struct row *row, char *base)
{
	switch (row->type) {
	case VALUE_TEXT:
	case VALUE_PATH:
	case VALUE_ROOT:
		free(*(char **) (base + row->offset));
		*(char **) (base + row->offset) = NULL;
		break;
	case VALUE_PORTS:
		free(*(struct port_range **) (base + row->offset));
		*(struct port_range **) (base + row->offset) = NULL;
		*(size_t *) (base + row->count) = 0;
		break;
	case VALUE_STRINGS:
		strv_release((struct strv *) (base + row->offset));
		break;
	case VALUE_RECORDS:
	case VALUE_NAMED:
		release_records(row, base);
		break;
	case VALUE_BOOL:
	case VALUE_COUNT:
	case VALUE_SIZE:
	case VALUE_TIME:
	case VALUE_CPUS:
	case VALUE_ID:
	case VALUE_PORT:
	case VALUE_CHOICE:
	case VALUE_SECTION:
	case VALUE_VERSION:
		break;
	}
}

void schema_release(const char *prefix, void *base)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (schema_belongs(&rows[i], prefix))
			release_member(&rows[i], base);
}

void policy_done(struct policy *p)
{
	if (p == NULL)
		return;
	schema_release("", p);
	*p = (struct policy){0};
}
