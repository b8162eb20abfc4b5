#include "kernel/affinity.h"

#include <errno.h>
#include <sched.h>
#include <sys/random.h>

int affinity_confine(unsigned count)
{
	cpu_set_t have, want;
	unsigned start, chosen = 0;

	if (sched_getaffinity(0, sizeof have, &have) < 0)
		return -errno;
	if (getrandom(&start, sizeof start, 0) != sizeof start)
		return -errno;
	CPU_ZERO(&want);
	for (unsigned i = 0; i < CPU_SETSIZE && chosen < count; i++) {
		unsigned cpu = (start % CPU_SETSIZE + i) % CPU_SETSIZE;

		if (!CPU_ISSET(cpu, &have))
			continue;
		CPU_SET(cpu, &want);
		chosen++;
	}
	return sched_setaffinity(0, sizeof want, &want) < 0 ? -errno : 0;
}
