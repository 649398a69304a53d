/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm3_bmi2.S - the compression function of SM3: steps in integer registers, with rotations of BMI2, which do not overwrite what they
 * rotate, and the message schedule in vectors (AVX), four words at once; for sm3.c in userspace.
 *
 * A step has some 25 operations in integer registers, and seven of them wait for each other from one E to the next. The schedule
 * would be another 11, and 36 are more than the four units for integers take in seven cycles. In vectors it runs beside the steps.
 *
 * The eight words stay in r8d to r15d and change names from step to step. xmm0 to xmm3 are 16 words of the schedule, W_(4g) on, where
 * g numbers groups of four steps; each group has its words, and their sums with those four further on, put on the stack during the
 * group before.
 *
 * Source: GB/T 32905-2016, clause 5.
 */
#include "crypto/x86/asm.h"

/* W_j and W_j + W_(j+4), of two groups */
#define W(j) (((j) & 7) * 4)(%rsp)
#define SUM(j) (32 + ((j) & 7) * 4)(%rsp)
#define COUNT 64(%rsp)
#define STACK 72

SITS_RODATA(16)
SITS_LABEL(sm3_swap):
	.byte 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12

SITS_TEXT

/* ebx = T_j <<< j, as a displacement, plus eax */
.macro ADD_CONSTANT t, n
	lea (((\t << \n | \t >> (32 - \n)) & 0x7fffffff) - ((\t << \n | \t >> (32 - \n)) & 0x80000000))(%rax), %ebx
.endm

.macro PARITY x, y, z, to
	mov %\x, %ecx
	xor %\y, %ecx
	xor %\z, %ecx
	add %ecx, %\to
.endm

.macro MAJORITY x, y, z, to
	mov %\x, %ecx
	mov %\x, %edx
	xor %\y, %ecx
	and %\y, %edx
	and %\z, %ecx
	add %edx, %\to
	add %ecx, %\to
.endm

.macro CHOICE x, y, z, to
	andn %\z, %\x, %ecx
	mov %\y, %edx
	and %\x, %edx
	add %ecx, %\to
	add %edx, %\to
.endm

/* t = v <<< n, changes u; then d += t */
.macro ADD_ROTATED v, n, t, u, d
	vpslld $\n, %xmm\v, %xmm\t
	vpsrld $32 - \n, %xmm\v, %xmm\u
	vpxor %xmm\t, %xmm\d, %xmm\d
	vpxor %xmm\u, %xmm\d, %xmm\d
.endm

/*
 * x0 to x3 are W_i to W_(i+15): x0 = W_(i+16) to W_(i+19). The last of these four has P1(W_(i+16) <<< 15) in it, which comes in
 * when the first is there.
 */
.macro NEXT_WORDS x0, x1, x2, x3
	vpsrldq $4, %xmm\x3, %xmm4			/* W_(i+13) on */
	vpalignr $12, %xmm\x1, %xmm\x2, %xmm5		/* W_(i+7) on */
	vpalignr $12, %xmm\x0, %xmm\x1, %xmm6		/* W_(i+3) on */
	vpxor %xmm5, %xmm\x0, %xmm\x0
	vpalignr $8, %xmm\x2, %xmm\x3, %xmm5		/* W_(i+10) on */
	ADD_ROTATED 4, 15, 7, 8, \x0
	ADD_ROTATED 6, 7, 7, 8, 5
	vpxor %xmm\x0, %xmm5, %xmm5
	vpslld $15, %xmm\x0, %xmm7
	vpsrld $17, %xmm\x0, %xmm8
	vpxor %xmm7, %xmm5, %xmm5
	vpxor %xmm8, %xmm5, %xmm5
	ADD_ROTATED \x0, 23, 7, 8, 5
	vpslldq $12, %xmm5, %xmm4
	vpslld $15, %xmm4, %xmm7
	vpsrld $17, %xmm4, %xmm8
	vpxor %xmm7, %xmm8, %xmm4
	vpxor %xmm4, %xmm5, %xmm\x0
	ADD_ROTATED 4, 15, 7, 8, \x0
	ADD_ROTATED 4, 23, 7, 8, \x0
.endm

.macro STEP j, a, b, c, d, e, f, g, h
	rorx $20, %\a, %eax
	add W(\j), %\h
	add SUM(\j), %\d
.if \j < 16
	ADD_CONSTANT 0x79cc4519, \j
.else
	ADD_CONSTANT 0x7a879d8a, (\j & 31)
.endif
	add %\e, %ebx
	rorx $25, %ebx, %ebx
	xor %ebx, %eax
.if \j < 16
	PARITY \e, \f, \g, \h
	PARITY \a, \b, \c, \d
.else
	CHOICE \e, \f, \g, \h
	MAJORITY \a, \b, \c, \d
