/* A certificate for first use: P-256, signed by itself, for the names that the server is called by. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/tls-context.h"

/* What browsers and others accept at most for a server's certificate. */
enum { DAYS = 397, DAY = 24 * 3600, NAMES_MAX_SIZE = 2048, PEM_MAX = 64 * 1024 };

static int failed(struct zw_error *e)
{
	const char *why = ERR_reason_error_string(ERR_peek_last_error());

	(void) zw_error(e, EIO, "cannot make a certificate: %s", why != NULL ? why : "OpenSSL gives no reason");
	ERR_clear_error();
	return -EIO;
}

static bool is_address(const char *name)
{
	struct in6_addr a;

	return inet_pton(AF_INET, name, &a) == 1 || inet_pton(AF_INET6, name, &a) == 1;
}

/* "DNS:localhost,IP:127.0.0.1". */
static void alternative_names(const char *const *names, size_t count, char buf[NAMES_MAX_SIZE])
{
	size_t n = (size_t) snprintf(buf, NAMES_MAX_SIZE, "DNS:localhost,IP:127.0.0.1,IP:::1");

	for (size_t i = 0; i < count && n < NAMES_MAX_SIZE - 300; i++)
		if (strlen(names[i]) < 256 && strchr(names[i], ',') == NULL)
			n += (size_t) snprintf(buf + n, NAMES_MAX_SIZE - n, ",%s:%s", is_address(names[i]) ? "IP" : "DNS",
					       names[i]);
}

static bool extend(X509 *x, int nid, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;
	bool good;

	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, x, x, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	good = extension != NULL && X509_add_ext(x, extension, -1) == 1;
	X509_EXTENSION_free(extension);
	return good;
}

static bool fill(X509 *x, EVP_PKEY *key, const char *names)
{
	X509_NAME *subject = X509_get_subject_name(x);
	unsigned char serial[16];
	BIGNUM *number;
	bool good;

	if (RAND_bytes(serial, sizeof serial) != 1)
		return false;
	serial[0] &= 0x7f;
	number = BN_bin2bn(serial, sizeof serial, NULL);
	good = number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x)) != NULL;
	BN_free(number);
	return good && X509_set_version(x, X509_VERSION_3) == 1 && X509_gmtime_adj(X509_getm_notBefore(x), -DAY) != NULL &&
	       X509_gmtime_adj(X509_getm_notAfter(x), (long) DAYS * DAY) != NULL &&
	       X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *) "zwinger", -1, -1, 0) == 1 &&
	       X509_set_issuer_name(x, subject) == 1 && X509_set_pubkey(x, key) == 1 && extend(x, NID_subject_alt_name, names) &&
	       extend(x, NID_basic_constraints, "critical,CA:TRUE") &&
	       extend(x, NID_key_usage, "critical,digitalSignature,keyCertSign") && extend(x, NID_ext_key_usage, "serverAuth") &&
	       extend(x, NID_subject_key_identifier, "hash") && X509_sign(x, key, EVP_sha256()) > 0;
}

static int write_pem(int dirfd, const char *path, X509 *x, EVP_PKEY *key, struct zw_error *e)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *data = NULL;
	long size = 0;
	int r;

	if (bio != NULL &&
	    (x != NULL ? PEM_write_bio_X509(bio, x) : PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL)) == 1)
		size = BIO_get_mem_data(bio, &data);
	r = size > 0 ? state_write_file(dirfd, path, data, (size_t) size, e) : failed(e);
	BIO_free(bio);
	return r;
}

static int make(int dirfd, const char *names, struct zw_error *e)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	int r;

	if (key == NULL || x == NULL || !fill(x, key, names))
		r = failed(e);
	else
		r = write_pem(dirfd, "key.pem", NULL, key, e);
	if (r == 0)
		r = write_pem(dirfd, "cert.pem", x, NULL, e);
	X509_free(x);
	EVP_PKEY_free(key);
	return r;
}

/* Is there a pair that still holds tomorrow? */
static bool still_good(int dirfd)
{
	cleanup_fd int fd = openat(dirfd, "cert.pem", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	cleanup_fd int key = openat(dirfd, "key.pem", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	cleanup_free char *text = NULL;
	size_t size;
	BIO *bio;
	X509 *x;
	time_t tomorrow = time(NULL) + DAY;
	bool good;

	if (fd < 0 || key < 0 || fd_read_all(fd, PEM_MAX, &text, &size) < 0)
		return false;
	bio = BIO_new_mem_buf(text, (int) size);
	x = bio != NULL ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
	good = x != NULL && X509_cmp_time(X509_get0_notAfter(x), &tomorrow) > 0;
	X509_free(x);
	BIO_free(bio);
	ERR_clear_error();
	return good;
}

int tls_self_signed(const struct state *state, const char *const *names, size_t count, struct zw_error *e)
{
	cleanup_fd int dir = -EBADF;
	char text[NAMES_MAX_SIZE];

	if (mkdirat(state->fd, "tls", 0700) < 0 && errno != EEXIST)
		return zw_errno(e, errno, "cannot make %s/tls", state->path);
	dir = openat(state->fd, "tls", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return zw_errno(e, errno, "cannot open %s/tls", state->path);
	if (still_good(dir))
		return 0;
	alternative_names(names, count, text);
	return make(dir, text, e);
}
