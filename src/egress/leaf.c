#include "egress/leaf.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "egress/leaf-key.h"

enum { SERIAL_SIZE = 16, DAY = 24 * 60 * 60, CLOCK_SLACK = 60 * 60 };

struct leaf {
	char *name;
	X509 *certificate;
	usec_t renew; /* by the monotonic clock */
};

struct leaf_ca {
	EVP_PKEY *key;
	EVP_PKEY *leaf_key; /* of the first leaf, and one for all: whoever could read one could read all */
	X509 *certificate;
	char *pem;
	unsigned char *der;
	size_t der_size;
	struct leaf leaves[LEAF_CACHE_MAX];
	size_t next; /* to be replaced */
};

/* ---- Names that the CA may sign for. ---- */

/* The part of a pattern that a constraint can say. Verifiers differ on '_' in names (some refuse the whole certificate), so the
 * constraint is then on what is right of that label. NULL: nothing is left. */
static const char *constrained_part(const char *pattern)
{
	const char *part = strncmp(pattern, "*.", 2) == 0 ? pattern + 2 : pattern;
	const char *underscore = strrchr(part, '_');

	if (underscore == NULL)
		return part;
	part = strchr(underscore, '.');
	return part != NULL ? part + 1 : NULL;
}

static int add_subtree(NAME_CONSTRAINTS *nc, bool permitted, int type, void *value)
{
	GENERAL_SUBTREE *tree = GENERAL_SUBTREE_new();
	STACK_OF(GENERAL_SUBTREE) **list = permitted ? &nc->permittedSubtrees : &nc->excludedSubtrees;

	if (*list == NULL)
		*list = sk_GENERAL_SUBTREE_new_null();
	if (tree == NULL || value == NULL || *list == NULL || sk_GENERAL_SUBTREE_push(*list, tree) <= 0) {
		GENERAL_SUBTREE_free(tree);
		return -ENOMEM;
	}
	GENERAL_NAME_set0_value(tree->base, type, value);
	return 0;
}

static int add_name(NAME_CONSTRAINTS *nc, const char *name)
{
	ASN1_IA5STRING *text = ASN1_IA5STRING_new();

	if (text == NULL || ASN1_STRING_set(text, name, (int) strlen(name)) != 1) {
		ASN1_IA5STRING_free(text);
		return -ENOMEM;
	}
	return add_subtree(nc, true, GEN_DNS, text);
}

/* An address and its mask (RFC 5280 4.2.1.10). */
static int add_prefix(NAME_CONSTRAINTS *nc, bool permitted, const struct net_prefix *p)
{
	size_t size = p->address.family == AF_INET6 ? 16 : 4;
	unsigned char bytes[32] = {0};
	ASN1_OCTET_STRING *range = ASN1_OCTET_STRING_new();

	if (size == 16)
		memcpy(bytes, &p->address.v6, size);
	else
		memcpy(bytes, &p->address.v4, size);
	for (unsigned bit = 0; bit < p->bits && bit < size * 8; bit++)
		bytes[size + bit / 8] |= (unsigned char) (0x80 >> (bit % 8));
	if (range == NULL || ASN1_OCTET_STRING_set(range, bytes, (int) size * 2) != 1) {
		ASN1_OCTET_STRING_free(range);
		return -ENOMEM;
	}
	return add_subtree(nc, permitted, GEN_IPADD, range);
}

/* Where a list permits nothing, it has to exclude everything: a kind of name that is not mentioned is not constrained. */
static int exclude_addresses(NAME_CONSTRAINTS *nc)
{
	const struct net_prefix v4 = {.address.family = AF_INET}, v6 = {.address.family = AF_INET6};

	return add_prefix(nc, false, &v4) < 0 || add_prefix(nc, false, &v6) < 0 ? -ENOMEM : 0;
}

static bool is_known(const struct network *n, size_t until, const char *part)
{
	for (size_t i = 0; i < until; i++) {
		const struct network_rule *r = &n->rules[i];
		const char *other = r->protocol == NET_HTTPS && r->pattern != NULL ? constrained_part(r->pattern) : NULL;

		if (other != NULL && strcmp(other, part) == 0)
			return true;
	}
	return false;
}

