/* How the broker walls itself in, once it has read what it needs of the host: from then on it has the sockets that it holds, and
 * may make further ones for TCP and UDP. It opens no file, starts no program, has no capability, and cannot be looked into by
 * others of its user.
 *
 * What this does not hold: which addresses it connects to. A broker that was taken over can reach what its host reaches, with the
 * secrets of this one sandbox and of no other. */
#pragma once

#include "base/err.h"

/* The broker's end is bound to that of its parent, which must be the process that made the other end of `sock`. To be called
 * first, and by confine again, since a change of user forgets it (prctl(2), PR_SET_PDEATHSIG). 0 or -ESRCH: it is gone already.
 */
int confine_to_parent(int sock, struct zw_error *e);

/* Closes all descriptors that somebody else left open: keeps 0 to 2 (on /dev/null when they are closed) and `sock`, which must
 * be 3. */
int confine_descriptors(struct zw_error *e);

struct confinement {
	int landlock_abi; /* 0: this kernel has none; the system-call filter alone keeps files away then */
	long descriptors; /* RLIMIT_NOFILE */
};

/* The walls, in order. After a failure the process must end. */
int confine(int sock, struct confinement *ret, struct zw_error *e);
