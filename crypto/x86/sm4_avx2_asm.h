/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_avx2_asm.h - what both AVX2 cores of SM4 have in common: batches of 64 blocks, byte by byte; for their .S files only.
 *
 * A batch is two sets of 32 blocks. Of each set, byte c of every block stands in one ymm: a plane. Rotations of words by
 * bytes then cost nothing. A set has 16 planes, and no register would be left to work with; so the planes are on the stack, and
 * what a round needs comes as memory operands, but for the word that the round before has made. Rounds of the two sets
 * take turns: neither waits for the other, and the processor runs them side by side.
 *
 * Row i of a set is the 32 bytes of blocks 2i and 2i + 1, one in each half of a ymm. Transposing rows into planes, and planes into
 * rows, are the same steps; so planes hold the even blocks in the lower half, and the odd ones in the upper.
 *
 * A core defines, before it includes this:
 *
 *	SITS_CORE(fn)			its name of the function fn
 *	SBOX_INIT			constants of SBOX into ymm14 and ymm15
 *	SBOX a, r			r = R, a = U (docs/sm4.md) of the S-box of a, for planes. Changes ymm12, ymm13; ymm14 if no constant
 *	WORD_SBOX_INIT			constants of WORD_SBOX into registers from ymm12 on
 *	WORD_SBOX p			9 = U, 10 = R of the S-box of 8, for words, in whatever order of bytes. Changes 11
 *	TURN0 p, v, d			d = v, with bytes in order again
 *	turn1, turn2, turn3		labels of shuffles: the same, and byte j of a word is j + 1, j + 2, j + 3 of before
 *	MAP_INIT which, a, b, c		constants of MAP for A1 or A1_INV into registers a, b, c
 *	MAP p, v, a, b, c, t		v = that map of v; p: x or y for xmm or ymm. Changes t
 *	CLMUL64 half, m, v, d		d = carry-less products of a quarter of m in memory with half 0 or 1 of either half of v. Changes ymm7
 *
 * All functions of this file: k is in %rdi, dst in %rsi, src in %rdx, the number of blocks, at least 1, in %rcx. Text that is
 * less than a function works on is copied to the stack and back.
 */
#ifndef SITS_CRYPTO_X86_SM4_AVX2_ASM_H
#define SITS_CRYPTO_X86_SM4_AVX2_ASM_H

#include "crypto/x86/asm.h"

/* The stack, from %rsp on; PLANE, SUM: sets of 640 bytes. */
#define PLANE(set, c)	((set) * 640 + (c) * 32)
#define SUM(set, j)	((set) * 640 + 512 + (j) * 32)	/* of the middle words of an even round */
#define HALF(i)		(1280 + (i) * 32)
#define COUNTER		1536	/* as it is in a block, then mapped by A1 */
#define NEXT_IV		1536
#define SAVED		1568	/* an argument, while its register is wanted */
#define REST_DST	1576	/* where the rest belongs; 0: there is none so far */
#define REST_NR		1584	/* and how many blocks it has */
#define ROOM(i)		(1600 + (i) * 32)	/* the rest; or a batch of counters; or of tweaks */
#define STACK		2624
#define XTS_REST	2624	/* the rest, beside tweaks */
#define XTS_STACK	3648

#define CALLED		8	/* what %rsp is off by in a function that is called by one with that stack */

#define ROUND_KEYS	128	/* offset of affine in struct sits_sm4_rounds */

SITS_RODATA(32)
SITS_LABEL(even_odd):	/* which blocks the bytes of a plane are of */
	.byte 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
	.byte 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
SITS_LABEL(blocks32):
	.fill 32, 1, 32
SITS_LABEL(swap16):
	.byte 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
	.byte 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
SITS_LABEL(counts0):	/* 64-bit shifts left of tweaks 0 and 1, and right of what they lose */
	.quad 0, 0, 1, 1
SITS_LABEL(counts64):
	.quad 64, 64, 63, 63
SITS_LABEL(twos):
	.quad 2, 2, 2, 2
SITS_LABEL(poly_ieee):	/* x^128 = x^7 + x^2 + x + 1 */
	.quad 0x87, 0x87, 0x87, 0x87
SITS_LABEL(poly_gb):	/* the same from the other end, without its 1, and shifted by one as products are */
	.quad 0xc200000000000000, 0xc200000000000000, 0xc200000000000000, 0xc200000000000000
SITS_LABEL(even_odd_words):	/* which of 8 blocks the words of a ymm are of */
	.long 0, 2, 4, 6, 1, 3, 5, 7
SITS_LABEL(words8):
	.long 8, 8, 8, 8, 8, 8, 8, 8
SITS_LABEL(words4):
	.long 0, 1, 2, 3
SITS_LABEL(swap4):
	.byte 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12
	.byte 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12
SITS_LABEL(bytes4):	/* one byte of every four, for word-sliced round keys */
	.byte 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12
	.byte 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12

/* ==== 64 blocks, byte-sliced ==== */

/*
 * One byte of one round. The words of the state take turns in being the first: x1 and x2 are where the round's second and third
 * stand; the fourth, which the round before has made, is in a register, too: a. X2 + X3 of an even round are X1 + X2 of the
 * next one, and kept.
 */
.macro ROUND_BYTE set, odd, key, x1, x2, j, a, r
	vpbroadcastd ROUND_KEYS+(\key)*16+(\j)*4(%rax), %ymm\r
.if \odd
	vpxor SUM(\set, \j)+CALLED(%rsp), %ymm\r, %ymm\r
