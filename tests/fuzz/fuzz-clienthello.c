/* The first bytes of a connection to a tls rule. However they are cut, the verdict is the same, and it is never taken back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "egress/clienthello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
	if (!holds)
		abort();
}

static void check_hello(const struct clienthello *h)
{
	char name[NETWORK_NAME_SIZE];

	expect(h->has_name == (h->name[0] != '\0'));
	if (h->has_name)
		expect(network_name(h->name, strlen(h->name), name) == 0 && strcmp(name, h->name) == 0);
	expect(h->alpn_size <= sizeof h->alpn);
	for (size_t at = 0; at < h->alpn_size; at += 1U + h->alpn[at])
		expect(h->alpn[at] > 0 && at + 1 + h->alpn[at] <= h->alpn_size);
	expect(clienthello_objection(h, "api.example.org") != NULL || (!h->ech && strcmp(h->name, "api.example.org") == 0));
}

/* The bytes in a block of their own, so that the sanitizer sees its end. */
static enum clienthello_result parse(const uint8_t *data, size_t size, struct clienthello *ret)
{
	unsigned char *copy = malloc(size + (size == 0));
	enum clienthello_result r;

	if (size > 0)
		memcpy(copy, data, size);
	r = clienthello_parse(copy, size, ret);
	free(copy);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum clienthello_result verdict = CLIENTHELLO_MORE;
	size_t step = size > 512 ? size / 64 : 1;
	struct clienthello h, before = {0};

	for (size_t n = 0; n <= size; n = n < size && size - n < step ? size : n + step) {
		enum clienthello_result r = parse(data, n, &h);

		expect(verdict == CLIENTHELLO_MORE || r == verdict);
		if (r == CLIENTHELLO_OK) {
			check_hello(&h);
			expect(verdict != CLIENTHELLO_OK || memcmp(&before, &h, sizeof h) == 0);
			before = h;
		}
		verdict = r;
		if (n == size)
			break;
	}
	return 0;
}
