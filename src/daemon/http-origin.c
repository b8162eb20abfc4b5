#include "daemon/http-origin.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "daemon/http-target.h"

static void add(char ***list, size_t *count, const char *text)
{
	*list = xrealloc(*list, *count + 1, sizeof **list);
	(*list)[(*count)++] = xstrdup(text);
}

bool origins_add_host(struct origins *o, const char *host)
{
	char parsed[HOST_SIZE];

	if (!host_parse(host, strlen(host), parsed))
		return false;
	add(&o->hosts, &o->host_count, parsed);
	return true;
}

bool origins_set_domain(struct origins *o, const char *domain)
{
	char parsed[HOST_SIZE];

	if (!host_parse(domain, strlen(domain), parsed))
		return false;
	free(o->domain);
	o->domain = xstrdup(parsed);
	return true;
}

/* The host of "scheme://host[:port]"; false when it is something else. */
static bool host_of_origin(const char *origin, char ret[HOST_SIZE])
{
	const char *rest = strncasecmp(origin, "http://", 7) == 0    ? origin + 7
			   : strncasecmp(origin, "https://", 8) == 0 ? origin + 8
								     : NULL;

	return rest != NULL && host_parse(rest, strlen(rest), ret);
}

bool origins_add_origin(struct origins *o, const char *origin)
{
	char host[HOST_SIZE];

	if (!host_of_origin(origin, host))
		return false;
	add(&o->origins, &o->origin_count, origin);
	for (char *p = o->origins[o->origin_count - 1]; *p != '\0'; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char) (*p - 'A' + 'a');
	return true;
}

void origins_done(struct origins *o)
{
	for (size_t i = 0; i < o->host_count; i++)
		free(o->hosts[i]);
	for (size_t i = 0; i < o->origin_count; i++)
		free(o->origins[i]);
	free(o->hosts);
	free(o->origins);
	free(o->domain);
	*o = (struct origins){0};
}

static bool below(const char *host, const char *domain)
{
	size_t n = strlen(host), m = strlen(domain);

	return n > m + 1 && host[n - m - 1] == '.' && strcmp(host + n - m, domain) == 0;
}

bool origin_host_allowed(const struct origins *o, const char *host, const char *here)
{
	if (host_is_loopback(host) || (here[0] != '\0' && strcmp(host, here) == 0))
		return true;
	if (o->domain != NULL && (strcmp(host, o->domain) == 0 || below(host, o->domain)))
		return true;
	for (size_t i = 0; i < o->host_count; i++)
		if (strcmp(o->hosts[i], host) == 0)
			return true;
	return false;
}

bool origin_allowed(const struct origins *o, const char *origin, const char *here)
{
	char host[HOST_SIZE];

	for (size_t i = 0; i < o->origin_count; i++)
		if (strcasecmp(o->origins[i], origin) == 0)
			return true;
	if (!host_of_origin(origin, host) || below(host, "localhost"))
		return false;
	return host_is_loopback(host) || (here[0] != '\0' && strcmp(host, here) == 0);
}
