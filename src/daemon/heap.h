/* Memory that was used once. The C library keeps what lies among blocks that are still used, and what comes to it in large pieces
 * raises the size up to which it keeps them (mallopt(3), M_MMAP_THRESHOLD). */
#pragma once

#include <stddef.h>

/* Gives free memory back to the system where there is much of it; from time to time. *spare is 0 at first and this function's
 * own: what could not be given back the last time. */
void heap_give_back(size_t *spare);
