#include "egress/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"

struct certificate {
	size_t at, size;       /* of its block, from line to line, in trust->pem */
	size_t bytes;          /* decoded */
	unsigned long subject; /* hash of the canonical name, valid when `indexed` */
	bool indexed, decoded;
};

/* Certificates are kept as the text that they are read and given out as, block behind block, and decoded where one is asked for.
 */
struct trust {
	char *pem; /* a mapping of `room` bytes, in the end that of the file which the sandbox was given */
	size_t size, room;
	struct certificate *items;
	size_t count, item_room;
	bool indexed;      /* every item was tried */
	X509_STORE *store; /* that asks here, NULL: none */
	X509_LOOKUP_METHOD *method;
	bool released; /* trust_free was called, and the store is to do it */
};

static const char first_line[] = "-----BEGIN CERTIFICATE-----", last_line[] = "-----END CERTIFICATE-----";

enum {
	BEGIN_SIZE = sizeof first_line - 1,
	END_SIZE = sizeof last_line - 1,
	LINE_LETTERS = 64 /* RFC 7468 */,
	HEAD_SIZE = 9 /* bytes of DER */
};

/* Where distributions keep the bundle that their programs trust. */
static const char *const usual_bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt", /* Debian, Arch, Gentoo, Alpine */
    "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
    "/etc/ssl/ca-bundle.pem",             /* SUSE */
    "/etc/ssl/cert.pem",                  /* Alpine without update-ca-certificates */
};

/* ---- Base64. ---- */

