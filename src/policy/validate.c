/* What only shows when all documents and flags are together. */
#include <string.h>

#include "base/mem.h"
#include "policy/decode.h"
#include "policy/network-parts.h"
#include "policy/text.h"

/* A mount with the node it came from. */
struct place {
	const char *target;
	const struct node *node;
	char *key;
};

struct places {
	struct place *items;
	size_t count;
};

static void add_place(struct places *p, const char *target, const struct node *node, char *key)
{
	p->items = xrealloc(p->items, p->count + 1, sizeof *p->items);
	p->items[p->count++] = (struct place){.target = target, .node = node, .key = key};
}

static void add_mounts(struct places *p, const struct node *root, const char *key, const struct policy_mount *mounts,
		       size_t count)
{
	const struct node *list = node_find(root, key);

	for (size_t i = 0; i < count && list != NULL && list->type == NODE_LIST && i < list->count; i++)
		if (mounts[i].target != NULL)
			add_place(p, mounts[i].target, list->members[i].value, xasprintf("%s[%zu]", key, i));
}

static void check_targets(struct decoder *d, const struct node *root, const struct policy *p)
{
	const struct node *workspace = node_find(root, "filesystem.workspace");
	struct places places = {0};

	add_mounts(&places, root, "filesystem.read", p->filesystem.read, p->filesystem.read_count);
	add_mounts(&places, root, "filesystem.write", p->filesystem.write, p->filesystem.write_count);
	if (p->filesystem.workspace.present && workspace != NULL)
		add_place(&places, p->filesystem.workspace.mount.target, workspace, xstrdup("filesystem.workspace"));
	for (size_t i = 1; i < places.count; i++)
		for (size_t j = 0; j < i; j++)
			if (strcmp(places.items[i].target, places.items[j].target) == 0) {
				decode_error(d, places.items[i].node, places.items[i].key, NULL,
					     "the target %s is taken by %s already", places.items[i].target, places.items[j].key);
				break;
			}
	for (size_t i = 0; i < places.count; i++)
		free(places.items[i].key);
	free(places.items);
}

static void check_workspace(struct decoder *d, const struct node *root)
{
	const struct node *workspace = node_find(root, "filesystem.workspace");

	if (workspace != NULL && workspace->type == NODE_MAP && workspace->count > 0 && node_get(workspace, "source") == NULL)
		decode_error(d, workspace, "filesystem.workspace", NULL, "source is missing: path on the host");
}

static bool secret_exists(const struct policy *p, const char *name)
{
	for (size_t i = 0; i < p->secret_count; i++)
		if (strcmp(p->secrets[i].name, name) == 0)
			return true;
	return false;
}

static const char *nearest_secret(const struct policy *p, const char *name)
{
	struct nearest n = nearest_to(name);

	for (size_t i = 0; i < p->secret_count; i++)
		nearest_try(&n, p->secrets[i].name);
	return n.best;
}

static void check_secret_uses(struct decoder *d, const struct node *root, const struct policy *p)
{
	const struct node *list = node_find(root, "network.allow");

	for (size_t i = 0; i < p->network.allow_count && list != NULL && list->type == NODE_LIST && i < list->count; i++) {
		const char *name = p->network.allow[i].secret.name;
		const struct node *node = node_find(list->members[i].value, "secret.name");
		cleanup_free char *key = xasprintf("network.allow[%zu].secret.name", i);

		if (name == NULL || secret_exists(p, name))
			continue;
		decode_error(d, node != NULL ? node : list, key, nearest_secret(p, name),
			     "expected a secret of the map secrets, got \"%s\"", name);
	}
}

static void check_published(struct decoder *d, const struct node *root, const struct policy *p)
{
	const struct node *list = node_find(root, "network.publish");
	const struct policy_publish *ports = p->network.publish;

	for (size_t i = 1; i < p->network.publish_count && list != NULL && list->type == NODE_LIST && i < list->count; i++)
		for (size_t j = 0; j < i; j++) {
			cleanup_free char *key = NULL;

			if (ports[i].host_port == 0 || ports[i].host_port != ports[j].host_port ||
			    strcmp(ports[i].bind, ports[j].bind) != 0)
				continue;
			key = xasprintf("network.publish[%zu]", i);
			decode_error(d, list->members[i].value, key, NULL, "port %u of %s is published already",
				     ports[i].host_port, ports[i].bind);
			break;
		}
}

/* The rules as the broker will have them, with the place of each in the policy. Those with a fault of their own are left out. */
struct allowed {
	struct decoder *d;
	const struct node *list;
	struct network network;
	size_t *places;
};

static void tell_rule_fault(void *ctx, size_t rule, const char *sentence)
{
	struct allowed *a = ctx;
	bool one = rule < a->network.rule_count;
	cleanup_free char *key = one ? xasprintf("network.allow[%zu]", a->places[rule]) : xstrdup("network.allow");

	decode_error(a->d, one ? a->list->members[a->places[rule]].value : a->list, key, NULL, "%s", sentence);
}

static void check_rules(struct decoder *d, const struct node *root, const struct policy *p)
{
	struct allowed a = {.d = d, .list = node_find(root, "network.allow")};

	if (a.list == NULL || a.list->type != NODE_LIST)
		return;
	a.places = xcalloc(p->network.allow_count + 1, sizeof *a.places);
	for (size_t i = 0; i < p->network.allow_count && i < a.list->count; i++) {
		cleanup_free char *label = xasprintf("network.allow[%zu]", i);

		if (network_add_rule(&a.network, &p->network.allow[i], label, NULL) == 0)
			a.places[a.network.rule_count - 1] = i;
	}
	network_each_fault(&a.network, tell_rule_fault, &a);
	network_done(&a.network);
	free(a.places);
}

/* Without these the first process of the sandbox cannot hear, tell, wait or end, and a run would hang rather than be safer. */
static void check_denied(struct decoder *d, const struct node *root, const struct policy *p)
{
	static const char *const needed[] = {"recvmsg", "sendmsg", "ppoll", "wait4", "rt_sigreturn", "exit", "exit_group"};
	const struct node *list = node_find(root, "syscalls.deny");

	for (size_t i = 0; i < p->syscalls.deny.count && list != NULL && list->type == NODE_LIST && i < list->count; i++)
		for (size_t j = 0; j < ARRAY_SIZE(needed); j++) {
			cleanup_free char *key = NULL;

			if (strcmp(p->syscalls.deny.items[i], needed[j]) != 0)
				continue;
			key = xasprintf("syscalls.deny[%zu]", i);
			decode_error(d, list->members[i].value, key, NULL,
				     "%s cannot be denied: the first process of the sandbox needs it", needed[j]);
		}
}

void validate_policy(const struct node *root, const struct policy *p, struct policy_errors *errors)
{
	struct decoder d = {.errors = errors};

	check_workspace(&d, root);
	check_targets(&d, root, p);
	check_secret_uses(&d, root, p);
	check_rules(&d, root, p);
	check_published(&d, root, p);
	check_denied(&d, root, p);
}
