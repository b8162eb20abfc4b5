/* Where a symbolic link leads that was left in a folder of the host: the host will follow it by its own tree, so that is what
 * counts. */
#pragma once

#include <stdint.h>

enum link_verdict {
	LINK_INSIDE,  /* stays in the folder, or can lead nowhere (a loop) */
	LINK_SYSTEM,  /* an absolute path into the system's programs and libraries, as the python of a virtual environment */
	LINK_OUTSIDE, /* anywhere else */
};

struct link_place {
	int root;           /* the folder, O_PATH will do */
	const char *source; /* its absolute path on the host */
	int dir;            /* the directory the link is in */
	const char *path;   /* of that directory below the folder, "" for the folder itself. NULL when not known */
	uint64_t depth;     /* of that directory: 0 is the folder itself */
};

/* `target` is the link's text. Both readings must stay inside: the plain one by the names alone, for what reads links so (and
 * what is not there yet can come later), and the kernel's, through the links on the way. */
enum link_verdict link_judge(const struct link_place *place, const char *target);