static bool is_blank(char c)
{
	return c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

static bool is_letter(char c)
{
	unsigned char low = (unsigned char) (c | 0x20);

	return (unsigned char) (low - 'a') < 26 || (unsigned char) (c - '0') < 10 || c == '+' || c == '/';
}

/* Is it a usual line of full length? All at once: of these there are thousands. */
static bool is_full_line(const char *text, size_t size)
{
	unsigned char ok = 1;

	if (size <= LINE_LETTERS || text[LINE_LETTERS] != '\n')
		return false;
	for (size_t i = 0; i < LINE_LETTERS; i++)
		ok &= is_letter(text[i]);
	return ok != 0;
}

/* Measures what stands between the two lines of a block, line end included: `bytes` that it decodes to, 0 when it is no base64.
 * `usual`: lines of at most 64 letters with nothing else at all, which every reader takes. */
struct body {
	size_t bytes;
	bool usual;
};

static struct body measure(const char *text, size_t size)
{
	struct body body = {.usual = true};
	size_t letters = 0, padding = 0, line = 0;

	for (size_t i = 0; i < size; i++) {
		if (line == 0 && padding == 0 && is_full_line(text + i, size - i)) {
			letters += LINE_LETTERS;
			i += LINE_LETTERS;
		} else if (is_letter(text[i]) && padding == 0) {
			letters++;
			line++;
		} else if (text[i] == '=') {
			padding++;
			line++;
		} else if (is_blank(text[i])) {
			body.usual = body.usual && text[i] == '\n' && line > 0 && line <= LINE_LETTERS;
			line = 0;
		} else {
			return body;
		}
	}
	body.usual = body.usual && line == 0;
	if (padding <= 2 && (letters + padding) % 4 == 0)
		body.bytes = (letters + padding) / 4 * 3 - padding;
	return body;
}

/* Decodes what measure() has passed: all of it, or at least the first `size` bytes. `to` has room for size + 3. */
static size_t decode(const char *text, size_t text_size, unsigned char *to, size_t size)
{
	size_t most = size / 3 * 4 + 4, n = 0;
	cleanup_free char *letters = xcalloc(most, 1);
	int bytes;

	for (size_t i = 0; i < text_size && n < most; i++) {
		if (most - n >= LINE_LETTERS && is_full_line(text + i, text_size - i)) {
			memcpy(letters + n, text + i, LINE_LETTERS);
			n += LINE_LETTERS;
			i += LINE_LETTERS;
		} else if (!is_blank(text[i])) {
			letters[n++] = text[i];
		}
	}
	bytes = EVP_DecodeBlock(to, (const unsigned char *) letters, (int) (n & ~(size_t) 3));
	/* It counts the padding as bytes. */
	return bytes < 0 ? 0 : (size_t) bytes < size ? (size_t) bytes : size;
}

/* ---- Reading. ---- */

/* One SEQUENCE that fills the bytes: a broken entry would spoil a whole key store for Java. */
static bool is_whole_sequence(const char *text, size_t text_size, size_t size)
{
	unsigned char head[HEAD_SIZE + 3];
	const unsigned char *p = head;
	long content;
	int tag, class;

	if (size < HEAD_SIZE || size > TRUST_CERTIFICATE_MAX || decode(text, text_size, head, HEAD_SIZE) != HEAD_SIZE)
		return false;
	return ASN1_get_object(&p, &content, &tag, &class, (long) size) == V_ASN1_CONSTRUCTED && tag == V_ASN1_SEQUENCE &&
	       (size_t) (p - head) + (size_t) content == size;
}

static int write_block(struct buf *out, const unsigned char *der, size_t size)
{
	int r = buf_adds(out, first_line) < 0 ? -E2BIG : buf_adds(out, "\n");

	for (size_t at = 0; at < size && r == 0; at += LINE_LETTERS / 4 * 3) {
		size_t n = size - at < LINE_LETTERS / 4 * 3 ? size - at : LINE_LETTERS / 4 * 3;
		unsigned char line[LINE_LETTERS + 2];
		int letters = EVP_EncodeBlock(line, der + at, (int) n);

		line[letters] = '\n';
		r = buf_add(out, line, (size_t) letters + 1);
	}
	return r < 0 || buf_adds(out, last_line) < 0 ? -E2BIG : buf_adds(out, "\n");
}

/* To where the blocks before it end, which is never behind where it stands. Its last line may lack an end. */
static void keep(struct trust *t, const char *block, size_t size, size_t bytes)
{
	if (t->count == t->item_room) {
		t->item_room = t->item_room * 2 + 256;
		t->items = xrealloc(t->items, t->item_room, sizeof *t->items);
	}
	t->items[t->count++] = (struct certificate){.at = t->size, .size = size, .bytes = bytes};
	memmove(t->pem + t->size, block, size);
	t->pem[t->size + size] = '\n';
	t->size += size + 1;
	t->indexed = false;
}

/* The end of the line, when nothing but white space is left of it. */
static const char *line_end(const char *p, const char *stop)
{
	while (p < stop && *p != '\n' && is_blank(*p))
		p++;
	return p == stop || *p == '\n' ? p : NULL;
}

/* `text` to `last`: what stands between the lines. Blocks of unusual form go to `odd`, in the usual one. */
static bool take_block(struct trust *t, const char *block, const char *last, const char *stop, struct buf *odd)
{
	const char *text = line_end(block + BEGIN_SIZE, last);
	cleanup_free unsigned char *der = NULL;
	struct body body;

	if (text == NULL || text == last || line_end(last + END_SIZE, stop) == NULL || t->count == TRUST_COUNT_MAX)
		return false;
	text++;
	body = measure(text, (size_t) (last - text));
	if (!is_whole_sequence(text, (size_t) (last - text), body.bytes))
		return false;
	if (body.usual && text == block + BEGIN_SIZE + 1) {
		keep(t, block, (size_t) (last - block) + END_SIZE, body.bytes);
		return true;
	}
	der = xcalloc(body.bytes + 3, 1);
	return decode(text, (size_t) (last - text), der, body.bytes) == body.bytes && write_block(odd, der, body.bytes) == 0;
}

/* Takes the blocks out of the text that lies in `pem` from `at` on, with room for a byte behind it. Anything else, such as a key,
 * is passed over. */
static void take_blocks(struct trust *t, size_t at, size_t size, struct buf *odd)
{
	const char *p = t->pem + at, *stop = p + size;

	for (;;) {
		const char *block = memmem(p, (size_t) (stop - p), first_line, BEGIN_SIZE), *last = NULL;

		if (block != NULL)
			last = memmem(block + BEGIN_SIZE, (size_t) (stop - block) - BEGIN_SIZE, last_line, END_SIZE);
		if (last == NULL)
			return;
		p = last + END_SIZE;
		(void) take_block(t, block, last, stop, odd);
	}
}

/* Pages that come all at once cost a fraction of what they do one by one, at the first touch of each. */
static void make_room(struct trust *t, size_t size)
{
	void *text;

	if (size <= t->room)
		return;
	text = t->room == 0 ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)
			    : mremap(t->pem, t->room, size, MREMAP_MAYMOVE);
	if (text == MAP_FAILED)
		abort(); /* memory, as in xrealloc */
	t->pem = text;
	t->room = size;
}

