/* What the daemon says once it listens: to the person at the terminal, to whoever asked for a key file, to the service manager.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/log.h"

static char *url_of(const struct daemon *d, const char *text, const struct sockaddr_storage *address)
{
	char host[ADDRESS_TEXT_SIZE];
	uint16_t port;

	if (address == NULL)
		return xstrdup(text);
	(void) address_text(address, host, &port);
	/* What means every address is no address to connect to. */
	if (strcmp(host, "0.0.0.0") == 0)
		(void) snprintf(host, sizeof host, "127.0.0.1");
	else if (strcmp(host, "::") == 0)
		(void) snprintf(host, sizeof host, "::1");
	return xasprintf(strchr(host, ':') != NULL ? "%s://[%s]:%u" : "%s://%s:%u", d->tls ? "https" : "http", host,
			 (unsigned) port);
}

char *daemon_url(const struct daemon *d)
{
	const struct sockaddr_storage *address;
	const char *text;

	for (size_t i = 0; (text = http_listening(d->listeners, i, &address)) != NULL; i++)
		if (address != NULL)
			return url_of(d, text, address);
	text = http_listening(d->listeners, 0, &address);
	return text != NULL ? url_of(d, text, address) : xasprintf("unix:%s/zwinger.sock", d->state.path);
}

static void add_try_line(const struct daemon *d, const char *url, struct buf *b)
{
	const char *path = strncmp(url, "unix:", 5) == 0 ? url + 5 : NULL;

	(void) buf_adds(b, "try it: curl ");
	if (path != NULL)
		(void) buf_addf(b, "--unix-socket '%s' ", path);
	else if (d->options->tls != NULL)
		(void) buf_addf(b, "--cacert '%s/tls/cert.pem' ", d->state.path);
	(void) buf_addf(b, "-H 'Authorization: Bearer %s' %s/v1/info\n", d->first_key, path != NULL ? "http://localhost" : url);
}

/* Standard output may be closed or full: that is nobody's harm but the reader's. */
static void print(const struct daemon *d, const char *url)
{
	cleanup_buf struct buf b = buf_new(64 * 1024);
	const struct sockaddr_storage *address;
	const char *text;

	for (size_t i = 0; (text = http_listening(d->listeners, i, &address)) != NULL; i++) {
		cleanup_free char *each = url_of(d, text, address);

		dlog(d->log, DLOG_INFO, "listening", dlog_text("at", each));
		if (strcmp(text, "zwinger.sock") != 0)
			(void) buf_addf(&b, "zwinger listens at %s\n", each);
	}
	if (d->first_key[0] != '\0') {
		(void) buf_addf(&b, "first key, of scope admin, shown this once: %s\n", d->first_key);
		add_try_line(d, url, &b);
	}
	if (b.size > 0)
		(void) fd_write_all(STDOUT_FILENO, b.data, b.size);
	if (b.size > 0)
		sodium_memzero(b.data, b.size);
}

static int write_key_file(const struct daemon *d, const char *url, struct zw_error *e)
{
	bool fresh = d->first_key[0] != '\0';
	json_t *o = json_pack("{s:s, s:s?, s:s?, s:s, s:i}", "url", url, "key", fresh ? d->first_key : NULL, "key_id",
			      fresh ? d->first_key_id : NULL, "scope", "admin", "pid", (int) getpid());
	cleanup_free char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	int r = text != NULL ? state_write_file(AT_FDCWD, d->options->print_key_file, text, strlen(text), e)
			     : zw_error(e, ENOMEM, "there is not enough memory for the key file");

	json_decref(o);
	return r;
}

/* sd_notify(3): a datagram to the socket in the environment. */
static void notify_manager(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_fd int fd = -EBADF;

	if (path == NULL || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof address.sun_path)
		return;
	memcpy(address.sun_path, path, strlen(path));
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void) sendto(
		    fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *) &address,
		    (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(path))); /* it times out then, and says so */
	(void) unsetenv("NOTIFY_SOCKET");
}

int daemon_announce(struct daemon *d, struct zw_error *e)
{
	cleanup_free char *url = daemon_url(d);
	int r = 0;

	if (d->options->print_key_file != NULL)
		r = write_key_file(d, url, e);
	if (r < 0)
		return r;
	print(d, url);
	notify_manager();
	sodium_memzero(d->first_key, sizeof d->first_key);
	return 0;
}
