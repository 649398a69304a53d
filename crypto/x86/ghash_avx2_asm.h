/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * ghash_avx2_asm.h - GHASH by PCLMULQDQ, one block at a time, or by VPCLMULQDQ, two; for .S files of the AVX2 cores only.
 *
 * A block, its 16 bytes reversed, is a polynomial with x^127 in bit 0. The product of two such numbers is that of the polynomials,
 * divided by x: so powers of H are kept times x. Then a product of 256 bits has x^0 in its bit 255, and what is above x^127, its
 * lower half, comes in again by x^128 = x^7 + x^2 + x + 1, 64 bits at a time. That is done once for up to 32 blocks, of which
 * each has a power of H of its own.
 *
 * Before it includes this, a core defines SITS_CORE(fn), its name of the function fn.
 *
 * Source: NIST SP 800-38D, clause 6.4.
 */
#ifndef SITS_CRYPTO_X86_GHASH_AVX2_ASM_H
#define SITS_CRYPTO_X86_GHASH_AVX2_ASM_H

#include "crypto/x86/asm.h"

#define POWERS	16	/* offset in struct sits_ghash_key */
#define POWER1	(POWERS + 31 * 16)

SITS_RODATA(32)
SITS_LABEL(ghash_swap16):
	.byte 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
	.byte 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
SITS_LABEL(ghash_poly):
	.quad 0xc200000000000000, 0xc200000000000000

/*
 * 2, 3, 4 += 0 times 1: the product of the lower halves, that of the sums of halves, and that of the upper halves. The middle of the
 * whole is what the second has over the other two (Karatsuba): REDUCE takes them off. Changes 5 and 6. p: x or y, for one
 * product or two.
 */
.macro MULTIPLY_ADD p
	vpshufd $0x4e, %\p\()mm0, %\p\()mm5
	vpshufd $0x4e, %\p\()mm1, %\p\()mm6
	vpxor %\p\()mm0, %\p\()mm5, %\p\()mm5
	vpxor %\p\()mm1, %\p\()mm6, %\p\()mm6
	vpclmulqdq $0x00, %\p\()mm5, %\p\()mm6, %\p\()mm5
	vpclmulqdq $0x00, %\p\()mm1, %\p\()mm0, %\p\()mm6
	vpclmulqdq $0x11, %\p\()mm1, %\p\()mm0, %\p\()mm0
	vpxor %\p\()mm5, %\p\()mm3, %\p\()mm3
	vpxor %\p\()mm6, %\p\()mm2, %\p\()mm2
	vpxor %\p\()mm0, %\p\()mm4, %\p\()mm4
.endm

/* Two sums -> one. Changes 5. */
.macro FOLD v
	vextracti128 $1, %ymm\v, %xmm5
	vpxor %xmm5, %xmm\v, %xmm\v
.endm

/* xmm8 = that sum, reduced. */
.macro REDUCE p
.ifc \p, y
	FOLD 2
	FOLD 3
	FOLD 4
.endif
	vpxor %xmm2, %xmm3, %xmm3
	vpxor %xmm4, %xmm3, %xmm3
	vpslldq $8, %xmm3, %xmm5
	vpsrldq $8, %xmm3, %xmm3
	vpxor %xmm5, %xmm2, %xmm2
	vpxor %xmm3, %xmm4, %xmm4
	vpclmulqdq $0x00, SITS_LABEL(ghash_poly)(%rip), %xmm2, %xmm5
	vpshufd $0x4e, %xmm2, %xmm2
	vpxor %xmm5, %xmm2, %xmm2
	vpclmulqdq $0x00, SITS_LABEL(ghash_poly)(%rip), %xmm2, %xmm5
	vpshufd $0x4e, %xmm2, %xmm2
	vpxor %xmm4, %xmm5, %xmm5
	vpxor %xmm5, %xmm2, %xmm8
.endm

.macro CLEAR_SUM
	vpxor %xmm2, %xmm2, %xmm2
	vpxor %xmm3, %xmm3, %xmm3
	vpxor %xmm4, %xmm4, %xmm4
.endm

.macro LOAD_BLOCKS p, offset
	vmovdqu \offset(%rdx), %\p\()mm0
	vmovdqu \offset(%r9), %\p\()mm1
	vpshufb %\p\()mm7, %\p\()mm0, %\p\()mm0
