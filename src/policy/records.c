#include "policy/records.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "policy/decode.h"
#include "policy/network-parts.h"
#include "policy/text.h"

static struct node *wrong(struct fault *f, const char *message)
{
	(void) snprintf(f->message, sizeof f->message, "%s", message);
	return NULL;
}

static struct node *long_form(const struct node *scalar)
{
	return node_new(NODE_MAP, NULL, scalar->line, scalar->source);
}

static void add_text(struct node *map, const char *key, const char *text, size_t size)
{
	cleanup_free char *copy = xstrndup(text, size);

	node_add(map, key, map->line, node_new(NODE_TEXT, copy, map->line, map->source));
}

/* ---- Files. ---- */

struct node *expand_mount(const struct node *scalar, struct fault *f)
{
	const char *text = scalar->text, *colon;
	struct node *map;

	if (scalar->type != NODE_TEXT || *text == '\0')
		return wrong(f, "expected a map with source and target, or \"SRC[:DST]\"");
	colon = strrchr(text, ':');
	if (colon != NULL && colon[1] != '/')
		return wrong(f,
			     "expected \"SRC[:DST]\" with an absolute path as DST (a source with a colon is written as a map)");
	map = long_form(scalar);
	add_text(map, "source", text, colon != NULL ? (size_t) (colon - text) : strlen(text));
	if (colon != NULL)
		add_text(map, "target", colon + 1, strlen(colon + 1));
	return map;
}

static bool is_workspace_mode(const char *word)
{
	return strcmp(word, "cow") == 0 || strcmp(word, "rw") == 0 || strcmp(word, "ro") == 0;
}

struct node *expand_workspace(const struct node *scalar, struct fault *f)
{
	const char *text = scalar->text, *colon, *mode = NULL;
	size_t size;
	struct node *map;

	if (scalar->type != NODE_TEXT || *text == '\0')
		return wrong(f, "expected a map with source, or \"DIR[:DST[:MODE]]\"");
	size = strlen(text);
	colon = strrchr(text, ':');
	/* "DIR:MODE" is no more ambiguous: DST starts with a slash. */
	if (colon != NULL && colon[1] != '/') {
		mode = colon + 1;
		if (!is_workspace_mode(mode))
			return wrong(f, "expected \"DIR[:DST[:MODE]]\" with an absolute path as DST and cow, rw or ro as MODE");
		size = (size_t) (colon - text);
	}
	colon = memrchr(text, ':', size);
	if (colon != NULL && colon[1] != '/')
		return wrong(f, "expected \"DIR[:DST[:MODE]]\" with an absolute path as DST");
	map = long_form(scalar);
	add_text(map, "source", text, colon != NULL ? (size_t) (colon - text) : size);
	if (colon != NULL)
		add_text(map, "target", colon + 1, size - (size_t) (colon + 1 - text));
	if (mode != NULL)
		add_text(map, "mode", mode, strlen(mode));
	return map;
}

static void check_implied_target(struct decoder *d, struct policy_mount *m, const struct node *node, const char *key)
{
	cleanup_free char *target = xstrdup(m->source);
	struct fault f = {0};

	if (!syntax_target(&target, &f)) {
		decode_error(d, node, key, NULL, "the path of the source cannot be the path inside; give a target: %s",
			     f.message);
		return;
	}
	m->target = take_ptr(&target);
}

/* "/a/../b" as the kernel sees it depends on links; as a target it is what it spells. */
static char *without_dotdot(const char *path)
{
	char *clean = xcalloc(strlen(path) + 2, 1), *out = clean;

	while (*path != '\0') {
		size_t size;

		path += strspn(path, "/");
		size = strcspn(path, "/");
		if (size == 2 && memcmp(path, "..", 2) == 0) {
			while (out > clean && *--out != '/')
				;
			*out = '\0';
		} else if (size > 0 && !(size == 1 && *path == '.')) {
			*out++ = '/';
			memcpy(out, path, size);
			out += size;
			*out = '\0';
		}
		path += size;
	}
	if (out == clean)
		(void) memcpy(clean, "/", 2);
	return clean;
}

void finish_mount(struct decoder *d, void *record, const struct node *node, const char *key)
{
	struct policy_mount *m = record;

	if (m->size == 0)
		m->size = ZW_UNLIMITED; /* entries of read have no such key */
	if (m->source == NULL || m->target != NULL || node_get(node, "target") != NULL)
		return;
	if (strstr(m->source, "/..") != NULL) {
		cleanup_free char *plain = without_dotdot(m->source);
		struct policy_mount copy = {.source = plain};

		check_implied_target(d, &copy, node, key);
		m->target = copy.target;
		return;
	}
	check_implied_target(d, m, node, key);
}

/* ---- Network. ---- */

/* "443,8000-8010" → a list; false when an entry is empty. */
static bool add_ports(struct node *map, const char *text)
{
	struct node *list = node_new(NODE_LIST, NULL, map->line, map->source);
	bool complete = true;

	for (;;) {
		size_t size = strcspn(text, ",");
		cleanup_free char *port = xstrndup(text, size);

		complete = complete && size > 0;
		node_add(list, NULL, 0, node_new(NODE_TEXT, port, map->line, map->source));
		if (text[size] == '\0')
			break;
		text += size + 1;
	}
	node_add(map, "ports", map->line, list);
	return complete;
}