.endif
	add %ebx, %\h
	rorx $13, %\f, %\f
	rorx $23, %\h, %ecx
	rorx $15, %\h, %edx
	xor %ecx, %\h
	xor %edx, %\h
	rorx $23, %\b, %\b
	add %eax, %\d
.endm

/* Steps j to j + 3. x0: W_j on, or where there is nothing more to make, what follows them; x1: W_(j+4) on. */
.macro FOUR_STEPS j, x0, x1, x2, x3
.if \j <= 48
	NEXT_WORDS \x0, \x1, \x2, \x3
.endif
.if \j < 60
	vpxor %xmm\x1, %xmm\x2, %xmm4
	vmovdqu %xmm\x1, W(\j + 4)
	vmovdqu %xmm4, SUM(\j + 4)
.endif
	STEP (\j + 0), r8d, r9d, r10d, r11d, r12d, r13d, r14d, r15d
	STEP (\j + 1), r11d, r8d, r9d, r10d, r15d, r12d, r13d, r14d
	STEP (\j + 2), r10d, r11d, r8d, r9d, r14d, r15d, r12d, r13d
	STEP (\j + 3), r9d, r10d, r11d, r8d, r13d, r14d, r15d, r12d
.endm

.macro SIXTEEN_STEPS j
	FOUR_STEPS \j, 0, 1, 2, 3
	FOUR_STEPS (\j + 4), 1, 2, 3, 0
	FOUR_STEPS (\j + 8), 2, 3, 0, 1
	FOUR_STEPS (\j + 12), 3, 0, 1, 2
.endm

/* void sits_sm3_compress_bmi2(u32 state[8], const u8 *block, size_t nr_blocks): nr_blocks at least 1 */
SITS_FUNC_START(sits_sm3_compress_bmi2)
	push %rbx
	push %r12
	push %r13
	push %r14
	push %r15
	SITS_CFI(.cfi_adjust_cfa_offset 40)
	SITS_CFI(.cfi_rel_offset %rbx, 32)
	SITS_CFI(.cfi_rel_offset %r12, 24)
	SITS_CFI(.cfi_rel_offset %r13, 16)
	SITS_CFI(.cfi_rel_offset %r14, 8)
	SITS_CFI(.cfi_rel_offset %r15, 0)
	sub $STACK, %rsp
	SITS_CFI(.cfi_adjust_cfa_offset STACK)
	mov %rdx, COUNT
	mov (%rdi), %r8d
	mov 4(%rdi), %r9d
	mov 8(%rdi), %r10d
	mov 12(%rdi), %r11d
	mov 16(%rdi), %r12d
	mov 20(%rdi), %r13d
	mov 24(%rdi), %r14d
	mov 28(%rdi), %r15d
1:
.irp i, 0, 1, 2, 3
	vmovdqu 16*\i(%rsi), %xmm\i
	vpshufb SITS_LABEL(sm3_swap)(%rip), %xmm\i, %xmm\i
.endr
	vpxor %xmm0, %xmm1, %xmm4
	vmovdqu %xmm0, W(0)
	vmovdqu %xmm4, SUM(0)
.irp j, 0, 16, 32, 48
	SIXTEEN_STEPS \j
.endr
	xor (%rdi), %r8d
	xor 4(%rdi), %r9d
	xor 8(%rdi), %r10d
	xor 12(%rdi), %r11d
	xor 16(%rdi), %r12d
	xor 20(%rdi), %r13d
	xor 24(%rdi), %r14d
	xor 28(%rdi), %r15d
	mov %r8d, (%rdi)
	mov %r9d, 4(%rdi)
	mov %r10d, 8(%rdi)
	mov %r11d, 12(%rdi)
	mov %r12d, 16(%rdi)
	mov %r13d, 20(%rdi)
	mov %r14d, 24(%rdi)
	mov %r15d, 28(%rdi)
	add $64, %rsi
	decq COUNT
	jnz 1b
	xor %eax, %eax
	xor %ecx, %ecx
	xor %edx, %edx
	xor %r8d, %r8d
	xor %r9d, %r9d
	xor %r10d, %r10d
	xor %r11d, %r11d
	vzeroall
.irp i, 0, 16, 32, 48
	vmovdqu %xmm0, \i(%rsp)
.endr
	add $STACK, %rsp
	SITS_CFI(.cfi_adjust_cfa_offset -STACK)
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbx
	SITS_CFI(.cfi_adjust_cfa_offset -40)
	SITS_CFI(.cfi_restore %rbx)
	SITS_CFI(.cfi_restore %r12)
	SITS_CFI(.cfi_restore %r13)
	SITS_CFI(.cfi_restore %r14)
	SITS_CFI(.cfi_restore %r15)
	SITS_RET
SITS_FUNC_END(sits_sm3_compress_bmi2)

SITS_ASM_END
