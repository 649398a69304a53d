/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sits_test_import.h - what sits_test_import.ko does for a test, an ioctl each.
 *
 * Each open file of the device is an importer of one dma-buf. All fields not named by an operation are ignored. Offsets are
 * into the dma-buf; directions are those of the kernel's enum dma_data_direction.
 */
#ifndef SITS_TEST_IMPORT_H
#define SITS_TEST_IMPORT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SITS_TEST_IMPORT_DEV	"/dev/sits-test-import"
#define SITS_TEST_PLATFORM	"sits-test-import"	/* the device that is not on any bus with DMA */

#define SITS_TEST_ATTACH_EDU		(1u << 0)	/* as the edu device; else as the platform device */
#define SITS_TEST_ATTACH_DYNAMIC	(1u << 1)	/* with move_notify, pinned at once, as GPU drivers do */

#define SITS_TEST_BIDIRECTIONAL	0
#define SITS_TEST_TO_DEVICE	1
#define SITS_TEST_FROM_DEVICE	2

/* What edu's buffer takes. QEMU 7.2 counts the last byte of its 4096 as beyond the end. */
#define SITS_TEST_EDU_BYTES	2048

struct sits_test_import {
	__s32 fd;	/* ATTACH: the dma-buf */
	__u32 flags;	/* ATTACH: SITS_TEST_ATTACH_* */
	__u32 dir;	/* MAP, BEGIN, END */
	__u32 len;	/* EDU_*, VREAD, VWRITE, PREAD */
	__u64 off;	/* the same */
	__u64 addr;	/* VREAD, VWRITE, PREAD: in the caller's memory */
	__u32 nents;	/* MAP: out, entries with bus addresses */
	__u32 max_len;	/* MAP: out, bytes of the longest */
};

#define SITS_TEST_ATTACH	_IOWR(0xBD, 0x01, struct sits_test_import)
#define SITS_TEST_DETACH	_IOWR(0xBD, 0x02, struct sits_test_import)	/* undoes all the others */
#define SITS_TEST_MAP		_IOWR(0xBD, 0x03, struct sits_test_import)
#define SITS_TEST_UNMAP		_IOWR(0xBD, 0x04, struct sits_test_import)
#define SITS_TEST_EDU_READ	_IOWR(0xBD, 0x05, struct sits_test_import)	/* from the dma-buf into edu */
#define SITS_TEST_EDU_WRITE	_IOWR(0xBD, 0x06, struct sits_test_import)	/* from edu into the dma-buf */
#define SITS_TEST_VMAP		_IOWR(0xBD, 0x07, struct sits_test_import)
#define SITS_TEST_VUNMAP	_IOWR(0xBD, 0x08, struct sits_test_import)
#define SITS_TEST_VREAD		_IOWR(0xBD, 0x09, struct sits_test_import)
#define SITS_TEST_VWRITE	_IOWR(0xBD, 0x0a, struct sits_test_import)
#define SITS_TEST_BEGIN		_IOWR(0xBD, 0x0b, struct sits_test_import)	/* CPU access */
#define SITS_TEST_END		_IOWR(0xBD, 0x0c, struct sits_test_import)
#define SITS_TEST_PREAD		_IOWR(0xBD, 0x0d, struct sits_test_import)	/* by the pages in the table */

#endif
