/* The line between the daemon and the supervisor of one session (a sandbox that lives). One SOCK_SEQPACKET socket, one JSON
 * object a message with a member "t" that names its kind, at most SESSION_MESSAGE_MAX bytes, descriptors by SCM_RIGHTS. Requests
 * carry an "id" of the daemon's choosing (1 to 2^31 - 1), which the answer repeats. Each side bounds and checks what it reads:
 * the supervisor because one session must not be able to confuse another through the daemon, the daemon because a session's
 * supervisor speaks with hostile code.
 *
 * The daemon makes every pipe and passes the sandbox's ends on, so that output flows from the program into the daemon without a
 * stop.
 *
 * daemon -> supervisor
 *
 *     start    {"id", "argv": [...], "env": {...}, "cwd", "user": uid | null, "tty": {"rows", "columns"} | null,
 *              "timeout_usec"?: wall time of this process, "cpu_usec"?, "lasting"?: bool, "tree": bool (end the whole tree
 *              when the process ends), "channel": bool, "program": bool, "hold"?: n}
 *              fds: stdin, stdout, stderr (none with tty), then, with "channel", the program's descriptor 3, then, with
 *              "program", a sealed memory file that is executed in place of argv[0], then "hold" descriptors of the
 *              daemon's that are kept for the next one (with a tty the terminal's master is added)
 *     signal   {"id", "process": id of its start, "signal": number, "tree": bool}
 *     meter    {"id", "process", "cpu_usec": n | null}: so much processor time from now on, in place of its limit of before
 *     denials  {"id", "process", "settle": bool}: of it and what it started, up to now; with "settle" when the broker has told
 *              what it knows until then
 *     resize   {"id", "process", "rows", "columns"}
 *     connect  {"id", "port"}: to a port inside
 *     pause, resume, stats {"id"}
 *     secret   {"id", "name", "value": text | null}
 *     narrow   {"id", "entries": [name, "*.name", address or range...] | null}: what is left of network.allow from now on, null:
 *              all of it; nothing beyond it is opened. Connections that are no longer allowed are cut. ENOTSUP without a broker
 *     carry    {"id", "wait_usec", "memo": any} fd: a listening socket. The sandbox does not end with the line any more, but
 *              when nobody has connected there for so long; or at once when the socket is shut down. Later without a
 *              descriptor: another memo
 *     note     {"id", "process", "memo": {...}}: what the next daemon is told of the process, with what was noted before.
 *              How one that has a note ended is kept
 *     release  {"id", "process", "fd": which of those that are held}: closes it
 *     forget   {"id", "process"}: nothing is kept of it any more
 *     adopt    {"id": SESSION_ADOPT_ID}: the first word of a next daemon
 *     end      {"id", "status": "deleted" | "timeout" | ..., "reason"}: ends the sandbox; the line closes after "ended"
 *
 * supervisor -> daemon
 *
 *     ready    {"sandbox": its id, "pid": of the agent, "limits", "enforcement", "not_enforced": [...], "network",
 *              "setup_usec", "home", "cwd", "tree": "cgroup2" | "cgroup1" | "links": what holds the tree of a process
 *              together; "links" loses what leaves its session and its parent, as daemons do, "root": bool, user 0 is there too}
 *     refused  {"code": "invalid_policy" | "not_enforceable" | "unavailable", "errors": [{"key", "message", "suggestion"}],
 *              "reason"}
 *     started  {"id", "pid"} fd: the terminal's master, with tty
 *     failed   {"id", "errno", "stage": "fork" | "tty" | "cwd" | "exec", "message"}
 *     exited   {"id", "exit_code" | null, "signal": number | null, "status": as in the result document, "reason", "cpu_usec",
 *              "max_rss", "oom_kills" | null, "wall_usec", "denials"?, "connections"?}: the two with "tree". Denied system
 *              calls are its own and of what it started; what the broker tells (names, connections, requests) is all that came
 *              while it was there
 *     done     {"id", "errno": 0 | n, "message"?} to signal, resize, pause, resume, secret, narrow; to connect with fd
 *     stats    {"id", "usage": as in the result document, "processes", "memory_bytes": now, "totals"}: how many "denials" (an
 *              object, by kind) and "connections" there were
 *     denials  {"id", "denials": as in the result document}
 *     event    {"kind": "denial" | "connection" | "limit" | "exec", "record": the object of docs/audit.md}
 *              {"kind": "lost", "count"}: so many could not be told in time
 *     adopted  {all of "ready", "paused": bool, "next": a number above that of all requests so far, "memo"} fd: the
 *              listening socket. Then "held" for each process, then "done"
 *     held     {"process", "state": "starting" | "running" | "ended", "pid" | null, "memo": {...} | null, "fds": [which],
 *              "exit"?: "exited", "ended_usec"?: real time; with "ended"} fds: those. All that are there, and those that
 *              have ended and had a note. A process in "starting" or "running" is told further under its number
 *     ended    {"status", "reason", "usage", "denials", "connections", "files", "totals"}: last message
 *
 * The supervisor ends the sandbox when the line closes (but for "carry"), or when a message is none (no object, a member twice).
 *
 * "env" goes over the environment of the policy; a relative "cwd" is below HOME, and without one it is the policy's. The policy's
 * limits.time and limits.cpu_time hold for each process, and neither "timeout_usec" nor "cpu_usec" goes beyond them; a "lasting"
 * one (an interpreter, whose executions the daemon times) has no others than those of its own. With "tree",
 * and after a limit of its own, "exited" comes when the whole tree is gone. Processes that are there when the sandbox ends are
 * told as "canceled".
 *
 * While the sandbox is paused, start, signal and connect get EBUSY and the clocks stand. pause and resume get EALREADY when there
 * is nothing to do, an unknown request ENOSYS. A message that would be too long has its longest arrays cut and "shortened": true.
 */
#pragma once

#include <stdint.h>

enum { SESSION_MESSAGE_MAX = 192 * 1024, SESSION_FDS_MAX = 8, SESSION_ADOPT_ID = INT32_MAX };
