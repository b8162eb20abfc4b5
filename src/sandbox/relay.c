#include "sandbox/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/mem.h"
#include "sandbox/encode.h"

static void capture_grow(struct capture *c, size_t want)
{
	size_t room = c->room < 4096 ? 4096 : c->room;

	if (want <= c->room)
		return;
	while (room < want)
		room *= 2;
	if (room > c->limit)
		room = c->limit;
	c->data = xrealloc(c->data, room + 1, 1);
	c->room = room;
}

void capture_add(struct capture *c, const char *data, size_t size)
{
	size_t half = c->limit / 2, ring = c->limit - half;

	c->total += size;
	if (c->size < c->limit) {
		size_t n = size < c->limit - c->size ? size : c->limit - c->size;

		capture_grow(c, c->size + n);
		memcpy(c->data + c->size, data, n);
		c->size += n;
		data += n;
		size -= n;
	}
	if (ring == 0)
		return;
	if (size > ring) {
		data += size - ring;
		size = ring;
	}
	while (size > 0) {
		size_t n = size < ring - c->oldest ? size : ring - c->oldest;

		memcpy(c->data + half + c->oldest, data, n);
		c->oldest = (c->oldest + n) % ring;
		data += n;
		size -= n;
	}
}

static void reverse(char *data, size_t size)
{
	for (size_t i = 0; i < size / 2; i++) {
		char c = data[i];

		data[i] = data[size - 1 - i];
		data[size - 1 - i] = c;
	}
}

/* Puts the ring in order: its oldest byte first. */
static void rotate(char *data, size_t size, size_t by)
{
	reverse(data, by);
	reverse(data + by, size - by);
	reverse(data, size);
}

void capture_finish(struct capture *c, struct stream_result *ret)
{
	size_t head = c->limit / 2, tail = c->limit - head, cut;

	ret->bytes = c->total;
	ret->dropped = c->total - c->size;
	ret->head = 0;
	if (c->total > c->limit && c->data != NULL) {
		rotate(c->data + head, tail, c->oldest);
		cut = utf8_continuation_head(c->data + head, tail);
		tail -= cut;
		cut += head;
		head -= utf8_incomplete_tail(c->data, head);
		memmove(c->data + head, c->data + cut, tail);
		c->size = head + tail;
		ret->head = head;
		ret->dropped = c->total - c->size;
	}
	if (c->data != NULL)
		c->data[c->size] = '\0';
	ret->text = (struct buf){.data = c->data, .size = c->size, .room = c->data != NULL ? c->room + 1 : 0, .max = c->limit};
	*c = (struct capture){0};
}

void relay_init(struct relay *r, struct endpoint from, struct endpoint to, uint64_t limit)
{
	/* Not cleared: pages that no byte passes through are never touched. */
	*r = (struct relay){.from = from, .to = to, .limit = limit, .chunk = xrealloc(NULL, RELAY_CHUNK, 1)};
	r->ended = from.fd < 0;
	r->broken = to.fd < 0;
}

void relay_capture(struct relay *r, struct endpoint from, uint64_t limit)
{
	relay_init(r, from, ENDPOINT_CLOSED, limit);
	r->capturing = true;
	r->broken = false;
	r->capture.limit = (size_t) (limit < CAPTURE_MAX ? limit : CAPTURE_MAX);
}

/* Decides what of `n` new bytes (behind the held ones, all at the start of the chunk) is handed on. Where the limit is near, the
 * beginning of a character waits for its rest, so that the last thing handed on is a whole one. */
static void admit(struct relay *r, size_t n)
{
	uint64_t room = r->limit - r->handed;
	size_t all = r->held + n, pass = all < room ? all : (size_t) room, cut = 0;

	r->bytes += n;
	if (r->limit != ZW_UNLIMITED && room - pass < 4)
		cut = utf8_incomplete_tail(r->chunk, pass);
	r->start = 0;
	if (all > room) {
		r->dropped += all - (pass - cut);
		r->limit = r->handed + (pass - cut); /* nothing may follow what was cut off */
		r->held = 0;
	} else {
		r->held = cut;
	}
	r->have = pass - cut;
	r->handed += r->have;
}