.else
	vpxor PLANE(\set, (\x1)*4+(\j))+CALLED(%rsp), %ymm\r, %ymm\r
	vpxor PLANE(\set, (\x2)*4+(\j))+CALLED(%rsp), %ymm\a, %ymm\a
	vmovdqa %ymm\a, SUM(\set, \j)+CALLED(%rsp)
.endif
	vpxor %ymm\r, %ymm\a, %ymm\a
	SBOX \a, \r
.endm

.macro ADD_TO_PLANE set, c, a, b, d
	vpxor %ymm\b, %ymm\a, %ymm\a
	vpxor PLANE(\set, \c)+CALLED(%rsp), %ymm\a, %ymm\d
	vmovdqa %ymm\d, PLANE(\set, \c)+CALLED(%rsp)
.endm

/* X0_j += u_j + u_(j-1) + r of the other three. a0 to a3: X3, then the new word; r is in ymm8 to ymm11 */
.macro ROUND set, odd, key, x0, x1, x2, a0, a1, a2, a3
	ROUND_BYTE \set, \odd, \key, \x1, \x2, 0, \a0, 8
	ROUND_BYTE \set, \odd, \key, \x1, \x2, 1, \a1, 9
	ROUND_BYTE \set, \odd, \key, \x1, \x2, 2, \a2, 10
	ROUND_BYTE \set, \odd, \key, \x1, \x2, 3, \a3, 11
	vpxor %ymm8, %ymm9, %ymm12
	vpxor %ymm10, %ymm11, %ymm13
	vpxor %ymm13, %ymm9, %ymm9
	vpxor %ymm13, %ymm8, %ymm8
	vpxor %ymm12, %ymm11, %ymm11
	vpxor %ymm12, %ymm10, %ymm10
	vpxor %ymm\a0, %ymm\a3, %ymm12
	vpxor %ymm\a2, %ymm\a3, %ymm\a3
	vpxor %ymm\a1, %ymm\a2, %ymm\a2
	vpxor %ymm\a0, %ymm\a1, %ymm\a1
	ADD_TO_PLANE \set, (\x0)*4+0, 12, 9, \a0
	ADD_TO_PLANE \set, (\x0)*4+1, \a1, 8, \a1
	ADD_TO_PLANE \set, (\x0)*4+2, \a2, 11, \a2
	ADD_TO_PLANE \set, (\x0)*4+3, \a3, 10, \a3
.endm

.macro ROUND_A odd, key, x0, x1, x2
	ROUND 0, \odd, \key, \x0, \x1, \x2, 0, 1, 2, 3
.endm

.macro ROUND_B odd, key, x0, x1, x2
	ROUND 1, \odd, \key, \x0, \x1, \x2, 4, 5, 6, 7
.endm

SITS_TEXT

/* All rounds of what the caller, whose stack it works on, has loaded. Changes %rax, %r10 and %r11. */
SITS_LOCAL_FUNC_START(SITS_CORE(rounds))
	SBOX_INIT
	vmovdqa PLANE(0, 12) + CALLED(%rsp), %ymm0
	vmovdqa PLANE(0, 13) + CALLED(%rsp), %ymm1
	vmovdqa PLANE(0, 14) + CALLED(%rsp), %ymm2
	vmovdqa PLANE(0, 15) + CALLED(%rsp), %ymm3
	vmovdqa PLANE(1, 12) + CALLED(%rsp), %ymm4
	vmovdqa PLANE(1, 13) + CALLED(%rsp), %ymm5
	vmovdqa PLANE(1, 14) + CALLED(%rsp), %ymm6
	vmovdqa PLANE(1, 15) + CALLED(%rsp), %ymm7
	mov %rdi, %rax
	mov $8, %r10d
	mov $1024, %r11d
1:
	/* Where the next batch is, and where it goes. Nothing is read or written: so it need not be there. */
	prefetcht0 (%rdx, %r11)
	prefetchw (%rsi, %r11)
	prefetcht0 64(%rdx, %r11)
	prefetchw 64(%rsi, %r11)
	sub $-128, %r11
	ROUND_A 0, 0, 0, 1, 2
	ROUND_B 0, 0, 0, 1, 2
	ROUND_A 1, 1, 1, 2, 3
	ROUND_B 1, 1, 1, 2, 3
	ROUND_A 0, 2, 2, 3, 0
	ROUND_B 0, 2, 2, 3, 0
	ROUND_A 1, 3, 3, 0, 1
	ROUND_B 1, 3, 3, 0, 1
	add $64, %rax
	dec %r10d
	jnz 1b
	SITS_RET
SITS_FUNC_END(SITS_CORE(rounds))

/*
 * ymm0 to ymm7, eight rows of each of which bytes 0 to 15 are wanted apart -> ymm8 to ymm15: bytes 2i of all eight, then bytes
 * 2i + 1, in ymm8 + i.
 */
.macro INTERLEAVE a, b, lo, hi
	vpunpcklbw %ymm\b, %ymm\a, %ymm\lo
	vpunpckhbw %ymm\b, %ymm\a, %ymm\hi
.endm

.macro TRANSPOSE_HALF
	INTERLEAVE 0, 4, 8, 12
	INTERLEAVE 1, 5, 9, 13
	INTERLEAVE 2, 6, 10, 14
	INTERLEAVE 3, 7, 11, 15
	INTERLEAVE 8, 10, 0, 1
	INTERLEAVE 9, 11, 2, 3
	INTERLEAVE 12, 14, 4, 5
	INTERLEAVE 13, 15, 6, 7
	INTERLEAVE 0, 2, 8, 9
	INTERLEAVE 1, 3, 10, 11
	INTERLEAVE 4, 6, 12, 13
	INTERLEAVE 5, 7, 14, 15
