// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * clean.c - take away what compiled code leaves of secrets: in the stack below its caller, where compilers spill what they run
 * out of registers for, and in vector registers, which they (and memcpy()) copy and XOR with.
 *
 * Who handles secrets in C does so in a function that is not inlined, and its caller calls sits_clean() next: so the stack that is
 * wiped begins where that function's frame began. Assembly cleans up after itself. sm4_residue_test.c looks for what is left. On
 * x86-64 in userspace x86/wipe.S does it.
 */
#include "crypto/sm4_impl.h"

#if !SITS_HAVE_X86_USER

/* Frames within frames: small ones, since the kernel has bounds for each. Its compiled code uses no vector registers. */
#define STEP_BYTES 768

sits_noinline void sits_clean(unsigned int stack_bytes)
{
	u8 room[STEP_BYTES];

	sits_wipe(room, sizeof(room));
	if (stack_bytes > STEP_BYTES)
		sits_clean(stack_bytes - STEP_BYTES);
	/* So that the call is none of the last kind, which takes no frame of its own. */
	__asm__ volatile("" : : "r"(room) : "memory");
#if defined(__aarch64__) && SITS_HAVE_VECTORS
#define V(n) "movi v" #n ".2d, #0\n"
	__asm__ volatile(V(0) V(1) V(2) V(3) V(4) V(5) V(6) V(7) V(16) V(17) V(18) V(19) V(20) V(21) V(22) V(23)
			 V(24) V(25) V(26) V(27) V(28) V(29) V(30) V(31)
			 : : : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22",
			       "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory");
#endif
}

#endif
