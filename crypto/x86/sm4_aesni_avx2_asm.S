/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_aesni_avx2_asm.S - SM4 by AES-NI and AVX2: the S-box is AESENCLAST, which inverts in the same field; affine maps are looked up
 * by nibble. sm4_avx2_asm.h has the batches; here are its maps, and fewer than 64 blocks. docs/sm4.md derives it all.
 *
 * AESENCLAST also moves byte i of its 16 to another place (ShiftRows). Batches undo that before it. Where words are whole, the
 * rotations that follow do it.
 *
 * Source: GB/T 32907-2016; FIPS 197 (ShiftRows, SubBytes).
 */
#include "crypto/x86/asm.h"
#include "crypto/x86/sm4_nibbles.h"

#define SITS_CORE(fn) sits_sm4_aesni_avx2_##fn

/* Twice, for either half of a ymm. */
.macro TWICE v:vararg
	.byte \v
	.byte \v
.endm

SITS_RODATA(32)
.Lmask:
	.fill 32, 1, 0x0f
.Lu_lo:
	TWICE SITS_NIBBLES_U_LO
.Lu_hi:
	TWICE SITS_NIBBLES_U_HI
.Lr_lo:
	TWICE SITS_NIBBLES_R_LO
.Lr_hi:
	TWICE SITS_NIBBLES_R_HI
.LA1_lo:
	TWICE SITS_NIBBLES_A1_LO
.LA1_hi:
	TWICE SITS_NIBBLES_A1_HI
.LA1_INV_lo:
	TWICE SITS_NIBBLES_A1_INV_LO
.LA1_INV_hi:
	TWICE SITS_NIBBLES_A1_INV_HI
/* Where ShiftRows takes byte i from is 5 i modulo 16: so this undoes it, and the next three then turn words by 1 to 3 bytes. */
.Lturn0:
	TWICE 0, 13, 10, 7, 4, 1, 14, 11, 8, 5, 2, 15, 12, 9, 6, 3
.Lturn1:
	TWICE 13, 10, 7, 0, 1, 14, 11, 4, 5, 2, 15, 8, 9, 6, 3, 12
.Lturn2:
	TWICE 10, 7, 0, 13, 14, 11, 4, 1, 2, 15, 8, 5, 6, 3, 12, 9
.Lturn3:
	TWICE 7, 0, 13, 10, 11, 4, 1, 14, 15, 8, 5, 2, 3, 12, 9, 6

.macro SBOX_INIT
	vmovdqa .Lmask(%rip), %ymm15
.endm

/* The mask is the round key of AES: the tables know. */
.macro SBOX t, r
	vpshufb .Lturn0(%rip), %ymm\t, %ymm12
	vextracti128 $1, %ymm12, %xmm13
	vaesenclast %xmm15, %xmm12, %xmm12
	vaesenclast %xmm15, %xmm13, %xmm13
	vinserti128 $1, %xmm13, %ymm12, %ymm12
	vpand %ymm15, %ymm12, %ymm13
	vpsrlw $4, %ymm12, %ymm12
	vpand %ymm15, %ymm12, %ymm12
	vmovdqa .Lu_lo(%rip), %ymm\t
	vpshufb %ymm13, %ymm\t, %ymm\t
	vmovdqa .Lu_hi(%rip), %ymm14
	vpshufb %ymm12, %ymm14, %ymm14
	vpxor %ymm14, %ymm\t, %ymm\t
	vmovdqa .Lr_lo(%rip), %ymm\r
	vpshufb %ymm13, %ymm\r, %ymm\r
	vmovdqa .Lr_hi(%rip), %ymm14
	vpshufb %ymm12, %ymm14, %ymm14
	vpxor %ymm14, %ymm\r, %ymm\r
.endm

.macro WORD_SBOX_INIT
	vmovdqa .Lu_lo(%rip), %ymm12
	vmovdqa .Lu_hi(%rip), %ymm13
	vmovdqa .Lr_lo(%rip), %ymm14
	vmovdqa .Lr_hi(%rip), %ymm15
.endm

.macro WORD_SBOX p
.ifc \p, y
	vextracti128 $1, %ymm8, %xmm9
	vaesenclast .Lmask(%rip), %xmm9, %xmm9
.endif
	vaesenclast .Lmask(%rip), %xmm8, %xmm8
.ifc \p, y
	vinserti128 $1, %xmm9, %ymm8, %ymm8
.endif
	vpand .Lmask(%rip), %\p\()mm8, %\p\()mm9
	vpsrlw $4, %\p\()mm8, %\p\()mm8
	vpand .Lmask(%rip), %\p\()mm8, %\p\()mm8
	vpshufb %\p\()mm9, %\p\()mm14, %\p\()mm10
	vpshufb %\p\()mm8, %\p\()mm15, %\p\()mm11
	vpxor %\p\()mm11, %\p\()mm10, %\p\()mm10
	vpshufb %\p\()mm9, %\p\()mm12, %\p\()mm9
	vpshufb %\p\()mm8, %\p\()mm13, %\p\()mm8
	vpxor %\p\()mm8, %\p\()mm9, %\p\()mm9
.endm

.macro TURN0 p, v, d
	vpshufb .Lturn0(%rip), %\p\()mm\v, %\p\()mm\d
.endm

.macro MAP_INIT which, a, b, c
	vmovdqa .Lmask(%rip), %ymm\a
	vmovdqa .L\which\()_lo(%rip), %ymm\b
	vmovdqa .L\which\()_hi(%rip), %ymm\c
.endm

.macro MAP p, v, a, b, c, t
	vpand %\p\()mm\a, %\p\()mm\v, %\p\()mm\t
	vpsrlw $4, %\p\()mm\v, %\p\()mm\v
	vpand %\p\()mm\a, %\p\()mm\v, %\p\()mm\v
	vpshufb %\p\()mm\t, %\p\()mm\b, %\p\()mm\t
	vpshufb %\p\()mm\v, %\p\()mm\c, %\p\()mm\v
	vpxor %\p\()mm\t, %\p\()mm\v, %\p\()mm\v
.endm

.macro CLMUL64 half, m, v, d
	vextracti128 $1, %ymm\v, %xmm7
	vpclmulqdq $\half, \m(%rip), %xmm\v, %xmm\d
	vpclmulqdq $\half, \m(%rip), %xmm7, %xmm7
	vinserti128 $1, %xmm7, %ymm\d, %ymm\d
.endm

#include "crypto/x86/sm4_avx2_asm.h"

SITS_ASM_END
