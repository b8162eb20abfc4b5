#include "daemon/drivers.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

/* Made by scripts/embed from drivers/. */
extern const char driver_python[], driver_python_shown[], driver_python_charts[], driver_python_ipython[], driver_python_boot[],
    driver_node[], driver_node_boot[], driver_bash[], driver_r[], driver_r_boot[], driver_java[], driver_java_boot[];
extern const uint64_t driver_python_size, driver_python_shown_size, driver_python_charts_size, driver_python_ipython_size,
    driver_python_boot_size, driver_node_size, driver_node_boot_size, driver_bash_size, driver_r_size, driver_r_boot_size,
    driver_java_size, driver_java_boot_size;

static const struct driver drivers[] = {
    {.language = "python", .name = "python3", .needs = "python3"},
    {.language = "javascript", .name = "node", .needs = "node"},
    {.language = "typescript", .name = "node", .needs = "node", .typed = true},
    {.language = "bash", .name = "bash", .needs = "bash", .by_signal = true, .exit_is_result = true},
    {.language = "r", .name = "bash", .needs = "R", .by_signal = true},
    {.language = "java", .name = "bash", .needs = "jshell"},
};

static const struct {
	const char *name, *language;
} aliases[] = {{"js", "javascript"}, {"ts", "typescript"}, {"sh", "bash"}, {"py", "python"}};

const struct driver *driver_at(size_t index)
{
	return index < ARRAY_SIZE(drivers) ? &drivers[index] : NULL;
}

const struct driver *driver_find(const char *language)
{
	char name[16];
	size_t size;

	language += strspn(language, " \t\r\n");
	size = strcspn(language, " \t\r\n");
	if (size == 0 || size >= sizeof name || language[size + strspn(language + size, " \t\r\n")] != '\0')
		return NULL;
	memcpy(name, language, size);
	name[size] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++)
		if (strcasecmp(name, aliases[i].name) == 0)
			return driver_find(aliases[i].language);
	for (size_t i = 0; i < ARRAY_SIZE(drivers); i++)
		if (strcasecmp(name, drivers[i].language) == 0)
			return &drivers[i];
	return NULL;
}

json_t *driver_command(const struct driver *d)
{
	/* A shell takes its lines' numbers from here on. */
	static const char bash_boot[] = "eval \"$1\"; shift; eval \"$_zw_loop\"";

	if (strcmp(d->language, "bash") == 0)
		return json_pack("[s, s, s, s, s%]", d->name, "-c", bash_boot, d->name, driver_bash, (size_t) driver_bash_size);
	if (strcmp(d->language, "r") == 0)
		return json_pack("[s, s, s%, s, s%]", d->name, "-c", driver_r_boot, (size_t) driver_r_boot_size, d->name,
				 driver_r, (size_t) driver_r_size);
	if (strcmp(d->language, "java") == 0)
		return json_pack("[s, s, s%, s, s%]", d->name, "-c", driver_java_boot, (size_t) driver_java_boot_size, d->name,
				 driver_java, (size_t) driver_java_size);
	if (strcmp(d->name, "node") == 0)
		return json_pack("[s, s, s%]", d->name, "-e", driver_node_boot, (size_t) driver_node_boot_size);
	return json_pack("[s, s, s%]", d->name, "-c", driver_python_boot, (size_t) driver_python_boot_size);
}

static int add_frame(struct evbuffer *out, const char *data, size_t size)
{
	return evbuffer_add_printf(out, "%zu\n", size) < 0 || evbuffer_add(out, data, size) < 0 ? -ENOMEM : 0;
}

static int add_json(struct evbuffer *out, json_t *message)
{
	cleanup_free char *text = message == NULL ? NULL : json_dumps(message, JSON_COMPACT);

	json_decref(message);
	return text == NULL ? -ENOMEM : add_frame(out, text, strlen(text));
}

static int add_part(struct evbuffer *out, const char *name, const char *source, uint64_t size)
{
	return add_json(out, json_pack("{s:s, s:s, s:s%}", "t", "part", "name", name, "source", source, (size_t) size));
}

static int add_begin(const struct driver *d, bool native, struct evbuffer *out)
{
	return add_json(out,
			json_pack("{s:s, s:s, s:s}", "t", "begin", "language", d->language, "driver", native ? "native" : "any"));
}

int driver_greet(const struct driver *d, bool native, struct evbuffer *out)
{
	int r = 0;

	if (strcmp(d->name, "bash") == 0)
		return strcmp(d->language, "java") == 0 ? add_begin(d, native, out) : 0; /* its arguments have all it needs */
	if (strcmp(d->language, "python") == 0) {
		r = add_frame(out, driver_python, driver_python_size);
		r = r < 0 ? r : add_part(out, "shown", driver_python_shown, driver_python_shown_size);
		r = r < 0 ? r : add_part(out, "charts", driver_python_charts, driver_python_charts_size);
		r = r < 0 ? r : add_part(out, "ipython", driver_python_ipython, driver_python_ipython_size);
	} else {
		r = add_frame(out, driver_node, driver_node_size);
	}
	return r < 0 ? r : add_begin(d, native, out);
}
