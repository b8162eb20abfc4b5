/* Upstream DNS: what comes back for which answers, what is kept and for how long, and that nothing but the name is ever asked
 * for. */
#include "egress-fixture.h"
#include "egress-zone.h"
#include "egress/resolve.h"

static const char files_template[] = "/tmp/zwinger-resolve-XXXXXX";

static const struct zone_entry entries[] = {
    {.name = "both.example", .type = ZONE_A, .records = {{NULL, ZONE_A, 60, "192.0.2.1"}, {NULL, ZONE_A, 60, "192.0.2.2"}}},
    {.name = "both.example", .type = ZONE_AAAA, .records = {{NULL, ZONE_AAAA, 60, "2001:db8::1"}}},
    {.name = "v4.example", .type = ZONE_A, .records = {{NULL, ZONE_A, 60, "192.0.2.3"}}},
    {.name = "v4.example", .type = ZONE_AAAA},
    {.name = "none.example", .type = ZONE_A},
    {.name = "none.example", .type = ZONE_AAAA},
    {.name = "silent.example", .type = ZONE_A, .silent = true},
    {.name = "silent.example", .type = ZONE_AAAA, .silent = true},
    {.name = "failing.example", .type = ZONE_A, .rcode = 2},
    {.name = "failing.example", .type = ZONE_AAAA, .rcode = 2},
    /* One family that never answers. */
    {.name = "half.example", .type = ZONE_A, .records = {{NULL, ZONE_A, 60, "192.0.2.4"}}},
    {.name = "half.example", .type = ZONE_AAAA, .silent = true},
    /* One family that answers late. */
    {.name = "late.example", .type = ZONE_A, .delay_msec = 800, .records = {{NULL, ZONE_A, 60, "192.0.2.5"}}},
    {.name = "late.example", .type = ZONE_AAAA, .records = {{NULL, ZONE_AAAA, 60, "2001:db8::5"}}},
    /* Names that change. */
    {.name = "zero.example", .type = ZONE_A, .uses = 1, .records = {{NULL, ZONE_A, 0, "192.0.2.6"}}},
    {.name = "zero.example", .type = ZONE_A, .records = {{NULL, ZONE_A, 0, "192.0.2.7"}}},
    {.name = "zero.example", .type = ZONE_AAAA},
    {.name = "one.example", .type = ZONE_A, .uses = 1, .records = {{NULL, ZONE_A, 1, "192.0.2.8"}}},
    {.name = "one.example", .type = ZONE_A, .records = {{NULL, ZONE_A, 60, "192.0.2.9"}}},
    {.name = "one.example", .type = ZONE_AAAA},
    /* An alias whose own life is the shorter. */
    {.name = "alias.example",
     .type = ZONE_A,
     .records = {{NULL, ZONE_CNAME, 0, "mid.example"},
		 {"mid.example", ZONE_CNAME, 60, "end.example"},
		 {"end.example", ZONE_A, 60, "192.0.2.10"}}},
    {.name = "alias.example", .type = ZONE_AAAA, .records = {{NULL, ZONE_CNAME, 60, "mid.example"}}},
    {.name = "big.example",
     .type = ZONE_A,
     .truncated = true,
     .records = {{NULL, ZONE_A, 60, "192.0.2.11"}, {NULL, ZONE_A, 60, "192.0.2.12"}}},
    {.name = "big.example", .type = ZONE_AAAA},
    /* Addresses of a name that nobody asked for, and of another type. */
    {.name = "stray.example",
     .type = ZONE_A,
     .records = {{"other.example", ZONE_A, 60, "192.0.2.13"}, {NULL, ZONE_A, 60, "192.0.2.14"}}},
    {.name = "stray.example", .type = ZONE_AAAA, .records = {{NULL, ZONE_A, 60, "192.0.2.15"}}},
    {.name = "mapped.example", .type = ZONE_A},
    {.name = "mapped.example",
     .type = ZONE_AAAA,
     .records = {{NULL, ZONE_AAAA, 60, "::ffff:10.0.0.1"}, {NULL, ZONE_AAAA, 60, "64:ff9b::a00:1"}}},
    {0},
};

struct answer {
	unsigned calls;
	char text[400]; /* addresses in their order, or the error */
	usec_t took, began;
};

