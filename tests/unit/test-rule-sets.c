/* Rule sets: which rules follow from the configuration of a client, in the client's own order; what is refused, and what it is
 * that code inside is told. Every file and client is the test's own. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "policy/network.h"
#include "sandbox/rule-sets.h"

enum { VARIABLES_MAX = 16 };

struct world {
	char root[64];
	char *variables[VARIABLES_MAX + 1];
	size_t variable_count;
	char *search, *workspace;
	struct network network;
	struct rule_set_inside inside;
	struct zw_error e;
};

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	(void) snprintf(w->root, sizeof w->root, "/tmp/zwinger-test-rules.XXXXXX");
	assert_non_null(mkdtemp(w->root));
	w->search = xasprintf("%s/bin", w->root);
	w->workspace = xasprintf("%s/work", w->root);
	*state = w;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void) st;
	(void) type;
	(void) ftw;
	return remove(path);
}

static void forget(struct world *w)
{
	network_done(&w->network);
	rule_set_inside_done(&w->inside);
	w->e = (struct zw_error){0};
}

static int tear_down(void **state)
{
	struct world *w = *state;

	forget(w);
	(void) nftw(w->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	for (size_t i = 0; i < w->variable_count; i++)
		free(w->variables[i]);
	free(w->search);
	free(w->workspace);
	free(w);
	return 0;
}

static void set(struct world *w, const char *name, const char *value)
{
	assert_true(w->variable_count < VARIABLES_MAX);
	w->variables[w->variable_count++] = xasprintf("%s=%s", name, value);
}

static void unset_all(struct world *w)
{
	while (w->variable_count > 0) {
		free(w->variables[--w->variable_count]);
		w->variables[w->variable_count] = NULL;
	}
}

static void write_file(const struct world *w, const char *path, const char *text, mode_t mode)
{
	cleanup_free char *whole = xasprintf("%s%s", w->root, path);
	int fd;

	for (char *p = whole + strlen(w->root) + 1; (p = strchr(p, '/')) != NULL; p++) {
		*p = '\0';
		(void) mkdir(whole, 0755);
		*p = '/';
	}
	(void) unlink(whole);
	fd = open(whole, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	fd_close(&fd);
}

static int collect(struct world *w, const char *preset)
{
	struct rule_set_source from = {
	    .environment = w->variables, .root = w->root, .search = w->search, .workspace = w->workspace};

	forget(w);
	return rule_set_collect(preset, "label", &from, &w->network, &w->inside, &w->e);
}

static char *join(const struct strv *v, bool has)
{
	char *text = xstrdup(has ? "" : " *");

	for (size_t i = 0; i < v->count; i++) {
		char *longer = xasprintf("%s %s", text, v->items[i]);

		free(text);
		text = longer;
	}
	return text;
}

/* "https a.test 443 GET /simple" a line; a star stands for any path. */
static void expect_rules(struct world *w, const char *preset, const char *wanted)
{
	int r = collect(w, preset);
	cleanup_free char *have = xstrdup("");

	if (r < 0)
		fail_msg("%s", w->e.text);
	for (size_t i = 0; i < w->network.rule_count; i++) {
		const struct network_rule *rule = &w->network.rules[i];
		cleanup_free char *methods = join(&rule->methods, rule->has_methods);
		cleanup_free char *paths = join(&rule->paths, rule->has_paths);
		char address[NET_ADDRESS_TEXT], *longer;

		longer = xasprintf("%s%s %s %u%s%s\n", have, rule->protocol == NET_HTTPS ? "https" : "http",
				   rule->pattern != NULL ? rule->pattern : network_address_text(&rule->prefix.address, address),
				   rule->ports[0].first, methods, paths);
		free(have);
		have = longer;
		assert_string_equal(rule->label, "label");
	}
	assert_string_equal(have, wanted);
}

