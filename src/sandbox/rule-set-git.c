/* @git-https: fetching from the https remotes (and submodules) of the workspace, not pushing to them. A repository is asked for
 * by GET PATH/info/refs and POST PATH/git-upload-pack, or, where the server is a plain file server, by GET below PATH/objects. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/rule-sets-internal.h"

enum { REMOTES_MAX = 128, REWRITES_MAX = 128, NAME_MAX_BYTES = 1024 };

struct remote {
	char *url, *where;
};

/* url.BASE.insteadOf: what starts with `prefix` is read as if it started with `base`. */
struct rewrite {
	char *prefix, *base;
	bool outside; /* from a file that is not in the workspace: git inside does not see it */
};

struct git {
	struct rule_set *s;
	struct remote remotes[REMOTES_MAX];
	size_t remote_count;
	struct rewrite rewrites[REWRITES_MAX];
	size_t rewrite_count;
	bool outside; /* the file that is being read is not in the workspace */
};

/* ---- Configuration files: git-config(1), "Syntax". ---- */

struct reader {
	const char *path, *at;
	unsigned line;
	char section[64], subsection[NAME_MAX_BYTES], key[64], value[RULE_SET_URL_MAX];
	bool cut; /* the value, or a name before it, is longer than anything that is looked for */
};

static int wrong(const struct reader *in, struct zw_error *e)
{
	return zw_error(e, EINVAL, "%s:%u: this is no git configuration that can be read here", in->path, in->line);
}

static bool is_name_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

/* Letters, digits, '-' and '.'; in lower case, as much as there is room for. False when there is none. */
static bool read_name(struct reader *in, char *ret, size_t room)
{
	size_t n = 0;

	for (; is_name_byte(*in->at); in->at++) {
		char c = *in->at;

		if (n + 1 < room)
			ret[n++] = c >= 'A' && c <= 'Z' ? (char) (c | 0x20) : c;
		else
			in->cut = true;
	}
	ret[n] = '\0';
	return n > 0;
}

static void skip_blanks(struct reader *in)
{
	in->at += strspn(in->at, " \t\r");
}

/* [section], [section "Sub \"section\\"] */
static bool read_header(struct reader *in)
{
	size_t n = 0;

	in->at++;
	in->subsection[0] = '\0';
	if (!read_name(in, in->section, sizeof in->section))
		return false;
	skip_blanks(in);
	if (*in->at == '"') {
		for (in->at++; *in->at != '"'; in->at++) {
			if (*in->at == '\\')
				in->at++;
			if (*in->at == '\0' || *in->at == '\n' || n + 1 == sizeof in->subsection)
				return false;
			in->subsection[n++] = *in->at;
		}
		in->at++;
		in->subsection[n] = '\0';
	}
	return *in->at++ == ']';
}

static char escape_of(char c)
{
	return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'b' ? '\b' : c == '"' || c == '\\' ? c : '\0';
}

/* Up to the end of the line; quotes keep blanks and comment signs, a backslash at the end continues. */
static bool read_value(struct reader *in)
{
	bool quoted = false;
	size_t n = 0, kept = 0; /* what is behind `kept` are blanks, which count only when something follows */

	for (; *in->at != '\0' && *in->at != '\n'; in->at++) {
		char c = *in->at;

		if (!quoted && (c == '#' || c == ';')) {
			in->at += strcspn(in->at, "\n");
			break;
		}
		if (c == '"') {
			quoted = !quoted;
			continue;
		}
		if (c == '\\' && in->at[1] == '\n') {
			in->at++;
			in->line++;
			continue;
		}
		if (c == '\\') {
			c = escape_of(*++in->at);
			if (c == '\0')
				return false;
		}
		if (n + 1 == sizeof in->value) {
			in->cut = true;
			continue;
		}
		in->value[n++] = c;
		if (quoted || strchr(" \t\r", c) == NULL)
			kept = n;
	}
	in->value[kept] = '\0';
	return !quoted;
}

/* 1: key and value of `in` are the next setting; 0: the end. */
static int next_setting(struct reader *in, struct zw_error *e)
{
	for (;;) {
		in->at += strspn(in->at, " \t\r");
		if (*in->at == '\0')
			return 0;
		if (*in->at == '\n') {
			in->at++;
			in->line++;
		} else if (*in->at == '#' || *in->at == ';') {
			in->at += strcspn(in->at, "\n");
		} else if (*in->at == '[') {
			if (!read_header(in))
				return wrong(in, e);
		} else {
			in->cut = false;
			if (in->section[0] == '\0' || !read_name(in, in->key, sizeof in->key))
				return wrong(in, e);
			skip_blanks(in);
			in->value[0] = '\0';
			if (*in->at == '\0' || *in->at == '\n')
				return 1; /* a key alone: true */
			if (*in->at++ != '=')
				return wrong(in, e);
			skip_blanks(in);
			return read_value(in) ? 1 : wrong(in, e);
		}
	}
}

