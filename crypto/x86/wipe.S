/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * wipe.S - zeros over the stack below the caller and over the vector registers, for clean.c in userspace.
 *
 * Here, and not in C, since what a compiler makes has saved registers, guards and padding between its caller's frame and its own
 * arrays, and just there lies what the function called before has spilled.
 *
 * Compiled code of the kernel keeps to the other registers, and its stacks ask for smaller steps: not for the kernel.
 */
#include "crypto/x86/asm.h"

/* As SITS_CPU_* in sm4_core.h. */
#define CPU_AVX2	1
#define CPU_AVX512	32

SITS_TEXT

/* xmm0 is zero, and where there is AVX2, so is ymm0. */
.macro wipe_below bytes
	sub $\bytes, %rsp
	SITS_CFI(.cfi_adjust_cfa_offset \bytes)
	mov %rsp, %rax
	lea \bytes(%rsp), %rcx
	test $CPU_AVX2, %edi
	jz 2f
1:
	vmovdqu %ymm0, (%rax)
	vmovdqu %ymm0, 32(%rax)
	vmovdqu %ymm0, 64(%rax)
	vmovdqu %ymm0, 96(%rax)
	sub $-128, %rax
	cmp %rcx, %rax
	jb 1b
	add $\bytes, %rsp
	SITS_CFI(.cfi_remember_state)
	SITS_CFI(.cfi_adjust_cfa_offset -\bytes)
	vzeroupper
	SITS_RET
2:
	SITS_CFI(.cfi_restore_state)
	movups %xmm0, (%rax)
	movups %xmm0, 16(%rax)
	movups %xmm0, 32(%rax)
	movups %xmm0, 48(%rax)
	add $64, %rax
	cmp %rcx, %rax
	jb 2b
	add $\bytes, %rsp
	SITS_CFI(.cfi_adjust_cfa_offset -\bytes)
	SITS_RET
.endm

.macro wipe_registers
	test $CPU_AVX2, %edi
	jz 2f
	vzeroall
	jmp 3f
2:
.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	pxor %xmm\n, %xmm\n
.endr
3:
#ifdef SITS_HAVE_SM4_GFNI_AVX512
	test $CPU_AVX512, %edi
	jz 4f
.irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	vpxord %xmm\n, %xmm\n, %xmm\n
.endr
4:
#endif
.endm

/* void sits_wipe_mode(u32 cpu_features); SITS_CLEAN_MODE bytes. */
SITS_FUNC_START(sits_wipe_mode)
	wipe_registers
	wipe_below 1536
SITS_FUNC_END(sits_wipe_mode)

/* The same with SITS_CLEAN_PORTABLE. */
SITS_FUNC_START(sits_wipe_portable)
	wipe_registers
	wipe_below 3840
SITS_FUNC_END(sits_wipe_portable)

SITS_ASM_END
