#include "policy/syntax.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/seccomp.h"
#include "policy/network-parts.h"
#include "policy/text.h"

__attribute__((format(printf, 2, 3))) static bool wrong(struct fault *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void) vsnprintf(f->message, sizeof f->message, fmt, ap);
	va_end(ap);
	return false;
}

static void suggest(struct fault *f, const char *text)
{
	(void) snprintf(f->suggestion, sizeof f->suggestion, "%s", text);
}

static bool is_alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool has_control(const char *s)
{
	for (; *s != '\0'; s++)
		if ((unsigned char) *s < 0x20 || *s == 0x7f)
			return true;
	return false;
}

/* RFC 9110 section 5.6.2 */
static bool is_token(const char *s)
{
	if (*s == '\0')
		return false;
	for (; *s != '\0'; s++)
		if (!is_alpha(*s) && !is_digit(*s) && strchr("!#$%&'*+-.^_`|~", *s) == NULL)
			return false;
	return true;
}

bool syntax_name(char **text, struct fault *f)
{
	if (**text == '\0' || strlen(*text) > 128 || has_control(*text))
		return wrong(f, "expected 1 to 128 printable bytes");
	return true;
}

bool syntax_identifier(char **text, struct fault *f)
{
	const char *s = *text;

	if (*s == '\0' || strlen(s) > 64)
		return wrong(f, "expected a name of 1 to 64 letters, digits, \"_\", \"-\" or \".\"");
	for (; *s != '\0'; s++)
		if (!is_alpha(*s) && !is_digit(*s) && strchr("_-.", *s) == NULL)
			return wrong(f, "expected a name of letters, digits, \"_\", \"-\" or \".\"");
	return true;
}

bool syntax_lsm(char **text, struct fault *f)
{
	if (**text == '\0' || strlen(*text) > 255 || has_control(*text))
		return wrong(f, "expected the name of a profile or label");
	return true;
}

bool syntax_argument(char **text, struct fault *f)
{
	return strlen(*text) <= 4096 || wrong(f, "expected at most 4096 bytes");
}

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", NULL};

bool syntax_method(char **text, struct fault *f)
{
	char upper[32];
	size_t size = strlen(*text);
	struct nearest n;

	if (!is_token(*text) || size >= sizeof upper)
		return wrong(f, "expected an HTTP method such as GET");
	for (size_t i = 0; i <= size; i++)
		upper[i] = (*text)[i] >= 'a' && (*text)[i] <= 'z' ? (char) ((*text)[i] - 'a' + 'A') : (*text)[i];
	if (strcmp(upper, *text) == 0)
		return true;
	n = nearest_to(upper);
	nearest_try_all(&n, methods);
	suggest(f, n.best != NULL ? n.best : upper);
	return wrong(f, "expected an HTTP method in capitals");
}

bool syntax_header(char **text, struct fault *f)
{
	if (!is_token(*text) || strlen(*text) > 128)
		return wrong(f, "expected the name of an HTTP header such as Authorization");
	return true;
}

bool syntax_secret_format(char **text, struct fault *f)
{
	const char *first = strstr(*text, "{}");

	if (has_control(*text) || strlen(*text) > 1024)
		return wrong(f, "expected one line of at most 1024 bytes");
	if (first == NULL || strstr(first + 2, "{}") != NULL) {
		suggest(f, "Bearer {}");
		return wrong(f, "expected a text with {} once, where the secret goes");
	}
	return true;
}

bool syntax_placeholder(char **text, struct fault *f)
{
	size_t size = strlen(*text);

	/* A short one would be found where nobody put it. */
	if (size < 8 || size > 256 || has_control(*text))
		return wrong(f, "expected a placeholder of 8 to 256 printable bytes");
	return true;
}

static bool is_url_path_plain(const char *s, struct fault *f)
{
	if (strchr(s, '\\') != NULL || strchr(s, '?') != NULL || strchr(s, '#') != NULL || has_control(s))
		return wrong(f, "expected a path without \"\\\", \"?\", \"#\" and control characters");
	if (strchr(s, '%') != NULL)
		return wrong(f, "expected a decoded path; paths are compared after decoding, so nothing is written with %%");
	for (const char *p = s; p != NULL; p = strchr(p + 1, '/'))
		if (strncmp(p, "/../", 4) == 0 || strcmp(p, "/..") == 0 || strncmp(p, "/./", 3) == 0 || strcmp(p, "/.") == 0)
			return wrong(f, "expected a path without \".\" and \"..\"; such a path never matches");
	return true;
}

bool syntax_url_path(char **text, struct fault *f)
{
	if (**text == '\0' || strlen(*text) > 1024)
		return wrong(f, "expected a path of 1 to 1024 bytes");
	if (**text != '/') {
		(void) snprintf(f->suggestion, sizeof f->suggestion, "/%.200s", *text);
		return wrong(f, "expected a path that starts with /");
	}
	if (strstr(*text, "//") != NULL)
		return wrong(f, "expected a path without \"//\"; such a path never matches");
	return is_url_path_plain(*text, f);
}

