/* Requests of the sandbox on http and https rules: http_start in broker.h takes a connection whose target is known. */
#pragma once

#include "egress/broker.h"

/* A connection to the explicit proxy whose first request has an absolute target: each request opens or continues the flow to its
 * own target. Takes over `fd`; nothing has been read from it. */
void http_start_proxied(struct broker *b, int fd);
