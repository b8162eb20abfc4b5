/* From the table to classic BPF.
 *
 * The program: check the architecture, load the call number, ask for the one hot call whose arguments are looked at, then a
 * balanced search tree over ranges of numbers. Its leaves are returns or the clauses of a rule. The kernel runs the program once
 * for each call number when it is installed, to learn which calls are always allowed and never need it again
 * (seccomp_cache_prepare, 5.11), so short ways through it are what a start pays for.
 *
 * It is written from its end to its beginning. A target is then always known when the jump to it is written, and a conditional
 * jump that would not fit into 8 bits gets an unconditional one placed right behind it. Its length is most of what an
 * installation costs (0.2 us an instruction, for the kernel's checks and its compiler), so returns are shared wherever they are
 * within reach. */
#include <errno.h>
#include <linux/bpf_common.h>
#include <stddef.h>

#include "base/mem.h"
#include "kernel/seccomp-table.h"

enum { JUMP_MAX = 255, CHAIN_MAX = 3 };

struct program {
	struct sock_filter *insns; /* filled from the end */
	size_t max, count;
	bool overflow;
};

/* A place in the program, counted from its end: the number of instructions from there on. */
typedef size_t label;

static label emit(struct program *p, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
	if (p->count == p->max) {
		p->overflow = true;
		return p->count;
	}
	p->count++;
	p->insns[p->max - p->count] = (struct sock_filter){code, jt, jf, k};
	return p->count;
}

/* The instruction at a label. */
static const struct sock_filter *at(const struct program *p, label l)
{
	return &p->insns[p->max - l];
}

static bool is_return(const struct sock_filter *insn, uint32_t verdict)
{
	return insn->code == (BPF_RET | BPF_K) && insn->k == verdict;
}

/* A return that a conditional jump can reach when `room` more instructions may come before it: an earlier one if possible. */
static label return_near(struct program *p, uint32_t verdict, size_t room)
{
	for (label l = p->count; l > 0 && p->count - l + room <= JUMP_MAX; l--) {
		if (is_return(at(p, l), verdict))
			return l;
	}
	return emit(p, BPF_RET | BPF_K, 0, 0, verdict);
}

static label emit_load(struct program *p, size_t offset)
{
	return emit(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t) offset);
}

/* Makes sure that `target` is within reach of a conditional jump when `room` more instructions may come before it. */
static label near(struct program *p, label target, size_t room)
{
	if (p->overflow || p->count - target + room <= JUMP_MAX)
		return target;
	if (at(p, target)->code == (BPF_RET | BPF_K))
		return return_near(p, at(p, target)->k, room);
	return emit(p, BPF_JMP | BPF_JA, 0, 0, (uint32_t) (p->count - target));
}

static label emit_branch(struct program *p, uint16_t op, uint32_t k, label yes, label no)
{
	label yes_near = near(p, yes, 1); /* `no` may need one more in between */
	label no_near = near(p, no, 0);

	return emit(p, (uint16_t) (BPF_JMP | op | BPF_K), (uint8_t) (p->count - yes_near), (uint8_t) (p->count - no_near), k);
}

static size_t low_half(unsigned arg)
{
	return offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t) + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0);
}

static size_t high_half(unsigned arg)
{
	return offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t) + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 0 : 4);
}

/* Where to go on with the value at `offset` already loaded: past the load, if the target begins with the same one. */
static label loaded(const struct program *p, label target, size_t offset)
{
	const struct sock_filter *insn = at(p, target);

	return insn->code == (BPF_LD | BPF_W | BPF_ABS) && insn->k == offset ? target - 1 : target;
}

/* One of a list of values; three and more consecutive ones are tested as a span. */
static label emit_set(struct program *p, const struct seccomp_test *t, label yes, label no)
{
	label next = no;

	for (size_t end = t->count; end > 0;) {
		size_t first = end - 1;

		while (first > 0 && t->set[first - 1] + 1 == t->set[first])
			first--;
		if (end - first >= 3) {
			next = emit_branch(p, BPF_JGE, t->set[first], emit_branch(p, BPF_JGT, t->set[end - 1], next, yes), next);
			end = first;
		} else {
			next = emit_branch(p, BPF_JEQ, t->set[--end], yes, next);
		}
	}
	return next;
}

