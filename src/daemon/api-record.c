/* What has happened, for people and programs: the events of all sandboxes, and the description of this interface. */
#include <string.h>

#include "base/mem.h"
#include "daemon/api-run.h"
#include "daemon/daemon.h"
#include "daemon/sandbox-events.h"
#include "daemon/sandbox.h"

/* Made by scripts/embed from openapi.json. */
extern const char openapi_document[];
extern const uint64_t openapi_document_size;

/* ---- Events, the description. ---- */

static void get_events(struct request *r)
{
	bool follow;

	if (request_query_bool(r, "follow", true, &follow))
		sandboxes_events_follow(r->daemon->sandboxes, r, follow);
}

static void get_openapi(struct request *r)
{
	respond_text(r, 200, "application/json", openapi_document, (size_t) openapi_document_size);
}

static const struct route routes[] = {
    {"GET", "/v1/events", SCOPE_ADMIN, TAKES_NOTHING, ROUTE_LASTING, NULL, get_events, NULL, 0},
    {"GET", "/v1/openapi.json", SCOPE_USE, TAKES_NOTHING, 0, NULL, get_openapi, NULL, 0},
};

void api_record_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
