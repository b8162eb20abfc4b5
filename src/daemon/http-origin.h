/* Which Host and Origin are ours. A page in a browser can make requests to this machine under a name of its own (DNS rebinding)
 * or across origins: a name or origin that nobody has allowed is refused, whatever key comes with it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct origins {
	char **hosts; /* lower case */
	size_t host_count;
	char **origins; /* "https://example.org", lower case */
	size_t origin_count;
	char *domain; /* it and everything below it; lower case, without port; NULL: none */
};

/* Each adds to the list. False when the text is not of that kind. */
bool origins_add_host(struct origins *o, const char *host);
bool origins_add_origin(struct origins *o, const char *origin);
bool origins_set_domain(struct origins *o, const char *domain);
void origins_done(struct origins *o);

/* `host` is of host_parse(); `here` is the address that the connection was made to. Loopback names are allowed. */
bool origin_host_allowed(const struct origins *o, const char *host, const char *here);
/* Allowed are those of the list, and pages from this machine: "localhost", loopback addresses and `here`, but not what stands
 * below "localhost", where sandboxes have their ports. "null" is nobody. */
bool origin_allowed(const struct origins *o, const char *origin, const char *here);
