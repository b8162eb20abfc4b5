/* The state directory, the store and the keys, as two processes see them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/keys.h"
#include "daemon/state.h"

struct place {
	char path[64];
	struct state state;
	struct store store;
	struct keys keys;
};

static int make_place(void **state)
{
	struct place *p = xcalloc(1, sizeof *p);
	struct zw_error e = {0};
	char inner[96];

	(void) snprintf(p->path, sizeof p->path, "/tmp/test-keys-XXXXXX");
	assert_non_null(mkdtemp(p->path));
	(void) snprintf(inner, sizeof inner, "%s/deep/state", p->path);
	assert_int_equal(state_open(inner, &p->state, &e), 0);
	assert_int_equal(store_open(p->state.path, &p->store, &e), 0);
	assert_int_equal(keys_open(&p->store, &p->keys, &e), 0);
	*state = p;
	return 0;
}

static void remove_file(const struct place *p, const char *name)
{
	char path[160];

	(void) snprintf(path, sizeof path, "%s/%s", p->path, name);
	(void) remove(path);
}

static int remove_place(void **state)
{
	static const char *const names[] = {"deep/state/lock",
					    "deep/state/zwinger.db",
					    "deep/state/zwinger.db-wal",
					    "deep/state/zwinger.db-shm",
					    "deep/state/file",
					    "deep/state",
					    "deep",
					    ""};
	struct place *p = *state;

	keys_done(&p->keys);
	store_done(&p->store);
	state_done(&p->state);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		remove_file(p, names[i]);
	assert_int_not_equal(rmdir(p->path), 0); /* it is gone */
	free(p);
	return 0;
}

static void a_key_is_found_by_both_its_forms_and_no_other(void **state)
{
	struct place *p = *state;
	struct zw_error e = {0};
	char text[KEY_TEXT_SIZE], other[KEY_TEXT_SIZE];
	const struct key *key, *found;

	assert_int_equal(keys_add(&p->keys, "a name", SCOPE_CREATE, 0, text, &key, &e), 0);
	assert_int_equal(strlen(text), 44);
	found = keys_find(&p->keys, text, strlen(text));
	assert_non_null(found);
	assert_int_equal(found->scope, SCOPE_CREATE);
	memcpy(other, text, sizeof other);
	memcpy(other, "e2b_", 4);
	assert_ptr_equal(keys_find(&p->keys, other, strlen(other)), found);
	memcpy(other, "abc_", 4);
	assert_null(keys_find(&p->keys, other, strlen(other)));
	memcpy(other, text, sizeof other);
	other[43] = other[43] == '0' ? '1' : '0';
	assert_null(keys_find(&p->keys, other, strlen(other)));
	assert_null(keys_find(&p->keys, text, strlen(text) - 1));
	assert_null(keys_find(&p->keys, "", 0));
	other[20] = 'g';
	assert_null(keys_find(&p->keys, other, strlen(other)));
}

static void the_store_has_no_key_only_its_hash(void **state)
{
	struct place *p = *state;
	struct zw_error e = {0};
	char text[KEY_TEXT_SIZE];
	const struct key *key;
	cleanup_statement sqlite3_stmt *q = NULL;

	assert_int_equal(keys_add(&p->keys, NULL, SCOPE_USE, 0, text, &key, &e), 0);
	q = store_prepare(&p->store, "SELECT count(*) FROM keys WHERE instr(hex(hash), upper(?)) > 0 OR id = ?", &e);
	(void) sqlite3_bind_text(q, 1, text + 4, -1, SQLITE_STATIC);
	(void) sqlite3_bind_text(q, 2, text, -1, SQLITE_STATIC);
	assert_int_equal(store_step(&p->store, q, &e), 1);
	assert_int_equal(sqlite3_column_int(q, 0), 0);
}

