/* The queries that code inside sends to the stub resolver: what is read of them, and what is written for each kind of answer. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "egress/query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
	if (!holds)
		abort();
}

/* The name that is checked is the name on the wire, label by label: a second reader of the same bytes. */
static void check_name(const struct query *q)
{
	const unsigned char *at = q->name;
	const char *name = q->canonical;

	for (size_t label = *at++; label != 0; label = *at++) {
		for (; label > 0; label--, at++, name++)
			expect(*name == (*at >= 'A' && *at <= 'Z' ? *at + ('a' - 'A') : *at) && *name != '.');
		expect(*name == (*at != 0 ? '.' : '\0'));
		name += *at != 0;
	}
}

static void check_query(const struct query *q)
{
	expect(memchr(q->text, '\0', sizeof q->text) != NULL);
	for (const char *p = q->text; *p != '\0'; p++)
		expect(*p > ' ' && *p < 0x7f);
	if (q->canonical[0] != '\0')
		check_name(q);
}

static void check_answer(const struct query *q, enum query_code code, uint16_t type, const char *name)
{
	unsigned char *answer = malloc(QUERY_ANSWER_SIZE); /* of exactly this size, so that the sanitizer sees its end */
	struct query_answer a = {.code = code, .type = type, .ttl = UINT32_MAX, .name = name};
	size_t size = query_answer(q, &a, answer);
	struct query back;

	expect(size >= 12 && size <= QUERY_ANSWER_SIZE && (answer[2] & 0x80) != 0);
	expect(query_parse(answer, size, &back) < 0); /* an answer asks nothing */
	free(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char longest[NETWORK_NAME_SIZE];
	uint32_t address = 0;
	bool reverse = false;
	struct query q;
	int code = query_parse(data, size, &q);

	expect(code <= QUERY_BADVERS);
	if (code < 0)
		return 0;
	if (q.name_size > 0)
		check_query(&q);
	expect(code != QUERY_NOERROR || (q.name_size > 0 && q.class == 1));
	expect(!query_reverse(q.canonical, &address, &reverse) || reverse);
	memset(longest, 'a', sizeof longest);
	for (size_t i = 63; i < sizeof longest; i += 64)
		longest[i] = '.';
	longest[sizeof longest - 1] = '\0';
	check_answer(&q, (enum query_code) code, 0, NULL);
	check_answer(&q, QUERY_NOERROR, QUERY_A, NULL);
	check_answer(&q, QUERY_NOERROR, QUERY_AAAA, NULL);
	check_answer(&q, QUERY_NOERROR, QUERY_PTR, longest);
	check_answer(&q, QUERY_NXDOMAIN, QUERY_A, NULL);
	return 0;
}
