/* The built-in policies. They name no path of the host: data, results and workspace come by flag or by a second policy file. */
#include "base/mem.h"
#include "policy/policy.h"

static const struct policy_preset presets[] = {
    {"@python", "data work with Python: 1G of memory, five minutes",
     "version: 1\n"
     "name: python\n"
     "filesystem:\n"
     "  scratch: {size: 512M, exec: true}\n"
     "network: {allow: []}\n"
     "limits:\n"
     "  time: 5m\n"
     "  cpu_time: 10m\n"
     "  memory: 1G\n"
     "  processes: 256\n"
     "  output: 8M\n"
     "env:\n"
     "  set: {PYTHONUNBUFFERED: \"1\", PYTHONDONTWRITEBYTECODE: \"1\", MPLBACKEND: Agg}\n"},
    {"@offline-tests", "build and test suite of a repository without network: 4G of memory, thirty minutes",
     "version: 1\n"
     "name: offline-tests\n"
     "filesystem:\n"
     "  scratch: {size: 2G, inodes: 500000, exec: true}\n"
     "network: {allow: []}\n"
     "limits:\n"
     "  time: 30m\n"
     "  cpu_time: 2h\n"
     "  memory: 4G\n"
     "  processes: 1024\n"
     "  open_files: 8192\n"
     "  output: 64M\n"
     "env:\n"
     "  set: {CI: \"true\"}\n"},
    {"@tutor", "a learner's exercise: a few seconds, 128M of memory, little output",
     "version: 1\n"
     "name: tutor\n"
     "filesystem:\n"
     "  scratch: {size: 16M, inodes: 1024, exec: false}\n"
     "network: {allow: []}\n"
     "limits:\n"
     "  time: 10s\n"
     "  cpu_time: 3s\n"
     "  cpus: 1.0\n"
     "  memory: 128M\n"
     "  processes: 64\n"
     "  open_files: 256\n"
     "  file_size: 8M\n"
     "  output: 64K\n"
     "syscalls: {profile: strict}\n"},
    {"@research", "reads data, writes one folder of results: 2G of memory, an hour, nothing runs from /tmp",
     "version: 1\n"
     "name: research\n"
     "filesystem:\n"
     "  scratch: {size: 1G, exec: false}\n"
     "network: {allow: []}\n"
     "limits:\n"
     "  time: 1h\n"
     "  cpu_time: 4h\n"
     "  memory: 2G\n"
     "  processes: 256\n"
     "  file_size: 4G\n"
     "  output: 16M\n"
     "env:\n"
     "  set: {PYTHONUNBUFFERED: \"1\", PYTHONDONTWRITEBYTECODE: \"1\", MPLBACKEND: Agg}\n"},
};

const struct policy_preset *policy_presets(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(presets);
	return presets;
}
