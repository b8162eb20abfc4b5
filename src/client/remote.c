#include "client/remote.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "client/show.h"

enum { KEEPALIVE_SECONDS = 30 };
enum { CONNECT_SECONDS = 10, SILENCE_SECONDS = 60, LINES_MAX = 32, LINE_MAX_BYTES = 1000 };

/* ---- One request. ---- */

bool transfer_is_good(const struct transfer *t)
{
	long status = 0;

	(void) curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	return status >= 200 && status < 300;
}

static size_t on_body(char *data, size_t one, size_t size, void *ctx)
{
	struct transfer *t = ctx;
	bool good = transfer_is_good(t);
	int r;

	size *= one;
	if (good && t->sink != NULL) {
		r = t->sink(t->ctx, data, size);
		return r == 1 ? CURL_WRITEFUNC_PAUSE : r == 0 ? size : CURL_WRITEFUNC_ERROR;
	}
	if (buf_add(&t->body, data, size) == 0 && (good || t->body.size <= REMOTE_PROBLEM_MAX))
		return size;
	t->too_large = true;
	return CURL_WRITEFUNC_ERROR;
}

void transfer_header(struct transfer *t, const char *line)
{
	struct curl_slist *longer = curl_slist_append(t->headers, line);

	if (longer != NULL) /* without memory the request lacks it, and is refused */
		t->headers = longer;
	(void) curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
}

void transfer_init(struct transfer *t, const struct remote *r, CURL *easy, const char *method, const char *path, json_t *body)
{
	*t = (struct transfer){.remote = r, .easy = easy, .body = buf_new(REMOTE_JSON_MAX)};
	t->url = xasprintf("%s%s", r->base, path);
	curl_easy_reset(easy);
	(void) curl_easy_setopt(easy, CURLOPT_URL, t->url);
	(void) curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	(void) curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
	(void) curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
	(void) curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* a proxy of the environment would be shown the key */
	(void) curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	(void) curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void) curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long) CONNECT_SECONDS);
	(void) curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L); /* also a stream has a comment each 15 s */
	(void) curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long) SILENCE_SECONDS);
	(void) curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->error);
	(void) curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	(void) curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
	if (r->socket != NULL)
		(void) curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, r->socket);
	if (r->cacert != NULL) {
		(void) curl_easy_setopt(easy, CURLOPT_CAINFO, r->cacert);
		(void) curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
	}
	transfer_header(t, "Expect:");
	if (r->key != NULL) {
		cleanup_free char *line = xasprintf("Authorization: Bearer %s", r->key);

		transfer_header(t, line);
	}
	if (body != NULL) {
		t->text = json_dumps(body, JSON_COMPACT);
		json_decref(body);
		transfer_header(t, "Content-Type: application/json");
		(void) curl_easy_setopt(easy, CURLOPT_POSTFIELDS, t->text);
	} else if (strcmp(method, "POST") == 0) {
		(void) curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "");
		transfer_header(t, "Content-Type:");
	}
}

void transfer_upload(struct transfer *t, curl_read_callback read, void *ctx, curl_off_t size)
{
	(void) curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L);
	(void) curl_easy_setopt(t->easy, CURLOPT_READFUNCTION, read);
	(void) curl_easy_setopt(t->easy, CURLOPT_READDATA, ctx);
	(void) curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE, size);
	transfer_header(t, "Content-Type: application/octet-stream");
}

void transfer_may_be_silent(struct transfer *t)
{
	(void) curl_easy_setopt(t->easy, CURLOPT_LOW_SPEED_LIMIT, 0L);
	(void) curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPALIVE, 1L);
	(void) curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPIDLE, (long) KEEPALIVE_SECONDS);
	(void) curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPINTVL, (long) KEEPALIVE_SECONDS);
}

void transfer_done(struct transfer *t)
{
	curl_slist_free_all(t->headers);
	buf_done(&t->body);
	free(t->url);
	free(t->text);
	t->headers = NULL;
	t->url = t->text = NULL;
}

/* ---- What went wrong. ---- */

static void tell(const char *text, const char *before)
{
	cleanup_free char *safe = show_safe(text, LINE_MAX_BYTES);

	log_error("%s%s", before, safe);
}

static bool tell_problem(const char *data, size_t size, int *ret_exit_code)
{
	json_t *problem = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL), *list = json_object_get(problem, "errors"), *item;
	const char *message = json_string_value(json_object_get(problem, "message")),
		   *hint = json_string_value(json_object_get(problem, "hint"));
	json_int_t code = json_integer_value(json_object_get(problem, "exit_code"));
	size_t i;

	if (message != NULL)
		tell(message, "");
	if (message != NULL && json_array_size(list) > 1)
		json_array_foreach(list, i, item)
		{
			const char *path = json_string_value(json_object_get(item, "path")),
				   *text = json_string_value(json_object_get(item, "message"));
			cleanup_free char *line = xasprintf("%s: %s", path != NULL ? path : "?", text != NULL ? text : "?");

			if (i < LINES_MAX)
				tell(line, "  ");
		}
	if (message != NULL && hint != NULL)
		tell(hint, "hint: ");
	if (code == 126 || code == 127)
		*ret_exit_code = (int) code;
	json_decref(problem);
	return message != NULL;
}

