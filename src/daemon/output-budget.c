#include "daemon/output-budget.h"

#include "daemon/processes.h"
#include "daemon/sandbox.h"

static const size_t held_max = (size_t) 256 * 1024 * 1024;

static struct sandbox *heaviest(struct sandbox *most)
{
	for (struct sandbox *s = most->all->newest; s != NULL; s = s->older)
		if (s->output_kept > most->output_kept)
			most = s;
	return most;
}

/* The oldest first. */
static void shed_ended(struct sandbox *s, size_t most)
{
	struct process *p = s->processes;

	for (; p != NULL && p->older != NULL; p = p->older)
		;
	for (; p != NULL && s->output_kept > most; p = p->newer)
		if (p->state == PROCESS_ENDED && p->readers == NULL)
			process_output_shed(p, 0);
}

static void shed_half(struct sandbox *s)
{
	size_t most = s->output_kept / 2;

	shed_ended(s, most);
	for (struct process *p = s->processes; p != NULL && s->output_kept > most; p = p->older)
		process_output_shed(p, p->output_held / 2);
}

bool output_budget_ask(struct process *p, size_t more)
{
	struct sandboxes *all = p->sandbox->all;

	if (all->output_held + more <= held_max)
		return true;
	/* A quarter at once, since to look at all of them takes a while. */
	while (all->output_held > held_max / 4 * 3) {
		struct sandbox *s = heaviest(p->sandbox);
		size_t before = all->output_held;

		shed_half(s);
		if (all->output_held == before)
			break;
	}
	return all->output_held + more <= held_max;
}

void output_budget_add(struct process *p, size_t bytes, bool kept)
{
	p->sandbox->all->output_held += bytes;
	p->sandbox->output_kept += kept ? bytes : 0;
}

void output_budget_take(struct process *p, size_t bytes, bool kept)
{
	p->sandbox->all->output_held -= bytes;
	p->sandbox->output_kept -= kept ? bytes : 0;
}