/* No more comes: what was held back is as whole as it will get. */
static void source_ended(struct relay *r, int epoll)
{
	r->ended = true;
	endpoint_close(&r->from, epoll);
	r->have = r->held;
	r->handed += r->held;
	r->held = 0;
	r->start = 0;
}

static bool take(struct relay *r, int epoll)
{
	ssize_t n;

	n = endpoint_read(&r->from, r->chunk + r->held, RELAY_CHUNK - r->held);
	if (n == -EAGAIN)
		return false;
	if (n <= 0) {
		/* EIO of a terminal's master: the last one inside closed it. EIO of the caller's terminal: we are in the
		 * background, and SIGTTIN is blocked; the next key after we came to the foreground wakes us again. */
		if (n == -EIO && r->edge)
			return false;
		source_ended(r, epoll);
		return true;
	}
	if (r->capturing) {
		r->bytes += (uint64_t) n;
		capture_add(&r->capture, r->chunk, (size_t) n);
		return true;
	}
	admit(r, (size_t) n);
	return true;
}

/* The other side is gone: close the source, so that whoever writes to it learns that in the way of any pipe. */
static void sink_broke(struct relay *r, int epoll, int error)
{
	r->broken = true;
	r->error = error == EPIPE ? 0 : error;
	r->dropped += r->have;
	r->have = 0;
	endpoint_close(&r->to, epoll);
	endpoint_close(&r->from, epoll);
	r->ended = true;
}

static bool give(struct relay *r, int epoll)
{
	ssize_t n = endpoint_write(&r->to, r->chunk + r->start, r->have);

	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		sink_broke(r, epoll, (int) -n);
		return true;
	}
	r->start += (size_t) n;
	r->have -= (size_t) n;
	/* The held bytes lie behind what was just given; the next read goes behind them. */
	if (r->have == 0 && r->held > 0)
		memmove(r->chunk, r->chunk + r->start, r->held);
	return true;
}

bool relay_step(struct relay *r, int epoll)
{
	bool moved = false;

	if (r->have == 0 && !r->ended && !r->paused)
		moved = take(r, epoll);
	if (r->have > 0 && !r->broken)
		moved |= give(r, epoll);
	return moved;
}

void relay_drain(struct relay *r, int epoll)
{
	while (relay_step(r, epoll))
		;
	if (r->have == 0 && !r->ended)
		source_ended(r, epoll);
	if (r->have > 0)
		(void) relay_step(r, epoll);
}

int relay_watch(struct relay *r, int epoll, uint64_t tag)
{
	bool wants_more = r->have == 0 && !r->ended && !r->paused;
	/* A source that is always ready (a file) is driven by the readiness of the other end. */
	bool wants_out = r->have > 0 || (wants_more && r->from.kind == ENDPOINT_FILE);
	uint32_t in = !wants_more ? 0 : r->edge ? EPOLLIN | EPOLLET : EPOLLIN;
	int k;

	k = endpoint_watch(&r->from, epoll, in, tag);
	if (k < 0)
		return k;
	if (r->from.kind == ENDPOINT_FILE)
		wants_out |= wants_more;
	return endpoint_watch(&r->to, epoll, wants_out ? EPOLLOUT : 0, tag + 1);
}

bool relay_done(const struct relay *r)
{
	return r->ended && (r->have == 0 || r->broken);
}

void relay_close(struct relay *r, int epoll, struct stream_result *ret)
{
	endpoint_close(&r->from, epoll);
	endpoint_close(&r->to, epoll);
	if (ret != NULL && r->capturing) {
		capture_finish(&r->capture, ret);
	} else if (ret != NULL) {
		ret->bytes = r->bytes;
		ret->dropped = r->dropped + r->have;
		ret->error = r->error;
	}
	free(r->capture.data);
	free(r->chunk);
	*r = (struct relay){.from = ENDPOINT_CLOSED, .to = ENDPOINT_CLOSED, .ended = true};
}