/* Returns the exit status that this means. */
static int tell_status(const struct transfer *t)
{
	long status = 0;
	int exit_code = EXIT_REFUSED;

	(void) curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (t->body.size == 0 || !tell_problem(t->body.data, t->body.size, &exit_code))
		log_error("%s answered with status %ld and no reason that could be read", t->remote->where, status);
	return exit_code;
}

static void tell_code(const struct transfer *t, CURLcode code)
{
	cleanup_free char *why = show_safe(t->error[0] != '\0' ? t->error : curl_easy_strerror(code), LINE_MAX_BYTES);

	switch ((int) code) {
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
		log_error("no daemon answers at %s: %s", t->remote->where, why);
		log_error("hint: %s", t->remote->remedy);
		break;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		log_error("the certificate of %s is not trusted: %s", t->remote->where, why);
		log_error(
		    "hint: name the certificate to trust with --cacert; that of --tls self-signed is tls/cert.pem in the state "
		    "directory");
		break;
	case CURLE_OPERATION_TIMEDOUT:
		log_error("%s has not said anything for too long", t->remote->where);
		break;
	default:
		log_error("the connection to %s failed: %s", t->remote->where, why);
	}
}

int transfer_judge(const struct transfer *t, CURLcode code)
{
	if (t->too_large)
		log_error("%s answered with more than a client accepts", t->remote->where);
	else if (code != CURLE_OK)
		tell_code(t, code);
	else if (!transfer_is_good(t))
		return tell_status(t);
	else
		return 0;
	return EXIT_REFUSED;
}

/* ---- Asking. ---- */

json_t *remote_parse(const struct transfer *t)
{
	json_t *value = t->body.size > 0 ? json_loadb(t->body.data, t->body.size, JSON_REJECT_DUPLICATES, NULL) : NULL;

	if (value == NULL)
		log_error("%s answered with something that is no JSON; is it a Zwinger daemon?", t->remote->where);
	return value;
}

static int ask(struct remote *r, const char *method, const char *path, json_t *body, json_t **ret, long *ret_status)
{
	struct transfer t;
	CURLcode code;
	long status = 0;
	int result;

	transfer_init(&t, r, r->spare, method, path, body);
	code = curl_easy_perform(r->spare);
	(void) curl_easy_getinfo(r->spare, CURLINFO_RESPONSE_CODE, &status);
	if (ret_status != NULL)
		*ret_status = status;
	result = ret_status != NULL && code == CURLE_OK && !transfer_is_good(&t) ? EXIT_REFUSED : transfer_judge(&t, code);
	if (result == 0 && ret != NULL) {
		*ret = NULL;
		if (status != 204) {
			*ret = remote_parse(&t);
			result = *ret != NULL ? 0 : EXIT_REFUSED;
		}
	}
	transfer_done(&t);
	return result;
}

int remote_ask(struct remote *r, const char *method, const char *path, json_t *body, json_t **ret)
{
	return ask(r, method, path, body, ret, NULL);
}

int remote_try(struct remote *r, const char *method, const char *path, json_t **ret, long *ret_status)
{
	return ask(r, method, path, NULL, ret, ret_status);
}

/* Bytes that RFC 3986 does not reserve stay. Not curl_easy_escape(3), which takes an int for a size. */
static void escape_into(struct buf *b, const char *text)
{
	for (const unsigned char *p = (const unsigned char *) text; *p != '\0'; p++)
		if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", *p) != NULL)
			(void) buf_add(b, p, 1);
		else
			(void) buf_addf(b, "%%%02X", *p);
}

char *remote_path(const char *format, const char *first, const char *second)
{
	const char *values[] = {first, second};
	struct buf b = buf_new(1024 * 1024);
	size_t next = 0;

	(void) buf_adds(&b, "");
	for (const char *p = format; *p != '\0'; p++)
		if (p[0] == '%' && p[1] == 's' && next < ARRAY_SIZE(values)) {
			escape_into(&b, values[next++]);
			p++;
		} else {
			(void) buf_add(&b, p, 1);
		}
	return b.data;
}

void remote_done(struct remote *r)
{
	if (r->spare != NULL)
		curl_easy_cleanup(r->spare);
	if (r->key != NULL)
		explicit_bzero(r->key, strlen(r->key));
	free(r->base);
	free(r->socket);
	free(r->where);
	free(r->remedy);
	free(r->key);
	free(r->cacert);
	fd_close(&r->folder);
}
