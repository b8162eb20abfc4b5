/* @pip: the package indexes that pip is configured for, in pip's own order, and the environment that makes pip inside use the
 * same ones and fail fast. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "sandbox/rule-sets-internal.h"

enum pip_option { PIP_INDEX, PIP_EXTRA, PIP_LINKS, PIP_NO_INDEX, PIP_PROXY, PIP_OPTIONS };

/* Within a file, [install] comes after [global]; across files, later files come after earlier ones within the same section. */
enum pip_section { PIP_GLOBAL, PIP_INSTALL, PIP_SECTIONS };

static const struct {
	const char *key, *variable;
} options[PIP_OPTIONS] = {
    [PIP_INDEX] = {"index-url", "PIP_INDEX_URL"},   [PIP_EXTRA] = {"extra-index-url", "PIP_EXTRA_INDEX_URL"},
    [PIP_LINKS] = {"find-links", "PIP_FIND_LINKS"}, [PIP_NO_INDEX] = {"no-index", "PIP_NO_INDEX"},
    [PIP_PROXY] = {"proxy", "PIP_PROXY"},
};

struct setting {
	char *value, *where; /* NULL: not set */
};

struct pip {
	struct rule_set *s;
	struct setting files[PIP_SECTIONS][PIP_OPTIONS];
	struct setting chosen[PIP_OPTIONS];
	char *index, *storage; /* pip's own default, NULL when it could not be asked */
	struct buf trusted;    /* hosts that speak http */
};

static void set(struct setting *at, const char *value, const char *where)
{
	free(at->value);
	free(at->where);
	*at = (struct setting){.value = xstrdup(value), .where = xstrdup(where)};
}

/* ---- Configuration files. ---- */

/* "Index_URL", "--index-url" and "index-url" are one key to pip. */
static int option_of(const char *key)
{
	if (strncmp(key, "--", 2) == 0)
		key += 2;
	for (int i = 0; i < PIP_OPTIONS; i++) {
		const char *a = key, *b = options[i].key;

		while (*a != '\0' && (*a == '_' ? '-' : *a | 0x20) == (*b | (*b == '-' ? 0 : 0x20))) {
			a++;
			b++;
		}
		if (*a == '\0' && *b == '\0')
			return i;
	}
	return -1;
}

struct ini {
	const char *path;
	unsigned line;
	int section;          /* PIP_SECTIONS: one that does not matter */
	struct setting *last; /* that a continuation line belongs to; NULL: none */
	bool started;         /* a key was seen in this section: a continuation is possible */
};

static int section_header(struct ini *in, char *line, struct zw_error *e)
{
	char *end = strchr(line, ']');

	if (end == NULL)
		return zw_error(e, EINVAL, "%s:%u: expected [section]", in->path, in->line);
	*end = '\0';
	in->section = strcmp(line + 1, "global") == 0    ? PIP_GLOBAL
		      : strcmp(line + 1, "install") == 0 ? PIP_INSTALL
							 : PIP_SECTIONS;
	in->last = NULL;
	in->started = false;
	return 0;
}

static int key_and_value(struct pip *p, struct ini *in, char *line, struct zw_error *e)
{
	char *split = strpbrk(line, "=:");
	int option;

	if (split == NULL)
		return zw_error(e, EINVAL, "%s:%u: expected key = value", in->path, in->line);
	if (in->section < 0)
		return zw_error(e, EINVAL, "%s:%u: expected a [section] before the first key", in->path, in->line);
	*split = '\0';
	option = option_of(rule_set_trim(line));
	in->started = true;
	in->last = NULL;
	if (option < 0 || in->section == PIP_SECTIONS)
		return 0;
	in->last = &p->files[in->section][option];
	set(in->last, rule_set_trim(split + 1), in->path);
	return 0;
}

static void continuation(struct ini *in, char *line)
{
	char *longer;

	if (in->last == NULL)
		return;
	longer = xasprintf("%s\n%s", in->last->value, rule_set_trim(line));
	free(in->last->value);
	in->last->value = longer;
}

/* As Python's configparser reads it. */
static int read_file(struct pip *p, const char *path, struct zw_error *e)
{
	struct ini in = {.path = path, .section = -1};
	cleanup_free char *text = NULL;
	char *rest, *line;
	int r = rule_set_read(p->s, path, &text, e);

	rest = text;
	while (r > 0) {
		line = rule_set_line(&rest);
		if (line == NULL)
			break;
		in.line++;
		if (line[strspn(line, " \t")] == '\0' || line[strspn(line, " \t")] == '#' || line[strspn(line, " \t")] == ';')
			continue;
		if ((line[0] == ' ' || line[0] == '\t') && in.started)
			continuation(&in, line);
		else if (line[strspn(line, " \t")] == '[')
			r = section_header(&in, rule_set_trim(line), e) < 0 ? -EINVAL : r;
		else
			r = key_and_value(p, &in, line, e) < 0 ? -EINVAL : r;
	}
	return r < 0 ? r : 0;
}