/* ---- What is looked for. ---- */

static int add_remote(struct git *g, const struct reader *in, struct zw_error *e)
{
	if (g->remote_count == REMOTES_MAX)
		return zw_error(e, E2BIG, "%s has more than %d remotes; name those that are needed in rules", in->path,
				REMOTES_MAX);
	g->remotes[g->remote_count++] = (struct remote){
	    .url = xstrdup(in->value), .where = xasprintf("url of %s %.100s in %s", in->section, in->subsection, in->path)};
	return 0;
}

static int add_rewrite(struct git *g, const struct reader *in, struct zw_error *e)
{
	if (g->rewrite_count == REWRITES_MAX)
		return zw_error(e, E2BIG, "%s: more than %d url.*.insteadOf are set", in->path, REWRITES_MAX);
	g->rewrites[g->rewrite_count++] =
	    (struct rewrite){.prefix = xstrdup(in->value), .base = xstrdup(in->subsection), .outside = g->outside};
	return 0;
}

static int note(struct git *g, const struct reader *in, struct zw_error *e)
{
	bool has_url;

	if (in->cut) /* an alias, perhaps; no URL that can be used is so long */
		return 0;
	has_url = strcmp(in->section, "remote") == 0 || strcmp(in->section, "submodule") == 0;

	if ((strcmp(in->section, "http") == 0 || strcmp(in->section, "remote") == 0) && strcmp(in->key, "proxy") == 0 &&
	    in->value[0] != '\0') {
		cleanup_free char *what = xasprintf("%s.proxy in %s", in->section, in->path);

		return rule_set_no_proxy(what, e);
	}
	if (has_url && in->subsection[0] != '\0' && strcmp(in->key, "url") == 0 && !g->outside)
		return add_remote(g, in, e);
	if (strcmp(in->section, "url") == 0 && strcmp(in->key, "insteadof") == 0 && in->value[0] != '\0')
		return add_rewrite(g, in, e);
	return 0;
}

static int read_text(struct git *g, const char *path, const char *text, struct zw_error *e)
{
	struct reader *in = xcalloc(1, sizeof *in);
	int r;

	in->path = path;
	in->at = text;
	in->line = 1;
	for (;;) {
		r = next_setting(in, e);
		if (r > 0 && note(g, in, e) < 0)
			r = -EINVAL;
		if (r <= 0)
			break;
	}
	free(in);
	return r;
}

/* ---- Files. ---- */

static int read_outside(struct git *g, const char *folder, const char *rest, struct zw_error *e)
{
	cleanup_free char *path = folder != NULL ? xasprintf("%s%s", folder, rest) : NULL;
	cleanup_free char *text = NULL;
	int r = path != NULL && path[0] == '/' ? rule_set_read(g->s, path, &text, e) : 0;

	return r > 0 ? read_text(g, path, text, e) : r;
}

static int read_users(struct git *g, struct zw_error *e)
{
	const char *home = rule_set_variable(g->s, "HOME"), *config = rule_set_variable(g->s, "XDG_CONFIG_HOME");
	int r;

	g->outside = true;
	r = read_outside(g, "/etc", "/gitconfig", e);
	if (r == 0)
		r = config != NULL ? read_outside(g, config, "/git/config", e) : read_outside(g, home, "/.config/git/config", e);
	if (r == 0)
		r = read_outside(g, home, "/.gitconfig", e);
	g->outside = false;
	return r;
}

