/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sits_test_fail.h - what sits_test_fail.ko does for a test: the nth call of a kind fails.
 */
#ifndef SITS_TEST_FAIL_H
#define SITS_TEST_FAIL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SITS_TEST_FAIL_DEV	"/dev/sits-test-fail"

#define SITS_TEST_FAIL_OURS	1	/* calls that sits.ko makes, in any task */
#define SITS_TEST_FAIL_MEMORY	2	/* all that asks for memory in this task, whatever of the kernel it is */

struct sits_test_fail {
	__u32 mode;	/* ARM: SITS_TEST_FAIL_* */
	__u32 nth;	/* ARM: from 1; 0: none, but count */
	__u32 seen;	/* DISARM: out, calls */
	__u32 injected;	/* DISARM: out, whether there was an nth */
	__s32 error;	/* DISARM: out, what the failed function gave or stands for, as -errno */
	__u32 points;	/* DISARM: out, functions that can fail on this kernel */
	__u8 name[64];	/* DISARM: out, the function that failed */
};

#define SITS_TEST_FAIL_ARM	_IOWR(0xBE, 0x01, struct sits_test_fail)
#define SITS_TEST_FAIL_DISARM	_IOWR(0xBE, 0x02, struct sits_test_fail)

#endif
