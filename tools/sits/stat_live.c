// SPDX-License-Identifier: MIT
/*
 * stat_live.c - the machine's own /dev/sits and processes, for stat_data.c.
 *
 * The facts of another process's region are asked for on a copy of its descriptor, taken for the length of one ioctl: the
 * memory is not mapped, and who may not trace the process does not get the copy.
 */
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/sits/stat_data.h"

static int get_info(void *arg, struct sits_get_info *info)
{
	const struct stat_live *live = arg;

	if (live->fd < 0)
		return live->err;
	return ioctl(live->fd, SITS_IOC_GET_INFO, info) < 0 ? -errno : 0;
}

static int region_facts(void *arg, pid_t pid, int fd, uint64_t ino, struct sits_region_facts *facts)
{
	const struct stat_live *live = arg;
	int pidfd, copy, ret;
	struct stat st;

	if (live->fd < 0)
		return live->err;
	pidfd = pidfd_open(pid, 0);
	if (pidfd < 0)
		return -errno;
	copy = pidfd_getfd(pidfd, fd, 0);
	ret = copy < 0 ? -errno : 0;
	close(pidfd);
	if (ret)
		return ret;
	facts->fd = copy;
	/* The process may have closed it meanwhile, and opened something else there. */
	if (fstat(copy, &st) || st.st_ino != ino)
		ret = -ESTALE;
	else if (ioctl(live->fd, SITS_IOC_REGION_INFO, facts) < 0)
		ret = -errno;
	close(copy);
	return ret;
}

struct stat_source stat_live_source(struct stat_live *live)
{
	return (struct stat_source) {
		.root = "", .get_info = get_info, .region_facts = region_facts, .arg = live, .but = getpid(),
	};
}