bool syntax_env_name(char **text, struct fault *f)
{
	const char *equals = strchr(*text, '=');

	if (equals != NULL) {
		(void) snprintf(f->suggestion, sizeof f->suggestion, "%.*s", (int) (equals - *text), *text);
		return wrong(f, "expected the name of an environment variable, without \"=\"");
	}
	if (**text == '\0' || strlen(*text) > 256 || has_control(*text))
		return wrong(f, "expected the name of an environment variable, 1 to 256 printable bytes");
	return true;
}

bool syntax_env_value(char **text, struct fault *f)
{
	/* MAX_ARG_STRLEN of execve(2) is 128 KiB for name, "=" and value. */
	return strlen(*text) <= 128 * 1024 - 512 || wrong(f, "expected a value below 128 KiB, which execve(2) can pass");
}

bool syntax_syscall(char **text, struct fault *f)
{
	struct nearest n;

	if (seccomp_number(*text) >= 0)
		return true;
	n = nearest_to(*text);
	for (int nr = 0; nr < 1024; nr++) {
		const char *name = seccomp_name(nr);

		if (name != NULL)
			nearest_try(&n, name);
	}
	if (n.best != NULL)
		suggest(f, n.best);
	return wrong(f, "expected the name of a system call of this architecture");
}

/* ---- Ports. ---- */

bool syntax_port(const char *text, uint16_t *ret)
{
	uint64_t value;

	if (parse_whole(text, &value) < 0 || value < 1 || value > UINT16_MAX)
		return false;
	*ret = (uint16_t) value;
	return true;
}

bool syntax_port_range(const char *text, uint16_t *ret_first, uint16_t *ret_last)
{
	const char *dash = strchr(text, '-');
	char first[8];
	uint16_t a, b;

	if (dash == NULL) {
		if (!syntax_port(text, &a))
			return false;
		*ret_first = *ret_last = a;
		return true;
	}
	if ((size_t) (dash - text) >= sizeof first)
		return false;
	(void) snprintf(first, sizeof first, "%.*s", (int) (dash - text), text);
	if (!syntax_port(first, &a) || !syntax_port(dash + 1, &b) || a > b)
		return false;
	*ret_first = a;
	*ret_last = b;
	return true;
}

/* ---- Host names. ---- */

static bool is_dns_name(const char *text)
{
	char name[NETWORK_NAME_SIZE];

	return network_name(text, strlen(text), name) == 0;
}

/* "http://origin.test/x" → "origin.test" */
static void suggest_host_of_url(struct fault *f, const char *url)
{
	const char *host = strstr(url, "://");
	char name[256];
	size_t size;

	host = host != NULL ? host + 3 : url;
	size = strcspn(host, "/:?#@");
	if (size == 0 || size >= sizeof name)
		return;
	(void) snprintf(name, sizeof name, "%.*s", (int) size, host);
	if (is_dns_name(name))
		suggest(f, name);
}

static bool has_byte_above_127(const char *s)
{
	for (; *s != '\0'; s++)
		if ((unsigned char) *s >= 0x80)
			return true;
	return false;
}

static bool check_host(char **text, bool wildcard, struct fault *f)
{
	const char *rest = *text;
	char name[NETWORK_NAME_SIZE];

	if (*rest == '\0')
		return wrong(f, "expected a host name; an empty one matches nothing");
	if (strchr(rest, '/') != NULL || strchr(rest, ':') != NULL) {
		suggest_host_of_url(f, rest);
		return wrong(f, "expected a host name alone, without scheme, port or path");
	}
	if (has_byte_above_127(rest))
		return wrong(f, "expected a host name in ASCII; write an international name as xn--...");
	if (strcmp(rest, "*") == 0)
		return wrong(f, "expected the hosts by name; \"*\" alone is not a pattern");
	if (wildcard && rest[0] == '*' && rest[1] == '.')
		rest += 2;
	if (strchr(rest, '*') != NULL || *rest == '\0')
		return wrong(f, wildcard ? "matches nothing: \"*.\" may stand once, in front of a name, as in *.example.org"
					 : "expected one host name, without \"*\"");
	if (network_pattern(*text, strlen(*text), name) < 0)
		return wrong(f, "expected a host name such as api.example.org (labels of letters, digits and \"-\")");
	free(*text);
	*text = xstrdup(name);
	return true;
}

bool syntax_host_pattern(char **text, struct fault *f)
{
	if (syntax_is_address(*text))
		return wrong(f, "expected a host name; an address goes under the key address");
	return check_host(text, true, f);
}