.endm

.macro KEEP_HALF
	vmovdqa %ymm8, HALF(0)(%rsp)
	vmovdqa %ymm9, HALF(1)(%rsp)
	vmovdqa %ymm10, HALF(2)(%rsp)
	vmovdqa %ymm11, HALF(3)(%rsp)
	vmovdqa %ymm12, HALF(4)(%rsp)
	vmovdqa %ymm13, HALF(5)(%rsp)
	vmovdqa %ymm14, HALF(6)(%rsp)
	vmovdqa %ymm15, HALF(7)(%rsp)
.endm

/* The last step joins register v of this half with what was kept of the other: ymm1, then ymm0. */
.macro JOIN i, v
	vmovdqa HALF(\i)(%rsp), %ymm0
	vpunpcklqdq %ymm\v, %ymm0, %ymm1
	vpunpckhqdq %ymm\v, %ymm0, %ymm0
	MAP y, 1, 2, 3, 4, 5
	MAP y, 0, 2, 3, 4, 5
.endm

/* from: src, tweaked (src + ROOM), or room */
.macro LOAD_ROW from, row, v
.ifc \from, room
	vmovdqa ROOM(\row)(%rsp), %ymm\v
.else
	vmovdqu (\row) * 32(%rdx), %ymm\v
.ifc \from, tweaked
	vpxor ROOM(\row)(%rsp), %ymm\v, %ymm\v
.endif
.endif
.endm

.macro LOAD_ROWS from, row
	LOAD_ROW \from, (\row)+0, 0
	LOAD_ROW \from, (\row)+1, 1
	LOAD_ROW \from, (\row)+2, 2
	LOAD_ROW \from, (\row)+3, 3
	LOAD_ROW \from, (\row)+4, 4
	LOAD_ROW \from, (\row)+5, 5
	LOAD_ROW \from, (\row)+6, 6
	LOAD_ROW \from, (\row)+7, 7
.endm

.macro LOAD_JOIN set, i, v
	JOIN \i, \v
	vmovdqa %ymm1, PLANE(\set, 2 * (\i))(%rsp)
	vmovdqa %ymm0, PLANE(\set, 2 * (\i) + 1)(%rsp)
.endm

.macro LOAD_SET from, set
	LOAD_ROWS \from, (\set)*16
	TRANSPOSE_HALF
	KEEP_HALF
	LOAD_ROWS \from, (\set)*16+8
	TRANSPOSE_HALF
	MAP_INIT A1, 2, 3, 4
	LOAD_JOIN \set, 0, 8
	LOAD_JOIN \set, 1, 9
	LOAD_JOIN \set, 2, 10
	LOAD_JOIN \set, 3, 11
	LOAD_JOIN \set, 4, 12
	LOAD_JOIN \set, 5, 13
	LOAD_JOIN \set, 6, 14
	LOAD_JOIN \set, 7, 15
.endm

/* 64 blocks -> both sets, in the domain of the rounds. */
.macro LOAD from
	LOAD_SET \from, 0
	LOAD_SET \from, 1
.endm

/*
 * One row of results, v, on its way to dst. how: plain; ctr: + src; cbc: + the block before it in src, where row 0 has the one at
 * NEXT_IV; ieee, gb: + its tweak, which becomes that of the next batch.
 */
.macro STORE_ROW how, row, v
.ifc \how, ctr
	vpxor (\row) * 32(%rdx), %ymm\v, %ymm\v
.endif
.ifc \how, cbc
.if \row
	vpxor (\row) * 32 - 16(%rdx), %ymm\v, %ymm\v
.else
	vmovdqa NEXT_IV(%rsp), %xmm5
	vinserti128 $1, (%rdx), %ymm5, %ymm5
	vpxor %ymm5, %ymm\v, %ymm\v
.endif
.endif
.ifc \how, ieee
	vmovdqa ROOM(\row)(%rsp), %ymm5
	vpxor %ymm5, %ymm\v, %ymm\v
	TIMES_X64 ieee, 5, 6
	vmovdqa %ymm6, ROOM(\row)(%rsp)
.endif
.ifc \how, gb
	vmovdqa ROOM(\row)(%rsp), %ymm5
	vpxor %ymm5, %ymm\v, %ymm\v
	TIMES_X64 gb, 5, 6
	vmovdqa %ymm6, ROOM(\row)(%rsp)
.endif
	vmovdqu %ymm\v, (\row) * 32(%rsi)
.endm

/* From the last row to the first: in place, CBC still wants the ciphertext before. */
.macro STORE_JOIN how, set, i, v
	JOIN \i, \v
	STORE_ROW \how, (\set)*16+2*(\i)+1, 0
	STORE_ROW \how, (\set)*16+2*(\i), 1
.endm

.macro LOAD_WORDS set, w0, w1
	vmovdqa PLANE(\set, (\w0) * 4 + 0)(%rsp), %ymm0
	vmovdqa PLANE(\set, (\w0) * 4 + 1)(%rsp), %ymm1
	vmovdqa PLANE(\set, (\w0) * 4 + 2)(%rsp), %ymm2
	vmovdqa PLANE(\set, (\w0) * 4 + 3)(%rsp), %ymm3
	vmovdqa PLANE(\set, (\w1) * 4 + 0)(%rsp), %ymm4
	vmovdqa PLANE(\set, (\w1) * 4 + 1)(%rsp), %ymm5
	vmovdqa PLANE(\set, (\w1) * 4 + 2)(%rsp), %ymm6
	vmovdqa PLANE(\set, (\w1) * 4 + 3)(%rsp), %ymm7
