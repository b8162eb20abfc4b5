#include "daemon/heap.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"

enum { SPARE_MAX = 8 * 1024 * 1024 };

/* Resident bytes that no block has: free ones, and those of the program itself. 0 where it is not known. */
static size_t unused(void)
{
	struct mallinfo2 m = mallinfo2();
	size_t used = m.uordblks + m.hblkhd, resident;
	char text[128], *second;

	if (fd_read_file_at(AT_FDCWD, "/proc/self/statm", text, sizeof text) <= 0)
		return 0;
	(void) strtoull(text, &second, 10);
	resident = (size_t) strtoull(second, NULL, 10) * (size_t) sysconf(_SC_PAGESIZE);
	return resident > used ? resident - used : 0;
}

void heap_give_back(size_t *spare)
{
	size_t now = unused();

	if (now > *spare + SPARE_MAX) {
		(void) malloc_trim(0);
		now = unused();
		*spare = now;
	} else if (now < *spare) {
		*spare = now;
	}
}
