/* The daemon's start, as a table of steps, and its end. */
#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/api-run.h"
#include "daemon/e2b/e2b.h"
#include "daemon/idempotency.h"
#include "daemon/log.h"
#include "daemon/mcp/mcp.h"
#include "daemon/metrics.h"
#include "daemon/router.h"
#include "daemon/sandbox.h"
#include "daemon/snapshots.h"
#include "daemon/tls-context.h"

enum { CONNECTIONS_MAX = 8192, CONNECTIONS_MIN = 8, JSON_BYTES_MAX = 256 * 1024 * 1024, ANSWER_BYTES_MAX = 256 * 1024 * 1024 };

struct start {
	struct daemon *d;
	struct listen_address *addresses;
	size_t count;
};

/* ---- What can be refused before anything is touched. ---- */

static int read_addresses(struct start *s, struct zw_error *e)
{
	const struct strv *texts = &s->d->options->listen;
	int r = 0;

	s->addresses = xcalloc(texts->count + 1, sizeof *s->addresses);
	for (; s->count < texts->count && r == 0; s->count += r == 0)
		r = listen_address_parse(texts->items[s->count], &s->addresses[s->count], e);
	return r;
}

static int check_plain(struct start *s, struct zw_error *e)
{
	const struct serve_options *o = s->d->options;

	s->d->tls = o->tls != NULL || o->tls_cert != NULL;
	if (s->d->tls || o->allow_plain_http)
		return 0;
	for (size_t i = 0; i < s->count; i++)
		if (!listen_address_is_local(&s->addresses[i]))
			return zw_error(
			    e, EINVAL,
			    "%s can be reached from other machines, which would see keys and code in plain text: use --tls "
			    "self-signed, or "
			    "--tls-cert and --tls-key, or say --allow-plain-http if something before the daemon speaks TLS",
			    s->addresses[i].text);
	return 0;
}

static int check_policy(const char *option, const char *path, struct zw_error *e)
{
	struct policy_stack *stack;
	struct policy_errors errors = {0};
	struct policy policy = {0};
	int r;

	if (path == NULL)
		return 0;
	stack = policy_stack_new();
	r = policy_stack_add(stack, path, &errors);
	if (r == 0)
		r = policy_stack_resolve(stack, &policy, &errors);
	if (r == 0)
		policy_done(&policy);
	policy_stack_free(stack);
	if (r < 0) {
		cleanup_free char *text = errors.count > 0 ? policy_error_text(&errors.items[0]) : NULL;

		(void) zw_error(e, EINVAL, "%s: %s", option, text != NULL ? text : path);
	}
	policy_errors_done(&errors);
	return r;
}

/* It is written when everything else has been done. */
static int check_key_file(const char *path, struct zw_error *e)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *folder =
	    slash == NULL || slash == path ? xstrdup(slash == NULL ? "." : "/") : xstrndup(path, (size_t) (slash - path));
	cleanup_fd int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return zw_errno(e, errno, "--print-key-file: cannot write %s", path);
	if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
		return zw_errno(e, errno, "--print-key-file: cannot write into the directory of %s", path);
	return 0;
}

static int check_files(struct start *s, struct zw_error *e)
{
	const struct serve_options *o = s->d->options;
	int r = check_policy("--ceiling", o->ceiling, e);

	if (r == 0)
		r = check_policy("--policy", o->policy, e);
	if (r == 0 && o->print_key_file != NULL)
		r = check_key_file(o->print_key_file, e);
	if (r == 0 && o->templates != NULL) {
		cleanup_fd int fd = open(o->templates, O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0)
			return zw_errno(e, errno, "--templates: cannot open the directory %s", o->templates);
	}
	return r;
}

static int check_certificate(struct start *s, struct zw_error *e)
{
	const struct serve_options *o = s->d->options;
	SSL_CTX *context;
	int r = tls_start(e);

	if (r < 0 || o->tls_cert == NULL)
		return r;
	context = tls_context_load(o->tls_cert, o->tls_key, e);
	if (context == NULL)
		return e->code;
	SSL_CTX_free(context);
	return 0;
}

static int set_origins(struct start *s, struct zw_error *e)
{
	const struct serve_options *o = s->d->options;
	struct origins *origins = &s->d->origins;

	for (size_t i = 0; i < o->allow_hosts.count; i++)
		if (!origins_add_host(origins, o->allow_hosts.items[i]))
			return zw_error(e, EINVAL, "--allow-host: \"%.200s\" is no host name", o->allow_hosts.items[i]);
	for (size_t i = 0; i < o->allow_origins.count; i++)
		if (!origins_add_origin(origins, o->allow_origins.items[i]))
			return zw_error(e, EINVAL, "--allow-origin: \"%.200s\" is no origin; write https://example.org",
					o->allow_origins.items[i]);
	if (o->domain != NULL && !origins_set_domain(origins, o->domain))
		return zw_error(e, EINVAL, "--domain: \"%.200s\" is no domain", o->domain);
	for (size_t i = 0; i < s->count; i++)
		if (s->addresses[i].host != NULL)
			(void) origins_add_host(origins,
						s->addresses[i].host); /* an address is compared with that of the connection */
	return 0;
}