struct world {
	struct event_base *base;
	struct network network;
	struct broker broker;
	struct zone zone;
	struct resolver *resolver;
	char dir[sizeof files_template], resolv[64], hosts[64];
};

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void start(struct world *w)
{
	const struct resolver_files files = {w->resolv, w->hosts, w->zone.port};
	struct zw_error e = {0};

	w->resolver = resolver_new_with(&w->broker, &files, &e);
	if (w->resolver == NULL)
		fail_msg("%s", e.text);
}

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	w->base = event_base_new();
	assert_non_null(w->base);
	w->broker = (struct broker){.base = w->base, .network = &w->network};
	allow(&w->network, "*.example", NULL, 443, NET_TCP);
	zone_start(&w->zone, w->base, entries);
	memcpy(w->dir, files_template, sizeof files_template);
	assert_non_null(mkdtemp(w->dir));
	(void) snprintf(w->resolv, sizeof w->resolv, "%s/resolv.conf", w->dir);
	(void) snprintf(w->hosts, sizeof w->hosts, "%s/hosts", w->dir);
	write_file(w->resolv, "search evil.test\nnameserver 127.0.0.1\noptions timeout:2 attempts:1 ndots:9\n");
	write_file(w->hosts, "# names of the host\n10.1.2.3\tdb.example DB2.example # one more\n2001:db8::9 db.example\n"
			     "10.1.2.4 unlisted.test\nfe80::1%lo bad.example\n010.1.1.1 octal.example\n");
	start(w);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	resolver_free(w->resolver);
	zone_stop(&w->zone);
	(void) unlink(w->resolv);
	(void) unlink(w->hosts);
	assert_int_equal(rmdir(w->dir), 0);
	network_done(&w->network);
	event_base_free(w->base);
	free(w);
	return 0;
}

static void resolved(void *ctx, const struct net_address *a, size_t count, const char *error)
{
	struct answer *to = ctx;
	size_t n = 0;

	to->calls++;
	to->took = now_monotonic() - to->began;
	to->text[0] = '\0';
	assert_true((count == 0) == (error != NULL));
	if (error != NULL)
		(void) snprintf(to->text, sizeof to->text, "%s", error);
	for (size_t i = 0; i < count; i++) {
		char text[NET_ADDRESS_TEXT];

		n += (size_t) snprintf(to->text + n, sizeof to->text - n, "%s%s", i > 0 ? " " : "",
				       network_address_text(&a[i], text));
	}
}

static void wait_for(struct world *w, const struct answer *a)
{
	usec_t end = now_monotonic() + 20 * USEC_PER_SEC;

	while (a->calls == 0 && now_monotonic() < end)
		event_base_loop(w->base, EVLOOP_ONCE);
	assert_int_equal(a->calls, 1);
}

static void run_for(struct world *w, unsigned msec)
{
	const struct timeval tv = {.tv_sec = msec / 1000, .tv_usec = (suseconds_t) (msec % 1000) * 1000};

	event_base_loopexit(w->base, &tv);
	event_base_dispatch(w->base);
}

static struct answer ask(struct world *w, const char *name)
{
	struct answer a = {.began = now_monotonic()};

	assert_non_null(resolve_start(w->resolver, name, resolved, &a));
	assert_int_equal(a.calls, 0); /* never from within */
	wait_for(w, &a);
	return a;
}

static void expect(struct world *w, const char *name, const char *text)
{
	struct answer a = ask(w, name);

	assert_string_equal(a.text, text);
}

static unsigned asked(const struct world *w)
{
	return w->zone.asked_udp + w->zone.asked_tcp;
}

static void both_families_come_in_turns(void **state)
{
	struct world *w = *state;

	expect(w, "both.example", "2001:db8::1 192.0.2.1 192.0.2.2");
	assert_int_equal(asked(w), 2);
}

static void an_answer_is_kept_for_its_time(void **state)
{
	struct world *w = *state;

	expect(w, "v4.example", "192.0.2.3");
	expect(w, "v4.example", "192.0.2.3");
	assert_int_equal(asked(w), 2);
	expect(w, "one.example", "192.0.2.8");
	run_for(w, 1100);
	expect(w, "one.example", "192.0.2.9");
}

static void ttl_zero_is_never_kept(void **state)
{
	struct world *w = *state;

	expect(w, "zero.example", "192.0.2.6");
	expect(w, "zero.example", "192.0.2.7");
	assert_int_equal(asked(w), 4);
}

static void an_alias_is_followed_and_its_ttl_counts(void **state)
{
	struct world *w = *state;

	expect(w, "alias.example", "192.0.2.10");
	expect(w, "alias.example", "192.0.2.10");
	assert_int_equal(asked(w), 4);
}

static void failures_say_what_failed(void **state)
{
	struct world *w = *state;

	expect(w, "unknown.example", "no such name");
	expect(w, "none.example", "the name has no address");
	expect(w, "failing.example", "no name server could answer");
	expect(w, "silent.example", "the name servers do not answer");
}

