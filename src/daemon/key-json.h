/* A key as the API and `zwinger keys --json` show it. */
#pragma once

#include <jansson.h>

#include "daemon/keys.h"

/* {"id","name","scope","created_at","expires_at"}, and "key" unless `text` is NULL. */
json_t *key_json(const struct key *k, const char *text);