.endm

/* The words of a result are in reverse. */
.macro STORE_SET how, set
	LOAD_WORDS \set, 3, 2
	TRANSPOSE_HALF
	KEEP_HALF
	LOAD_WORDS \set, 1, 0
	TRANSPOSE_HALF
	MAP_INIT A1_INV, 2, 3, 4
	STORE_JOIN \how, \set, 7, 15
	STORE_JOIN \how, \set, 6, 14
	STORE_JOIN \how, \set, 5, 13
	STORE_JOIN \how, \set, 4, 12
	STORE_JOIN \how, \set, 3, 11
	STORE_JOIN \how, \set, 2, 10
	STORE_JOIN \how, \set, 1, 9
	STORE_JOIN \how, \set, 0, 8
.endm

.macro STORE how
	STORE_SET \how, 1
	STORE_SET \how, 0
.endm

/* nr blocks, at least 1, in a register that changes; from and to too, if not on the stack. Changes xmm0. */
.macro COPY from, to, nr
8:
	vmovdqu (\from), %xmm0
	vmovdqu %xmm0, (\to)
	add $16, \from
	add $16, \to
	dec \nr
	jnz 8b
.endm

/* Less than a batch of src -> room on the stack, which stands for src and dst from now on. What is behind it there does not matter. */
.macro REST_IN room, slots
	mov %rsi, \slots(%rsp)
	mov %rcx, \slots+8(%rsp)
	lea \room(%rsp), %rsi
	COPY %rdx, %rsi, %rcx
	lea \room(%rsp), %rsi
	mov %rsi, %rdx
.endm

.macro REST_OUT room, slots
	mov \slots(%rsp), %rsi
	mov \slots+8(%rsp), %rcx
	lea \room(%rsp), %rdx
	COPY %rdx, %rsi, %rcx
.endm

/* To label, if blocks are left. %rcx is less than 64 for the rest only, which is the last. */
.macro NEXT_BATCH label
	add $1024, %rdx
	add $1024, %rsi
	sub $64, %rcx
	ja \label
.endm

/* Before the end of a function: the rest, if there was one, to where it belongs. */
.macro END_OF_BATCHES room
	cmpq $0, REST_DST(%rsp)
	je 5f
	REST_OUT \room, REST_DST
5:
.endm

/* bytes from %rsp on; a multiple of 64 */
.macro WIPE bytes
	vzeroall
	lea (\bytes)(%rsp), %rax
9:
	sub $64, %rax
	vmovdqa %ymm0, (%rax)
	vmovdqa %ymm0, 32(%rax)
	cmp %rsp, %rax
	ja 9b
.endm

SITS_FUNC_START(SITS_CORE(ecb64))
	SITS_FRAME_START(STACK)
	movq $0, REST_DST(%rsp)
1:
	cmp $64, %rcx
	jae 2f
	REST_IN ROOM(0), REST_DST
2:
	LOAD src
	call SITS_CORE(rounds)
	STORE plain
	NEXT_BATCH 1b
	END_OF_BATCHES ROOM(0)
	WIPE STACK
	SITS_FRAME_END
	SITS_RET
SITS_FUNC_END(SITS_CORE(ecb64))

/* %r8: iv */
SITS_FUNC_START(SITS_CORE(cbc64))
	SITS_FRAME_START(STACK)
	movq $0, REST_DST(%rsp)
	vmovdqu (%r8), %xmm0
	vmovdqa %xmm0, NEXT_IV(%rsp)
	mov $1008, %r9d
1:
	cmp $64, %rcx
	jae 2f
	mov %rcx, %r9
	shl $4, %r9
	sub $16, %r9
	REST_IN ROOM(0), REST_DST
2:
	LOAD src
	call SITS_CORE(rounds)
	mov (%rdx, %r9), %r10
	mov 8(%rdx, %r9), %r11
	STORE cbc
	mov %r10, NEXT_IV(%rsp)
	mov %r11, NEXT_IV + 8(%rsp)
	NEXT_BATCH 1b
	mov %r10, (%r8)
	mov %r11, 8(%r8)
	END_OF_BATCHES ROOM(0)
	WIPE STACK
	SITS_FRAME_END
	SITS_RET
SITS_FUNC_END(SITS_CORE(cbc64))

/* ==== Counters ==== */

/* %r11, %r10 (high, low) += %r8; of 32 bits where %r9d. Changes %rax. */
.macro COUNT
	test %r9d, %r9d
	jnz 4f
	add %r8, %r10
	adc $0, %r11
	jmp 5f
4:
	lea (%r10, %r8), %eax
	shr $32, %r10
	shl $32, %r10
	or %rax, %r10
5:
.endm

/* In big-endian order. Changes %rax. */
.macro STORE_COUNTER offset, base
	mov %r11, %rax
	bswap %rax
	mov %rax, \offset(\base)
	mov %r10, %rax
	bswap %rax
	mov %rax, \offset+8(\base)
.endm

.macro COUNTER_BYTE c
	vpbroadcastb COUNTER + 16 + \c(%rsp), %ymm0
	vmovdqa %ymm0, PLANE(0, \c)(%rsp)
	vmovdqa %ymm0, PLANE(1, \c)(%rsp)
.endm

/*
 * The planes of 64 counters of which the upper 14 bytes are the same. v: the last byte of 32 of them, given c, that of
 * the first; it has come round where it is less. a: the byte before.
 */
