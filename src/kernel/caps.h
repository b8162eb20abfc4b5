/* Capabilities (capabilities(7)) by the raw calls, for use between clone and exec. */
#pragma once

#include <stdbool.h>

/* Is the capability in the calling thread's effective set? */
bool caps_have(int capability);

/* Empties the bounding set, the ambient set and all three thread sets, in the order that the kernel wants, and locks securebits
 * so that no uid change gives any back. Negative errno on failure. */
int caps_drop_all(void);

/* The same, but CAP_SETUID and CAP_SETGID stay, through an exec too: in the ambient set, to which nothing can be added any more.
 */
int caps_drop_all_but_ids(void);

/* The part of it that needs no capability: the ambient set and the three thread sets. The bounding set and securebits stay;
 * no_new_privs keeps anything from coming back. */
int caps_drop_sets(void);
