/* protocol tls: the client's TLS is not ended here, but its first message must say the name that was asked for. What was read and
 * checked is, byte for byte, what goes upstream first; the rest is relayed unseen.
 *
 * So this holds the name that TLS is begun with. What the two ends say within TLS, a Host header for another site of the same
 * server among it, they say unseen, and so is a second ClientHello after a HelloRetryRequest, which RFC 8446 (4.1.2) forbids to
 * differ in the name: rules that must hold there need protocol https. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/broker.h"
#include "egress/clienthello.h"
#include "egress/control.h"
#include "egress/dial.h"

enum { HELLO_SECONDS = 10, READ_SIZE = 4096 };

struct passthrough {
	struct flow *flow;
	int fd;
	struct event *readable, *patience;
	struct dial *dial; /* NULL: not yet */
	struct buf hello;  /* all that was read, at most CLIENTHELLO_SIZE_MAX */
};

static void stop_reading(struct passthrough *p)
{
	if (p->readable != NULL)
		event_free(p->readable);
	if (p->patience != NULL)
		event_free(p->patience);
	p->readable = p->patience = NULL;
}

static void passthrough_free(struct passthrough *p)
{
	stop_reading(p);
	buf_done(&p->hello);
	free(p);
}

/* Nothing may be left of the connection that could be taken for an orderly end. */
static void break_off(struct passthrough *p)
{
	reset_close(take_fd(&p->fd));
	flow_close(p->flow);
	passthrough_free(p);
}

static void give_up(struct passthrough *p, const char *why)
{
	(void) snprintf(p->flow->error, sizeof p->flow->error, "%s", why);
	break_off(p);
}

static void refuse(struct passthrough *p, const char *why)
{
	struct flow *f = p->flow;
	char text[NET_ADDRESS_TEXT];
	bool named = f->target.name[0] != '\0';
	struct refusal r = {.kind = "network",
			    .host = named ? f->target.name : network_address_text(&f->target.address, text),
			    .port = f->target.port,
			    .rule = f->rule >= 0 || f->rule_count == 0 ? f->rule : (int) f->rules[0],
			    .why = why};

	control_refusal(f->broker->control, &r);
	give_up(p, why);
}

static void dialled(void *ctx, int fd)
{
	struct passthrough *p = ctx;

	if (fd < 0) {
		break_off(p);
		return;
	}
	relay_pair(p->flow, take_fd(&p->fd), fd, p->hello.data, p->hello.size);
	passthrough_free(p);
}

/* Decides as soon as it can be decided. */
static void consider(struct passthrough *p)
{
	const char *objection;
	struct clienthello h;

	switch (clienthello_parse(p->hello.data, p->hello.size, &h)) {
	case CLIENTHELLO_MORE:
		return;
	case CLIENTHELLO_NOT_TLS:
		refuse(p, "the connection does not begin with TLS, and the rule's protocol is tls");
		return;
	case CLIENTHELLO_MALFORMED:
		refuse(p, "the connection does not begin with a well-formed ClientHello of at most 16 KiB");
		return;
	case CLIENTHELLO_OK:
		break;
	}
	objection = clienthello_objection(&h, p->flow->target.name);
	if (objection != NULL) {
		refuse(p, objection);
		return;
	}
	stop_reading(p);
	p->dial = dial_start(p->flow, false, dialled, p);
}

static void readable(evutil_socket_t fd, short what, void *ctx)
{
	struct passthrough *p = ctx;
	size_t room = p->hello.max - p->hello.size;
	char data[READ_SIZE];
	ssize_t n = recv(fd, data, room < sizeof data ? room : sizeof data, MSG_DONTWAIT);

	(void) what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || buf_add(&p->hello, data, (size_t) n) < 0) {
		give_up(p, "the client closed the connection before its ClientHello was whole");
		return;
	}
	consider(p);
}

static void patience_over(evutil_socket_t fd, short what, void *ctx)
{
	(void) fd;
	(void) what;
	give_up(ctx, "the client sent no whole ClientHello within 10 s");
}

static void cut(void *owner)
{
	struct passthrough *p = owner;

	if (p->dial != NULL)
		dial_cancel(p->dial);
	break_off(p);
}

void passthrough_start(struct flow *f, int fd)
{
	const struct timeval patience = {.tv_sec = HELLO_SECONDS};
	struct passthrough *p = xcalloc(1, sizeof *p);

	*p = (struct passthrough){.flow = f, .fd = fd, .hello = buf_new(CLIENTHELLO_SIZE_MAX)};
	f->cut = cut;
	f->owner = p;
	p->readable = event_new(f->broker->base, fd, EV_READ | EV_PERSIST, readable, p);
	p->patience = evtimer_new(f->broker->base, patience_over, p);
	if (p->readable == NULL || p->patience == NULL || event_add(p->readable, NULL) < 0 ||
	    event_add(p->patience, &patience) < 0)
		give_up(p, "out of memory");
}
