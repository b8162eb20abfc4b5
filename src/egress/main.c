/* zwinger-egress, the network broker of one sandbox: starts, confines itself, serves. Started by the supervisor alone, with the
 * control line as descriptor 3; see broker.h. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/broker.h"
#include "egress/confine.h"
#include "egress/control.h"
#include "egress/listen.h"
#include "egress/names.h"
#include "egress/pipes.h"
#include "egress/publish.h"
#include "egress/quota.h"
#include "egress/resolve.h"
#include "egress/secrets.h"
#include "egress/tls.h"
#include "egress/udp.h"

/* Priorities: messages of the supervisor, all else, and what comes after everything that is ready. */
enum { PRIORITIES = 3 };
/* Descriptors beside those of connections; and what one connection takes: two sockets, a pipe now and then. */
enum { DESCRIPTORS_SPARE = 1024, DESCRIPTORS_EACH = 4, CONNECTIONS_MIN = 16 };

/* Bytes. */
enum { MAPPED_EACH_STARTING = 32 * 1024, MAPPED_EACH = 1024 * 1024, TRIM_AT = 512 * 1024 };

/* No settings from the environment, no locks (one thread). */
static struct event_base *make_base(void)
{
	struct event_config *config = event_config_new();
	struct event_base *base = NULL;

	if (config != NULL) {
		(void) event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
		(void) event_config_require_features(config, EV_FEATURE_O1);
		base = event_base_new_with_config(config);
		event_config_free(config);
	}
	if (base != NULL && event_base_priority_init(base, PRIORITIES) < 0) {
		event_base_free(base);
		return NULL;
	}
	return base;
}

static bool has_https(const struct network *n)
{
	for (size_t i = 0; i < n->rule_count; i++) {
		if (n->rules[i].protocol == NET_HTTPS)
			return true;
	}
	return false;
}

/* Everything that needs the host's files. */
static int read_host(struct broker *b, struct zw_error *e)
{
	b->resolver = resolver_new(b, e);
	if (b->resolver == NULL)
		return e->code;
	b->secrets = secrets_new();
	if (!has_https(b->network))
		return 0;
	b->tls = tls_new(b, e);
	return b->tls == NULL ? e->code : 0;
}

static void make_parts(struct broker *b)
{
	LIST_INIT(&b->flows);
	b->names = names_new();
	b->quota = quota_new(b);
	b->pipes = pipes_new();
	b->listeners = listeners_new(b);
	b->datagrams = datagrams_new(b);
	b->publish = publish_new(b);
}

static void bound_connections(struct broker *b, long descriptors)
{
	long room = (descriptors - DESCRIPTORS_SPARE) / DESCRIPTORS_EACH;

	b->connections_max = BROKER_CONNECTIONS_MAX;
	if (room < CONNECTIONS_MIN)
		room = CONNECTIONS_MIN;
	if ((size_t) room < b->connections_max)
		b->connections_max = (size_t) room;
}

/* The supervisor has made listeners at these addresses: 198.18.1.0 for the first exact name, and so on in the order of the rules.
 */
static void name_exact_rules(struct broker *b)
{
	bool new;

	for (size_t i = 0; i < b->network->rule_count; i++) {
		const char *pattern = b->network->rules[i].pattern;

		if (pattern != NULL && pattern[0] != '*')
			(void) names_address(b->names, pattern, &new); /* NAMES_MAX is far beyond what a policy may hold */
	}
}

/* The trust files are made before the walls stand, and handed over with "ready" after. */
static int confine_and_say_so(struct broker *b, bool java, struct zw_error *e)
{
	cleanup_fd int bundle = -EBADF;
	cleanup_fd int store = -EBADF;
	struct confinement confinement;
	int r;

	if (b->tls != NULL) {
		bundle = tls_trust_bundle(b->tls, e);
		if (bundle < 0)
			return e->code;
		store = java ? tls_trust_java(b->tls, e) : -EBADF;
		if (java && store < 0)
			return e->code;
	}
	r = confine(CONTROL_FD, &confinement, e);
	if (r < 0)
		return r;
	bound_connections(b, confinement.descriptors);
	return control_ready(b->control, b->tls != NULL ? tls_ca_pem(b->tls) : NULL, bundle, store, e);
}

static int start(struct broker *b, struct network *network, struct zw_error *e)
{
	struct control_config config = {0};
	bool java;
	int r = control_config(b->control, &config, e);

	if (r < 0)
		return r;
	r = network_from_json(config.network, config.network_size, network, e);
	java = config.java;
	b->id = xstrdup(config.id);
	control_config_done(&config);
	if (r < 0)
		return r;
	b->network = network;
	b->base = make_base();
	if (b->base == NULL)
		return zw_error(e, ENOMEM, "the network broker cannot set up its event loop");
	r = read_host(b, e);
	if (r < 0)
		return r;
	make_parts(b);
	name_exact_rules(b);
	return confine_and_say_so(b, java, e);
}

/* A peer that is gone is an error of the call, not a signal; a terminal's signals are for the program and its supervisor. */
static void settle_signals(void)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	const int ignored[] = {SIGPIPE, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU};
	sigset_t none;

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		(void) sigaction(ignored[i], &ignore, NULL);
	(void) sigemptyset(&none);
	(void) sigprocmask(SIG_SETMASK, &none, NULL);
}

static void serve(struct broker *b)
{
	control_start(b->control);
	(void) event_base_loop(b->base, EVLOOP_NO_EXIT_ON_EMPTY);
	control_finish(b->control);
}

/* While it starts, larger blocks are mapped each for itself: they come zeroed, and pages that nothing writes to never are there.
 * What connections then take and give back, again and again, lies together. */
static void manage_memory(bool starting)
{
	(void) mallopt(M_MMAP_THRESHOLD, starting ? MAPPED_EACH_STARTING : MAPPED_EACH);
	(void) mallopt(M_TRIM_THRESHOLD, TRIM_AT);
}

/* What the broker holds goes with its process, sockets first of all; exit(3) would only run through the libraries' tidying, which
 * the system-call filter does not foresee. */
int main(void)
{
	struct zw_error e = {0};
	struct broker b = {0};
	struct network network = {0};

	manage_memory(true);
	settle_signals();
	if (confine_to_parent(CONTROL_FD, &e) < 0 || confine_descriptors(&e) < 0) {
		log_error("%s", e.text);
		_exit(EXIT_FAILURE);
	}
	b.control = control_new(&b, CONTROL_FD);
	if (start(&b, &network, &e) < 0) {
		control_refused(b.control, e.text);
		_exit(EXIT_FAILURE);
	}
	manage_memory(false);
	serve(&b);
	_exit(EXIT_SUCCESS);
}