/* Behind what is there. */
static int read_text(struct trust *t, int fd, size_t *ret_size)
{
	struct stat st;
	size_t size = 0;

	if (fstat(fd, &st) < 0)
		return -errno;
	make_room(t, t->size + (st.st_size > 0 && st.st_size <= TRUST_FILE_MAX ? (size_t) st.st_size : 4096) + 2);
	for (;;) {
		ssize_t n = read(fd, t->pem + t->size + size, t->room - t->size - size - 1);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			break;
		size += n > 0 ? (size_t) n : 0;
		if (size > TRUST_FILE_MAX)
			return -EFBIG;
		if (t->room - t->size - size == 1)
			make_room(t, t->room * 2);
	}
	*ret_size = size;
	return 0;
}

static int add_file(struct trust *t, const char *path, struct zw_error *e)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	cleanup_buf struct buf odd = buf_new(2 * TRUST_FILE_MAX);
	size_t before = t->count, size;
	int r;

	if (fd < 0)
		return zw_errno(e, errno, "cannot open the certificates in %s", path);
	r = read_text(t, fd, &size);
	if (r < 0)
		return zw_errno(e, -r, "cannot read the certificates in %s", path);
	take_blocks(t, t->size, size, &odd);
	if (odd.size > 0) {
		make_room(t, t->size + odd.size + 1);
		memcpy(t->pem + t->size, odd.data, odd.size);
		take_blocks(t, t->size, odd.size, &odd); /* to which nothing is added */
	}
	if (t->count == before)
		return zw_error(e, EINVAL, "%s holds no certificate in PEM form (BEGIN CERTIFICATE)", path);
	return 0;
}

static int add_host(struct trust *t, struct zw_error *e)
{
	const char *named = getenv("SSL_CERT_FILE");

	if (named != NULL && named[0] != '\0')
		return add_file(t, named, e) < 0 ? zw_context(e, "SSL_CERT_FILE") : 0;
	for (size_t i = 0; i < ARRAY_SIZE(usual_bundles); i++)
		if (add_file(t, usual_bundles[i], NULL) == 0)
			return 0;
	return 0;
}

struct trust *trust_new(const char *ca_file, struct zw_error *e)
{
	struct trust *t = xcalloc(1, sizeof *t);

	if (add_host(t, e) < 0)
		return trust_free(t);
	if (ca_file != NULL && add_file(t, ca_file, e) < 0) {
		(void) zw_context(e, "network.ca_file");
		return trust_free(t);
	}
	if (t->count == 0) {
		(void) zw_error(e, ENOENT,
				"this host has no bundle of trusted certificates (%s and others were looked for): install "
				"ca-certificates, set SSL_CERT_FILE, or name one with network.ca_file",
				usual_bundles[0]);
		return trust_free(t);
	}
	return t;
}

static void drop_text(struct trust *t)
{
	if (t->pem != NULL)
		(void) munmap(t->pem, t->room);
	t->pem = NULL;
	t->room = 0;
}

struct trust *trust_free(struct trust *t)
{
	if (t == NULL)
		return NULL;
	if (t->store != NULL) {
		t->released = true;
		return NULL;
	}
	if (t->method != NULL)
		X509_LOOKUP_meth_free(t->method);
	drop_text(t);
	free(t->items);
	free(t);
	return NULL;
}

/* ---- Giving out. ---- */

size_t trust_count(const struct trust *t)
{
	return t->count;
}

size_t trust_get(const struct trust *t, size_t index, unsigned char **ret)
{
	const struct certificate *c = &t->items[index];

	*ret = xcalloc(c->bytes + 3, 1);
	return decode(t->pem + c->at + BEGIN_SIZE + 1, c->size - BEGIN_SIZE - 1 - END_SIZE, *ret, c->bytes);
}

int trust_write_pem(const struct trust *t, int fd)
{
	return fd_write_all(fd, t->pem, t->size);
}