static int read_below(struct pip *p, const char *folder, const char *rest, struct zw_error *e)
{
	cleanup_free char *path = folder != NULL ? xasprintf("%s%s", folder, rest) : NULL;

	return path != NULL && path[0] == '/' ? read_file(p, path, e) : 0;
}

static int read_global(struct pip *p, struct zw_error *e)
{
	const char *folders = rule_set_variable(p->s, "XDG_CONFIG_DIRS");
	cleanup_free char *list = xstrdup(folders != NULL ? folders : "/etc/xdg");
	char *at = list;
	int r = 0;

	while (at != NULL && r == 0) {
		char *next = strchr(at, ':');

		if (next != NULL)
			*next++ = '\0';
		r = read_below(p, at, "/pip/pip.conf", e);
		at = next;
	}
	return r < 0 ? r : read_file(p, "/etc/pip.conf", e);
}

static int read_user(struct pip *p, struct zw_error *e)
{
	const char *home = rule_set_variable(p->s, "HOME"), *config = rule_set_variable(p->s, "XDG_CONFIG_HOME");
	int r = read_below(p, home, "/.pip/pip.conf", e);

	if (r < 0)
		return r;
	return config != NULL ? read_below(p, config, "/pip/pip.conf", e) : read_below(p, home, "/.config/pip/pip.conf", e);
}

/* PIP_CONFIG_FILE comes last and takes the place of the user's; /dev/null in it means no files at all. */
static int read_files(struct pip *p, struct zw_error *e)
{
	const char *named = rule_set_variable(p->s, "PIP_CONFIG_FILE");
	int r;

	if (named != NULL && strcmp(named, "/dev/null") == 0)
		return 0;
	r = read_global(p, e);
	if (r == 0 && named == NULL)
		r = read_user(p, e);
	if (r == 0)
		r = read_below(p, rule_set_variable(p->s, "VIRTUAL_ENV"), "/pip.conf", e);
	return r == 0 && named != NULL ? read_below(p, named, "", e) : r;
}

/* The environment, then [install], then [global]. */
static void choose(struct pip *p)
{
	for (int i = 0; i < PIP_OPTIONS; i++) {
		const char *value = rule_set_variable(p->s, options[i].variable);

		if (value != NULL) {
			set(&p->chosen[i], value, options[i].variable);
			continue;
		}
		for (int k = PIP_SECTIONS - 1; k >= 0 && p->chosen[i].value == NULL; k--)
			if (p->files[k][i].value != NULL)
				set(&p->chosen[i], p->files[k][i].value, p->files[k][i].where);
	}
}

/* ---- pip's own default. ---- */

/* Two lines: the simple index, and the host that keeps the files that its pages link to. */
static void ask_pip(struct pip *p)
{
	static const char code[] = "from pip._internal.models.index import PyPI\n"
				   "print(PyPI.simple_url)\n"
				   "print(PyPI.file_storage_domain)\n";
	static const char *const argv[] = {"python3", "-I", "-c", code, NULL};
	char answer[RULE_SET_ANSWER_MAX], *rest = answer, *index, *storage;

	if (rule_set_ask(p->s, argv, answer) < 0)
		return;
	index = rule_set_line(&rest);
	storage = rule_set_line(&rest);
	if (index == NULL || storage == NULL || !rule_set_is_web(index))
		return;
	p->index = xstrdup(index);
	p->storage = xasprintf("https://%s/", storage);
}

/* ---- Rules. ---- */

static int allow(struct pip *p, const struct source_url *u, const char *path, struct zw_error *e)
{
	if (!u->https && (buf_addf(&p->trusted, "%s%s:%u", p->trusted.size > 0 ? " " : "", u->host, u->port) < 0))
		return zw_error(e, E2BIG, "too many indexes");
	return rule_set_allow(p->s, u, NULL, path, e);
}

/* pip's own index by its path alone, with the host of its files; others as a whole, since their files lie where they like. */
static int allow_index(struct pip *p, const struct setting *from, const char *key, const char *url, struct zw_error *e)
{
	cleanup_free char *what = xasprintf("%s of pip (%s)", key, from->where);
	cleanup_free char *below = NULL;
	cleanup_free char *itself = NULL;
	struct source_url u, own, files;
	int r = rule_set_url(p->s, what, url, &u, e);

	if (r < 0)
		return r;
	if (p->index == NULL || rule_set_url(p->s, "the default index of pip", p->index, &own, NULL) < 0 ||
	    rule_set_url(p->s, "the file storage of pip", p->storage, &files, NULL) < 0 || strcmp(own.host, u.host) != 0 ||
	    own.port != u.port || own.https != u.https)
		return allow(p, &u, NULL, e);
	below = xasprintf("%s/**", u.path);
	itself = xasprintf("%s", u.path[0] != '\0' ? u.path : "/");
	r = allow(p, &u, below, e);
	if (r == 0)
		r = allow(p, &u, itself, e);
	return r == 0 ? allow(p, &files, NULL, e) : r;
}

