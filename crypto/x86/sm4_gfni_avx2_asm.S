/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_gfni_avx2_asm.S - SM4 by GFNI and AVX2: the S-box and what follows it are two GF2P8AFFINEINVQB.
 *
 * sm4_avx2_asm.h has the batches and fewer than 64 blocks; here are its maps. docs/sm4.md derives them.
 *
 * Source: GB/T 32907-2016.
 */
#include "crypto/x86/asm.h"
#include "crypto/x86/sm4_affine.h"

#define SITS_CORE(fn) sits_sm4_gfni_avx2_##fn

SITS_RODATA(32)
.Lu:
	.quad SITS_AFFINE_U, SITS_AFFINE_U, SITS_AFFINE_U, SITS_AFFINE_U
.Lr:
	.quad SITS_AFFINE_R, SITS_AFFINE_R, SITS_AFFINE_R, SITS_AFFINE_R
.LA1:
	.quad SITS_AFFINE_A1, SITS_AFFINE_A1, SITS_AFFINE_A1, SITS_AFFINE_A1
.LA1_INV:
	.quad SITS_AFFINE_A1_INV, SITS_AFFINE_A1_INV, SITS_AFFINE_A1_INV, SITS_AFFINE_A1_INV
.Lturn1:
	.byte 1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12
	.byte 1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12
.Lturn2:
	.byte 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13
	.byte 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13
.Lturn3:
	.byte 3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14
	.byte 3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14

.macro SBOX_INIT
	vmovdqa .Lu(%rip), %ymm15
	vmovdqa .Lr(%rip), %ymm14
.endm

.macro SBOX t, r
	vgf2p8affineinvqb $SITS_AFFINE_CR, %ymm14, %ymm\t, %ymm\r
	vgf2p8affineinvqb $0, %ymm15, %ymm\t, %ymm\t
.endm

.macro WORD_SBOX_INIT
	SBOX_INIT
.endm

.macro WORD_SBOX p
	vgf2p8affineinvqb $SITS_AFFINE_CR, %\p\()mm14, %\p\()mm8, %\p\()mm10
	vgf2p8affineinvqb $0, %\p\()mm15, %\p\()mm8, %\p\()mm9
.endm

/* The order of bytes has not changed. */
.macro TURN0 p, v, d
.endm

.macro MAP_INIT which, a, b, c
	vmovdqa .L\which(%rip), %ymm\a
.endm

.macro MAP p, v, a, b, c, t
	vgf2p8affineqb $0, %\p\()mm\a, %\p\()mm\v, %\p\()mm\v
.endm

.macro CLMUL64 half, m, v, d
	vpclmulqdq $\half, \m(%rip), %ymm\v, %ymm\d
.endm

#include "crypto/x86/sm4_avx2_asm.h"

SITS_ASM_END