static void expect_fault(struct world *w, const char *preset, const char *part)
{
	assert_true(collect(w, preset) < 0);
	if (strstr(w->e.text, part) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", w->e.text, part);
	assert_int_equal(w->inside.variable_count, 0);
}

static void expect_variable(const struct world *w, const char *name, const char *value)
{
	const char *have = NULL;

	for (size_t i = 0; i < w->inside.variable_count; i++)
		if (strcmp(w->inside.variables[i].name, name) == 0)
			have = w->inside.variables[i].value;
	if (value == NULL)
		assert_null(have);
	else if (have == NULL)
		fail_msg("%s is not set", name);
	else
		assert_string_equal(have, value);
}

static const char *file_inside(const struct world *w, const char *path)
{
	for (size_t i = 0; i < w->inside.file_count; i++)
		if (strcmp(w->inside.files[i].path, path) == 0)
			return w->inside.files[i].data;
	fail_msg("%s is not made", path);
	return NULL;
}

/* ---- pip. ---- */

static void install_pip(const struct world *w)
{
	write_file(w, "/bin/python3", "#!/bin/sh\necho https://index.test/simple\necho files.test\n", 0755);
}

static void pip_is_asked_for_its_own_index(void **state)
{
	struct world *w = *state;

	install_pip(w);
	expect_rules(w, "@pip", "https index.test 443 GET /simple/** /simple\nhttps files.test 443 GET *\n");
	expect_variable(w, "PIP_INDEX_URL", "https://index.test/simple");
	expect_variable(w, "PIP_RETRIES", "0");
	expect_variable(w, "PIP_EXTRA_INDEX_URL", NULL);
	assert_int_equal(w->network.rules[0].request_max, 0);
}

static void pip_configuration_is_read_in_pips_order(void **state)
{
	struct world *w = *state;

	write_file(w, "/etc/pip.conf",
		   "[global]\nindex-url = https://global.test/s\nextra-index-url =\n  https://e1.test/x\n\n  https://e2.test/\n",
		   0644);
	set(w, "HOME", "/home/u");
	set(w, "HOMELESS", "1");
	expect_rules(w, "@pip", "https global.test 443 GET *\nhttps e1.test 443 GET *\nhttps e2.test 443 GET *\n");
	expect_variable(w, "PIP_EXTRA_INDEX_URL", "https://e1.test/x https://e2.test/");
	write_file(w, "/home/u/.config/pip/pip.conf",
		   "# mine\n[global]\nIndex_URL: https://user.test:8443/s/\nextra-index-url=\n", 0644);
	expect_rules(w, "@pip", "https user.test 8443 GET *\n");
	write_file(w, "/etc/pip.conf", "[install]\nindex-url = https://install.test/\n[download]\nindex-url = https://no.test\n",
		   0644);
	expect_rules(w, "@pip", "https install.test 443 GET *\n"); /* [install] beats [global], wherever that stands */
	set(w, "VIRTUAL_ENV", "/venv");
	write_file(w, "/venv/pip.conf", "[install]\nindex-url = https://venv.test\n", 0644);
	expect_rules(w, "@pip", "https venv.test 443 GET *\n");
	set(w, "PIP_INDEX_URL", "https://env.test");
	expect_rules(w, "@pip", "https env.test 443 GET *\n");
	unset_all(w);
	set(w, "HOME", "/home/u");
	set(w, "PIP_CONFIG_FILE", "/named.conf");
	write_file(w, "/named.conf", "[global]\nindex-url = https://named.test\n", 0644);
	write_file(w, "/etc/pip.conf", "", 0644);
	expect_rules(w, "@pip", "https named.test 443 GET *\n");
	unset_all(w);
	set(w, "HOME", "/home/u");
	set(w, "PIP_CONFIG_FILE", "/dev/null");
	install_pip(w);
	expect_rules(w, "@pip", "https index.test 443 GET /simple/** /simple\nhttps files.test 443 GET *\n");
}

static void pips_own_index_named_by_hand_brings_its_files_too(void **state)
{
	struct world *w = *state;

	install_pip(w);
	set(w, "PIP_INDEX_URL", "https://INDEX.test./simple/");
	set(w, "PIP_EXTRA_INDEX_URL", "http://10.1.2.3:8080/simple");
	set(w, "PIP_FIND_LINKS", "/srv/wheels https://links.test/w/");
	expect_rules(w, "@pip",
		     "https index.test 443 GET /simple/** /simple\nhttps files.test 443 GET *\nhttp 10.1.2.3 8080 GET *\n"
		     "https links.test 443 GET *\n");
	expect_variable(w, "PIP_TRUSTED_HOST", "10.1.2.3:8080");
	expect_variable(w, "PIP_FIND_LINKS", "https://links.test/w/");
}

static void what_pip_cannot_have_inside_is_refused(void **state)
{
	struct world *w = *state;

	expect_fault(w, "@pip", "set PIP_INDEX_URL");
	set(w, "PIP_INDEX_URL", "https://me:hunter2@index.test/simple");
	expect_fault(w, "@pip", "`secrets`");
	assert_null(strstr(w->e.text, "hunter2"));
	unset_all(w);
	set(w, "PIP_INDEX_URL", "http://localhost:3141/simple");
	expect_fault(w, "@pip", "network.hosts");
	unset_all(w);
	set(w, "PIP_INDEX_URL", "http://127.0.0.1:3141/simple");
	expect_fault(w, "@pip", "network.hosts");
	unset_all(w);
	set(w, "PIP_INDEX_URL", "https://index.test/simple?token=hunter2");
	expect_fault(w, "@pip", "`secrets`");
	assert_null(strstr(w->e.text, "hunter2"));
	unset_all(w);
	set(w, "PIP_INDEX_URL", "ftp://index.test/");
	expect_fault(w, "@pip", "https://");
	unset_all(w);
	set(w, "PIP_INDEX_URL", "https://0x7f.1/");
	expect_fault(w, "@pip", "host name or address");
	unset_all(w);
	set(w, "PIP_INDEX_URL", "https://index.test/");
	set(w, "PIP_PROXY", "http://proxy.test:3128");
	expect_fault(w, "@pip", "proxy");
	unset_all(w);
	set(w, "PIP_INDEX_URL", "https://index.test/");
	set(w, "https_proxy", "http://proxy.test:3128");
	expect_fault(w, "@pip", "https_proxy names a proxy");
	set(w, "no_proxy", "other.test, .test");
	expect_rules(w, "@pip", "https index.test 443 GET *\n");
	unset_all(w);
	set(w, "PIP_NO_INDEX", "yes");
	expect_fault(w, "@pip", "no-index");
	unset_all(w);
	write_file(w, "/etc/pip.conf", "[global]\nindex-url = https://a.test\nnonsense\n", 0644);
	expect_fault(w, "@pip", "/etc/pip.conf:3: expected key = value");
	write_file(w, "/etc/pip.conf", "index-url = https://a.test\n", 0644);
	expect_fault(w, "@pip", "/etc/pip.conf:1: expected a [section]");
}

static void client_that_fails_or_babbles_is_no_answer(void **state)
{
	struct world *w = *state;

	write_file(w, "/bin/python3", "#!/bin/sh\necho https://index.test/simple\necho files.test\nexit 1\n", 0755);
	expect_fault(w, "@pip", "set PIP_INDEX_URL");
	write_file(w, "/bin/python3", "#!/bin/sh\necho nothing\n", 0755);
	expect_fault(w, "@pip", "set PIP_INDEX_URL");
	write_file(w, "/bin/python3", "#!/bin/sh\nexec yes https://index.test/simple\n", 0755);
	expect_fault(w, "@pip", "set PIP_INDEX_URL");
	write_file(w, "/bin/python3", "no program\n", 0644);
	expect_fault(w, "@pip", "set PIP_INDEX_URL");
}

/* The environment of the caller is where its secrets are, and its folder may hold files that steer a client. */
static void client_is_asked_with_a_clean_environment(void **state)
{
	struct world *w = *state;

	write_file(w, "/bin/python3",
		   "#!/bin/sh\n"
		   "if [ -n \"$TOKEN\" ] || [ \"$(pwd)\" != / ] || [ \"$HOME\" != /home/u ]; then exit 1; fi\n"
		   "echo https://index.test/simple\necho files.test\n",
		   0755);
	set(w, "TOKEN", "hunter2");
	set(w, "HOME", "/home/u");
	expect_rules(w, "@pip", "https index.test 443 GET /simple/** /simple\nhttps files.test 443 GET *\n");
}

/* ---- npm. ---- */

static void npm_registries_come_from_variables_files_and_npm(void **state)
{
	struct world *w = *state;

	write_file(w, "/bin/npm", "#!/bin/sh\n[ \"$*\" = 'config get registry' ] && echo https://registry.test/\n", 0755);
	set(w, "HOME", "/home/u");
	expect_rules(w, "@npm", "https registry.test 443 GET *\n");
	expect_variable(w, "npm_config_registry", "https://registry.test/");
	expect_variable(w, "npm_config_fetch_retries", "0");
	assert_int_equal(w->inside.file_count, 0);
	write_file(w, "/home/u/.npmrc",
		   "; comment\nregistry = \"https://user.test/npm/\"\n//user.test/npm/:_authToken=hunter2\n"
		   "@corp:registry=https://corp.test:8443\n[x]\nregistry=https://no.test\n",
		   0600);
	expect_rules(w, "@npm", "https user.test 443 GET *\nhttps corp.test 8443 GET *\n");
	assert_string_equal(file_inside(w, "/etc/npmrc"), "@corp:registry=https://corp.test:8443\n");
	expect_variable(w, "npm_config_globalconfig", "/etc/npmrc");
	set(w, "NPM_CONFIG_REGISTRY", "http://env.test:4873");
	expect_rules(w, "@npm", "http env.test 4873 GET *\nhttps corp.test 8443 GET *\n");
	for (size_t i = 0; i < w->inside.variable_count; i++)
		assert_null(strstr(w->inside.variables[i].value, "hunter2"));
}

static void what_npm_cannot_have_inside_is_refused(void **state)
{
	struct world *w = *state;

	expect_fault(w, "@npm", "set npm_config_registry");
	set(w, "HOME", "/home/u");
	write_file(w, "/home/u/.npmrc", "registry=https://${TOKEN}@registry.test/\n", 0600);
	expect_fault(w, "@npm", "${...}");
	write_file(w, "/home/u/.npmrc", "registry=https://registry.test/\nhttps-proxy=http://proxy.test\n", 0600);
	expect_fault(w, "@npm", "https-proxy of npm");
	write_file(w, "/home/u/.npmrc", "registry=https://registry.test/\nproxy=null\n", 0600);
	expect_rules(w, "@npm", "https registry.test 443 GET *\n");
	write_file(w, "/home/u/.npmrc", "registry=https://a:hunter2@registry.test/\n", 0600);
	expect_fault(w, "@npm", "`secrets`");
	assert_null(strstr(w->e.text, "hunter2"));
}

/* ---- apt. ---- */

static void apt_sources_of_both_formats_are_opened_by_path(void **state)
{
	struct world *w = *state;

	write_file(w, "/etc/apt/sources.list",
		   "# deb http://commented:hunter2@out.test/ x main\n"
		   "deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://deb.test/debian bookworm main # trailing\n"
		   "deb-src http://deb.test/debian bookworm main\n"
		   "deb cdrom:[Debian 12]/ bookworm main\n",
		   0644);
	write_file(w, "/etc/apt/sources.list.d/b.sources",
		   "# comment\nTypes: deb\nURIs: https://two.test:8443/one\n https://two.test:8443/two/\nSuites: x\n\n\n"
		   "Types: deb\nEnabled: no\nURIs: https://off.test/\nSuites: x\n\n"
		   "types: deb\nuris: https://root.test\nsuites: ./\n",
		   0644);
	write_file(w, "/etc/apt/sources.list.d/c.list.save", "deb http://backup.test/ x main\n", 0644);
	write_file(w, "/etc/apt/trusted.gpg.d/a.asc", "key", 0644);
	expect_rules(w, "@apt",
		     "http deb.test 80 GET /debian/**\nhttps two.test 8443 GET /one/** /two/**\nhttps root.test 443 GET /**\n");
	assert_string_equal(file_inside(w, "/run/zwinger/apt.list"),
			    "deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://deb.test/debian bookworm main\n"
			    "deb-src http://deb.test/debian bookworm main\n");
	assert_string_equal(file_inside(w, "/run/zwinger/apt.sources"),
			    "Types: deb\nURIs: https://two.test:8443/one\n https://two.test:8443/two/\nSuites: x\n\n"
			    "types: deb\nuris: https://root.test\nsuites: ./\n\n");
	expect_variable(w, "APT_CONFIG", "/run/zwinger/apt.conf");
	assert_int_equal(w->inside.bind_count, 1);
	assert_string_equal(w->inside.binds[0], "/etc/apt/trusted.gpg.d");
}

static void what_apt_cannot_have_inside_is_refused(void **state)
{
	struct world *w = *state;

	expect_fault(w, "@apt", "no package source");
	write_file(w, "/etc/apt/sources.list", "deb http://me:hunter2@deb.test/ x main\n", 0644);
	expect_fault(w, "@apt", "/etc/apt/sources.list:1");
	assert_null(strstr(w->e.text, "hunter2"));
	write_file(w, "/etc/apt/sources.list", "\nhttp://deb.test/ x main\n", 0644);
	expect_fault(w, "@apt", "/etc/apt/sources.list:2: expected deb or deb-src");
	write_file(w, "/etc/apt/sources.list", "deb mirror+https://list.test/ x main\n", 0644);
	expect_fault(w, "@apt", "mirror+https://list.test/");
	write_file(w, "/etc/apt/sources.list", "deb https://a.test/$(ARCH) x main\n", 0644);
	expect_fault(w, "@apt", "variable");
	write_file(w, "/etc/apt/sources.list", "deb https://a.test/%2e%2e/*/x y\n", 0644);
	expect_fault(w, "@apt", "a rule can have");
	write_file(w, "/etc/apt/sources.list", "deb https://a.test/ x main\n", 0644);
	write_file(w, "/etc/apt/apt.conf.d/01proxy",
		   "// Acquire::http::Proxy \"http://no.test\";\nAcquire::http::Proxy \"http://p.test\";\n", 0644);
	expect_fault(w, "@apt", "/etc/apt/apt.conf.d/01proxy:2 names a proxy");
	write_file(w, "/etc/apt/apt.conf.d/01proxy", "Acquire::http::Proxy \"DIRECT\";\n", 0644);
	expect_rules(w, "@apt", "https a.test 443 GET /**\n");
}

/* ---- git. ---- */

static void git_remotes_are_opened_for_fetching_alone(void **state)
{
	struct world *w = *state;

	write_file(w, "/work/.git/config",
		   "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://git.test/o/r.git\n\tfetch = "
		   "+refs/heads/*:refs/remotes/*\n"
		   "[remote \"ssh\"]\n\turl = git@git.test:o/r\n[submodule \"lib\"]\n\tactive\n\turl = "
		   "\"https://git.test:8443/lib/\" ; x\n",
		   0644);
	expect_rules(w, "@git-https",
		     "https git.test 443 GET /o/r.git/info/refs /o/r.git/HEAD /o/r.git/objects/**\n"
		     "https git.test 443 POST /o/r.git/git-upload-pack\n"
		     "https git.test 8443 GET /lib/info/refs /lib/HEAD /lib/objects/** /lib.git/info/refs /lib.git/HEAD "
		     "/lib.git/objects/**\n"
		     "https git.test 8443 POST /lib/git-upload-pack /lib.git/git-upload-pack\n");
	assert_int_equal(w->network.rules[0].request_max, 0);
	assert_int_equal(w->network.rules[1].request_max, 16 << 20);
	expect_variable(w, "GIT_TERMINAL_PROMPT", "0");
	expect_variable(w, "GIT_CONFIG_COUNT", NULL);
}

static void git_rewriting_is_followed_and_passed_on(void **state)
{
	struct world *w = *state;

	set(w, "HOME", "/home/u");
	write_file(
	    w, "/home/u/.gitconfig",
	    "[alias]\n\tx = \"!f() { echo \\\"a\\\" \\\\\\\\; }; \\\n f\"\n[url \"https://git.test/\"]\n\tinsteadOf = gh:\n"
	    "[remote \"elsewhere\"]\n\turl = https://elsewhere.test/x.git\n"
	    "[url \"ssh://git.test/\"]\n\tinsteadOf = https://git.test/private/\n",
	    0644);
	write_file(w, "/work/.git/config",
		   "[remote \"a\"]\n\turl = gh:o/r.git\n[remote \"b\"]\n\turl = https://git.test/private/r.git\n", 0644);
	expect_rules(w, "@git-https",
		     "https git.test 443 GET /o/r.git/info/refs /o/r.git/HEAD /o/r.git/objects/**\n"
		     "https git.test 443 POST /o/r.git/git-upload-pack\n");
	expect_variable(w, "GIT_CONFIG_COUNT", "1");
	expect_variable(w, "GIT_CONFIG_KEY_0", "url.https://git.test/.insteadof");
	expect_variable(w, "GIT_CONFIG_VALUE_0", "gh:");
}

static void what_git_cannot_have_inside_is_refused(void **state)
{
	struct world *w = *state;
	cleanup_free char *config = xasprintf("%s/work/.git/config", w->root);

	expect_fault(w, "@git-https", "cannot open the workspace");
	write_file(w, "/work/file", "", 0644);
	expect_fault(w, "@git-https", "no git repository");
	write_file(w, "/work/.git/config", "[remote \"o\"]\n\turl = https://hunter2@git.test/o/r\n", 0644);
	expect_fault(w, "@git-https", "url of remote o");
	assert_null(strstr(w->e.text, "hunter2"));
	write_file(w, "/work/.git/config", "[remote \"o\"]\n\turl = ssh://git.test/o/r\n", 0644);
	expect_fault(w, "@git-https", "no remote with https");
	write_file(w, "/work/.git/config", "[remote \"o\"\n\turl = https://git.test/o/r\n", 0644);
	expect_fault(w, "@git-https", "config:1");
	write_file(w, "/work/.git/config", "[remote \"o\"]\n\turl = \"https://git.test/o/r\n", 0644);
	expect_fault(w, "@git-https", "config:2");
	write_file(w, "/work/.git/config", "[http]\n\tproxy = http://proxy.test\n[remote \"o\"]\n\turl = https://git.test/o/r\n",
		   0644);
	expect_fault(w, "@git-https", "http.proxy");
	/* A link in the workspace is not followed out of it. */
	write_file(w, "/elsewhere", "[remote \"o\"]\n\turl = https://git.test/o/r.git\n", 0644);
	assert_int_equal(unlink(config), 0);
	assert_int_equal(symlink("../../elsewhere", config), 0);
	expect_fault(w, "@git-https", "cannot open");
	free(w->workspace);
	w->workspace = NULL;
	expect_fault(w, "@git-https", "filesystem.workspace");
}

static void git_file_that_leads_elsewhere_is_refused(void **state)
{
	struct world *w = *state;

	write_file(w, "/work/.git", "gitdir: /elsewhere\n", 0644);
	expect_fault(w, "@git-https", "leads elsewhere");
}

static void unknown_rule_set_is_an_error(void **state)
{
	expect_fault(*state, "@nothing", "there is no rule set @nothing");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(pip_is_asked_for_its_own_index),
	    TEST(pip_configuration_is_read_in_pips_order),
	    TEST(pips_own_index_named_by_hand_brings_its_files_too),
	    TEST(what_pip_cannot_have_inside_is_refused),
	    TEST(client_that_fails_or_babbles_is_no_answer),
	    TEST(client_is_asked_with_a_clean_environment),
	    TEST(npm_registries_come_from_variables_files_and_npm),
	    TEST(what_npm_cannot_have_inside_is_refused),
	    TEST(apt_sources_of_both_formats_are_opened_by_path),
	    TEST(what_apt_cannot_have_inside_is_refused),
	    TEST(git_remotes_are_opened_for_fetching_alone),
	    TEST(git_rewriting_is_followed_and_passed_on),
	    TEST(what_git_cannot_have_inside_is_refused),
	    TEST(git_file_that_leads_elsewhere_is_refused),
	    TEST(unknown_rule_set_is_an_error),
	};

	return cmocka_run_group_tests_name("rule-sets", tests, NULL, NULL);
}
