/* What a policy may ask for and this build cannot do yet: said plainly, with what to do meanwhile. A feature that gets built
 * loses its row here. */
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "policy/policy.h"

static bool wants_ask(const struct policy *p)
{
	return p->network.ask;
}

static bool wants_cow(const struct policy *p)
{
	return p->filesystem.workspace.present && p->filesystem.workspace.mode == WORKSPACE_COW;
}

static bool wants_image(const struct policy *p)
{
	return p->root != NULL && p->root[0] != '/' && strcmp(p->root, "host") != 0;
}

static bool wants_gvisor(const struct policy *p)
{
	return p->isolation == ISOLATION_GVISOR;
}

static bool wants_microvm(const struct policy *p)
{
	return p->isolation == ISOLATION_MICROVM;
}

static bool wants_wasm(const struct policy *p)
{
	return p->isolation == ISOLATION_WASM;
}

static bool wants_apparmor(const struct policy *p)
{
	return p->lsm.apparmor != NULL;
}

static bool wants_selinux(const struct policy *p)
{
	return p->lsm.selinux != NULL;
}

static const struct {
	const char *key;
	bool (*wanted)(const struct policy *p);
	const char *sentence;
} features[] = {
    {"isolation", wants_gvisor, "the level gvisor is not built yet; container is the strongest level of this build"},
    {"isolation", wants_microvm, "the level microvm is not built yet; container is the strongest level of this build"},
    {"isolation", wants_wasm, "the level wasm is not built yet; use container"},
    {"root", wants_image, "images are not built yet; unpack the image and give its folder (root: ./folder), or use host"},
    {"filesystem.workspace.mode", wants_cow,
     "workspaces in mode cow are not built yet; use --workspace DIR:/work:rw to change the files in place, or ro to only read "
     "them"},
    {"network.ask", wants_ask, "asking a person about a name is not built yet; leave network.ask out"},
    {"lsm.apparmor", wants_apparmor,
     "AppArmor profiles are not applied yet; leave lsm.apparmor null (seccomp and Landlock hold in any case)"},
    {"lsm.selinux", wants_selinux,
     "SELinux labels are not applied yet; leave lsm.selinux null (seccomp and Landlock hold in any case)"},
};

size_t policy_unbuilt(const struct policy *p, void (*found)(void *ctx, const char *key, const char *sentence), void *ctx)
{
	size_t count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		if (!features[i].wanted(p))
			continue;
		count++;
		if (found != NULL)
			found(ctx, features[i].key, features[i].sentence);
	}
	return count;
}
