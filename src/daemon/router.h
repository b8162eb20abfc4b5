/* From a request to its handler: Host, fronts, Origin, key, route, method, scope, body. api.h has the tables' form. */
#pragma once

#include <stdbool.h>

#include "daemon/api.h"

struct router *router_new(void);
struct router *router_free(struct router *router);

/* Every route, in the order of registration; NULL behind the last. */
const struct route *router_at(const struct router *router, size_t index);

/* What the server is given as its dispatch(). Uses r->daemon->router. */
void router_dispatch(struct request *r);

/* The route of a path and method, NULL when there is none; r->params are filled. `ret_allow` gets the methods of the path ("GET,
 * HEAD"),
 * "" when no route has it. */
enum { ROUTER_ALLOW_SIZE = 128 };
const struct route *router_find(const struct router *router, struct request *r, char ret_allow[ROUTER_ALLOW_SIZE]);
