/* SPDX-License-Identifier: MIT */
/*
 * region_common.h - what the tests of /dev/sits share: TAP, and ioctls that return 0 or -errno.
 */
#ifndef SITS_REGION_COMMON_H
#define SITS_REGION_COMMON_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE	4096ul
#define HUGE	(2ul << 20)

static int nr_checks, nr_failed;

__attribute__((format(printf, 2, 3), unused))
static bool check(bool good, const char *fmt, ...)
{
	va_list ap;

	printf("%sok %d - ", good ? "" : "not ", ++nr_checks);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	nr_failed += !good;
	return good;
}

__attribute__((format(printf, 3, 4), unused))
static bool check_int(long got, long want, const char *fmt, ...)
{
	char name[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	check(got == want, "%s", name);
	if (got != want)
		printf("# got %ld, want %ld (%s)\n", got, want, got < 0 ? strerror(-got) : "");
	return got == want;
}

__attribute__((unused))
static void skip(const char *name, const char *reason)
{
	printf("ok %d - %s # SKIP %s\n", ++nr_checks, name, reason);
}

__attribute__((unused))
static int done(void)
{
	printf("1..%d\n", nr_checks);
	return nr_failed != 0;
}

/* What can't go on without it. */
__attribute__((format(printf, 2, 3), unused))
static void need(bool good, const char *fmt, ...)
{
	va_list ap;

	if (good)
		return;
	printf("Bail out! ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(": %s\n", strerror(errno));
	exit(1);
}

static int dev = -1;

__attribute__((unused))
static int xioctl(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) < 0 ? -errno : 0;
}

__attribute__((unused))
static void open_dev(void)
{
	dev = open(SITS_DEV_PATH, O_RDWR | O_CLOEXEC);
	need(dev >= 0, "open " SITS_DEV_PATH);
}

/* A region's descriptor, or -errno. */
__attribute__((unused))
static int create_named(unsigned int kind, unsigned int flags, unsigned long len, const char *name)
{
	struct sits_region_create arg = {
		.size = sizeof(arg), .flags = flags, .len_bytes = len, .kind = kind, .node = -1,
		.fd_flags = O_CLOEXEC, .fd = -1,
	};
	int ret;

	memcpy(arg.name, name, strnlen(name, sizeof(arg.name) - 1));
	ret = xioctl(dev, SITS_IOC_REGION_CREATE, &arg);
	return ret ? ret : arg.fd;
}

__attribute__((unused))
static int create(unsigned int kind, unsigned int flags, unsigned long len)
{
	return create_named(kind, flags, len, "test");
}

__attribute__((unused))
static struct sits_region_facts facts(int fd)
{
	struct sits_region_facts arg = { .size = sizeof(arg), .fd = fd };
	int ret = xioctl(dev, SITS_IOC_REGION_INFO, &arg);

	if (ret)
		check(false, "REGION_INFO of descriptor %d: %s", fd, strerror(-ret));
	return arg;
}

__attribute__((unused))
static int seal(int fd, unsigned int flags)
{
	struct sits_region_seal arg = { .size = sizeof(arg), .flags = flags, .fd = fd };

	return xioctl(dev, SITS_IOC_REGION_SEAL, &arg);
}

__attribute__((unused))
static int allow(int fd, const char *device)
{
	struct sits_device_allow arg = { .size = sizeof(arg), .fd = fd };

	memcpy(arg.device, device, strnlen(device, sizeof(arg.device) - 1));
	return xioctl(dev, SITS_IOC_DEVICE_ALLOW, &arg);
}

__attribute__((unused))
static int import(unsigned int from, int src_fd, void *addr, unsigned long len)
{
	struct sits_region_import arg = {
		.size = sizeof(arg), .from = from, .src_fd = src_fd, .addr = (uintptr_t)addr,
		.len_bytes = len, .fd_flags = O_CLOEXEC, .fd = -1, .name = "imported",
	};
	int ret = xioctl(dev, SITS_IOC_REGION_IMPORT, &arg);

	return ret ? ret : arg.fd;
}

__attribute__((unused))
static struct sits_get_info info(void)
{
	struct sits_get_info arg = { .size = sizeof(arg) };
	int ret = xioctl(dev, SITS_IOC_GET_INFO, &arg);

	if (ret)
		check(false, "GET_INFO: %s", strerror(-ret));
	return arg;
}

/* Pages go when the last task that had a descriptor or a mapping has left the kernel: wait for that. */
__attribute__((unused))
static bool nothing_left(void)
{
	struct sits_get_info i = info();

	for (int tries = 0; tries < 3000 && (i.nr_regions || i.region_used_bytes); tries++) {
		usleep(10000);
		i = info();
	}
	if (i.nr_regions || i.region_used_bytes)
		printf("# %u regions, %llu bytes\n", i.nr_regions, (unsigned long long)i.region_used_bytes);
	return !i.nr_regions && !i.region_used_bytes;
}

__attribute__((unused))
static int nr_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* A mapping, or -errno as a pointer that is_err() tells. */
__attribute__((unused))
static void *map_at(void *addr, int fd, unsigned long len, int prot, int flags)
{
	void *p = mmap(addr, len, prot, flags, fd, 0);

	return p == MAP_FAILED ? (void *)(intptr_t)-errno : p;
}

__attribute__((unused))
static void *map(int fd, unsigned long len, int prot)
{
	return map_at(NULL, fd, len, prot, MAP_SHARED);
}

__attribute__((unused))
static bool is_err(const void *p)
{
	return (uintptr_t)p > -4096ul;
}

__attribute__((unused))
static long err_of(const void *p)
{
	return is_err(p) ? (long)(intptr_t)p : 0;
}

/* A mapping at a multiple of 2 MiB. */
__attribute__((unused))
static void *map_aligned(int fd, unsigned long len, int prot)
{
	char *room = mmap(NULL, len + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	need(room != MAP_FAILED, "mmap");
	return map_at((void *)(((uintptr_t)room + HUGE - 1) & ~(HUGE - 1)), fd, len, prot, MAP_SHARED | MAP_FIXED);
}

/* What a child of this process that runs @fn exits with; 128 + signal where one ends it. */
__attribute__((unused))
static int in_child(int (*fn)(void *), void *arg)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0)
		_exit(fn(arg));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

__attribute__((unused))
static long read_number(const char *path)
{
	FILE *f = fopen(path, "re");
	long n = -1;

	if (f) {
		if (fscanf(f, "%ld", &n) != 1)
			n = -1;
		fclose(f);
	}
	return n;
}

__attribute__((unused))
static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

#endif
