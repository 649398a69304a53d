// SPDX-License-Identifier: GPL-2.0
/*
 * device.c - /dev/sits: opening, ioctls and their structs, who may what.
 */
#include <linux/capability.h>
#include <linux/cc_platform.h>
#include <linux/compat.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>

#include "kmod/compat.h"
#include "kmod/device.h"
#include "kmod/dma_map.h"
#include "kmod/dmabuf.h"
#include "kmod/import.h"
#include "kmod/queue.h"
#include "kmod/region.h"
#include "kmod/stats.h"
#include "kmod/weights.h"

static int owner_gid = -1;
module_param(owner_gid, int, 0644);
MODULE_PARM_DESC(owner_gid,
		 "Group whose members may make regions without CAP_IPC_LOCK, -1: none (default -1)");

/* Everybody may open a channel, if the queue lets them: so the node is made open to all. */
static ushort node_mode = 0666;
module_param(node_mode, ushort, 0444);
MODULE_PARM_DESC(node_mode, "Permissions of /dev/sits when it is made (default 0666)");

static bool sits_cred_in_group(const struct cred *cred, kgid_t gid)
{
	const struct group_info *groups = cred->group_info;
	int i;

	if (gid_eq(cred->fsgid, gid) || gid_eq(cred->egid, gid))
		return true;
	for (i = 0; i < groups->ngroups; i++)
		if (gid_eq(groups->gid[i], gid))
			return true;
	return false;
}

bool sits_file_may_own(const struct file *file)
{
	int gid = READ_ONCE(owner_gid);

	if (gid >= 0 && sits_cred_in_group(file->f_cred, KGIDT_INIT(gid)))
		return true;
	return file_ns_capable(file, &init_user_ns, CAP_IPC_LOCK);
}

