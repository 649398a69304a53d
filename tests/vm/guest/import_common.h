/* SPDX-License-Identifier: MIT */
/*
 * import_common.h - a test's side of sits_test_import.ko, and patterns that edu carries.
 */
#ifndef SITS_IMPORT_COMMON_H
#define SITS_IMPORT_COMMON_H

#include <linux/dma-buf.h>

#include "kmod/sits_test_import.h"
#include "region_common.h"

#define EDU SITS_TEST_ATTACH_EDU
#define PIECE ((unsigned long)SITS_TEST_EDU_BYTES)

static char edu[SITS_NAME_MAX];

/* The PCI address of the edu device. */
__attribute__((unused))
static void find_edu(void)
{
	DIR *d = opendir("/sys/bus/pci/drivers/sits_test_import");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (!strncmp(e->d_name, "0000:", 5))
			snprintf(edu, sizeof(edu), "%.12s", e->d_name);
	if (d)
		closedir(d);
	need(edu[0], "the edu device");
}

__attribute__((unused))
static int importer(void)
{
	int imp = open(SITS_TEST_IMPORT_DEV, O_RDWR | O_CLOEXEC);

	need(imp >= 0, "open " SITS_TEST_IMPORT_DEV);
	return imp;
}

__attribute__((unused))
static int imp_attach(int imp, int fd, unsigned int flags)
{
	struct sits_test_import arg = { .fd = fd, .flags = flags };

	return xioctl(imp, SITS_TEST_ATTACH, &arg);
}

/* One that needs no arguments. */
__attribute__((unused))
static int imp_do(int imp, unsigned long op)
{
	struct sits_test_import arg = { 0 };

	return xioctl(imp, op, &arg);
}

__attribute__((unused))
static int imp_dir(int imp, unsigned long op, unsigned int dir)
{
	struct sits_test_import arg = { .dir = dir };

	return xioctl(imp, op, &arg);
}

__attribute__((unused))
static int imp_map(int imp, unsigned int dir)
{
	return imp_dir(imp, SITS_TEST_MAP, dir);
}

__attribute__((unused))
static int imp_edu(int imp, unsigned long op, unsigned long off)
{
	struct sits_test_import arg = { .off = off, .len = PIECE };

	return xioctl(imp, op, &arg);
}

__attribute__((unused))
static int imp_copy(int imp, unsigned long op, unsigned long off, void *buf)
{
	struct sits_test_import arg = { .off = off, .len = PIECE, .addr = (uintptr_t)buf };

	return xioctl(imp, op, &arg);
}

/* CPU access by userspace: DMA_BUF_SYNC_START or _END, with _READ, _WRITE or both. */
__attribute__((unused))
static int cpu_sync(int fd, unsigned int flags)
{
	struct dma_buf_sync sync = { flags };

	return xioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
}

__attribute__((unused))
static void fill(volatile char *p, unsigned int seed)
{
	for (unsigned long i = 0; i < PIECE; i++)
		p[i] = (char)((i * 31 + seed) ^ (i >> 8));
}

__attribute__((unused))
static bool has(const volatile char *p, unsigned int seed)
{
	for (unsigned long i = 0; i < PIECE; i++)
		if (p[i] != (char)((i * 31 + seed) ^ (i >> 8)))
			return false;
	return true;
}

__attribute__((unused))
static bool is_zero(const volatile char *p, unsigned long len)
{
	for (unsigned long i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

#endif