.macro COUNTER_PLANES set, v, c, a
	vpmaxub %ymm\v, %ymm\c, %ymm8
	vpcmpeqb %ymm\v, %ymm8, %ymm8
	vpaddb %ymm8, %ymm\a, %ymm8
	MAP y, 8, 2, 3, 4, 5
	MAP y, \v, 2, 3, 4, 5
	vmovdqa %ymm8, PLANE(\set, 14)(%rsp)
	vmovdqa %ymm\v, PLANE(\set, 15)(%rsp)
.endm

.macro LOAD_COUNTERS
	MAP_INIT A1, 2, 3, 4
	vmovdqa COUNTER(%rsp), %xmm0
	MAP x, 0, 2, 3, 4, 5
	vmovdqa %xmm0, COUNTER + 16(%rsp)
	.irp c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
	COUNTER_BYTE \c
	.endr
	vpbroadcastb COUNTER + 15(%rsp), %ymm0
	vpbroadcastb COUNTER + 14(%rsp), %ymm1
	vpcmpeqb %ymm7, %ymm7, %ymm7
	vpsubb %ymm7, %ymm1, %ymm1	/* one more, and one less again where nothing is carried */
	vpaddb SITS_LABEL(even_odd)(%rip), %ymm0, %ymm9
	vpaddb SITS_LABEL(blocks32)(%rip), %ymm9, %ymm10
	COUNTER_PLANES 0, 9, 0, 1
	COUNTER_PLANES 1, 10, 0, 1
.endm

.macro FETCH_COUNTER
	mov COUNTER(%rsp), %r11
	mov COUNTER + 8(%rsp), %r10
	bswap %r11
	bswap %r10
.endm

/* %r8: counter, %r9d: of 32 bits, else of 128 */
SITS_FUNC_START(SITS_CORE(ctr64))
	SITS_FRAME_START(STACK)
	movq $0, REST_DST(%rsp)
	vmovdqu (%r8), %xmm0
	vmovdqa %xmm0, COUNTER(%rsp)
	mov %r8, SAVED(%rsp)
1:
	FETCH_COUNTER
	movzwl %r10w, %eax
	cmp $(0xffff - 63), %eax
	ja 6f
	LOAD_COUNTERS
2:
	/* As many as there are. */
	mov $64, %r8d
	cmp %r8, %rcx
	cmovb %rcx, %r8
	FETCH_COUNTER
	COUNT
	STORE_COUNTER COUNTER, %rsp
	cmp $64, %rcx
	jae 3f
	REST_IN ROOM(0), REST_DST
3:
	call SITS_CORE(rounds)
	STORE ctr
	NEXT_BATCH 1b
	mov SAVED(%rsp), %r8
	vmovdqa COUNTER(%rsp), %xmm0
	vmovdqu %xmm0, (%r8)
	END_OF_BATCHES ROOM(0)
	WIPE STACK
	SITS_FRAME_END
	SITS_RET
	SITS_FRAME_AGAIN
	/* More than two bytes change: one by one. */
6:
	mov %rcx, REST_NR(%rsp)
	lea ROOM(0)(%rsp), %rcx
	mov $1, %r8d
7:
	STORE_COUNTER 0, %rcx
	COUNT
	add $16, %rcx
	lea ROOM(32)(%rsp), %rax
	cmp %rax, %rcx
	jb 7b
	mov REST_NR(%rsp), %rcx
	LOAD room
	jmp 2b
SITS_FUNC_END(SITS_CORE(ctr64))

/* ==== XTS ==== */

/*
 * d = v x^64, v being a row of tweaks, which changes: one half moves into the place of the other, and what was in that, the factor
 * of x^128, comes in again by the polynomial. Here and below gb: bytes and bits of a tweak are numbered from the other end.
 */
.macro TIMES_X64 how, v, d
.ifc \how, ieee
	CLMUL64 1, SITS_LABEL(poly_ieee), \v, \d
	vpslldq $8, %ymm\v, %ymm\v
	vpxor %ymm\v, %ymm\d, %ymm\d
.else
	vpshufb SITS_LABEL(swap16)(%rip), %ymm\v, %ymm\v
	CLMUL64 0, SITS_LABEL(poly_gb), \v, \d
	vpshufd $0x4e, %ymm\v, %ymm\v
	vpxor %ymm\v, %ymm\d, %ymm\d
	vpshufb SITS_LABEL(swap16)(%rip), %ymm\d, %ymm\d
.endif
.endm

/* The tweak at (%r8) -> the nr from it on, into room: times x^0 to x^63, by shifts of as many bits. Changes %rax and %r10. */
.macro FIRST_TWEAKS how, room, nr
	vbroadcasti128 (%r8), %ymm0
	vmovdqa SITS_LABEL(counts0)(%rip), %ymm1
	vmovdqa SITS_LABEL(counts64)(%rip), %ymm2
	vmovdqa SITS_LABEL(twos)(%rip), %ymm3
.ifc \how, gb
	vpshufb SITS_LABEL(swap16)(%rip), %ymm0, %ymm0
.endif
	lea \room(%rsp), %rax
	lea \room+(\nr)*16(%rsp), %r10
7:
.ifc \how, ieee
	vpsllvq %ymm1, %ymm0, %ymm6
	vpsrlvq %ymm2, %ymm0, %ymm4
	CLMUL64 1, SITS_LABEL(poly_ieee), 4, 5
	vpslldq $8, %ymm4, %ymm4
.else
	vpsrlvq %ymm1, %ymm0, %ymm6
	vpsllvq %ymm2, %ymm0, %ymm4
	CLMUL64 0, SITS_LABEL(poly_gb), 4, 5
	vpshufd $0x4e, %ymm4, %ymm4