void trust_map(struct trust *t, int fd)
{
	void *text = mmap(NULL, t->size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (text == MAP_FAILED)
		return;
	drop_text(t);
	t->pem = text;
	t->room = t->size;
}

/* ---- Finding. ---- */

/* Steps over `count` elements, or into one when `into`. False when the bytes are no DER. */
static bool skip(const unsigned char **p, const unsigned char *end, unsigned count, bool into)
{
	for (unsigned i = 0; i < count; i++) {
		long size;
		int tag, class;
		int r = ASN1_get_object(p, &size, &tag, &class, end - *p);

		if ((r & 0x80) != 0 || size < 0 || size > end - *p)
			return false;
		if (!into)
			*p += size;
	}
	return true;
}

/* RFC 5280 4.1: Certificate > TBSCertificate > [0] version, serial, algorithm, issuer, validity, subject. */
static bool find_subject(const unsigned char *der, size_t size, unsigned long *ret)
{
	const unsigned char *p = der, *end = der + size;
	X509_NAME *name;
	int ok = 0;

	if (!skip(&p, end, 2, true) || p == end)
		return false;
	if (!skip(&p, end, *p == 0xa0 ? 5 : 4, false)) /* a certificate of version 1 has no version */
		return false;
	name = d2i_X509_NAME(NULL, &p, end - p);
	if (name != NULL)
		*ret = X509_NAME_hash_ex(name, NULL, NULL, &ok);
	X509_NAME_free(name);
	return ok != 0;
}

static void make_index(struct trust *t)
{
	for (size_t i = 0; i < t->count && !t->indexed; i++) {
		cleanup_free unsigned char *der = NULL;
		size_t size;

		if (t->items[i].indexed)
			continue;
		size = trust_get(t, i, &der);
		t->items[i].indexed = find_subject(der, size, &t->items[i].subject);
	}
	t->indexed = true;
}

static void add_to_store(struct trust *t, size_t index)
{
	cleanup_free unsigned char *der = NULL;
	size_t size = trust_get(t, index, &der);
	const unsigned char *p = der;
	X509 *x = d2i_X509(NULL, &p, (long) size);

	t->items[index].decoded = true; /* a broken one is not tried again */
	if (x != NULL)
		(void) X509_STORE_add_cert(t->store, x);
	X509_free(x);
}

/* All certificates of that subject go into the store, from where the verifier takes them; it is handed one. It adds a reference
 * of its own to what it is handed, so ours is given back here: the store holds another. */
static int by_subject(X509_LOOKUP *lookup, X509_LOOKUP_TYPE type, const X509_NAME *name, X509_OBJECT *ret)
{
	struct trust *t = X509_LOOKUP_get_method_data(lookup);
	X509_OBJECT *found;
	unsigned long hash;
	X509 *x;
	int ok = 0;

	if (type != X509_LU_X509)
		return 0;
	make_index(t);
	hash = X509_NAME_hash_ex(name, NULL, NULL, &ok);
	for (size_t i = 0; i < t->count && ok != 0; i++)
		if (t->items[i].indexed && !t->items[i].decoded && t->items[i].subject == hash)
			add_to_store(t, i);
	found = X509_OBJECT_retrieve_by_subject(X509_STORE_get0_objects(t->store), type, name);
	x = found != NULL ? X509_OBJECT_get0_X509(found) : NULL;
	if (x == NULL || X509_OBJECT_set1_X509(ret, x) != 1)
		return 0;
	X509_free(x);
	return 1;
}

/* The last that OpenSSL does with the lookup and its method. */
static void store_is_gone(X509_LOOKUP *lookup)
{
	struct trust *t = X509_LOOKUP_get_method_data(lookup);

	if (t == NULL)
		return;
	t->store = NULL;
	if (t->released)
		t = trust_free(t);
}

int trust_attach(struct trust *t, X509_STORE *store)
{
	X509_LOOKUP *lookup;

	t->method = X509_LOOKUP_meth_new("trust store of the host");
	if (t->method == NULL || X509_LOOKUP_meth_set_get_by_subject(t->method, by_subject) != 1 ||
	    X509_LOOKUP_meth_set_free(t->method, store_is_gone) != 1)
		return -ENOMEM;
	lookup = X509_STORE_add_lookup(store, t->method);
	if (lookup == NULL || X509_LOOKUP_set_method_data(lookup, t) != 1)
		return -ENOMEM;
	t->store = store;
	return 0;
}