static int fill_constraints(NAME_CONSTRAINTS *nc, const struct network *n)
{
	size_t names = 0, prefixes = 0;

	for (size_t i = 0; i < n->rule_count; i++) {
		const struct network_rule *r = &n->rules[i];
		const char *part = r->pattern != NULL ? constrained_part(r->pattern) : NULL;

		if (r->protocol != NET_HTTPS)
			continue;
		if (r->pattern == NULL) {
			prefixes++;
			if (add_prefix(nc, true, &r->prefix) < 0)
				return -ENOMEM;
		} else if (part != NULL && !is_known(n, i, part)) {
			names++;
			if (add_name(nc, part) < 0)
				return -ENOMEM;
		}
	}
	/* A name that nothing can have (RFC 6761) excludes all others, in every verifier; an empty excluded name does so only in
	 * some. */
	if (names == 0 && add_name(nc, "zwinger.invalid") < 0)
		return -ENOMEM;
	return prefixes == 0 ? exclude_addresses(nc) : 0;
}

static int constrain(X509 *x, const struct network *n)
{
	NAME_CONSTRAINTS *nc = NAME_CONSTRAINTS_new();
	int ok = nc != NULL && fill_constraints(nc, n) == 0 &&
		 X509_add1_ext_i2d(x, NID_name_constraints, nc, 1, X509V3_ADD_DEFAULT) == 1;

	NAME_CONSTRAINTS_free(nc);
	return ok != 0 ? 0 : -ENOMEM;
}

/* ---- Certificates. ---- */

static bool set_serial(X509 *x)
{
	unsigned char random[SERIAL_SIZE];
	BIGNUM *number;
	bool ok;

	if (RAND_bytes(random, sizeof random) != 1)
		return false;
	random[0] = (unsigned char) ((random[0] & 0x7f) | 0x40); /* positive, and always of one length */
	number = BN_bin2bn(random, sizeof random, NULL);
	ok = number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x)) != NULL;
	BN_free(number);
	return ok;
}

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *text)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;
	bool ok;

	X509V3_set_ctx(&context, issuer, x, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, text);
	ok = extension != NULL && X509_add_ext(x, extension, -1) == 1;
	X509_EXTENSION_free(extension);
	return ok;
}

static X509 *certificate_new(EVP_PKEY *key, const char *subject, long days)
{
	X509 *x = X509_new();
	X509_NAME *name = x != NULL ? X509_get_subject_name(x) : NULL;

	if (x == NULL || X509_set_version(x, X509_VERSION_3) != 1 || !set_serial(x) || X509_set_pubkey(x, key) != 1 ||
	    X509_gmtime_adj(X509_getm_notBefore(x), -CLOCK_SLACK) == NULL ||
	    X509_gmtime_adj(X509_getm_notAfter(x), days * DAY) == NULL ||
	    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *) subject, -1, -1, 0) != 1) {
		X509_free(x);
		return NULL;
	}
	return x;
}

static bool add_key_id(X509 *x)
{
	unsigned char bytes[LEAF_KEY_ID_SIZE];
	ASN1_OCTET_STRING *id = ASN1_OCTET_STRING_new();
	bool ok;

	leaf_key_id(x, bytes);
	ok = id != NULL && ASN1_OCTET_STRING_set(id, bytes, sizeof bytes) == 1 &&
	     X509_add1_ext_i2d(x, NID_subject_key_identifier, id, 0, X509V3_ADD_DEFAULT) == 1;
	ASN1_OCTET_STRING_free(id);
	return ok;
}

static bool sign(X509 *x, X509 *issuer, EVP_PKEY *key)
{
	return X509_set_issuer_name(x, X509_get_subject_name(issuer)) == 1 && leaf_key_sign(key, x);
}

static X509 *make_ca(EVP_PKEY *key, const struct network *n, const char *run)
{
	unsigned char random[10];
	char subject[64];
	X509 *x;

	if (run != NULL)
		(void) snprintf(subject, sizeof subject, "Zwinger run %.40s", run);
	else if (RAND_bytes(random, sizeof random) == 1)
		(void) snprintf(subject, sizeof subject, "Zwinger run %02x%02x%02x%02x%02x%02x%02x%02x", random[0], random[1],
				random[2], random[3], random[4], random[5], random[6], random[7]);
	else
		return NULL;
	x = certificate_new(key, subject, LEAF_CA_DAYS);
	if (x == NULL)
		return NULL;
	if (add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	    add_extension(x, x, NID_key_usage, "critical,keyCertSign") && add_extension(x, x, NID_ext_key_usage, "serverAuth") &&
	    add_key_id(x) && constrain(x, n) == 0 && sign(x, x, key))
		return x;
	X509_free(x);
	return NULL;
}

static bool add_subject_name(X509 *x, const char *name)
{
	struct net_address a;
	char text[NETWORK_NAME_SIZE + 8];

	/* A canonical name has no byte that means something in this little language. */
	(void) snprintf(text, sizeof text, "%s:%s", network_address(name, strlen(name), &a) == 0 ? "IP" : "DNS", name);
	return add_extension(x, NULL, NID_subject_alt_name, text);
}