bool syntax_host(char **text, struct fault *f)
{
	if (syntax_is_address(*text))
		return wrong(f, "expected a host name, no address");
	return check_host(text, false, f);
}

bool syntax_hostname(char **text, struct fault *f)
{
	size_t size = strlen(*text);

	if (size > 64 || !is_dns_name(*text) || strchr(*text, '_') != NULL || (*text)[size - 1] == '.')
		return wrong(f, "expected a host name of at most 64 letters, digits, \"-\" and \".\"");
	return true;
}

static const char *const rule_sets[] = {"@pip", "@npm", "@git-https", "@apt", NULL};

bool syntax_rule_set(char **text, struct fault *f)
{
	struct nearest n = nearest_to(*text);

	for (size_t i = 0; rule_sets[i] != NULL; i++)
		if (strcmp(rule_sets[i], *text) == 0)
			return true;
	nearest_try_all(&n, rule_sets);
	if (n.best != NULL)
		suggest(f, n.best);
	return wrong(f, "expected one of the built-in rule sets @pip, @npm, @git-https, @apt");
}

/* ---- Addresses. ---- */

bool syntax_is_address(const char *text)
{
	struct net_prefix p;

	return network_prefix_parse(text, &p);
}

bool syntax_address(char **text, struct fault *f)
{
	bool range = strchr(*text, '/') != NULL;
	char buf[NET_PREFIX_TEXT];
	struct net_prefix p;

	if (!network_prefix_parse(*text, &p))
		return wrong(f, "expected an IPv4 or IPv6 address, or a range such as 10.1.0.0/16");
	if (network_prefix_trim(&p)) {
		suggest(f, network_prefix_text(&p, buf));
		return wrong(f, "expected a range without bits behind its prefix");
	}
	free(*text);
	*text = xstrdup(range ? network_prefix_text(&p, buf) : network_address_text(&p.address, buf));
	return true;
}

bool syntax_bind(char **text, struct fault *f)
{
	if (strchr(*text, '/') != NULL || !syntax_is_address(*text))
		return wrong(f, "expected an address to listen on, such as 127.0.0.1");
	return syntax_address(text, f);
}

bool syntax_endpoint(char **text, struct fault *f)
{
	char buf[NET_ADDRESS_TEXT];
	struct net_address a;
	uint16_t port;

	if (!network_endpoint_parse(*text, &a, &port))
		return wrong(f, "expected an address, or an address and a port, such as 10.1.2.3, 127.0.0.1:8443 or [::1]:8443");
	(void) network_address_text(&a, buf);
	free(*text);
	*text = port == 0 ? xstrdup(buf) : xasprintf(a.family == AF_INET6 ? "[%s]:%u" : "%s:%u", buf, port);
	return true;
}

/* ---- Paths inside. ---- */

bool syntax_inside_path(char **text, struct fault *f)
{
	const char *s = *text;
	char *clean, *out;

	if (*s != '/')
		return wrong(f, "expected an absolute path inside the sandbox");
	if (strlen(s) >= 4096)
		return wrong(f, "expected a path below 4096 bytes");
	clean = out = xcalloc(strlen(s) + 2, 1);
	while (*s != '\0') {
		size_t size;

		s += strspn(s, "/");
		size = strcspn(s, "/");
		if (size == 2 && s[0] == '.' && s[1] == '.') {
			free(clean);
			return wrong(f, "expected a path without \"..\"");
		}
		if (size > 0 && !(size == 1 && s[0] == '.')) {
			*out++ = '/';
			memcpy(out, s, size);
			out += size;
		}
		s += size;
	}
	if (out == clean)
		*out = '/';
	free(*text);
	*text = clean;
	return true;
}

static bool is_at_or_below(const char *path, const char *folder)
{
	size_t size = strlen(folder);

	return strncmp(path, folder, size) == 0 && (path[size] == '\0' || path[size] == '/');
}

bool syntax_target(char **text, struct fault *f)
{
	static const char *const own[] = {"/proc", "/sys", "/dev", "/run/zwinger", "/etc"};
	static const char *const system[] = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};

	if (!syntax_inside_path(text, f))
		return false;
	if (strcmp(*text, "/") == 0 || strcmp(*text, "/run") == 0 || strcmp(*text, "/tmp") == 0)
		return wrong(f, "expected a folder of its own; %s belongs to the sandbox and cannot be covered", *text);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (is_at_or_below(*text, own[i]))
			return wrong(f,
				     "expected a path outside of %s, which the sandbox makes itself (/proc, /sys, /dev, /etc, "
				     "/run/zwinger)",
				     own[i]);
	for (size_t i = 0; i < ARRAY_SIZE(system); i++)
		if (is_at_or_below(*text, system[i]))
			return wrong(
			    f,
			    "expected a path outside of %s: the system's programs and libraries are there already, read-only, "
			    "and may not be covered",
			    system[i]);
	return true;
}
