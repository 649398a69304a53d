// SPDX-License-Identifier: MIT
/*
 * device.c - /dev/sits as libsits sees it: opening it, asking it, one way of calling it.
 *
 * What the ioctls mean is linux/sits.h; what they are used for is in region_kernel.c, weights_kernel.c,
 * queue_kernel.c and channel_kernel.c.
 */
#include "libsits/device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "libsits/internal.h"
#include "libsits/io.h"

#define OWNER_GID_PATH "/sys/module/sits/parameters/owner_gid"

static int real_open(const char *path, int flags)
{
	return open(path, flags);
}

static int real_ioctl(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg);
}

struct sits_device_calls sits_device_calls = {
	.open = real_open,
	.ioctl = real_ioctl,
};

bool sits_device_is_faked(void)
{
	return sits_device_calls.ioctl != real_ioctl;
}

int sits_ioctl(int fd, unsigned long cmd, void *arg)
{
	int ret = sits_device_calls.ioctl(fd, cmd, arg);

	return ret < 0 ? -errno : ret;
}

/* Why the node can't be opened. Return: what sits_open() is to answer. */
static int explain_open(struct sits_ctx *ctx, int severity, int err)
{
	const char *advice = err == ENOENT || err == ENODEV || err == ENXIO ? "load the module with 'modprobe sits'" :
			     err == EACCES || err == EPERM ? "its mode is the module's parameter node_mode, or a udev rule's" :
			     "is the module whole?";

	sits_log(ctx, severity, "provider 'kernel': %s: %s; %s, or choose provider 'user' or 'auto'", SITS_DEV_PATH,
		 strerror(err), advice);
	switch (err) {
	case EACCES:
	case EPERM:
		return -EACCES;
	case ENOMEM:
	case EMFILE:
	case ENFILE:
		return -err;
	default:
		return -ENODEV;
	}
}

static int ask(struct sits_ctx *ctx, int severity, int fd, struct sits_get_info *info)
{
	int ret;

	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	ret = sits_ioctl(fd, SITS_IOC_GET_INFO, info);
	if (ret < 0) {
		sits_log(ctx, severity,
			 "provider 'kernel': %s does not answer as the module does: %s; is something else there? Choose provider 'user' or 'auto'",
			 SITS_DEV_PATH, strerror(-ret));
		return ret == -ENOMEM ? ret : -ENODEV;
	}
	if (info->abi_version != SITS_ABI_VERSION) {
		sits_log(ctx, severity,
			 "provider 'kernel': the module speaks ABI %u, this libsits (%s) ABI %u: install both from one release, or choose provider 'user' or 'auto'",
			 info->abi_version, SITS_VERSION, SITS_ABI_VERSION);
		return -ENODEV;
	}
	return 0;
}

int sits_device_open(struct sits_ctx *ctx, int severity, struct sits_get_info *info)
{
	int ret, fd = sits_off_stdio(sits_device_calls.open(SITS_DEV_PATH, O_RDWR | O_CLOEXEC));

	if (fd < 0)
		return explain_open(ctx, severity, errno);
	ret = ask(ctx, severity, fd, info);
	if (ret) {
		close(fd);
		return ret;
	}
	return fd;
}

const char *sits_device_owner_words(char *buf, unsigned int len)
{
	FILE *f = fopen(OWNER_GID_PATH, "re");
	int gid = -1;

	if (f) {
		if (fscanf(f, "%d", &gid) != 1)
			gid = -1;
		fclose(f);
	}
	if (gid >= 0)
		snprintf(buf, len, "root, CAP_IPC_LOCK, or membership in group %d (the module's parameter owner_gid)", gid);
	else
		snprintf(buf, len, "root, or CAP_IPC_LOCK, or a group to be named in the module's parameter owner_gid");
	return buf;
}
