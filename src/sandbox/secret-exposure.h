/* A secret that the policy also shows inside, by a folder, a variable or the command, is none. */
#pragma once

#include "base/err.h"
#include "sandbox/plan.h"

/* Neither the file of a secret may be seen inside, nor may code inside choose what the supervisor reads or executes for it. The
 * plan's mounts are still open. 0 or negative errno with a sentence. */
int secret_source_hidden(const struct plan *plan, const struct secret_source *s, struct zw_error *e);
/* The value itself stands in nothing that goes inside as text. The sentence does not hold the value. */
int secret_value_hidden(const struct plan *plan, const struct secret_source *s, const char *value, size_t size,
			struct zw_error *e);
/* The certificates of network.ca_file lie where code inside cannot write. */
int secret_ca_hidden(const struct plan *plan, const char *ca_file, struct zw_error *e);