.endm

/* %rdi: key. Powers of H, times x; the highest first. */
.macro GHASH_KEY
	mov (%rdi), %rdx
	mov 8(%rdi), %rax
	mov %rdx, %rcx
	sar $63, %rcx
	add %rax, %rax
	adc %rdx, %rdx
	movabs $0xc200000000000000, %r8
	and %rcx, %r8
	and $1, %ecx
	xor %rcx, %rax
	xor %r8, %rdx
	mov %rax, POWER1(%rdi)
	mov %rdx, POWER1 + 8(%rdi)
	/* H^2 to H^4 one after the other, then each times H^4. */
	vmovdqu POWER1(%rdi), %xmm1
	vmovdqa %xmm1, %xmm8
	lea POWER1(%rdi), %r9
1:
	vmovdqa %xmm8, %xmm0
	CLEAR_SUM
	MULTIPLY_ADD x
	REDUCE x
	sub $16, %r9
	vmovdqu %xmm8, (%r9)
	lea POWER1 - 3 * 16(%rdi), %r10
	cmp %r10, %r9
	ja 1b
	vmovdqa %xmm8, %xmm1
	lea POWERS(%rdi), %r10
2:
	vmovdqu 48(%r9), %xmm0
	CLEAR_SUM
	MULTIPLY_ADD x
	REDUCE x
	sub $16, %r9
	vmovdqu %xmm8, (%r9)
	cmp %r10, %r9
	ja 2b
	xor %eax, %eax
	xor %edx, %edx
	xor %ecx, %ecx
	xor %r8d, %r8d
	vzeroall
	SITS_RET
.endm

/* %rdi: key, %rsi: y, %rdx: data, %rcx: blocks, any number */
.macro GHASH p
	test %rcx, %rcx
	jz 6f
	vmovdqa SITS_LABEL(ghash_swap16)(%rip), %ymm7
	vmovdqu (%rsi), %xmm8
	vpshufb %xmm7, %xmm8, %xmm8
	cmp $32, %rcx
	jb 2f
	lea POWERS(%rdi), %r9
	/* 32 blocks: the first one, which waits for the sum so far, last. */
1:
	CLEAR_SUM
.ifc \p, x
	.irp i, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	LOAD_BLOCKS x, \i*16
	MULTIPLY_ADD x
	.endr
.else
	.irp i, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	LOAD_BLOCKS y, \i*32
	MULTIPLY_ADD y
	.endr
.endif
	LOAD_BLOCKS \p, 0
	vpxor %\p\()mm8, %\p\()mm0, %\p\()mm0
	MULTIPLY_ADD \p
	REDUCE \p
	add $512, %rdx
	sub $32, %rcx
	cmp $32, %rcx
	jae 1b
2:
	test %rcx, %rcx
	jz 5f
	/* %rcx blocks, from its power of H down. */
	mov %rcx, %rax
	shl $4, %rax
	lea POWERS + 32 * 16(%rdi), %r9
	sub %rax, %r9
	CLEAR_SUM
.ifc \p, y
	test $1, %ecx
	jz 3f
	LOAD_BLOCKS x, 0
	vpxor %xmm8, %xmm0, %xmm0
	MULTIPLY_ADD x
	vpxor %xmm8, %xmm8, %xmm8
	add $16, %rdx
	add $16, %r9
	dec %rcx
	jz 4f
3:
	LOAD_BLOCKS y, 0
	vpxor %ymm8, %ymm0, %ymm0
	MULTIPLY_ADD y
	vpxor %xmm8, %xmm8, %xmm8
	add $32, %rdx
	add $32, %r9
	sub $2, %rcx
	jnz 3b
4:
.else
3:
	LOAD_BLOCKS x, 0
	vpxor %xmm8, %xmm0, %xmm0
	MULTIPLY_ADD x
	vpxor %xmm8, %xmm8, %xmm8
	add $16, %rdx
	add $16, %r9
	dec %rcx
	jnz 3b
.endif
	REDUCE \p
5:
	vpshufb %xmm7, %xmm8, %xmm8
	vmovdqu %xmm8, (%rsi)
	vzeroall
6:
	SITS_RET
.endm

SITS_TEXT

#endif