/* Where the ports start: behind the last colon of "host:443", never inside of an IPv6 address without brackets. */
static const char *find_ports(const char *text)
{
	const char *colon = strrchr(text, ':');

	if (colon == NULL || syntax_is_address(text))
		return NULL;
	if (text[0] == '[')
		return colon[-1] == ']' ? colon + 1 : NULL;
	return colon + 1;
}

struct node *expand_rule(const struct node *scalar, struct fault *f)
{
	const char *text = scalar->text, *ports;
	cleanup_free char *host = NULL;
	struct node *map;
	size_t size;

	if (scalar->type != NODE_TEXT)
		return wrong(f, "expected a map with host or address, \"HOST[:PORT,...]\", or a rule set such as '@pip'");
	map = long_form(scalar);
	if (text[0] == '@') {
		add_text(map, "preset", text, strlen(text));
		return map;
	}
	/* A URL goes on whole, so that the check of the host name can say what is wrong with it. */
	ports = strstr(text, "://") == NULL ? find_ports(text) : NULL;
	size = ports != NULL ? (size_t) (ports - 1 - text) : strlen(text);
	host = text[0] == '[' && size > 1 && text[size - 1] == ']' ? xstrndup(text + 1, size - 2) : xstrndup(text, size);
	add_text(map, syntax_is_address(host) ? "address" : "host", host, strlen(host));
	if (ports == NULL || add_ports(map, ports))
		return map;
	node_free(map);
	return wrong(f, "expected ports behind the colon, such as api.example.org:443,8443");
}

struct node *expand_host(const struct node *scalar, struct fault *f)
{
	struct node *map = long_form(scalar);

	(void) f;
	node_add(map, "target", scalar->line, node_clone(scalar));
	return map;
}

struct node *expand_publish(const struct node *scalar, struct fault *f)
{
	const char *text = scalar->text, *port, *host_port, *last;
	struct node *map;

	if (scalar->type != NODE_TEXT && scalar->type != NODE_NUMBER)
		return wrong(f, "expected a port, \"HOSTPORT:PORT\" or \"ADDRESS:HOSTPORT:PORT\"");
	map = long_form(scalar);
	last = strrchr(text, ':');
	port = last != NULL ? last + 1 : text;
	add_text(map, "port", port, strlen(port));
	if (last == NULL) {
		add_text(map, "host_port", port, strlen(port));
		return map;
	}
	host_port = memrchr(text, ':', (size_t) (last - text));
	if (host_port == NULL) {
		add_text(map, "host_port", text, (size_t) (last - text));
		return map;
	}
	add_text(map, "host_port", host_port + 1, (size_t) (last - host_port - 1));
	if (text[0] == '[' && host_port > text + 1 && host_port[-1] == ']')
		add_text(map, "bind", text + 1, (size_t) (host_port - text - 2));
	else
		add_text(map, "bind", text, (size_t) (host_port - text));
	return map;
}

/* Exactly one of the keys must be there; -1 (reported) or its index. */
static int exactly_one(struct decoder *d, const struct node *node, const char *key, const char *const *names, const char *list)
{
	int found = -1;

	for (int i = 0; names[i] != NULL; i++) {
		if (node_get(node, names[i]) == NULL)
			continue;
		if (found >= 0) {
			decode_error(d, node, key, NULL, "expected one of %s, got both %s and %s", list, names[found], names[i]);
			return -1;
		}
		found = i;
	}
	if (found < 0)
		decode_error(d, node, key, NULL, "expected one of %s, got none", list);
	return found;
}

static void check_rule_protocol(struct decoder *d, const struct policy_rule *r, const struct node *node, const char *key)
{
	static const char *const http_only[] = {"methods", "paths", "request_max", "secret", NULL};
	bool http = r->protocol == NET_HTTP || r->protocol == NET_HTTPS;

	for (size_t i = 0; http_only[i] != NULL && !http; i++)
		if (node_get(node, http_only[i]) != NULL)
			decode_error(d, node_get(node, http_only[i]), key, "https",
				     "%s needs protocol http or https, where requests are seen", http_only[i]);
	if (r->protocol == NET_TLS && node_get(node, "address") != NULL)
		decode_error(d, node, key, "tcp", "protocol tls checks a name, and this rule has only an address");
}

/* Ranges that lead nowhere, or to a place where the sandbox or its broker has something of its own. */
static void check_rule_address(struct decoder *d, const struct policy_rule *r, const struct node *node, const char *key)
{
	cleanup_free char *address_key = xasprintf("%s.address", key);
	const char *sealed = NULL;
	struct net_prefix p;

	if (r->address != NULL && network_prefix_parse(r->address, &p))
		sealed = network_special_sealed(&p);
	if (sealed == NULL)
		return;
	if (strcmp(sealed, "loopback") == 0 || strcmp(sealed, "this host") == 0)
		decode_error(
		    d, node_get(node, "address"), address_key, NULL,
		    "an address rule cannot open %s (%s): inside, that is the sandbox itself; for a service of this host "
		    "allow a name and say under network.hosts where it is, such as my.service: \"127.0.0.1:8080\"",
		    r->address, sealed);
	else
		decode_error(d, node_get(node, "address"), address_key, NULL, "an address rule cannot open %s (%s)", r->address,
			     sealed);
}

