/* A small interpreter for seccomp programs, by the text of seccomp(2) and the kernel's documentation, not by our compiler. */
#pragma once

#include <assert.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Runs the program. Anything that the kernel would refuse to load (a jump out of it, an odd load, an unknown instruction) aborts.
 */
static inline uint32_t bpf_run(const struct sock_filter *insns, size_t count, const struct seccomp_data *data)
{
	uint32_t a = 0;

	for (size_t pc = 0;; pc++) {
		const struct sock_filter *i = &insns[pc];

		assert(pc < count);
		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			assert(i->k % 4 == 0 && i->k + 4 <= sizeof(*data));
			memcpy(&a, (const char *) data + i->k, sizeof(a));
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i->k;
			break;
		case BPF_JMP | BPF_JA:
			pc += i->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += a == i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += a >= i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			pc += a > i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += a & i->k ? i->jt : i->jf;
			break;
		case BPF_RET | BPF_K:
			return i->k;
		default:
			assert(!"instruction that our filters do not need");
		}
	}
}
