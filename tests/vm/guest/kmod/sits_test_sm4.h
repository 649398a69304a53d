/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sits_test_sm4.h - what sits_test_sm4.ko does for a test: one request to a driver of the crypto API, with scatterlists as told.
 */
#ifndef SITS_TEST_SM4_H
#define SITS_TEST_SM4_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SITS_TEST_SM4_DEV	"/dev/sits-test-sm4"

#define SITS_TEST_SM4_CIPHER	0	/* single blocks, one after the other */
#define SITS_TEST_SM4_SKCIPHER	1
#define SITS_TEST_SM4_AEAD	2

#define SITS_TEST_SM4_ENCRYPT	(1u << 0)
#define SITS_TEST_SM4_IN_PLACE	(1u << 1)	/* source and destination are one list: that of the source */
#define SITS_TEST_SM4_SLEEP	(1u << 2)	/* the request may sleep; in a task alone */

#define SITS_TEST_SM4_TASK	0
#define SITS_TEST_SM4_BH_OFF	1
#define SITS_TEST_SM4_SOFTIRQ	2
#define SITS_TEST_SM4_FPU_HELD	3	/* as an interrupt finds a task that uses vector registers */

#define SITS_TEST_SM4_ADJOIN	0xffff	/* begins where the piece before ends */

struct sits_test_sm4_piece {
	__u16 offset;	/* in its page, or SITS_TEST_SM4_ADJOIN */
	__u16 pad;
	__u32 len;
};

#define SITS_TEST_SM4_MAX_PIECES	300
#define SITS_TEST_SM4_MAX_BYTES		(1u << 20)

struct sits_test_sm4 {
	__u8 driver[64];
	__u32 type;
	__u32 flags;
	__u32 where;
	__u32 key_len;
	__u32 iv_len;
	__u32 aad_len;
	__u32 len;		/* cryptlen of the API */
	__u32 tag_len;
	__u32 src_len;		/* of the list, all pieces */
	__u32 dst_len;
	__u32 nr_src;
	__u32 nr_dst;
	__u64 key;
	__u64 iv;		/* in and out */
	__u64 src;		/* in: the list's content; out: after the request, where it is not in place */
	__u64 dst;		/* in and out */
	__u64 src_pieces;
	__u64 dst_pieces;
	__s32 result;		/* out: of the request */
	__u32 overrun;		/* out: bytes beside a piece that were written */
	__u32 no_simd;		/* out: the request found the vector registers in use */
	__u32 pad;
};

#define SITS_TEST_SM4_DO	_IOWR(0xBE, 0x10, struct sits_test_sm4)

#endif
