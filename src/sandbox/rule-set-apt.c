/* @apt: the package sources of this host, in both of apt's formats, each by the path that its URI gives. Inside, apt gets the
 * same sources, keys and a configuration that works without a dpkg database and fails fast. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "sandbox/rule-sets-internal.h"

#define SOURCES "/etc/apt/sources.list"
#define SOURCES_PARTS "/etc/apt/sources.list.d"
#define INSIDE "/run/zwinger"

enum { PARTS_MAX = 256 };

struct apt {
	struct rule_set *s;
	struct buf lines;   /* of all .list files, without comments */
	struct buf stanzas; /* of all .sources files, without comments */
};

/* ---- One URI. ---- */

/* Sources that no connection leads to. */
static bool is_local(const char *uri)
{
	static const char *const local[] = {"cdrom:", "file:", "copy:"};

	for (size_t i = 0; i < ARRAY_SIZE(local); i++)
		if (strncasecmp(uri, local[i], strlen(local[i])) == 0)
			return true;
	return false;
}

static int add_uri(struct apt *a, const char *where, unsigned line, const char *uri, struct zw_error *e)
{
	cleanup_free char *what = xasprintf("%s:%u: the URI", where, line);
	cleanup_free char *below = NULL;
	struct source_url u;
	int r;

	if (is_local(uri))
		return 0;
	if (strstr(uri, "$(") != NULL)
		return zw_error(e, EINVAL, "%s has a variable ($(...)), which is not read here; write it out", what);
	r = rule_set_url(a->s, what, uri, &u, e);
	if (r < 0)
		return r;
	below = xasprintf("%s/**", u.path);
	return rule_set_allow(a->s, &u, NULL, below, e);
}

/* ---- sources.list: "deb [options] URI suite [component...]". ---- */

static int add_line(struct apt *a, const char *path, unsigned number, const char *line, struct zw_error *e)
{
	const char *p = line + strcspn(line, " \t");
	cleanup_free char *uri = NULL;

	if (!(p - line == 3 && strncmp(line, "deb", 3) == 0) && !(p - line == 7 && strncmp(line, "deb-src", 7) == 0))
		return zw_error(e, EINVAL, "%s:%u: expected deb or deb-src", path, number);
	p += strspn(p, " \t");
	if (*p == '[') {
		p = strchr(p, ']');
		if (p == NULL)
			return zw_error(e, EINVAL, "%s:%u: expected \"]\" behind the options", path, number);
		p++;
		p += strspn(p, " \t");
	}
	if (*p == '\0')
		return zw_error(e, EINVAL, "%s:%u: expected a URI", path, number);
	/* "cdrom:[Debian 12]/" is one word to apt although it has blanks. */
	uri = xstrndup(p, strcspn(p, " \t"));
	if (add_uri(a, path, number, uri, e) < 0)
		return -EINVAL;
	if (!is_local(uri) && buf_addf(&a->lines, "%s\n", line) < 0)
		return zw_error(e, E2BIG, "the package sources are more than %d bytes", RULE_SET_FILE_MAX);
	return 0;
}

static int read_list(struct apt *a, const char *path, struct zw_error *e)
{
	cleanup_free char *text = NULL;
	int r = rule_set_read(a->s, path, &text, e);
	char *rest = text;

	for (unsigned number = 1; r > 0; number++) {
		char *line = rule_set_line(&rest);

		if (line == NULL)
			break;
		line[strcspn(line, "#")] = '\0';
		line = rule_set_trim(line);
		if (line[0] != '\0' && add_line(a, path, number, line, e) < 0)
			r = -EINVAL;
	}
	return r < 0 ? r : 0;
}

/* ---- *.sources: stanzas of "Field: value", continued by lines that start with a blank. ---- */

struct stanza {
	struct buf text;
	char *uris;
	unsigned line; /* of the URIs */
	bool off, local_only;
};

static int add_uris(struct apt *a, const char *path, struct stanza *s, struct zw_error *e)
{
	char *at = s->uris;

	s->local_only = true;
	while (at != NULL) {
		char *uri = at + strspn(at, " \t\n");
		size_t size = strcspn(uri, " \t\n");

		at = uri[size] != '\0' ? uri + size + 1 : NULL;
		uri[size] = '\0';
		if (size == 0)
			continue;
		s->local_only = s->local_only && is_local(uri);
		if (add_uri(a, path, s->line, uri, e) < 0)
			return -EINVAL;
	}
	return 0;
}