/* Code of earlier runs may have written here: no link is followed, so that what is read is the workspace's own. */
static int open_config(const char *workspace, struct zw_error *e)
{
	cleanup_fd int folder = open(workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int git = -EBADF;
	int fd;

	if (folder < 0)
		return zw_errno(e, errno, "cannot open the workspace %s", workspace);
	git = openat(folder, ".git", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (git < 0 && (errno == ENOTDIR || errno == ELOOP))
		return zw_error(
		    e, EINVAL,
		    "%s/.git leads elsewhere (a worktree, a submodule or a link), where no remotes are looked for; name the "
		    "repository in a rule",
		    workspace);
	fd = git < 0 ? -1 : openat(git, "config", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return zw_error(e, ENOENT, "the workspace %s is no git repository (it has no .git/config)", workspace);
	return fd < 0 ? zw_errno(e, errno, "cannot open %s/.git/config", workspace) : fd;
}

static int read_workspace(struct git *g, const char *path, struct zw_error *e)
{
	cleanup_fd int fd = open_config(g->s->from->workspace, e);
	cleanup_free char *text = NULL;
	size_t size;
	int r;

	if (fd < 0)
		return fd;
	r = fd_read_all(fd, RULE_SET_FILE_MAX, &text, &size);
	if (r < 0)
		return zw_errno(e, -r, "cannot read %s", path);
	if (memchr(text, '\0', size) != NULL)
		return zw_error(e, EINVAL, "%s has a NUL byte in it: a text was expected", path);
	return read_text(g, path, text, e);
}

/* ---- Rules. ---- */

/* The longest prefix wins. */
static const struct rewrite *rewrite_for(const struct git *g, const char *url)
{
	const struct rewrite *best = NULL;

	for (size_t i = 0; i < g->rewrite_count; i++) {
		const struct rewrite *r = &g->rewrites[i];
		size_t size = strlen(r->prefix);

		if (strncmp(url, r->prefix, size) == 0 && (best == NULL || size > strlen(best->prefix)))
			best = r;
	}
	return best;
}

static int allow_below(struct git *g, const struct source_url *u, const char *path, struct zw_error *e)
{
	static const char *const parts[][2] = {
	    {"GET", "info/refs"}, {"GET", "HEAD"}, {"GET", "objects/**"}, {"POST", "git-upload-pack"}};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		cleanup_free char *part = xasprintf("%s/%s", path, parts[i][1]);
		int r = rule_set_allow(g->s, u, parts[i][0], part, e);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Some servers lead PATH to PATH.git. */
static int allow(struct git *g, const struct remote *remote, const char *url, struct zw_error *e)
{
	struct source_url u;
	int r = rule_set_url(g->s, remote->where, url, &u, e);
	size_t size;

	if (r < 0)
		return r;
	size = strlen(u.path);
	r = allow_below(g, &u, u.path, e);
	if (r == 0 && size > 0 && !(size > 4 && strcmp(u.path + size - 4, ".git") == 0)) {
		cleanup_free char *longer = xasprintf("%s.git", u.path);

		r = allow_below(g, &u, longer, e);
	}
	return r;
}

static bool is_https(const char *url)
{
	return strncasecmp(url, "https://", 8) == 0;
}

static int allow_all(struct git *g, const char *path, struct zw_error *e)
{
	for (size_t i = 0; i < g->remote_count; i++) {
		const struct remote *remote = &g->remotes[i];
		const struct rewrite *rewrite = rewrite_for(g, remote->url);
		cleanup_free char *url = rewrite != NULL ? xasprintf("%s%s", rewrite->base, remote->url + strlen(rewrite->prefix))
							 : xstrdup(remote->url);

		if (is_https(url) && allow(g, remote, url, e) < 0)
			return -EINVAL;
	}
	if (g->s->rule_count == 0)
		return zw_error(e, ENOENT, "%s names no remote with https; others (ssh, git, http) need a rule of their own",
				path);
	return 0;
}

/* git inside reads no configuration of this host: what leads to https is told by its environment. */
static void define_rewrites(struct git *g)
{
	unsigned count = 0;

	for (size_t i = 0; i < g->rewrite_count; i++) {
		cleanup_free char *key = xasprintf("GIT_CONFIG_KEY_%u", count);
		cleanup_free char *value = xasprintf("GIT_CONFIG_VALUE_%u", count);
		cleanup_free char *name = xasprintf("url.%s.insteadof", g->rewrites[i].base);

		if (!g->rewrites[i].outside || !is_https(g->rewrites[i].base) || strchr(g->rewrites[i].base, '@') != NULL)
			continue;
		rule_set_define(g->s, key, name);
		rule_set_define(g->s, value, g->rewrites[i].prefix);
		count++;
	}
	if (count > 0) {
		cleanup_free char *text = xasprintf("%u", count);

		rule_set_define(g->s, "GIT_CONFIG_COUNT", text);
	}
}

static int collect(struct git *g, struct zw_error *e)
{
	const char *workspace = g->s->from->workspace;
	cleanup_free char *path = NULL;
	int r;

	if (workspace == NULL)
		return zw_error(e, EINVAL, "it opens the remotes of the workspace, and there is none; give filesystem.workspace");
	path = xasprintf("%s/.git/config", workspace);
	r = read_users(g, e);
	if (r == 0)
		r = read_workspace(g, path, e);
	if (r == 0)
		r = allow_all(g, path, e);
	if (r < 0)
		return r;
	define_rewrites(g);
	rule_set_define(g->s, "GIT_TERMINAL_PROMPT", "0");
	rule_set_define(g->s, "GIT_HTTP_LOW_SPEED_LIMIT", "1");
	rule_set_define(g->s, "GIT_HTTP_LOW_SPEED_TIME", "15");
	return 0;
}

int rule_set_git(struct rule_set *s, struct zw_error *e)
{
	struct git *g = xcalloc(1, sizeof *g);
	int r;

	g->s = s;
	r = collect(g, e);
	for (size_t i = 0; i < g->remote_count; i++) {
		free(g->remotes[i].url);
		free(g->remotes[i].where);
	}
	for (size_t i = 0; i < g->rewrite_count; i++) {
		free(g->rewrites[i].prefix);
		free(g->rewrites[i].base);
	}
	free(g);
	return r;
}
