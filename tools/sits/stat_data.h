/* SPDX-License-Identifier: MIT */
/*
 * stat_data.h - what `sits stat` shows, gathered from sysfs, procfs and /dev/sits as JSON.
 *
 * Where sysfs and procfs are, and who answers for the device, is the caller's choice: the command takes the
 * machine's, tests take a folder and functions of their own.
 */
#ifndef SITS_TOOLS_STAT_DATA_H
#define SITS_TOOLS_STAT_DATA_H

#include <jansson.h>
#include <linux/sits.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * struct stat_source - where facts come from.
 * @root: folder that has sys/ and proc/; "" is the machine's own; borrowed
 * @get_info: SITS_IOC_GET_INFO: 0 or -errno
 * @region_facts: SITS_IOC_REGION_INFO of descriptor @fd of process @pid, if it is the dma-buf with the inode number
 *                @ino: 0 or -errno, -EPERM where the caller may not
 * @arg: first argument of both
 * @but: a process whose descriptors are not shown: this one; 0: none
 */
struct stat_source {
	const char *root;
	int (*get_info)(void *arg, struct sits_get_info *info);
	int (*region_facts)(void *arg, pid_t pid, int fd, uint64_t ino, struct sits_region_facts *facts);
	void *arg;
	pid_t but;
};

/** stat_module() - Version, users and parameters of sits.ko. Return: an object; NULL where it is not loaded. */
json_t *stat_module(const struct stat_source *src);

/**
 * stat_device() - What GET_INFO tells.
 * @err: out: 0 or -errno of GET_INFO
 * Return: an object; NULL with @err.
 */
json_t *stat_device(const struct stat_source *src, int *err);

/** stat_counters() - Every attribute of the device in sysfs that is not the driver core's. Return: an object. */
json_t *stat_counters(const struct stat_source *src);

/**
 * stat_held() - What processes hold, as far as the caller may see: "regions", each once, with its "holders"; "files", other
 * descriptors of the module with what their fdinfo says; and "hidden_processes", how many could not be looked into.
 * Return: an object.
 */
json_t *stat_held(const struct stat_source *src);

/** stat_features() - The names of feature bits, and those without a name as "bit N". Return: an array. */
json_t *stat_features(uint64_t features);

/** stat_states() - The names of SITS_REGION_F_* bits. Return: an array. */
json_t *stat_states(uint32_t state);

/** struct stat_live - The machine's own /dev/sits: @fd, or -1 with the reason @err (-errno). */
struct stat_live {
	int fd;
	int err;
};

/** stat_live_source() - The machine's own. @live: borrowed as long as what is returned is in use. */
struct stat_source stat_live_source(struct stat_live *live);

#endif
