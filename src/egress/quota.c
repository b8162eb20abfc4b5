/* What is sent is counted before it goes, so that no more than bytes_out ever leaves; what is received, when it has come. A limit
 * that was met once stays met: everything after it is refused at once, so that a program fails fast and the record says why.
 *
 * The rate is a bucket of tokens, one a byte, that may go into debt: a datagram or a read cannot always be cut to what is there.
 */
#include "egress/quota.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "egress/control.h"

enum { REPORT_INTERVAL_USEC = 100000, RATE_GRAIN = 4096, RATE_BURST_MIN = 2048, BURSTS_PER_SEC = 10 };

enum which { BYTES_OUT, BYTES_IN, REQUESTS, CONNECTIONS, WHICH_MAX };

static const char *const which_names[] = {
    [BYTES_OUT] = "bytes_out", [BYTES_IN] = "bytes_in", [REQUESTS] = "requests", [CONNECTIONS] = "connections"};
static_assert(ARRAY_SIZE(which_names) == WHICH_MAX, "every limit has a name");

struct quota {
	struct broker *broker;
	uint64_t used[WHICH_MAX];
	bool met[WHICH_MAX];
	int64_t tokens;
	double filled;        /* when tokens were last added */
	struct event *report; /* pending while the supervisor has not heard of the totals */
};

static uint64_t limit_of(const struct quota *q, enum which w)
{
	const struct network *n = q->broker->network;
	const uint64_t limits[WHICH_MAX] = {[BYTES_OUT] = n->limits.bytes_out,
					    [BYTES_IN] = n->limits.bytes_in,
					    [REQUESTS] = n->limits.requests,
					    [CONNECTIONS] = n->limits.connections};

	return limits[w];
}

void quota_report(struct quota *q)
{
	if (!evtimer_pending(q->report, NULL))
		return;
	(void) evtimer_del(q->report);
	control_usage(q->broker->control, q->used[BYTES_OUT], q->used[BYTES_IN]);
}

static void report_due(evutil_socket_t fd, short what, void *ctx)
{
	struct quota *q = ctx;

	(void) fd, (void) what;
	control_usage(q->broker->control, q->used[BYTES_OUT], q->used[BYTES_IN]);
}

static int64_t burst_of(uint64_t rate)
{
	uint64_t burst = rate / BURSTS_PER_SEC;

	if (burst > INT64_MAX / 2)
		return INT64_MAX / 2;
	return burst < RATE_BURST_MIN ? RATE_BURST_MIN : (int64_t) burst;
}

struct quota *quota_new(struct broker *b)
{
	struct quota *q = xcalloc(1, sizeof *q);

	q->broker = b;
	q->tokens = burst_of(b->network->limits.rate);
	q->filled = (double) now_monotonic();
	q->report = evtimer_new(b->base, report_due, q);
	return q;
}

void quota_free(struct quota *q)
{
	if (q == NULL)
		return;
	if (q->report != NULL)
		event_free(q->report);
	free(q);
}

static void refuse(struct quota *q, enum which w, const struct target *t)
{
	char host[NET_ADDRESS_TEXT], why[120];
	struct refusal r = {.kind = "network", .host = t->name, .port = t->port, .rule = -1, .why = why};

	if (t->name[0] == '\0')
		r.host = network_address_text(&t->address, host);
	(void) snprintf(why, sizeof why, "network.limits.%s is used up: %" PRIu64, which_names[w], limit_of(q, w));
	control_refusal(q->broker->control, &r);
	if (!q->met[w])
		control_limit(q->broker->control, which_names[w], q->broker->network->limits.on_limit == NETWORK_LIMIT_KILL);
	q->met[w] = true;
}

/* False, and refused, when `amount` more would be too many. */
static bool count(struct quota *q, enum which w, uint64_t amount, const struct target *t)
{
	uint64_t limit = limit_of(q, w);

	if (!q->met[w] && (limit == ZW_UNLIMITED || (q->used[w] <= limit && amount <= limit - q->used[w]))) {
		q->used[w] += amount;
		return true;
	}
	refuse(q, w, t);
	return false;
}

static bool bytes_left(struct quota *q, const struct target *t)
{
	for (int w = BYTES_OUT; w <= BYTES_IN; w++) {
		if (q->met[w]) {
			refuse(q, (enum which) w, t);
			return false;
		}
	}
	return true;
}

bool quota_connection(struct quota *q, const struct target *t)
{
	return bytes_left(q, t) && count(q, CONNECTIONS, 1, t);
}

bool quota_request(struct quota *q, const struct target *t)
{
	return bytes_left(q, t) && count(q, REQUESTS, 1, t);
}

static void moved(struct quota *q, uint64_t bytes)
{
	static const struct timeval interval = {.tv_usec = REPORT_INTERVAL_USEC};

	if (q->broker->network->limits.rate != ZW_UNLIMITED)
		q->tokens -= bytes > INT32_MAX ? INT32_MAX : (int64_t) bytes;
	if (!evtimer_pending(q->report, NULL))
		(void) evtimer_add(q->report, &interval);
}

bool quota_sent(struct flow *f, uint64_t bytes)
{
	struct quota *q = f->broker->quota;

	if (!count(q, BYTES_OUT, bytes, &f->target))
		return false;
	f->sent += bytes;
	moved(q, bytes);
	return true;
}

/* They have come whether they may or not: they are counted in any case. */
bool quota_received(struct flow *f, uint64_t bytes)
{
	struct quota *q = f->broker->quota;
	bool good = count(q, BYTES_IN, bytes, &f->target);

	if (!good)
		q->used[BYTES_IN] += bytes;
	f->received += bytes;
	moved(q, bytes);
	return good;
}

/* Only the time of whole bytes is used up, or frequent questions would lose the fractions. */
static void fill(struct quota *q, uint64_t rate)
{
	double now = (double) now_monotonic(), due = (now - q->filled) * (double) rate / (double) USEC_PER_SEC;
	int64_t burst = burst_of(rate), room = burst - q->tokens;

	if (due >= (double) room) {
		q->tokens = burst > q->tokens ? burst : q->tokens;
		q->filled = now;
	} else if (due >= 1) {
		q->tokens += (int64_t) due;
		q->filled += (double) (int64_t) due * (double) USEC_PER_SEC / (double) rate;
	}
}

size_t quota_allowance(struct quota *q, size_t wanted, usec_t *ret_wait)
{
	uint64_t rate = q->broker->network->limits.rate;
	int64_t least;

	*ret_wait = 0;
	if (rate == ZW_UNLIMITED || wanted == 0)
		return wanted;
	fill(q, rate);
	/* Not byte by byte: wait until a grain, or as much as the bucket holds, is there. */
	least = wanted < RATE_GRAIN ? (int64_t) wanted : RATE_GRAIN;
	if (least > burst_of(rate))
		least = burst_of(rate);
	if (q->tokens >= least)
		return (int64_t) wanted < q->tokens ? wanted : (size_t) q->tokens;
	*ret_wait = rate == 0 ? USEC_PER_SEC
			      : (usec_t) ((double) (least - q->tokens) * (double) USEC_PER_SEC / (double) rate) + USEC_PER_MSEC;
	return 0;
}
