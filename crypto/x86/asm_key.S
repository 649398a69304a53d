/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * asm_key.S - the key schedule of SM4 by AES-NI, for keys of all vector cores; in compiled code it takes as long as four short messages.
 *
 * Each word of the schedule fills a register four times over: so ShiftRows, which AESENCLAST brings along, changes nothing. The
 * S-box is as in the AES-NI core: an affine map by nibbles into AES's field, AESENCLAST, and another back (docs/sm4.md). Of each
 * round key the forms of struct sits_sm4_rounds are made off the path that the next round waits for.
 *
 * Source: GB/T 32907-2016, clause 7.3.
 */
#include "crypto/x86/asm.h"
#include "crypto/x86/sm4_nibbles.h"

SITS_RODATA(16)
SITS_LABEL(key_a1_lo):
	.byte SITS_NIBBLES_A1_LO
SITS_LABEL(key_a1_hi):
	.byte SITS_NIBBLES_A1_HI
SITS_LABEL(key_a2_lo):
	.byte SITS_NIBBLES_A2_LO
SITS_LABEL(key_a2_hi):
	.byte SITS_NIBBLES_A2_HI
SITS_LABEL(key_in):
	.fill 16, 1, SITS_NIBBLES_IN
SITS_LABEL(key_mask):
	.fill 16, 1, 0x0f
SITS_LABEL(key_swap):
	.byte 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12
SITS_LABEL(key_spread):	/* each byte of a word four times, the most significant first */
	.byte 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0
SITS_LABEL(key_family):	/* FK */
	.long 0xa3b1bac6, 0x56aa3350, 0x677d9197, 0xb27022dc
SITS_LABEL(key_ck):	/* CK, byte j of word i: 7 (4 i + j) mod 256; and what the S-box wants added */
	.set i, 0
	.rept 32
	.long ((28 * i & 0xff) << 24 | ((28 * i + 7) & 0xff) << 16 | ((28 * i + 14) & 0xff) << 8 | ((28 * i + 21) & 0xff)) ^ SITS_NIBBLES_IN * 0x01010101
	.set i, i + 1
	.endr

#define AFFINE 128	/* offset in struct sits_sm4_rounds */

/* v = the map whose tables are in lo and hi, of v. xmm15: mask. Changes t */
.macro NIBBLES v, lo, hi, t
	vpand %xmm15, %xmm\v, %xmm\t
	vpsrlw $4, %xmm\v, %xmm\v
	vpand %xmm15, %xmm\v, %xmm\v
	vpshufb %xmm\t, %xmm\lo, %xmm\t
	vpshufb %xmm\v, %xmm\hi, %xmm\v
	vpxor %xmm\t, %xmm\v, %xmm\v
.endm

/* Round r of four: x0 += L'(S(x1 + x2 + x3 + CK)), b + b <<< 13 + b <<< 23. */
.macro KEY_ROUND r, x0, x1, x2, x3
	vbroadcastss 4*\r(%rax), %xmm4
	vpxor %xmm\x1, %xmm4, %xmm4
	vpxor %xmm\x2, %xmm4, %xmm4
	vpxor %xmm\x3, %xmm4, %xmm4
	NIBBLES 4, 11, 12, 5
	vaesenclast %xmm15, %xmm4, %xmm4
	NIBBLES 4, 13, 14, 5
	vpslld $13, %xmm4, %xmm5
	vpsrld $19, %xmm4, %xmm6
	vpslld $23, %xmm4, %xmm7
	vpsrld $9, %xmm4, %xmm8
	vpxor %xmm4, %xmm\x0, %xmm\x0
	vpxor %xmm5, %xmm6, %xmm6
	vpxor %xmm7, %xmm8, %xmm8
	vpxor %xmm6, %xmm8, %xmm8
	vpxor %xmm8, %xmm\x0, %xmm\x0
	vmovd %xmm\x0, 4*\r(%rdi)
	vmovd %xmm\x0, 12-4*\r(%rsi)
	vpxor SITS_LABEL(key_in)(%rip), %xmm\x0, %xmm9
	NIBBLES 9, 11, 12, 10
	vpshufb SITS_LABEL(key_spread)(%rip), %xmm9, %xmm9
	vmovdqu %xmm9, AFFINE+16*\r(%rcx)
	vmovdqu %xmm9, AFFINE+48-16*\r(%r8)
.endm

SITS_TEXT

/* void sits_sm4_make_keys_aesni(struct sits_sm4_rounds *enc, struct sits_sm4_rounds *dec, const u8 raw[16]) */
SITS_FUNC_START(sits_sm4_make_keys_aesni)
	vmovdqa SITS_LABEL(key_a1_lo)(%rip), %xmm11
	vmovdqa SITS_LABEL(key_a1_hi)(%rip), %xmm12
	vmovdqa SITS_LABEL(key_a2_lo)(%rip), %xmm13
	vmovdqa SITS_LABEL(key_a2_hi)(%rip), %xmm14
	vmovdqa SITS_LABEL(key_mask)(%rip), %xmm15
	vmovdqu (%rdx), %xmm4
	vpshufb SITS_LABEL(key_swap)(%rip), %xmm4, %xmm4
	vpxor SITS_LABEL(key_family)(%rip), %xmm4, %xmm4
	vpshufd $0x00, %xmm4, %xmm0
	vpshufd $0x55, %xmm4, %xmm1
	vpshufd $0xaa, %xmm4, %xmm2
	vpshufd $0xff, %xmm4, %xmm3
	lea SITS_LABEL(key_ck)(%rip), %rax
	lea 128(%rax), %r9
	mov %rdi, %rcx
	lea 7*64(%rsi), %r8	/* dec runs backwards */
	add $7*16, %rsi
1:
	KEY_ROUND 0, 0, 1, 2, 3
	KEY_ROUND 1, 1, 2, 3, 0
	KEY_ROUND 2, 2, 3, 0, 1
	KEY_ROUND 3, 3, 0, 1, 2
	add $16, %rax
	add $16, %rdi
	sub $16, %rsi
	add $64, %rcx
	sub $64, %r8
	cmp %r9, %rax
	jb 1b
	vzeroall
	SITS_RET
SITS_FUNC_END(sits_sm4_make_keys_aesni)

SITS_ASM_END