/* A list in one value, separated by white space. Paths of the host are left out of what is said inside: they mean nothing there.
 */
static int allow_list(struct pip *p, enum pip_option option, struct buf *inside, struct zw_error *e)
{
	const struct setting *from = &p->chosen[option];
	cleanup_free char *list = from->value != NULL ? xstrdup(from->value) : NULL;
	char *at = list;
	int r = 0;

	while (at != NULL && r == 0) {
		char *url = at + strspn(at, " \t\r\n");
		size_t size = strcspn(url, " \t\r\n");

		at = url[size] != '\0' ? url + size + 1 : NULL;
		url[size] = '\0';
		if (size == 0 || (option == PIP_LINKS && !rule_set_is_web(url)))
			continue;
		r = allow_index(p, from, options[option].key, url, e);
		if (r == 0 && buf_addf(inside, "%s%s", inside->size > 0 ? " " : "", url) < 0)
			r = zw_error(e, E2BIG, "%s of pip (%s) is too long", options[option].key, from->where);
	}
	return r;
}

static int define_list(struct pip *p, enum pip_option option, struct zw_error *e)
{
	cleanup_buf struct buf inside = buf_new(RULE_SET_FILE_MAX);
	int r = allow_list(p, option, &inside, e);

	if (r == 0 && inside.size > 0)
		rule_set_define(p->s, options[option].variable, inside.data);
	return r;
}

static bool is_yes(const char *value)
{
	static const char *const words[] = {"1", "y", "yes", "t", "true", "on"};

	for (size_t i = 0; value != NULL && i < ARRAY_SIZE(words); i++)
		if (strcasecmp(value, words[i]) == 0)
			return true;
	return false;
}

static int use_indexes(struct pip *p, struct zw_error *e)
{
	struct setting *index = &p->chosen[PIP_INDEX];
	int r;

	if (is_yes(p->chosen[PIP_NO_INDEX].value)) {
		rule_set_define(p->s, "PIP_NO_INDEX", "1");
		return 0;
	}
	if (index->value == NULL && p->index == NULL)
		return zw_error(
		    e, ENOENT,
		    "pip has no index configured, and no pip is installed on this host to ask for its own: set PIP_INDEX_URL");
	if (index->value == NULL)
		set(index, p->index, "its own default");
	r = define_list(p, PIP_INDEX, e);
	return r == 0 ? define_list(p, PIP_EXTRA, e) : r;
}

static int collect(struct pip *p, struct zw_error *e)
{
	int r = read_files(p, e);

	if (r < 0)
		return r;
	choose(p);
	if (p->chosen[PIP_PROXY].value != NULL && p->chosen[PIP_PROXY].value[0] != '\0') {
		cleanup_free char *what = xasprintf("proxy of pip (%s)", p->chosen[PIP_PROXY].where);

		return rule_set_no_proxy(what, e);
	}
	ask_pip(p);
	r = use_indexes(p, e);
	if (r == 0)
		r = define_list(p, PIP_LINKS, e);
	if (r < 0)
		return r;
	if (p->s->rule_count == 0)
		return zw_error(e, EINVAL,
				"pip is configured to use no index (no-index) and no links elsewhere: there is nothing to allow");
	if (p->trusted.size > 0)
		rule_set_define(p->s, "PIP_TRUSTED_HOST", p->trusted.data);
	rule_set_define(p->s, "PIP_RETRIES", "0");
	rule_set_define(p->s, "PIP_DEFAULT_TIMEOUT", "15");
	rule_set_define(p->s, "PIP_DISABLE_PIP_VERSION_CHECK", "1");
	rule_set_define(p->s, "PIP_NO_INPUT", "1");
	return 0;
}

static void settings_done(struct setting *settings)
{
	for (int i = 0; i < PIP_OPTIONS; i++) {
		free(settings[i].value);
		free(settings[i].where);
	}
}

int rule_set_pip(struct rule_set *s, struct zw_error *e)
{
	struct pip p = {.s = s, .trusted = buf_new(RULE_SET_ANSWER_MAX)};
	int r = collect(&p, e);

	settings_done(p.files[PIP_GLOBAL]);
	settings_done(p.files[PIP_INSTALL]);
	settings_done(p.chosen);
	buf_done(&p.trusted);
	free(p.index);
	free(p.storage);
	return r;
}
