#include "daemon/e2b/multipart.h"

#include <event2/buffer.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

enum { STATE_BEGIN, STATE_MARKED, STATE_HEAD, STATE_CONTENT, STATE_END, STATE_BAD };

/* ---- Parameters of a field: ; name=value; name="value". ---- */

static const char *skip_blanks(const char *p)
{
	return p + strspn(p, " \t");
}

static bool has_prefix(const char *p, const char *word)
{
	return strncmp(p, word, strlen(word)) == 0;
}

/* What browsers write for a quote and for the ends of lines, and what others do with a backslash. */
static size_t unquote_one(const char *p, char *ret)
{
	if (p[0] == '\\' && (p[1] == '"' || p[1] == '\\')) {
		*ret = p[1];
		return 2;
	}
	if (has_prefix(p, "%22") || has_prefix(p, "%0D") || has_prefix(p, "%0A")) {
		*ret = (char) (p[1] == '2' ? '"' : p[2] == 'D' ? '\r' : '\n');
		return 3;
	}
	*ret = p[0];
	return 1;
}

/* The value at `p` into `ret` (cut: false). Where it ends, NULL when it is none. */
static const char *read_value(const char *p, char *ret, size_t size)
{
	size_t used = 0;

	if (*p != '"') {
		size_t n = strcspn(p, "; \t\r\n");

		if (n == 0 || n >= size)
			return NULL;
		memcpy(ret, p, n);
		ret[n] = '\0';
		return p + n;
	}
	for (p++; *p != '"'; used++) {
		if (*p == '\0' || *p == '\r' || *p == '\n' || used + 1 >= size)
			return NULL;
		p += unquote_one(p, &ret[used]);
	}
	ret[used] = '\0';
	return p + 1;
}

/* The parameter `name` of the field, at most `size` - 1 bytes: 1 found, 0 not there, -1 the field is malformed. */
static int find_parameter(const char *field, const char *name, char *ret, size_t size)
{
	char ignored[MULTIPART_FILENAME_SIZE];
	size_t n = strlen(name);
	const char *p = field + strcspn(field, ";\r\n");

	while (*p == ';') {
		size_t word;
		bool wanted;

		p = skip_blanks(p + 1);
		word = strcspn(p, "=; \t\r\n\"");
		if (p[word] != '=')
			return word == 0 && (*p == '\0' || *p == '\r') ? 0 : -1;
		wanted = word == n && strncasecmp(p, name, n) == 0;
		p = read_value(p + word + 1, wanted ? ret : ignored, wanted ? size : sizeof ignored);
		if (p == NULL)
			return -1;
		if (wanted)
			return 1;
		p = skip_blanks(p);
	}
	return *p == '\0' || *p == '\r' ? 0 : -1;
}

bool multipart_begin(struct multipart *m, const char *content_type)
{
	static const char type[] = "multipart/form-data";

	*m = (struct multipart){0};
	if (content_type == NULL || strncasecmp(content_type, type, sizeof type - 1) != 0 ||
	    strchr("; \t", content_type[sizeof type - 1]) == NULL)
		return false;
	memcpy(m->mark, "\r\n--", 4);
	if (find_parameter(content_type, "boundary", m->mark + 4, sizeof m->mark - 4) != 1)
		return false;
	m->mark_size = strlen(m->mark);
	return m->mark_size > 4 && strpbrk(m->mark + 4, "\r\n") == NULL;
}

/* ---- One part's head. ---- */

/* `text` has lines, each with its CRLF. */
static bool read_head(struct multipart *m, const char *text)
{
	static const char field[] = "content-disposition:";
	char kind[16];
	const char *p;

	m->name[0] = m->filename[0] = '\0';
	while (*text != '\0' && strncasecmp(text, field, sizeof field - 1) != 0) {
		text = strstr(text, "\r\n");
		if (text == NULL)
			return false;
		text += 2;
	}
	if (*text == '\0')
		return false;
	p = skip_blanks(text + sizeof field - 1);
	if (read_value(p, kind, sizeof kind) == NULL || strcasecmp(kind, "form-data") != 0)
		return false;
	return find_parameter(p, "name", m->name, sizeof m->name) == 1 &&
	       find_parameter(p, "filename", m->filename, sizeof m->filename) >= 0;
}

static enum multipart_event bad(struct multipart *m)
{
	m->state = STATE_BAD;
	return MULTIPART_BAD;
}

static enum multipart_event take_head(struct multipart *m, struct evbuffer *in)
{
	struct evbuffer_ptr at = evbuffer_search(in, "\r\n\r\n", 4, NULL);
	cleanup_free char *text = NULL;
	size_t size;

	if (at.pos < 0)
		return evbuffer_get_length(in) > MULTIPART_HEAD_MAX ? bad(m) : MULTIPART_MORE;
	if (at.pos > MULTIPART_HEAD_MAX)
		return bad(m);
	size = (size_t) at.pos + 2;
	text = xcalloc(size + 1, 1);
	(void) evbuffer_remove(in, text, size);
	(void) evbuffer_drain(in, 2);
	if (strlen(text) != size || !read_head(m, text))
		return bad(m);
	m->state = STATE_CONTENT;
	return MULTIPART_PART;
}

/* ---- Its content, up to the next mark. ---- */

static enum multipart_event take_content(struct multipart *m, struct evbuffer *in, struct evbuffer *out)
{
	struct evbuffer_ptr at = evbuffer_search(in, m->mark, m->mark_size, NULL);
	size_t have = evbuffer_get_length(in);
	/* What may be the beginning of a mark stays. */
	size_t n = at.pos >= 0 ? (size_t) at.pos : have >= m->mark_size ? have - m->mark_size + 1 : 0;

	if (at.pos == 0) {
		(void) evbuffer_drain(in, m->mark_size);
		m->state = STATE_MARKED;
		return MULTIPART_PART_END;
	}
	if (n == 0)
		return MULTIPART_MORE;
	return evbuffer_remove_buffer(in, out, n) >= 0 ? MULTIPART_DATA : bad(m);
}

static enum multipart_event take_marked(struct multipart *m, struct evbuffer *in)
{
	char two[2];

	if (evbuffer_copyout(in, two, sizeof two) < (ev_ssize_t) sizeof two)
		return MULTIPART_MORE;
	if (memcmp(two, "--", 2) == 0) {
		m->state = STATE_END;
		(void) evbuffer_drain(in, evbuffer_get_length(in));
		return MULTIPART_END;
	}
	if (memcmp(two, "\r\n", 2) != 0)
		return bad(m);
	(void) evbuffer_drain(in, 2);
	m->state = STATE_HEAD;
	return take_head(m, in);
}

enum multipart_event multipart_next(struct multipart *m, struct evbuffer *in, struct evbuffer *out)
{
	char first[sizeof m->mark];

	switch (m->state) {
	case STATE_BEGIN:
		if (evbuffer_copyout(in, first, m->mark_size - 2) < (ev_ssize_t) m->mark_size - 2)
			return MULTIPART_MORE;
		if (memcmp(first, m->mark + 2, m->mark_size - 2) != 0)
			return bad(m);
		(void) evbuffer_drain(in, m->mark_size - 2);
		m->state = STATE_MARKED;
		return take_marked(m, in);
	case STATE_MARKED:
		return take_marked(m, in);
	case STATE_HEAD:
		return take_head(m, in);
	case STATE_CONTENT:
		return take_content(m, in, out);
	case STATE_END:
		(void) evbuffer_drain(in, evbuffer_get_length(in));
		return MULTIPART_END;
	default:
		return MULTIPART_BAD;
	}
}