static void another_process_sees_keys_come_and_go(void **state)
{
	struct place *p = *state;
	struct store other = {0};
	struct keys theirs = {0};
	struct zw_error e = {0};
	char text[KEY_TEXT_SIZE], id[KEY_ID_SIZE];
	const struct key *key;

	assert_int_equal(store_open(p->state.path, &other, &e), 0);
	assert_int_equal(keys_open(&other, &theirs, &e), 0);
	assert_int_equal(keys_add(&theirs, NULL, SCOPE_USE, 0, text, &key, &e), 0);
	memcpy(id, key->id, sizeof id);
	assert_true(keys_refresh(&p->keys));
	assert_non_null(keys_find(&p->keys, text, strlen(text)));
	assert_false(keys_refresh(&p->keys));
	assert_int_equal(keys_revoke(&theirs, id, &e), 0);
	assert_true(keys_refresh(&p->keys));
	assert_null(keys_find(&p->keys, text, strlen(text)));
	assert_int_equal(keys_revoke(&theirs, id, &e), -ENOENT);
	keys_done(&theirs);
	store_done(&other);
}

static void an_expired_key_is_none(void **state)
{
	struct place *p = *state;
	struct zw_error e = {0};
	char text[KEY_TEXT_SIZE];
	const struct key *key;

	assert_int_equal(keys_add(&p->keys, NULL, SCOPE_ADMIN, now_realtime() - 1, text, &key, &e), 0);
	assert_null(keys_find(&p->keys, text, strlen(text)));
	assert_int_equal(keys_add(&p->keys, NULL, SCOPE_ADMIN, now_realtime() + 3600 * USEC_PER_SEC, text, &key, &e), 0);
	assert_non_null(keys_find(&p->keys, text, strlen(text)));
}

static void names_are_short_text(void **state)
{
	struct place *p = *state;
	struct zw_error e = {0};
	char text[KEY_TEXT_SIZE], name[KEY_NAME_MAX + 2];
	const struct key *key;

	memset(name, 'x', sizeof name);
	name[sizeof name - 1] = '\0';
	assert_int_equal(keys_add(&p->keys, name, SCOPE_USE, 0, text, &key, &e), -EINVAL);
	assert_int_equal(keys_add(&p->keys, "a\nb", SCOPE_USE, 0, text, &key, &e), -EINVAL);
	assert_int_equal(keys_add(&p->keys, "a\xff", SCOPE_USE, 0, text, &key, &e), -EINVAL);
	assert_int_equal(p->keys.count, 0);
}

static void a_store_of_a_newer_version_is_left_alone(void **state)
{
	struct place *p = *state;
	struct zw_error e = {0};
	struct store other = {0};

	assert_int_equal(store_run(&p->store, "PRAGMA user_version = 999", &e), 0);
	assert_int_equal(store_open(p->state.path, &other, &e), -EPROTO);
	assert_non_null(strstr(e.text, "newer"));
	assert_int_equal(store_run(&p->store, "PRAGMA user_version = 1", &e), 0);
}

static void the_directory_is_private_and_has_one_daemon(void **state)
{
	struct place *p = *state;
	struct state other = {0};
	struct zw_error e = {0};
	struct stat st;

	assert_int_equal(fstat(p->state.fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(state_lock(&p->state, &e), 0);
	assert_int_equal(state_open(p->state.path, &other, &e), 0);
	assert_int_equal(state_lock(&other, &e), -EBUSY);
	assert_non_null(strstr(e.text, "another daemon"));
	state_done(&other);
	assert_int_equal(fchmod(p->state.fd, 0777), 0);
	assert_int_equal(state_open(p->state.path, &other, &e), -EPERM);
	assert_int_equal(fchmod(p->state.fd, 0700), 0);
	assert_int_equal(state_write_file(p->state.fd, "file", "abc", 3, &e), 0);
	assert_int_equal(fstatat(p->state.fd, "file", &st, 0), 0);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(st.st_mode & 077, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_key_is_found_by_both_its_forms_and_no_other, make_place, remove_place),
	    cmocka_unit_test_setup_teardown(the_store_has_no_key_only_its_hash, make_place, remove_place),
	    cmocka_unit_test_setup_teardown(another_process_sees_keys_come_and_go, make_place, remove_place),
	    cmocka_unit_test_setup_teardown(an_expired_key_is_none, make_place, remove_place),
	    cmocka_unit_test_setup_teardown(names_are_short_text, make_place, remove_place),
	    cmocka_unit_test_setup_teardown(a_store_of_a_newer_version_is_left_alone, make_place, remove_place),
	    cmocka_unit_test_setup_teardown(the_directory_is_private_and_has_one_daemon, make_place, remove_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
