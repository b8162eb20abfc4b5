/* For the functions of SHA-1 alone: by EVP it would first be looked up, see leaf-key.h. */
#define OPENSSL_API_COMPAT 0x10100000L

#include "egress/jks.h"

#include <errno.h>
#include <openssl/sha.h>
#include <string.h>

#include "base/fd.h"
#include "base/mem.h"

enum { JKS_MAGIC_SIZE = 4, JKS_VERSION = 2, JKS_TRUSTED_CERTIFICATE = 2, ROOM = 16 * 1024 };

struct jks {
	int fd, error;
	SHA_CTX sha;
	size_t size;
	unsigned char data[ROOM]; /* not yet written; a small one is faster than one for all, which would touch fresh memory */
};

static void flush(struct jks *j)
{
	int r = fd_write_all(j->fd, j->data, j->size);

	(void) SHA1_Update(&j->sha, j->data, j->size); /* these return 1 */
	j->size = 0;
	if (j->error == 0)
		j->error = r;
}

static void add(struct jks *j, const void *data, size_t size)
{
	for (const unsigned char *p = data; size > 0;) {
		size_t n = size < ROOM - j->size ? size : ROOM - j->size;

		memcpy(j->data + j->size, p, n);
		j->size += n;
		p += n;
		size -= n;
		if (j->size == ROOM)
			flush(j);
	}
}

/* Numbers are big endian, as java.io.DataOutputStream writes them. */
static void add_number(struct jks *j, uint64_t value, size_t size)
{
	unsigned char bytes[8];

	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char) (value >> (8 * (size - 1 - i)));
	add(j, bytes, size);
}

/* DataOutputStream.writeUTF: two bytes of length, then modified UTF-8, which for ASCII is ASCII. */
static void add_text(struct jks *j, const char *text)
{
	size_t size = strlen(text);

	if (size > UINT16_MAX && j->error == 0)
		j->error = -E2BIG;
	add_number(j, size, 2);
	add(j, text, size);
}

/* The store ends with SHA-1 over the password as UTF-16, a phrase, and all that was written. It is no protection, since the
 * password is public, but Java compares it. */
static void start_digest(struct jks *j)
{
	static const char phrase[] = "Mighty Aphrodite";
	unsigned char password[2 * (sizeof JKS_PASSWORD - 1)] = {0};

	for (size_t i = 0; i < sizeof JKS_PASSWORD - 1; i++)
		password[2 * i + 1] = (unsigned char) JKS_PASSWORD[i];
	(void) SHA1_Init(&j->sha);
	(void) SHA1_Update(&j->sha, password, sizeof password);
	(void) SHA1_Update(&j->sha, phrase, sizeof phrase - 1);
}

struct jks *jks_start(int fd, uint32_t count)
{
	static const unsigned char magic[JKS_MAGIC_SIZE] = {0xfe, 0xed, 0xfe, 0xed};
	struct jks *j = xcalloc(1, sizeof *j);

	j->fd = fd;
	start_digest(j);
	add(j, magic, sizeof magic);
	add_number(j, JKS_VERSION, 4);
	add_number(j, count, 4);
	return j;
}

void jks_add(struct jks *j, const char *alias, usec_t when, const unsigned char *der, size_t size)
{
	if (size > INT32_MAX && j->error == 0)
		j->error = -E2BIG;
	add_number(j, JKS_TRUSTED_CERTIFICATE, 4);
	add_text(j, alias);
	add_number(j, when / USEC_PER_MSEC, 8);
	add_text(j, "X.509");
	add_number(j, size, 4);
	add(j, der, size);
}

int jks_end(struct jks *j)
{
	unsigned char digest[SHA_DIGEST_LENGTH];
	int r;

	flush(j);
	(void) SHA1_Final(digest, &j->sha);
	r = j->error != 0 ? j->error : fd_write_all(j->fd, digest, sizeof digest);
	free(j);
	return r;
}
