#include "egress/host-dns.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { LINE_SIZE = 1024, NUMBER_MAX = 30 };

static const char blank[] = " \t\r\n";

/* The next word of a line, cut off where it stands; NULL: no more. */
static char *next_word(char **at)
{
	char *word = *at + strspn(*at, blank), *end = word + strcspn(word, blank);

	if (word == end)
		return NULL;
	*at = *end == '\0' ? end : end + 1;
	*end = '\0';
	return word;
}

/* Hands each line, without its comment, to take(). A line that is longer than any sensible one is passed over whole, for its
 * first part could say something else. */
static int each_line(const char *path, void (*take)(void *ctx, char *line), void *ctx, const char *comments, struct zw_error *e)
{
	FILE *f = fopen(path, "re");
	char line[LINE_SIZE];
	bool whole = true;
	int r = 0;

	if (f == NULL)
		return errno == ENOENT ? 0 : zw_errno(e, errno, "cannot read %s", path);
	while (fgets(line, sizeof line, f) != NULL) {
		bool starts = whole, ends = strchr(line, '\n') != NULL || feof(f);

		whole = ends;
		if (!starts || !ends)
			continue;
		line[strcspn(line, comments)] = '\0';
		take(ctx, line);
	}
	if (ferror(f))
		r = zw_errno(e, errno, "cannot read %s", path);
	(void) fclose(f); /* was only read */
	return r;
}

/* ---- resolv.conf ---- */

static void add_server(struct host_dns *h, char *text)
{
	char *zone = strchr(text, '%');
	struct host_dns_server s = {0};

	if (h->server_count == HOST_DNS_SERVERS_MAX)
		return;
	if (zone != NULL) {
		*zone = '\0';
		s.scope = if_nametoindex(zone + 1);
	}
	if (network_address(text, strlen(text), &s.address) < 0)
		return;
	h->servers[h->server_count++] = s;
}

/* "timeout:3": at least 1, at most `most`. */
static bool option_number(const char *word, const char *key, unsigned most, unsigned *ret)
{
	size_t size = strlen(key);
	unsigned value = 0;

	if (strncmp(word, key, size) != 0 || word[size] < '0' || word[size] > '9')
		return false;
	for (const char *at = word + size; *at >= '0' && *at <= '9' && value <= NUMBER_MAX; at++)
		value = value * 10 + (unsigned) (*at - '0');
	*ret = value < 1 ? 1 : value > most ? most : value;
	return true;
}

static void take_option(struct host_dns *h, const char *word)
{
	if (option_number(word, "timeout:", NUMBER_MAX, &h->timeout_seconds) || option_number(word, "attempts:", 5, &h->tries))
		return;
	if (strcmp(word, "rotate") == 0)
		h->rotate = true;
	else if (strcmp(word, "use-vc") == 0)
		h->tcp = true;
}

static void take_resolv_line(void *ctx, char *line)
{
	struct host_dns *h = ctx;
	char *key = next_word(&line), *word;

	if (key == NULL)
		return;
	word = next_word(&line);
	if (strcmp(key, "nameserver") == 0 && word != NULL)
		add_server(h, word);
	for (; strcmp(key, "options") == 0 && word != NULL; word = next_word(&line))
		take_option(h, word);
}

/* ---- hosts ---- */

struct hosts_reader {
	struct host_dns *dns;
	const struct network *network;
};

static void take_hosts_line(void *ctx, char *line)
{
	struct hosts_reader *r = ctx;
	struct host_dns *h = r->dns;
	char *word = next_word(&line);
	struct net_address a;

	if (word == NULL || network_address(word, strlen(word), &a) < 0)
		return;
	for (word = next_word(&line); word != NULL && h->entry_count < HOST_DNS_ENTRIES_MAX; word = next_word(&line)) {
		char name[NETWORK_NAME_SIZE];

		if (network_name(word, strlen(word), name) < 0 || !network_knows_name(r->network, name))
			continue;
		h->entries = xrealloc(h->entries, h->entry_count + 1, sizeof *h->entries);
		h->entries[h->entry_count++] = (struct host_dns_entry){.name = xstrdup(name), .address = a};
	}
}

int host_dns_read(const char *resolv_conf, const char *hosts, const struct network *n, struct host_dns *ret, struct zw_error *e)
{
	struct host_dns h = {.timeout_seconds = 5, .tries = 2}; /* the C library's */
	struct hosts_reader reader = {&h, n};
	int r = each_line(resolv_conf, take_resolv_line, &h, "#;", e);

	if (r == 0)
		r = each_line(hosts, take_hosts_line, &reader, "#", e);
	if (r < 0) {
		host_dns_done(&h);
		return r;
	}
	if (h.server_count == 0) {
		h.servers[0].address.family = AF_INET;
		h.servers[0].address.v4.s_addr = htonl(INADDR_LOOPBACK);
		h.server_count = 1;
	}
	*ret = h;
	return 0;
}

void host_dns_done(struct host_dns *h)
{
	for (size_t i = 0; i < h->entry_count; i++)
		free(h->entries[i].name);
	free(h->entries);
	*h = (struct host_dns){0};
}