int sits_arg_get(void *karg, size_t ksize, size_t min_bytes, void __user *uarg)
{
	u32 *ksizep = karg;	/* every struct starts with its size */
	u32 usize;
	int ret;

	if (get_user(usize, (u32 __user *)uarg))
		return -EFAULT;
	if (usize < min_bytes)
		return -EINVAL;
	if (usize > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(karg, ksize, uarg, usize);
	if (ret)
		return ret;
	/* The user may have changed it meanwhile. */
	*ksizep = usize;
	return 0;
}

int sits_arg_put(void __user *uarg, const void *karg, size_t ksize)
{
	const u32 *usize = karg;

	return copy_to_user(uarg, karg, min_t(size_t, *usize, ksize)) ? -EFAULT : 0;
}

int sits_file_install(struct file *file, u32 fd_flags, void __user *uarg, void *karg, size_t ksize,
		      __s32 *kfd)
{
	int ret, fd;

	fd = get_unused_fd_flags(fd_flags);
	if (fd < 0) {
		ret = fd;
		goto err_put_file;
	}
	*kfd = fd;
	ret = sits_arg_put(uarg, karg, ksize);
	if (ret)
		goto err_put_fd;
	fd_install(fd, file);
	return 0;

err_put_fd:
	put_unused_fd(fd);
err_put_file:
	fput(file);
	return ret;
}

bool sits_name_is_valid(const u8 *name, size_t max)
{
	size_t i;

	for (i = 0; i < max; i++) {
		if (!name[i])
			return true;
		if (name[i] < 0x20 || name[i] == 0x7f)
			return false;
	}
	return false;
}

static long sits_ioctl_get_info(struct file *file, void __user *uarg)
{
	struct sits_get_info arg;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	if (arg.flags)
		return -EINVAL;
	arg = (struct sits_get_info) {
		.size = arg.size,
		.abi_version = SITS_ABI_VERSION,
		.features = SITS_FEATURE_REGION | SITS_FEATURE_IMPORT | SITS_FEATURE_DMA_MAP |
			    SITS_FEATURE_WEIGHTS | SITS_FEATURE_LOAD_RANGES | SITS_FEATURE_QUEUE |
			    (IS_ENABLED(CONFIG_IO_URING) ? SITS_FEATURE_URING_CMD : 0),
		.region_limit_bytes = READ_ONCE(sits_region_limit_bytes),
		.region_used_bytes = atomic64_read(&sits_stats.region_used_bytes),
		.nr_regions = atomic64_read(&sits_stats.regions),
		.nr_queues = atomic64_read(&sits_stats.queues),
		.nr_channels = atomic64_read(&sits_stats.channels),
		.tee = cc_platform_has(CC_ATTR_MEM_ENCRYPT),
	};
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	if (has_transparent_hugepage())
		arg.features |= SITS_FEATURE_HUGE_PMD;
#endif
	return sits_arg_put(uarg, &arg, sizeof(arg));
}

struct sits_ioctl {
	unsigned int cmd;
	bool owners_only;
	long (*fn)(struct file *file, void __user *uarg);
};

static const struct sits_ioctl sits_ioctls[] = {
	{ SITS_IOC_GET_INFO, false, sits_ioctl_get_info },
	{ SITS_IOC_REGION_CREATE, true, sits_ioctl_region_create },
	{ SITS_IOC_REGION_INFO, false, sits_ioctl_region_info },
	{ SITS_IOC_REGION_IMPORT, true, sits_ioctl_region_import },
	{ SITS_IOC_REGION_SEAL, true, sits_ioctl_region_seal },
	{ SITS_IOC_DEVICE_ALLOW, true, sits_ioctl_device_allow },
	{ SITS_IOC_DMA_MAP, true, sits_ioctl_dma_map },
	/* Whoever holds the mapping may end it. */
	{ SITS_IOC_DMA_UNMAP, false, sits_ioctl_dma_unmap },
	{ SITS_IOC_WEIGHTS_LOAD, true, sits_ioctl_weights_load },
	{ SITS_IOC_QUEUE_CREATE, true, sits_ioctl_queue_create },
	/* The queue says who may. */
	{ SITS_IOC_CHANNEL_OPEN, false, sits_ioctl_channel_open },
};

/* Structs grow, and the size bits with them: what tells ioctls apart is the rest. */
static unsigned int sits_ioctl_key(unsigned int cmd)
{
	return cmd & ~IOCSIZE_MASK;
}

static long sits_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	const struct sits_ioctl *ioc;

	for (ioc = sits_ioctls; ioc < sits_ioctls + ARRAY_SIZE(sits_ioctls); ioc++) {
		if (sits_ioctl_key(ioc->cmd) != sits_ioctl_key(cmd))
			continue;
		if (ioc->owners_only && !sits_file_may_own(file))
			return -EPERM;
		return ioc->fn(file, (void __user *)arg);
	}
	return -ENOTTY;
}

static int sits_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	/* Of what is under way there are loads only. */
	if (issue_flags & SITS_URING_F_CANCEL) {
		sits_uring_weights_cancel(cmd);
		return 0;
	}
	if (sits_ioctl_key(cmd->cmd_op) != sits_ioctl_key(SITS_IOC_WEIGHTS_LOAD))
		return -ENOTTY;
	if (!sits_file_may_own(cmd->file))
		return -EPERM;
	return sits_uring_weights_load(cmd, issue_flags);
}

static void sits_show_fdinfo(struct seq_file *m, struct file *file)
{
	seq_printf(m, "sits-abi-version:\t%u\n", SITS_ABI_VERSION);
	seq_printf(m, "sits-may-own:\t%u\n", sits_file_may_own(file));
	seq_printf(m, "sits-regions:\t%lld\n", atomic64_read(&sits_stats.regions));
	seq_printf(m, "sits-region-used-bytes:\t%lld\n",
		   atomic64_read(&sits_stats.region_used_bytes));
}

static const struct file_operations sits_fops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= sits_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.uring_cmd	= sits_uring_cmd,
	.show_fdinfo	= sits_show_fdinfo,
	.llseek		= noop_llseek,
};

static struct miscdevice sits_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "sits",
	.fops	= &sits_fops,
	.groups	= sits_stats_groups,
};

int sits_device_init(void)
{
	sits_misc.mode = node_mode & 0666;
	return misc_register(&sits_misc);
}

void sits_device_fini(void)
{
	misc_deregister(&sits_misc);
}