static label emit_test(struct program *p, const struct seccomp_test *t, label yes, label no)
{
	size_t low = low_half(t->arg);

	if (t->op == TEST_WITHIN) {
		label at_low;

		(void) emit_branch(p, BPF_JSET, ~t->mask, no, yes);
		at_low = emit_load(p, low);
		(void) emit_branch(p, BPF_JEQ, 0, at_low, no);
		return emit_load(p, high_half(t->arg));
	}
	if (t->op == TEST_ANY) {
		(void) emit_branch(p, BPF_JSET, t->mask, loaded(p, yes, low), loaded(p, no, low));
	} else if (t->mask == SECCOMP_TEST_MASK_ALL) {
		(void) emit_set(p, t, loaded(p, yes, low), loaded(p, no, low));
	} else {
		(void) emit_set(p, t, yes, no);
		(void) emit(p, BPF_ALU | BPF_AND | BPF_K, 0, 0, t->mask);
	}
	return emit_load(p, low);
}

static label emit_clause(struct program *p, const struct seccomp_clause *c, label match, label miss)
{
	size_t n = 0;

	while (n < ARRAY_SIZE(c->tests) && c->tests[n].op != TEST_END)
		n++;
	while (n-- > 0)
		match = emit_test(p, &c->tests[n], match, miss);
	return match;
}

static uint32_t final(uint32_t verdict, struct seccomp_treatment t)
{
	return verdict == VERDICT_ALLOW ? t.allowed : verdict;
}

static label emit_rule(struct program *p, struct seccomp_treatment t)
{
	const struct seccomp_rule *rule = &seccomp_rules[t.rule];
	label start = return_near(p, final(rule->otherwise, t), 1);

	for (size_t i = rule->count; i-- > 0;) {
		label match = return_near(p, final(rule->clauses[i].verdict, t), 1);

		start = emit_clause(p, &rule->clauses[i], match, start);
	}
	return start;
}

/* A run of call numbers that are treated alike. */
struct run {
	uint32_t first, end; /* the next run's first; 0 after the last one */
	struct seccomp_treatment treatment;
	label at;
};

enum { RUNS_MAX = SECCOMP_CALLS_MAX + 3 };

/* The treatment of plain verdicts is brought down to its verdict, so that neighbours merge whatever made them alike. */
static struct seccomp_treatment canonical(struct seccomp_treatment t)
{
	const struct seccomp_rule *rule = &seccomp_rules[t.rule];

	if (rule->count == 0 && rule->otherwise != VERDICT_ALLOW)
		t.allowed = VERDICT_ALLOW;
	return t;
}

static bool same_treatment(struct seccomp_treatment a, struct seccomp_treatment b)
{
	return a.rule == b.rule && a.allowed == b.allowed;
}

static void add_run(struct run *runs, size_t *count, uint32_t first, struct seccomp_treatment t)
{
	if (*count > 0 && same_treatment(runs[*count - 1].treatment, t))
		return;
	if (*count > 0)
		runs[*count - 1].end = first;
	runs[(*count)++] = (struct run){.first = first, .treatment = t};
}

static size_t collect_runs(const struct seccomp_numbers *numbers, const struct seccomp_spec *spec, struct run *runs)
{
	bool broker = spec->profile == SECCOMP_BROKER;
	struct seccomp_treatment absent = {.rule = broker ? RULE_KILL : RULE_ABSENT, .allowed = VERDICT_ALLOW};
	struct seccomp_treatment foreign = {.rule = broker ? RULE_KILL : RULE_DENY_ENOSYS, .allowed = VERDICT_ALLOW};
	size_t count = 0;

	for (int nr = 0; nr < SECCOMP_CALLS_MAX; nr++)
		add_run(runs, &count, (uint32_t) nr, canonical(seccomp_treat(numbers, spec, nr)));
	add_run(runs, &count, SECCOMP_CALLS_MAX, absent);
	if (numbers->arch == AUDIT_ARCH_X86_64) {
		add_run(runs, &count, SECCOMP_X32_BIT, foreign);
		add_run(runs, &count, 2 * SECCOMP_X32_BIT, absent); /* negative numbers */
	}
	return count;
}