static int end_stanza(struct apt *a, const char *path, struct stanza *s, struct zw_error *e)
{
	int r = 0;

	if (s->text.size > 0 && !s->off && s->uris == NULL)
		return zw_error(e, EINVAL, "%s: a source has no URIs", path);
	if (s->uris != NULL && !s->off) {
		r = add_uris(a, path, s, e);
		if (r == 0 && !s->local_only &&
		    (buf_add(&a->stanzas, s->text.data, s->text.size) < 0 || buf_adds(&a->stanzas, "\n") < 0))
			r = zw_error(e, E2BIG, "the package sources are more than %d bytes", RULE_SET_FILE_MAX);
	}
	buf_done(&s->text);
	free(s->uris);
	s->uris = NULL;
	s->off = false;
	return r;
}

static void append(char **text, const char *more)
{
	char *longer = xasprintf("%s\n%s", *text, more);

	free(*text);
	*text = longer;
}

static bool is_field(const char *line, const char *name)
{
	size_t size = strlen(name);

	return strncasecmp(line, name, size) == 0 && line[size] == ':';
}

/* `in_uris`: the field that a continuation belongs to is URIs. */
static int add_field(const char *path, unsigned number, struct stanza *s, char *line, bool *in_uris, struct zw_error *e)
{
	if (buf_addf(&s->text, "%s\n", line) < 0)
		return zw_error(e, E2BIG, "%s:%u: the source is too long", path, number);
	if (line[0] == ' ' || line[0] == '\t') {
		if (*in_uris)
			append(&s->uris, line);
		return 0;
	}
	if (strchr(line, ':') == NULL)
		return zw_error(e, EINVAL, "%s:%u: expected \"Field: value\"", path, number);
	*in_uris = is_field(line, "URIs");
	if (is_field(line, "Enabled")) {
		const char *value = rule_set_trim(line + sizeof "Enabled");

		s->off = strcasecmp(value, "no") == 0 || strcasecmp(value, "false") == 0 || strcmp(value, "0") == 0;
	}
	if (!*in_uris)
		return 0;
	free(s->uris);
	s->uris = xstrdup(line + sizeof "URIs");
	s->line = number;
	return 0;
}

static int read_sources(struct apt *a, const char *path, struct zw_error *e)
{
	struct stanza s = {.text = buf_new(RULE_SET_FILE_MAX)};
	cleanup_free char *text = NULL;
	int r = rule_set_read(a->s, path, &text, e);
	char *rest = text;
	bool in_uris = false;

	for (unsigned number = 1; r > 0; number++) {
		char *line = rule_set_line(&rest);

		if (line == NULL || line[strspn(line, " \t")] == '\0') {
			r = end_stanza(a, path, &s, e) < 0 ? -EINVAL : r;
			in_uris = false;
			if (line == NULL)
				break;
		} else if (line[0] != '#') {
			r = add_field(path, number, &s, line, &in_uris, e) < 0 ? -EINVAL : r;
		}
	}
	buf_done(&s.text);
	return r < 0 ? r : 0;
}

/* ---- All of them. ---- */

static bool has_end(const char *name, const char *end)
{
	size_t a = strlen(name), b = strlen(end);

	return a > b && strcmp(name + a - b, end) == 0;
}

/* apt(5): letters, digits, '_', '-' and '.' alone. */
static int is_part(const struct dirent *entry)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

	return strspn(entry->d_name, good) == strlen(entry->d_name) && entry->d_name[0] != '.' &&
	       (has_end(entry->d_name, ".list") || has_end(entry->d_name, ".sources"));
}

static int read_parts(struct apt *a, struct zw_error *e)
{
	cleanup_free char *folder = xasprintf("%s%s", a->s->from->root, SOURCES_PARTS);
	struct dirent **parts;
	int count = scandir(folder, &parts, is_part, alphasort), r = 0;

	for (int i = 0; i < count; i++) {
		cleanup_free char *path = xasprintf("%s/%s", SOURCES_PARTS, parts[i]->d_name);

		if (r == 0 && i == PARTS_MAX)
			r = zw_error(e, E2BIG, "%s has more than %d files", SOURCES_PARTS, PARTS_MAX);
		if (r == 0)
			r = has_end(path, ".list") ? read_list(a, path, e) : read_sources(a, path, e);
		free(parts[i]);
	}
	if (count >= 0)
		free(parts);
	return r;
}