static void check_rule_ports(struct decoder *d, const struct policy_rule *r, const struct node *node, const char *key)
{
	const struct node *ports = node_get(node, "ports");
	cleanup_free char *ports_key = xasprintf("%s.ports", key);

	if (network_ports_count(r->ports, r->port_count) > NETWORK_PORTS_MAX)
		decode_error(d, ports != NULL ? ports : node, ports_key, NULL,
			     "expected at most %d ports, since each is listened on", NETWORK_PORTS_MAX);
}

static void finish_rule_secret(struct decoder *d, struct policy_rule *r, const struct node *node, const char *key)
{
	static const char *const uses[] = {"header", "placeholder", NULL};
	const struct node *secret = node_get(node, "secret");
	cleanup_free char *secret_key = xasprintf("%s.secret", key);

	if (secret == NULL || secret->type != NODE_MAP)
		return;
	if (node_get(secret, "name") == NULL)
		decode_error(d, secret, secret_key, NULL, "name is missing: which secret of the map secrets");
	if (exactly_one(d, secret, secret_key, uses, "header or placeholder") == 1 && node_get(secret, "format") != NULL)
		decode_error(d, secret, secret_key, NULL,
			     "format belongs to header; a placeholder is replaced by the bare secret");
	if (r->secret.header != NULL && r->secret.format == NULL)
		r->secret.format = xstrdup("{}");
}

void finish_rule(struct decoder *d, void *record, const struct node *node, const char *key)
{
	static const char *const ends[] = {"host", "address", "preset", NULL};
	const struct node *ports = node_get(node, "ports");
	struct policy_rule *r = record;
	int end = exactly_one(d, node, key, ends, "host, address or preset");

	if (end == 2 && node->count > 1)
		decode_error(d, node, key, NULL, "a rule set such as @pip stands alone; its ports and paths are its own");
	if (end == 2)
		return;
	check_rule_protocol(d, r, node, key);
	check_rule_address(d, r, node, key);
	check_rule_ports(d, r, node, key);
	finish_rule_secret(d, r, node, key);
	if (ports != NULL && ports->type == NODE_LIST && ports->count == 0)
		decode_error(d, ports, key, NULL, "ports is empty, so that the rule opens nothing; leave it out for the default");
	if (ports == NULL) {
		uint16_t port = r->protocol == NET_HTTP ? 80 : 443;

		r->ports = xcalloc(1, sizeof *r->ports);
		r->ports[0] = (struct port_range){port, port};
		r->port_count = 1;
	}
}

/* ---- Secrets, environment, user. ---- */

void finish_secret(struct decoder *d, void *record, const struct node *node, const char *key)
{
	static const char *const origins[] = {"env", "file", "command", NULL};
	const struct node *command = node_get(node, "command");

	(void) record;
	(void) exactly_one(d, node, key, origins, "env, file or command");
	if (command != NULL && command->type == NODE_LIST && command->count == 0)
		decode_error(d, command, key, NULL, "command is empty; expected a program and its arguments");
}

struct node *expand_env(const struct node *scalar, struct fault *f)
{
	struct node *map = long_form(scalar);

	(void) f;
	node_add(map, "value", scalar->line, node_clone(scalar));
	return map;
}

bool flag_env(struct node *flags, const struct row *row, const char *value, const struct source *source, struct fault *f)
{
	const char *equals = strchr(value, '=');
	cleanup_free char *name = NULL;
	struct node *map = node_find(flags, row->key), *text;

	if (equals == NULL || equals == value) {
		(void) snprintf(f->message, sizeof f->message,
				"expected NAME=VALUE (--pass NAME hands on a variable of the caller)");
		return false;
	}
	if (map == NULL) {
		map = node_new(NODE_MAP, NULL, 0, source);
		node_put(flags, row->key, map);
	}
	name = xstrndup(value, (size_t) (equals - value));
	text = node_new(NODE_TEXT, equals + 1, 0, source);
	for (size_t i = 0; i < map->count; i++)
		if (strcmp(map->members[i].key, name) == 0) {
			node_free(map->members[i].value);
			map->members[i].value = text;
			return true;
		}
	node_add(map, name, 0, text);
	return true;
}

bool flag_user(struct node *flags, const struct row *row, const char *value, const struct source *source, struct fault *f)
{
	size_t size = strcspn(value, ":");
	cleanup_free char *user = xstrndup(value, size);

	(void) f;
	node_put(flags, row->key, node_new(node_plain_type(user), user, 0, source));
	if (value[size] == ':')
		node_put(flags, "process.group", node_new(node_plain_type(value + size + 1), value + size + 1, 0, source));
	return true;
}