static void a_truncated_answer_is_asked_for_again_by_tcp(void **state)
{
	struct world *w = *state;

	expect(w, "big.example", "192.0.2.11 192.0.2.12");
	assert_int_equal(w->zone.asked_tcp, 1);
}

static void records_of_other_names_and_types_do_not_count(void **state)
{
	expect(*state, "stray.example", "192.0.2.14");
}

static void a_mapped_address_is_the_ipv4_address(void **state)
{
	expect(*state, "mapped.example", "10.0.0.1 64:ff9b::a00:1");
}

static void one_silent_family_keeps_the_other_for_50_ms(void **state)
{
	struct world *w = *state;
	struct answer a = ask(w, "half.example");

	assert_string_equal(a.text, "192.0.2.4");
	assert_true(a.took >= 45 * USEC_PER_MSEC && a.took < 1800 * USEC_PER_MSEC);
}

static void a_late_family_is_there_next_time(void **state)
{
	struct world *w = *state;

	expect(w, "late.example", "2001:db8::5");
	run_for(w, 1200);
	expect(w, "late.example", "2001:db8::5 192.0.2.5");
	assert_int_equal(asked(w), 2);
}

static void lookups_of_one_name_are_joined(void **state)
{
	struct world *w = *state;
	struct answer a = {0}, b = {0}, c = {0};
	struct resolve *cancelled;

	(void) resolve_start(w->resolver, "both.example", resolved, &a);
	cancelled = resolve_start(w->resolver, "both.example", resolved, &b);
	(void) resolve_start(w->resolver, "both.example", resolved, &c);
	resolve_cancel(cancelled);
	wait_for(w, &a);
	wait_for(w, &c);
	assert_int_equal(b.calls, 0);
	assert_int_equal(asked(w), 2);
}

static void the_hosts_file_comes_before_dns(void **state)
{
	struct world *w = *state;

	expect(w, "db.example", "10.1.2.3 2001:db8::9");
	expect(w, "db2.example", "10.1.2.3");
	assert_int_equal(asked(w), 0);
	expect(w, "octal.example", "no such name"); /* no address, so no entry */
}

static void the_search_list_and_the_environment_do_not_count(void **state)
{
	struct world *w = *state;

	resolver_free(w->resolver);
	setenv("LOCALDOMAIN", "evil.test", 1);
	setenv("RES_OPTIONS", "ndots:7 attempts:3 timeout:9 use-vc", 1);
	setenv("HOSTALIASES", w->hosts, 1);
	start(w);
	expect(w, "unknown.example", "no such name");
	assert_string_equal(w->zone.last, "unknown.example");
	assert_int_equal(w->zone.asked_udp, 2);
	assert_int_equal(w->zone.asked_tcp, 0);
	unsetenv("LOCALDOMAIN");
	unsetenv("RES_OPTIONS");
	unsetenv("HOSTALIASES");
}

static void an_end_in_the_middle_leaves_nothing(void **state)
{
	struct world *w = *state;
	struct answer a = {0}, b = {0};

	(void) resolve_start(w->resolver, "silent.example", resolved, &a);
	(void) resolve_start(w->resolver, "db.example", resolved, &b);
	resolver_free(w->resolver);
	w->resolver = NULL;
	run_for(w, 10);
	assert_int_equal(a.calls + b.calls, 0);
}

static void missing_files_are_empty_ones(void **state)
{
	struct world *w = *state;
	const struct resolver_files nowhere = {"/nonexistent/resolv.conf", "/nonexistent/hosts", w->zone.port};
	struct zw_error e = {0};

	resolver_free(w->resolver);
	w->resolver = resolver_new_with(&w->broker, &nowhere, &e);
	assert_non_null(w->resolver);
	expect(w, "v4.example", "192.0.2.3"); /* 127.0.0.1 is the server then */
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WITH(both_families_come_in_turns),
	    WITH(an_answer_is_kept_for_its_time),
	    WITH(ttl_zero_is_never_kept),
	    WITH(an_alias_is_followed_and_its_ttl_counts),
	    WITH(failures_say_what_failed),
	    WITH(a_truncated_answer_is_asked_for_again_by_tcp),
	    WITH(records_of_other_names_and_types_do_not_count),
	    WITH(a_mapped_address_is_the_ipv4_address),
	    WITH(one_silent_family_keeps_the_other_for_50_ms),
	    WITH(a_late_family_is_there_next_time),
	    WITH(lookups_of_one_name_are_joined),
	    WITH(the_hosts_file_comes_before_dns),
	    WITH(the_search_list_and_the_environment_do_not_count),
	    WITH(an_end_in_the_middle_leaves_nothing),
	    WITH(missing_files_are_empty_ones),
	};

	return cmocka_run_group_tests_name("egress-resolve", tests, NULL, NULL);
}