.endif
	vpxor %ymm6, %ymm5, %ymm5
	vpxor %ymm4, %ymm5, %ymm5
.ifc \how, gb
	vpshufb SITS_LABEL(swap16)(%rip), %ymm5, %ymm5
.endif
	vmovdqa %ymm5, (%rax)
	vpaddq %ymm3, %ymm1, %ymm1
	vpsubq %ymm3, %ymm2, %ymm2
	add $32, %rax
	cmp %r10, %rax
	jb 7b
.endm

/* %r8: tweak of the first block, out: of the block after the last */
.macro XTS64 how
	SITS_FRAME_START(XTS_STACK)
	movq $0, REST_DST(%rsp)
	FIRST_TWEAKS \how, ROOM(0), 64
1:
	cmp $64, %rcx
	jae 2f
	mov %rcx, %rax
	shl $4, %rax
	vmovdqa ROOM(0)(%rsp, %rax), %xmm0
	vmovdqu %xmm0, (%r8)
	REST_IN XTS_REST, REST_DST
2:
	LOAD tweaked
	call SITS_CORE(rounds)
	STORE \how
	NEXT_BATCH 1b
	cmpq $0, REST_DST(%rsp)
	jne 3f
	vmovdqa ROOM(0)(%rsp), %xmm0
	vmovdqu %xmm0, (%r8)
3:
	END_OF_BATCHES XTS_REST
	WIPE XTS_STACK
	SITS_FRAME_END
	SITS_RET
.endm

SITS_FUNC_START(SITS_CORE(xts64))
	XTS64 ieee
SITS_FUNC_END(SITS_CORE(xts64))

SITS_FUNC_START(SITS_CORE(xts64_gb))
	XTS64 gb
SITS_FUNC_END(SITS_CORE(xts64_gb))

/* ==== Up to 16 blocks, by words ==== */

/* Four rows of four words -> the first words of all rows, the second ones, ... Changes ymm12 to ymm15. */
.macro TRANSPOSE_WORDS p, a, b, c, d
	vpunpckldq %\p\()mm\b, %\p\()mm\a, %\p\()mm12
	vpunpckhdq %\p\()mm\b, %\p\()mm\a, %\p\()mm13
	vpunpckldq %\p\()mm\d, %\p\()mm\c, %\p\()mm14
	vpunpckhdq %\p\()mm\d, %\p\()mm\c, %\p\()mm15
	vpunpcklqdq %\p\()mm14, %\p\()mm12, %\p\()mm\a
	vpunpckhqdq %\p\()mm14, %\p\()mm12, %\p\()mm\b
	vpunpcklqdq %\p\()mm15, %\p\()mm13, %\p\()mm\c
	vpunpckhqdq %\p\()mm15, %\p\()mm13, %\p\()mm\d
.endm

/* X0 += u + (u + r) of the byte before + r of the next two. Bytes of words are as they are in memory. */
.macro WORD_ROUND p, key, x0, x1, x2, x3
.ifc \p, x
	vmovdqu ROUND_KEYS+(\key)*16(%rax), %xmm8
.else
	vbroadcasti128 ROUND_KEYS+(\key)*16(%rax), %ymm8
.endif
	vpshufb SITS_LABEL(bytes4)(%rip), %\p\()mm8, %\p\()mm8
	vpxor %\p\()mm\x1, %\p\()mm8, %\p\()mm8
	vpxor %\p\()mm\x2, %\p\()mm8, %\p\()mm8
	vpxor %\p\()mm\x3, %\p\()mm8, %\p\()mm8
	WORD_SBOX \p
	vpxor %\p\()mm9, %\p\()mm10, %\p\()mm11
	TURN0 \p, 9, 9
	vpxor %\p\()mm9, %\p\()mm\x0, %\p\()mm\x0
	vpshufb SITS_LABEL(turn3)(%rip), %\p\()mm11, %\p\()mm11
	vpshufb SITS_LABEL(turn2)(%rip), %\p\()mm10, %\p\()mm9
	vpshufb SITS_LABEL(turn1)(%rip), %\p\()mm10, %\p\()mm10
	vpxor %\p\()mm10, %\p\()mm9, %\p\()mm9
	vpxor %\p\()mm11, %\p\()mm\x0, %\p\()mm\x0
	vpxor %\p\()mm9, %\p\()mm\x0, %\p\()mm\x0
.endm

.macro MAP_WORDS p, a, b, c, d
	MAP \p, \a, 13, 14, 15, 12
	MAP \p, \b, 13, 14, 15, 12
	MAP \p, \c, 13, 14, 15, 12
	MAP \p, \d, 13, 14, 15, 12
.endm

/* ymm0 to ymm3: the words of 8 blocks, ymm4 to ymm7: of 8 others. Changes %rax and %r10. */
.macro WORD_ROUNDS16
	WORD_SBOX_INIT
	mov %rdi, %rax
	mov $8, %r10d
1:
	WORD_ROUND y, 0, 0, 1, 2, 3
	WORD_ROUND y, 0, 4, 5, 6, 7
	WORD_ROUND y, 1, 1, 2, 3, 0
	WORD_ROUND y, 1, 5, 6, 7, 4
	WORD_ROUND y, 2, 2, 3, 0, 1
	WORD_ROUND y, 2, 6, 7, 4, 5
	WORD_ROUND y, 3, 3, 0, 1, 2
	WORD_ROUND y, 3, 7, 4, 5, 6
	add $64, %rax
	dec %r10d
	jnz 1b
	MAP_INIT A1_INV, 13, 14, 15
	MAP_WORDS y, 0, 1, 2, 3
	MAP_WORDS y, 4, 5, 6, 7
	TRANSPOSE_WORDS y, 3, 2, 1, 0
	TRANSPOSE_WORDS y, 7, 6, 5, 4
