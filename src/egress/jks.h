/* A key store of trusted certificates in Java's own format (JKS, version 2), which every Java reads; PEM bundles it does not.
 * Written with the password that Java's own store of trusted certificates has. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

#define JKS_PASSWORD "changeit"

struct jks;

/* To the file `fd`, which is empty. jks_start, then exactly `count` times jks_add, then jks_end, which frees it and returns 0 or
 * the negative errno of whatever failed first. */
struct jks *jks_start(int fd, uint32_t count);
/* `alias`: lower-case ASCII, different for each, below 64 KiB. `when` is told as the date of the entry (real time). */
void jks_add(struct jks *j, const char *alias, usec_t when, const unsigned char *der, size_t size);
int jks_end(struct jks *j);
