/* The stub resolver: answers the sandbox's DNS queries from the rules alone. Nothing it does ever causes a query outside, so a
 * look-up carries no data out, and there is no answer from outside that could be turned against the sandbox (rebinding).
 *
 *     name that a rule covers     A: its address of 198.18/16 (names.h); any other type, AAAA, HTTPS and SVCB among them: no data
 *     localhost, *.localhost      127.0.0.1 and ::1 (RFC 6761, 6.3), unless a rule covers the name
 *     198.18.x.y backwards (PTR)  the name, when it was given out
 *     other addresses backwards   NXDOMAIN, without a denial: programs ask for the names of whatever address they meet, and
 * nobody was refused anything by it. What only ends like a reverse name is an ordinary name everything else             NXDOMAIN,
 * and a denial "dns"; the look-ups of one name for several types count once another class than IN       REFUSED; another
 * operation than QUERY: NOTIMP; what cannot be read: FORMERR
 *
 * Answers live 60 seconds in caches inside. A name's address never changes in a run, but caches inside may outlive the run, in a
 * snapshot or a saved file system, and then they should soon ask again. */
#pragma once

#include "egress/broker.h"

struct stub;

/* Made with the first query when b->stub is NULL. Freeing closes the connections; NULL is fine. */
struct stub *stub_new(struct broker *b);
void stub_free(struct stub *s);

/* Answers queries that wait on a datagram socket: some of them, so that no flood keeps the loop from other work. */
void stub_udp_ready(struct broker *b, int fd);
/* Serves a stream connection (RFC 7766); takes over `fd`. Beyond 64 connections at once it is reset. 10 s idle ends it. */
void stub_tcp_start(struct broker *b, int fd);
/* The answer to one message; 0: none is due. What both of the above ask; `ret` has QUERY_ANSWER_SIZE bytes. */
size_t stub_answer(struct broker *b, const void *message, size_t size, unsigned char *ret);