/* The clauses of each rule stand once, whoever uses them. */
static void emit_rules(struct program *p, struct run *runs, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct run *r = &runs[i];

		for (size_t k = 0; k < i && r->at == 0; k++) {
			if (same_treatment(runs[k].treatment, r->treatment))
				r->at = runs[k].at;
		}
		if (r->at == 0)
			r->at = emit_rule(p, r->treatment);
	}
}

/* Instructions to tell the numbers of a run from those around it. */
static size_t exception_cost(const struct run *r)
{
	return r->end - r->first == 1 ? 1 : 2;
}

static label emit_exception(struct program *p, const struct run *r, label rest)
{
	label end;

	if (r->end - r->first == 1)
		return emit_branch(p, BPF_JEQ, r->first, r->at, rest);
	if (r->end == 0)
		return emit_branch(p, BPF_JGE, r->first, r->at, rest);
	end = emit_branch(p, BPF_JGE, r->end, rest, r->at);
	return emit_branch(p, BPF_JGE, r->first, end, rest);
}

static size_t chain_cost(const struct run *runs, size_t count, const struct run *base)
{
	size_t cost = 0;

	for (size_t i = 0; i < count; i++)
		cost += same_treatment(runs[i].treatment, base->treatment) ? 0 : exception_cost(&runs[i]);
	return cost;
}

static label emit_chain(struct program *p, const struct run *runs, size_t count, const struct run *base)
{
	label next = base->at;

	for (size_t i = count; i-- > 0;) {
		if (!same_treatment(runs[i].treatment, base->treatment))
			next = emit_exception(p, &runs[i], next);
	}
	return next;
}

/* A search tree whose leaves are chains of a few exceptions from one treatment: most numbers that stand out (a refused call among
 * allowed ones) stand alone, and one comparison is enough for those, where a tree down to single runs takes two. */
static label emit_tree(struct program *p, const struct run *runs, size_t count)
{
	label low, high;
	size_t half = count / 2;
	const struct run *base = &runs[0];

	if (count > 1 && chain_cost(runs, count, &runs[1]) < chain_cost(runs, count, base))
		base = &runs[1];
	if (chain_cost(runs, count, base) <= CHAIN_MAX)
		return emit_chain(p, runs, count, base);
	high = emit_tree(p, runs + half, count - half);
	low = emit_tree(p, runs, half);
	return emit_branch(p, BPF_JGE, runs[half].first, high, low);
}

/* openat is by far the most frequent call whose arguments decide; it need not walk the tree. */
static label emit_hot(struct program *p, const struct seccomp_numbers *numbers, const struct run *runs, size_t count, label tree)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t nr = runs[i].first;

		if (runs[i].treatment.rule == RULE_OPENAT && nr < SECCOMP_CALLS_MAX && numbers->row[nr] >= 0)
			return emit_branch(p, BPF_JEQ, nr, runs[i].at, tree);
	}
	return tree;
}

int seccomp_compile(const struct seccomp_numbers *numbers, const struct seccomp_spec *spec, struct sock_filter *insns, size_t max)
{
	struct program p = {.insns = insns, .max = max};
	struct run runs[RUNS_MAX];
	size_t count = collect_runs(numbers, spec, runs);
	label foreign = return_near(&p, seccomp_foreign_verdict(spec), 0);
	label start;

	emit_rules(&p, runs, count);
	start = emit_tree(&p, runs, count);
	(void) emit_hot(&p, numbers, runs, count, start);
	start = emit_load(&p, offsetof(struct seccomp_data, nr));
	(void) emit_branch(&p, BPF_JEQ, numbers->arch, start, foreign);
	(void) emit_load(&p, offsetof(struct seccomp_data, arch));
	if (p.overflow)
		return -E2BIG;
	for (size_t i = 0; i < p.count; i++)
		insns[i] = insns[max - p.count + i];
	return (int) p.count;
}

uint32_t seccomp_spec_key(const struct seccomp_spec *spec)
{
	return (uint32_t) spec->profile | (uint32_t) spec->no_namespaces << 2 | (uint32_t) spec->notify_exec << 3 |
	       (uint32_t) spec->notify_connect << 4 | (uint32_t) spec->notify_open << 5 | (uint32_t) spec->fixed_processors << 6;
}
