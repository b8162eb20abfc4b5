/* The supervisor's side of the network broker: starts it before the sandbox, hands it rules, secrets and sockets, takes down what
 * it reports, and sees it gone. The messages are those of src/egress/control.h. What comes from the broker is checked like what
 * comes from the agent: it reads hostile bytes and may have been taken over; all it could do then is to tell lies about the
 * network. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "policy/network.h"

struct supervisor;

enum { EGRESS_NAMES_MAX = 32768 };

struct egress {
	int control; /* -EBADF: there is none, or it is over */
	int pidfd;
	pid_t pid;
	bool started, ready, ending;
	bool refused; /* it cannot serve, or its configuration is at fault: nothing may run */
	char key[96]; /* of the policy, that is at fault then */
	int trust[2]; /* memory files: bundle of certificates, Java's key store; -EBADF */
	int secrets;  /* inotify(7) on the files of secrets, -EBADF */
	char **names; /* given out by the stub, for 198.18.1.0 and up; NULL entries are not known */
	size_t name_room;
	char fault[240]; /* why it ended before its time, "" */
};

/* Where the broker's program lies: beside our own, or where it is installed to. The caller frees *path. */
int egress_program(char **path, struct zw_error *e);

/* Nothing to do (0) when the plan has no network. Else the broker runs, and has its configuration and secrets. */
int egress_start(struct supervisor *s, struct zw_error *e);
/* transit_give: the sockets of plan->transit.listeners. */
int egress_give(void *supervisor, size_t first, const int *fds, size_t count);
/* Waits until the broker is confined and serves. The command must not start before. */
int egress_wait(struct supervisor *s, struct zw_error *e);
/* sandbox->trust: waits as well; the memory files stay the supervisor's. */
int egress_trust(void *supervisor, int ret[2], struct zw_error *e);

/* When a start has failed: it may have been for a reason that the broker has told, which then replaces the sentence. True when
 * the network rules are what cannot be held (s->egress.key says which key). */
bool egress_was_refused(struct supervisor *s, struct zw_error *e);

/* Events of the loop. */
int egress_watch(struct supervisor *s);
void egress_receive(struct supervisor *s);
void egress_secrets_changed(struct supervisor *s);
/* The agent's answer to a request of egress_receive. `fd` is taken over, -EBADF with an error. */
void egress_inbound(struct supervisor *s, unsigned id, int fd, int error);

/* The sandbox is gone: the broker reports what was open and ends. Its end comes as an event, or the deadline kills it. */
void egress_end(struct supervisor *s);
bool egress_over(const struct supervisor *s);
/* Kills what is left, waits for it, frees. */
void egress_done(struct supervisor *s);

/* The label of the rule that comes nearest to a refused name, or NULL. */
const char *egress_nearest(const struct supervisor *s, const char *host, uint16_t port);

/* The name that an address of 198.18/16 stands for, else its text into buf. */
const char *egress_host(const struct supervisor *s, const struct net_address *a, char buf[NET_ADDRESS_TEXT]);