/* A proxy that is set for apt: in any file of its configuration, "Acquire::http::Proxy" in one of the ways to write that. */
static int check_file_for_proxy(struct apt *a, const char *path, struct zw_error *e)
{
	cleanup_free char *text = NULL;
	int r = rule_set_read(a->s, path, &text, e);
	char *rest = text;

	for (unsigned number = 1; r > 0; number++) {
		char *line = rule_set_line(&rest), *value;

		if (line == NULL)
			break;
		line = rule_set_trim(line);
		if (line[0] == '#' || strncmp(line, "//", 2) == 0)
			continue;
		value = strcasestr(line, "proxy");
		value = value != NULL ? strchr(value, '"') : NULL;
		if (value == NULL || value[1] == '"' || strncasecmp(value + 1, "direct", 6) == 0 ||
		    strncasecmp(value + 1, "false", 5) == 0)
			continue;
		value = xasprintf("%s:%u", path, number);
		r = rule_set_no_proxy(value, e);
		free(value);
	}
	return r < 0 ? r : 0;
}

static int is_configuration(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && (strchr(entry->d_name, '.') == NULL || has_end(entry->d_name, ".conf"));
}

static int check_proxy(struct apt *a, struct zw_error *e)
{
	cleanup_free char *folder = xasprintf("%s/etc/apt/apt.conf.d", a->s->from->root);
	struct dirent **parts;
	int count = scandir(folder, &parts, is_configuration, alphasort);
	int r = check_file_for_proxy(a, "/etc/apt/apt.conf", e);

	for (int i = 0; i < count; i++) {
		cleanup_free char *path = xasprintf("/etc/apt/apt.conf.d/%s", parts[i]->d_name);

		if (r == 0)
			r = check_file_for_proxy(a, path, e);
		free(parts[i]);
	}
	if (count >= 0)
		free(parts);
	return r;
}

/* ---- Inside. ---- */

/* Folders of keys that sources refer to, when everybody may read them. */
static void show_keys(struct apt *a)
{
	static const char *const folders[] = {"/etc/apt/trusted.gpg.d", "/etc/apt/keyrings"};
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		cleanup_free char *path = xasprintf("%s%s", a->s->from->root, folders[i]);

		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 05) == 05)
			a->s->inside->binds[a->s->inside->bind_count++] = folders[i];
	}
}

/* The sandbox has no /var/lib/dpkg and one user: lists and packages go to /tmp/apt (apt makes that folder itself because of its
 * name), and apt does not become another user to fetch. /run/lock is a folder that is there and empty. */
static int define(struct apt *a, struct zw_error *e)
{
	static const char configuration[] =
	    "Dir::Etc::SourceList \"/dev/null\";\n"
	    "Dir::Etc::SourceParts \"" INSIDE "\";\n"
	    "Dir::Ignore-Files-Silently { \"^[^.]*$\"; \"\\.json$\"; \"\\.crt$\"; \"\\.conf$\"; };\n"
	    "Dir::Etc::Parts \"/run/lock\";\n"
	    "Dir::Etc::PreferencesParts \"/run/lock\";\n"
	    "Dir::State \"/tmp/apt\";\n"
	    "Dir::State::Status \"/dev/null\";\n"
	    "Dir::Cache \"/tmp/apt\";\n"
	    "APT::Sandbox::User \"\";\n"
	    "Acquire::Retries \"0\";\n"
	    "Acquire::http::Timeout \"15\";\n"
	    "Acquire::https::Timeout \"15\";\n";
	cleanup_buf struct buf text = buf_new(sizeof configuration);

	if (buf_adds(&text, configuration) < 0)
		return zw_error(e, E2BIG, "the configuration for apt is too long");
	rule_set_add_file(a->s, INSIDE "/apt.conf", &text);
	rule_set_add_file(a->s, INSIDE "/apt.list", &a->lines);
	rule_set_add_file(a->s, INSIDE "/apt.sources", &a->stanzas);
	rule_set_define(a->s, "APT_CONFIG", INSIDE "/apt.conf");
	show_keys(a);
	return 0;
}

static int collect(struct apt *a, struct zw_error *e)
{
	int r = check_proxy(a, e);

	if (r == 0)
		r = read_list(a, SOURCES, e);
	if (r == 0)
		r = read_parts(a, e);
	if (r < 0)
		return r;
	if (a->s->rule_count == 0)
		return zw_error(e, ENOENT,
				"no package source with http or https is in " SOURCES " or " SOURCES_PARTS " of this host");
	return define(a, e);
}

int rule_set_apt(struct rule_set *s, struct zw_error *e)
{
	struct apt a = {.s = s, .lines = buf_new(RULE_SET_FILE_MAX), .stanzas = buf_new(RULE_SET_FILE_MAX)};
	int r = collect(&a, e);

	buf_done(&a.lines);
	buf_done(&a.stanzas);
	return r;
}
