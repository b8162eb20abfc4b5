/* Network namespaces (network_namespaces(7)). */
#pragma once

/* Brings the loopback device of the current network namespace up. Async-signal-safe. 0 or negative errno. */
int netns_loopback_up(void);

/* Lets everybody in the current network namespace bind ports below 1024. `settings` is a folder /proc/sys; it should be that of a
 * procfs of the sandbox's own, because the entries that all living namespaces have in one procfs lie in one hash bucket: in the
 * host's, looking this one up takes longer the more sandboxes run. A host that hides the setting loses a convenience, not a wall:
 * that is no error. */
int netns_allow_low_ports(int settings);

/* Enters a new network namespace with a loopback that is up. 0 or negative errno. Needs CAP_SYS_ADMIN; the namespace belongs to
 * the caller's user namespace. */
int netns_enter_new(void);

/* Lets `enter` enter a new network namespace, and comes back: an fd of the namespace, or negative errno. Should the thread not
 * find its way back, -ENOTRECOVERABLE says so, and it must not go on. */
int netns_make(int (*enter)(void *ctx), void *ctx);