/* The subject is the same for all and no host name: verifiers that look there too would compare it with the constraints. */
static X509 *make_leaf(struct leaf_ca *ca, const char *name)
{
	X509 *x;

	if (ca->leaf_key == NULL)
		ca->leaf_key = leaf_key_new();
	x = ca->leaf_key != NULL ? certificate_new(ca->leaf_key, "Zwinger broker", LEAF_DAYS) : NULL;
	if (x == NULL)
		return NULL;
	if (add_extension(x, ca->certificate, NID_basic_constraints, "critical,CA:FALSE") &&
	    add_extension(x, ca->certificate, NID_key_usage, "critical,digitalSignature") &&
	    add_extension(x, ca->certificate, NID_ext_key_usage, "serverAuth") &&
	    add_extension(x, ca->certificate, NID_authority_key_identifier, "keyid:always") && add_subject_name(x, name) &&
	    sign(x, ca->certificate, ca->key))
		return x;
	X509_free(x);
	return NULL;
}

/* ---- The CA. ---- */

static char *to_pem(X509 *x)
{
	BIO *memory = BIO_new(BIO_s_mem());
	char *text = NULL, *pem = NULL;
	long size;

	if (memory != NULL && PEM_write_bio_X509(memory, x) == 1) {
		size = BIO_get_mem_data(memory, &text);
		if (size > 0)
			pem = xstrndup(text, (size_t) size);
	}
	BIO_free(memory);
	return pem;
}

struct leaf_ca *leaf_ca_new(const struct network *n, const char *run, struct zw_error *e)
{
	struct leaf_ca *ca = xcalloc(1, sizeof *ca);
	int size = -1;

	ca->key = leaf_key_new();
	if (ca->key != NULL) /* its dates make the C library read the time zone, while it can */
		ca->certificate = make_ca(ca->key, n, run);
	if (ca->certificate != NULL) {
		ca->pem = to_pem(ca->certificate);
		size = i2d_X509(ca->certificate, &ca->der);
	}
	if (ca->pem == NULL || size <= 0) {
		const char *why = ERR_reason_error_string(ERR_peek_error());

		(void) zw_error(e, EIO, "cannot make the certificate authority of this run: %s",
				why != NULL ? why : "no reason given");
		ERR_clear_error();
		return leaf_ca_free(ca);
	}
	ca->der_size = (size_t) size;
	return ca;
}

struct leaf_ca *leaf_ca_free(struct leaf_ca *ca)
{
	if (ca == NULL)
		return NULL;
	for (size_t i = 0; i < LEAF_CACHE_MAX; i++) {
		X509_free(ca->leaves[i].certificate);
		free(ca->leaves[i].name);
	}
	X509_free(ca->certificate);
	EVP_PKEY_free(ca->leaf_key);
	EVP_PKEY_free(ca->key);
	OPENSSL_free(ca->der);
	free(ca->pem);
	free(ca);
	return NULL;
}

const char *leaf_ca_pem(const struct leaf_ca *ca)
{
	return ca->pem;
}

const unsigned char *leaf_ca_der(const struct leaf_ca *ca, size_t *ret_size)
{
	*ret_size = ca->der_size;
	return ca->der;
}

/* The place of a name: its own, or the one that has to make room. */
static struct leaf *place(struct leaf_ca *ca, const char *name)
{
	for (size_t i = 0; i < LEAF_CACHE_MAX; i++)
		if (ca->leaves[i].name != NULL && strcmp(ca->leaves[i].name, name) == 0)
			return &ca->leaves[i];
	ca->next = (ca->next + 1) % LEAF_CACHE_MAX;
	return &ca->leaves[ca->next];
}

int leaf_for(struct leaf_ca *ca, const char *name, X509 **ret, EVP_PKEY **ret_key)
{
	struct leaf *leaf = place(ca, name);

	if (leaf->name == NULL || strcmp(leaf->name, name) != 0 || leaf->renew < now_monotonic()) {
		X509 *fresh = make_leaf(ca, name);

		if (fresh == NULL) {
			ERR_clear_error();
			return -EIO;
		}
		X509_free(leaf->certificate);
		free(leaf->name);
		*leaf = (struct leaf){.name = xstrdup(name),
				      .certificate = fresh,
				      .renew = now_monotonic() + UINT64_C(1) * LEAF_DAYS * DAY / 2 * USEC_PER_SEC};
	}
	*ret = leaf->certificate;
	*ret_key = ca->leaf_key;
	return 0;
}
