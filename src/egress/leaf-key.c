/* OpenSSL 3 calls these functions deprecated in favour of EVP, whose price leaf-key.h tells. */
#define OPENSSL_API_COMPAT 0x10100000L

#include "egress/leaf-key.h"

#include <errno.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/random.h>

/* ---- Random numbers. ---- */

static int random_bytes(unsigned char *to, int size)
{
	size_t have = 0;

	while (size > 0 && have < (size_t) size) {
		ssize_t n = getrandom(to + have, (size_t) size - have, 0);

		if (n < 0 && errno != EINTR)
			return 0;
		have += n > 0 ? (size_t) n : 0;
	}
	return 1;
}

/* getrandom(2) does not return before the kernel is seeded. */
static int random_status(void)
{
	return 1;
}

bool leaf_key_random(void)
{
	static const RAND_METHOD kernel = {.bytes = random_bytes, .pseudorand = random_bytes, .status = random_status};

	return RAND_set_rand_method(&kernel) == 1;
}

/* ---- Keys. ---- */

EVP_PKEY *leaf_key_new(void)
{
	EC_KEY *ec = EC_KEY_new_by_curve_name(NID_X9_62_prime256v1);
	EVP_PKEY *key = EVP_PKEY_new();

	if (ec != NULL && key != NULL && EC_KEY_generate_key(ec) == 1 && EVP_PKEY_assign_EC_KEY(key, ec) == 1)
		return key;
	EVP_PKEY_free(key);
	EC_KEY_free(ec);
	return NULL;
}

static void sha256(const unsigned char *data, size_t size, unsigned char digest[SHA256_DIGEST_LENGTH])
{
	SHA256_CTX sha;

	(void) SHA256_Init(&sha); /* these return 1 */
	(void) SHA256_Update(&sha, data, size);
	(void) SHA256_Final(digest, &sha);
}

void leaf_key_id(const X509 *x, unsigned char ret[LEAF_KEY_ID_SIZE])
{
	const ASN1_BIT_STRING *bits = X509_get0_pubkey_bitstr(x);
	unsigned char digest[SHA256_DIGEST_LENGTH];

	sha256(ASN1_STRING_get0_data(bits), (size_t) ASN1_STRING_length(bits), digest);
	memcpy(ret, digest, LEAF_KEY_ID_SIZE);
}

/* ---- Signatures. ---- */

/* The signature's nonce is made first, and is a random number alone: given the digest, OpenSSL would mix the private key in by
 * SHA-512, and look that up. It has room for any signature of the key. */
static bool sign_digest(EVP_PKEY *key, const unsigned char *digest, unsigned char *to, unsigned *size)
{
	EC_KEY *ec = EVP_PKEY_get1_EC_KEY(key);
	BIGNUM *inverse = NULL, *r = NULL;
	bool ok = ec != NULL && ECDSA_sign_setup(ec, NULL, &inverse, &r) == 1 &&
		  ECDSA_sign_ex(0, digest, SHA256_DIGEST_LENGTH, to, size, inverse, r, ec) == 1;

	BN_clear_free(inverse);
	BN_clear_free(r);
	EC_KEY_free(ec);
	return ok;
}

static bool set_signature(X509 *x, EVP_PKEY *key, ASN1_BIT_STRING *to)
{
	unsigned char *tbs = NULL, digest[SHA256_DIGEST_LENGTH], signature[80]; /* 72 at most */
	unsigned size = sizeof signature;
	int tbs_size = i2d_re_X509_tbs(x, &tbs);

	if (tbs_size <= 0 || EVP_PKEY_get_size(key) > (int) sizeof signature)
		return false;
	sha256(tbs, (size_t) tbs_size, digest);
	OPENSSL_free(tbs);
	if (!sign_digest(key, digest, signature, &size) || ASN1_STRING_set(to, signature, (int) size) != 1)
		return false;
	to->flags = (to->flags & ~0x07L) | ASN1_STRING_FLAG_BITS_LEFT; /* of whole bytes */
	return true;
}

/* OpenSSL has no function that sets them, and hands them out for reading; they are members of `x`, which is ours to write. */
bool leaf_key_sign(EVP_PKEY *key, X509 *x)
{
	const X509_ALGOR *outer, *inner = X509_get0_tbs_sigalg(x);
	const ASN1_BIT_STRING *signature;
	ASN1_OBJECT *algorithm = OBJ_nid2obj(NID_ecdsa_with_SHA256);

	X509_get0_signature(&signature, &outer, x);
	return X509_ALGOR_set0((X509_ALGOR *) inner, algorithm, V_ASN1_UNDEF, NULL) == 1 &&
	       X509_ALGOR_set0((X509_ALGOR *) outer, algorithm, V_ASN1_UNDEF, NULL) == 1 &&
	       set_signature(x, key, (ASN1_BIT_STRING *) signature);
}