static int open_log(struct start *s, struct zw_error *e)
{
	const struct serve_options *o = s->d->options;

	s->d->log = dlog_new(o->log, strcmp(o->log_format, "json") == 0, e);
	return s->d->log != NULL ? 0 : e->code;
}

static int open_state(struct start *s, struct zw_error *e)
{
	cleanup_free char *path = s->d->options->state != NULL ? xstrdup(s->d->options->state) : state_default(e);

	return path != NULL ? state_open(path, &s->d->state, e) : e->code;
}

/* ---- What can fail. ---- */

static int lock_state(struct start *s, struct zw_error *e)
{
	return state_lock(&s->d->state, e);
}

static int open_store(struct start *s, struct zw_error *e)
{
	int r = store_open(s->d->state.path, &s->d->store, e);

	if (r == 0)
		r = keys_open(&s->d->store, &s->d->keys, e);
	if (r == 0)
		s->d->idempotency = idempotency_new(&s->d->store);
	return r == 0 ? e2b_tokens_open(s->d, e) : r;
}

/* No settings from the environment, no locks (one thread). */
static int make_base(struct start *s, struct zw_error *e)
{
	struct event_config *config = event_config_new();

	if (config != NULL) {
		(void) event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
		(void) event_config_require_features(config, EV_FEATURE_O1);
		s->d->base = event_base_new_with_config(config);
		event_config_free(config);
	}
	return s->d->base != NULL ? 0 : zw_error(e, ENOMEM, "the event loop cannot be set up");
}

