#include <openssl/ssl.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/tls-context.h"

/* The names that a self-signed certificate is for: what the operator listens at and allows. */
static int make_self_signed(struct daemon *d, const struct listen_address *addresses, size_t count, struct zw_error *e)
{
	cleanup_free const char **names = xcalloc(count + d->origins.host_count + 1, sizeof *names);
	cleanup_free char *below = NULL;
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		if (addresses[i].host != NULL)
			names[n++] = addresses[i].host;
	for (size_t i = 0; i < d->origins.host_count; i++)
		names[n++] = d->origins.hosts[i];
	if (d->origins.domain != NULL) {
		below = xasprintf("*.%s", d->origins.domain);
		names[n++] = below;
	}
	return tls_self_signed(&d->state, names, n, e);
}

int daemon_load_tls(struct daemon *d, const struct listen_address *addresses, size_t count, struct zw_error *e)
{
	cleanup_free char *cert = NULL, *key = NULL;
	SSL_CTX *context;

	if (!d->tls)
		return 0;
	if (d->options->tls != NULL) {
		/* When it is only loaded again, its names are as they were. */
		if (addresses != NULL && make_self_signed(d, addresses, count, e) < 0)
			return e->code;
		cert = xasprintf("%s/tls/cert.pem", d->state.path);
		key = xasprintf("%s/tls/key.pem", d->state.path);
	}
	context = tls_context_load(cert != NULL ? cert : d->options->tls_cert, key != NULL ? key : d->options->tls_key, e);
	if (context == NULL)
		return e->code;
	http_listeners_set_tls(d->listeners, context);
	SSL_CTX_free(context);
	return 0;
}