.endm

.macro WORD_ROUNDS4
	WORD_SBOX_INIT
	mov %rdi, %rax
	mov $8, %r10d
1:
	WORD_ROUND x, 0, 0, 1, 2, 3
	WORD_ROUND x, 1, 1, 2, 3, 0
	WORD_ROUND x, 2, 2, 3, 0, 1
	WORD_ROUND x, 3, 3, 0, 1, 2
	add $64, %rax
	dec %r10d
	jnz 1b
	MAP_INIT A1_INV, 13, 14, 15
	MAP_WORDS x, 0, 1, 2, 3
	TRANSPOSE_WORDS x, 3, 2, 1, 0
.endm

/* The stack of functions for 1 to 16 blocks. */
#define FEW_TWEAKS	0	/* of 16 blocks, and of the next */
#define FEW_REST	320
#define FEW_DST		576
#define FEW_NR		584
#define FEW_STACK	640

/* As LOAD_ROW and STORE_ROW. ctr: of src, iv: %r8 */
.macro LOAD_WORDS_ROW from, offset, p, v
	vmovdqu \offset(%rdx), %\p\()mm\v
.ifc \from, tweaked
	vpxor FEW_TWEAKS+\offset(%rsp), %\p\()mm\v, %\p\()mm\v
.endif
.endm

.macro STORE_WORDS_ROW how, offset, p, v
.ifc \how, ctr
	vpxor \offset(%rdx), %\p\()mm\v, %\p\()mm\v
.endif
.ifc \how, cbc
.if \offset
	vpxor \offset-16(%rdx), %\p\()mm\v, %\p\()mm\v
.else
	vmovdqu (%r8), %xmm8
.ifc \p, y
	vinserti128 $1, (%rdx), %ymm8, %ymm8
.endif
	vpxor %\p\()mm8, %\p\()mm\v, %\p\()mm\v
.endif
.endif
.ifc \how, tweaked
	vpxor FEW_TWEAKS+\offset(%rsp), %\p\()mm\v, %\p\()mm\v
.endif
	vmovdqu %\p\()mm\v, \offset(%rsi)
.endm

.macro LOAD16 from
	LOAD_WORDS_ROW \from, 0, y, 0
	LOAD_WORDS_ROW \from, 32, y, 1
	LOAD_WORDS_ROW \from, 64, y, 2
	LOAD_WORDS_ROW \from, 96, y, 3
	LOAD_WORDS_ROW \from, 128, y, 4
	LOAD_WORDS_ROW \from, 160, y, 5
	LOAD_WORDS_ROW \from, 192, y, 6
	LOAD_WORDS_ROW \from, 224, y, 7
	TRANSPOSE_WORDS y, 0, 1, 2, 3
	TRANSPOSE_WORDS y, 4, 5, 6, 7
	MAP_INIT A1, 13, 14, 15
	MAP_WORDS y, 0, 1, 2, 3
	MAP_WORDS y, 4, 5, 6, 7
.endm

.macro STORE16 how
	STORE_WORDS_ROW \how, 224, y, 4
	STORE_WORDS_ROW \how, 192, y, 5
	STORE_WORDS_ROW \how, 160, y, 6
	STORE_WORDS_ROW \how, 128, y, 7
	STORE_WORDS_ROW \how, 96, y, 0
	STORE_WORDS_ROW \how, 64, y, 1
	STORE_WORDS_ROW \how, 32, y, 2
	STORE_WORDS_ROW \how, 0, y, 3
.endm

/* %ecx: 1 to 4 blocks */
.macro LOAD4 from
	vpxor %xmm1, %xmm1, %xmm1
	vpxor %xmm2, %xmm2, %xmm2
	vpxor %xmm3, %xmm3, %xmm3
	LOAD_WORDS_ROW \from, 0, x, 0
	cmp $2, %ecx
	jb 2f
	LOAD_WORDS_ROW \from, 16, x, 1
	je 2f
	LOAD_WORDS_ROW \from, 32, x, 2
	cmp $4, %ecx
	jb 2f
	LOAD_WORDS_ROW \from, 48, x, 3
2:
	TRANSPOSE_WORDS x, 0, 1, 2, 3
	MAP_INIT A1, 13, 14, 15
	MAP_WORDS x, 0, 1, 2, 3
.endm

.macro STORE4 how
	cmp $3, %ecx
	je 4f
	jb 3f
	STORE_WORDS_ROW \how, 48, x, 0
4:
	STORE_WORDS_ROW \how, 32, x, 1
	jmp 5f
3:
	cmp $2, %ecx
	jb 6f
5:
	STORE_WORDS_ROW \how, 16, x, 2
6:
	STORE_WORDS_ROW \how, 0, x, 3
.endm

/* Where src and dst are less than 16 blocks, they are on the stack meanwhile. */
.macro FEW_IN
	movq $0, FEW_DST(%rsp)
	cmp $16, %rcx
	jae 2f
	REST_IN FEW_REST, FEW_DST
2:
.endm

.macro FEW_OUT
	cmpq $0, FEW_DST(%rsp)
	je 4f
	REST_OUT FEW_REST, FEW_DST
4:
.endm

SITS_FUNC_START(SITS_CORE(ecb16))
	SITS_FRAME_START(FEW_STACK)
	FEW_IN
	LOAD16 src
	WORD_ROUNDS16
	STORE16 plain
	FEW_OUT
	WIPE FEW_STACK
	SITS_FRAME_END
	SITS_RET