static int make_server(struct start *s, struct zw_error *e)
{
	static const struct http_times times = {
	    .head = 20 * USEC_PER_SEC, .idle = 75 * USEC_PER_SEC, .progress = 60 * USEC_PER_SEC, .linger = 2 * USEC_PER_SEC};
	struct http_limits limits = {.times = times,
				     .connections_max = CONNECTIONS_MAX,
				     .json_bytes_max = JSON_BYTES_MAX,
				     .answer_bytes_max = ANSWER_BYTES_MAX};
	struct rlimit files;

	(void) e;
	/* The other two thirds are for sandboxes. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / 3 < limits.connections_max)
		limits.connections_max = files.rlim_cur / 3;
	if (limits.connections_max < CONNECTIONS_MIN)
		limits.connections_max = CONNECTIONS_MIN;
	http_server_init(&s->d->http, s->d, s->d->base, &limits);
	s->d->http.dispatch = router_dispatch;
	s->d->metrics = metrics_new();
	metrics_set(s->d->metrics, METRIC_BUILD_INFO, METRIC_LABELS(ZWINGER_VERSION), 1);
	s->d->router = router_new();
	return 0;
}

void daemon_add_routes(struct daemon *d)
{
	api_health_add(d);
	api_keys_add(d);
	api_sandboxes_add(d);
	api_run_add(d);
	api_processes_add(d);
	api_files_add(d);
	api_watch_add(d);
	api_fork_add(d);
	api_contexts_add(d);
	api_record_add(d);
	api_logs_add(d);
}

static int make_parts(struct start *s, struct zw_error *e)
{
	int r;

	daemon_add_routes(s->d);
	e2b_add(s->d);
	mcp_http_add(s->d);
	r = snapshots_start(s->d, e);
	return r == 0 ? sandboxes_start(s->d, e) : r;
}

/* For MCP on standard input and output: nobody but its client can ask for anything. */
static int make_sandboxes(struct start *s, struct zw_error *e)
{
	return sandboxes_start(s->d, e);
}

static int start_stdio(struct start *s, struct zw_error *e)
{
	return mcp_stdio_start(s->d, e);
}

static int watch_signals(struct start *s, struct zw_error *e)
{
	return daemon_watch_signals(s->d, e);
}

static int listen_everywhere(struct start *s, struct zw_error *e)
{
	int r = 0;

	s->d->listeners = http_listeners_new(&s->d->http);
	for (size_t i = 0; i < s->count && r == 0; i++)
		r = http_listen(s->d->listeners, &s->addresses[i], s->d->tls, e);
	return r == 0 ? http_listen_owner(s->d->listeners, s->d->state.fd, "zwinger.sock", e) : r;
}

static int load_certificate(struct start *s, struct zw_error *e)
{
	return daemon_load_tls(s->d, s->addresses, s->count, e);
}

static int make_first_key(struct start *s, struct zw_error *e)
{
	struct daemon *d = s->d;
	const struct key *key;
	int r;

	if (d->keys.count > 0)
		return 0;
	r = keys_add(&d->keys, "first", SCOPE_ADMIN, 0, d->first_key, &key, e);
	if (r == 0)
		memcpy(d->first_key_id, key->id, sizeof d->first_key_id);
	return r;
}

static int watch(struct start *s, struct zw_error *e)
{
	int r = daemon_watch_signals(s->d, e);

	s->d->key_watch = r == 0 ? key_watch_new(s->d, e) : NULL;
	if (s->d->key_watch == NULL)
		return e->code;
	return http_listeners_start(s->d->listeners, e);
}

static int announce(struct start *s, struct zw_error *e)
{
	int r = daemon_announce(s->d, e);

	/* A key that nobody was told would be in the way of one that somebody is. */
	if (r < 0 && s->d->first_key_id[0] != '\0')
		(void) keys_revoke(&s->d->keys, s->d->first_key_id, NULL); /* the first fault is the one to tell */
	return r;
}

static const struct step {
	const char *name;
	int status; /* of the program when it fails */
	int (*run)(struct start *s, struct zw_error *e);
} serve_steps[] = {
    {"read the addresses", DAEMON_REFUSED, read_addresses},
    {"check for plain HTTP", DAEMON_REFUSED, check_plain},
    {"check the files", DAEMON_REFUSED, check_files},
    {"check the certificate", DAEMON_REFUSED, check_certificate},
    {"set hosts and origins", DAEMON_REFUSED, set_origins},
    {"open the log", DAEMON_REFUSED, open_log},
    {"open the state directory", DAEMON_FAILED, open_state},
    {"lock the state directory", DAEMON_FAILED, lock_state},
    {"open the database", DAEMON_FAILED, open_store},
    {"make the event loop", DAEMON_FAILED, make_base},
    {"make the server", DAEMON_FAILED, make_server},
    {"make the parts", DAEMON_FAILED, make_parts},
    {"listen", DAEMON_FAILED, listen_everywhere},
    {"load the certificate", DAEMON_FAILED, load_certificate},
    {"watch signals and keys", DAEMON_FAILED, watch},
    {"make the first key", DAEMON_FAILED, make_first_key},
    {"announce", DAEMON_FAILED, announce},
};

static const struct step mcp_steps[] = {
    {"open the log", DAEMON_REFUSED, open_log},
    {"open the state directory", DAEMON_FAILED, open_state},
    {"lock the state directory", DAEMON_FAILED, lock_state},
    {"open the database", DAEMON_FAILED, open_store},
    {"make the event loop", DAEMON_FAILED, make_base},
    {"make the server", DAEMON_FAILED, make_server},
    {"make the sandboxes", DAEMON_FAILED, make_sandboxes},
    {"watch signals", DAEMON_FAILED, watch_signals},
    {"serve standard input", DAEMON_FAILED, start_stdio},
};

static int start(struct start *s, const struct step *steps, size_t count)
{
	struct zw_error e = {0};

	for (size_t i = 0; i < count; i++) {
		if (steps[i].run(s, &e) == 0)
			continue;
		log_error("%s", e.text);
		/* A directory that is not fit for it is a wrong setting. */
		return e.code == -EINVAL || e.code == -EPERM ? DAEMON_REFUSED : steps[i].status;
	}
	return 0;
}

static void end(struct daemon *d)
{
	if (d->base != NULL)
		http_server_done(&d->http);
	d->listeners = http_listeners_free(d->listeners);
	d->snapshots = snapshots_free(d->snapshots);
	d->sandboxes = sandboxes_free(d->sandboxes);
	d->mcp_http = mcp_http_free(d->mcp_http);
	d->mcp_stdio = mcp_stdio_free(d->mcp_stdio);
	d->key_watch = key_watch_free(d->key_watch);
	daemon_forget_signals(d);
	d->idempotency = idempotency_free(d->idempotency);
	d->router = router_free(d->router);
	d->metrics = metrics_free(d->metrics);
	keys_done(&d->keys);
	store_done(&d->store);
	if (d->base != NULL)
		event_base_free(d->base);
	origins_done(&d->origins);
	state_done(&d->state);
	d->log = dlog_free(d->log);
}

static int run(const struct serve_options *options, const struct step *steps, size_t count)
{
	struct daemon d = {.options = options, .state = {.fd = -EBADF, .lock_fd = -EBADF}, .started = now_monotonic()};
	struct start s = {.d = &d};
	int status = start(&s, steps, count);

	for (size_t i = 0; i < s.count; i++)
		listen_address_done(&s.addresses[i]);
	free(s.addresses);
	if (status == 0) {
		dlog(d.log, DLOG_INFO, "ready", dlog_text("version", ZWINGER_VERSION), dlog_number("keys", d.keys.count));
		(void) event_base_loop(d.base, EVLOOP_NO_EXIT_ON_EMPTY); /* ends by a signal */
		dlog(d.log, DLOG_INFO, "ended");
		status = d.exit_status;
	}
	end(&d);
	return status;
}

int daemon_serve(const struct serve_options *options)
{
	return run(options, serve_steps, ARRAY_SIZE(serve_steps));
}

int daemon_mcp(const struct serve_options *options)
{
	return run(options, mcp_steps, ARRAY_SIZE(mcp_steps));
}
