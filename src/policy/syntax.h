/* The small languages inside a policy: host patterns, addresses, ports, paths, names. Pure functions over text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a text is not what was wanted. */
struct fault {
	char message[320];
	char suggestion[256]; /* empty when there is none */
};

/* Checks, and may replace *text by its canonical form (freeing the old one). False with the fault filled. */
typedef bool syntax_check(char **text, struct fault *f);

syntax_check syntax_name;         /* a label for people: printable, at most 128 bytes */
syntax_check syntax_identifier;   /* names of secrets */
syntax_check syntax_hostname;     /* of the sandbox: RFC 1123, at most 64 bytes (HOST_NAME_MAX) */
syntax_check syntax_host_pattern; /* "example.org", "*.example.org"; becomes lower case without trailing dot */
syntax_check syntax_host;         /* the same without wildcard */
syntax_check syntax_address;      /* IPv4 or IPv6, with or without /prefix; becomes canonical */
syntax_check syntax_bind;         /* an address without prefix */
syntax_check syntax_endpoint;     /* "10.1.2.3", "127.0.0.1:8443", "[::1]:8443", "::1" */
syntax_check syntax_rule_set;     /* "@pip" */
syntax_check syntax_method;       /* HTTP method, RFC 9110 token in capitals */
syntax_check syntax_url_path;     /* glob over a decoded URL path */
syntax_check syntax_header;       /* header name, RFC 9110 token */
syntax_check syntax_secret_format;
syntax_check syntax_placeholder;
syntax_check syntax_env_name;
syntax_check syntax_env_value;
syntax_check syntax_syscall; /* known to this architecture */
syntax_check syntax_lsm;     /* profile or label */
syntax_check syntax_argument;

bool syntax_port(const char *text, uint16_t *ret);

/* "443" or "8000-8010". */
bool syntax_port_range(const char *text, uint16_t *ret_first, uint16_t *ret_last);

/* A path inside the sandbox: absolute, without "..", and not one that the sandbox itself owns. The first makes it canonical (no
 * "//", "/./" or trailing slash). */
syntax_check syntax_inside_path;
syntax_check syntax_target;

/* True when the text is an IPv4 or IPv6 address, perhaps with a prefix. */
bool syntax_is_address(const char *text);