SITS_FUNC_END(SITS_CORE(ecb16))

SITS_FUNC_START(SITS_CORE(ecb4))
	LOAD4 src
	WORD_ROUNDS4
	STORE4 plain
	vzeroall
	SITS_RET
SITS_FUNC_END(SITS_CORE(ecb4))

/* The last block of src, which is the next iv: into %r9 and %r11 until it is wanted. Changes %rax. */
.macro LAST_OF_SRC
	mov %ecx, %eax
	shl $4, %eax
	mov -16(%rdx, %rax), %r9
	mov -8(%rdx, %rax), %r11
.endm

.macro LAST_TO_IV
	mov %r9, (%r8)
	mov %r11, 8(%r8)
.endm

/* %r8: iv */
SITS_FUNC_START(SITS_CORE(cbc16))
	SITS_FRAME_START(FEW_STACK)
	LAST_OF_SRC
	FEW_IN
	LOAD16 src
	WORD_ROUNDS16
	STORE16 cbc
	LAST_TO_IV
	FEW_OUT
	WIPE FEW_STACK
	SITS_FRAME_END
	SITS_RET
SITS_FUNC_END(SITS_CORE(cbc16))

SITS_FUNC_START(SITS_CORE(cbc4))
	LAST_OF_SRC
	LOAD4 src
	WORD_ROUNDS4
	STORE4 cbc
	LAST_TO_IV
	vzeroall
	SITS_RET
SITS_FUNC_END(SITS_CORE(cbc4))

/* Counters by words: all but the last are the same in all. That is counted in 32 bits. */
.macro LOAD_COUNTER_WORDS p
	vpshufd $0xff, %\p\()mm0, %\p\()mm3
	vpshufd $0xaa, %\p\()mm0, %\p\()mm2
	vpshufd $0x55, %\p\()mm0, %\p\()mm1
	vpshufd $0x00, %\p\()mm0, %\p\()mm0
	vpshufb SITS_LABEL(swap4)(%rip), %\p\()mm3, %\p\()mm3
.endm

/* %r8: counter of the first, of which the last 32 bits count; it stays */
SITS_FUNC_START(SITS_CORE(ctr16))
	SITS_FRAME_START(FEW_STACK)
	FEW_IN
	vbroadcasti128 (%r8), %ymm0
	LOAD_COUNTER_WORDS y
	vpaddd SITS_LABEL(even_odd_words)(%rip), %ymm3, %ymm3
	vpaddd SITS_LABEL(words8)(%rip), %ymm3, %ymm7
	vpshufb SITS_LABEL(swap4)(%rip), %ymm3, %ymm3
	vpshufb SITS_LABEL(swap4)(%rip), %ymm7, %ymm7
	MAP_INIT A1, 13, 14, 15
	MAP_WORDS y, 0, 1, 2, 3
	MAP y, 7, 13, 14, 15, 12
	vmovdqa %ymm0, %ymm4
	vmovdqa %ymm1, %ymm5
	vmovdqa %ymm2, %ymm6
	WORD_ROUNDS16
	STORE16 ctr
	FEW_OUT
	WIPE FEW_STACK
	SITS_FRAME_END
	SITS_RET
SITS_FUNC_END(SITS_CORE(ctr16))

SITS_FUNC_START(SITS_CORE(ctr4))
	vmovdqu (%r8), %xmm0
	LOAD_COUNTER_WORDS x
	vpaddd SITS_LABEL(words4)(%rip), %xmm3, %xmm3
	vpshufb SITS_LABEL(swap4)(%rip), %xmm3, %xmm3
	MAP_INIT A1, 13, 14, 15
	MAP_WORDS x, 0, 1, 2, 3
	WORD_ROUNDS4
	STORE4 ctr
	vzeroall
	SITS_RET
SITS_FUNC_END(SITS_CORE(ctr4))

/* (%r8) = the tweak after those of %rcx blocks. Changes %rax and xmm0. */
.macro NEXT_TWEAK
	mov %ecx, %eax
	shl $4, %eax
	vmovdqa FEW_TWEAKS(%rsp, %rax), %xmm0
	vmovdqu %xmm0, (%r8)
.endm

/* %r8: tweak */
.macro XTS16 how
	SITS_FRAME_START(FEW_STACK)
	FIRST_TWEAKS \how, FEW_TWEAKS, 18
	NEXT_TWEAK
	FEW_IN
	LOAD16 tweaked
	WORD_ROUNDS16
	STORE16 tweaked
	FEW_OUT
	WIPE FEW_STACK
	SITS_FRAME_END
	SITS_RET
.endm

.macro XTS4 how
	SITS_FRAME_START(128)
	FIRST_TWEAKS \how, FEW_TWEAKS, 6
	NEXT_TWEAK
	LOAD4 tweaked
	WORD_ROUNDS4
	STORE4 tweaked
	WIPE 128
	SITS_FRAME_END
	SITS_RET
.endm

SITS_FUNC_START(SITS_CORE(xts16))
	XTS16 ieee
SITS_FUNC_END(SITS_CORE(xts16))

SITS_FUNC_START(SITS_CORE(xts16_gb))
	XTS16 gb
SITS_FUNC_END(SITS_CORE(xts16_gb))

SITS_FUNC_START(SITS_CORE(xts4))
	XTS4 ieee
SITS_FUNC_END(SITS_CORE(xts4))

SITS_FUNC_START(SITS_CORE(xts4_gb))
	XTS4 gb
SITS_FUNC_END(SITS_CORE(xts4_gb))

#endif
