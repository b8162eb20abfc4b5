#include "isolation/level.h"

#include <stddef.h>

const struct isolation_ops *isolation_find(enum isolation_level level)
{
	switch (level) {
	case ISOLATION_PROCESS:
		return &isolation_process;
	case ISOLATION_CONTAINER:
		return &isolation_container;
	case ISOLATION_GVISOR:
	case ISOLATION_MICROVM:
	case ISOLATION_WASM:
		break;
	}
	return NULL;
}
