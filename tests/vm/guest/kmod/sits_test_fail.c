// SPDX-License-Identifier: GPL-2.0
/*
 * sits_test_fail.c - fault injection on kernels that were built without: the nth call of a function that may fail, fails.
 *
 * A kprobe at its entry returns to its caller at once, with the value of a failure, as the kernel's fail_function does. Loaded
 * before sits.ko, it also makes that one's loading fail. What it can't do: functions that were inlined, and those that
 * allow no probe.
 */
#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <asm/ibt.h>

#include "sits_test_fail.h"

/* A function that may fail. */
struct sits_test_point {
	const char *name;
	int gfp_arg;		/* of its arguments, from 0, the one that says how; -1: none */
	int error;		/* -errno that it returns or stands for */
	enum { SITS_TEST_NULL, SITS_TEST_ERROR, SITS_TEST_REST } ret;	/* REST: bytes not copied, its third argument */
	struct kprobe kp;
	bool there;
};

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define SITS_TEST_F(name) name "_noprof"
#define SITS_TEST_CACHE "__kmalloc_cache_noprof"
#define SITS_TEST_KVMALLOC "__kvmalloc_node_noprof"
#else
#define SITS_TEST_F(name) name
#define SITS_TEST_CACHE "kmalloc_trace"
#define SITS_TEST_KVMALLOC "kvmalloc_node"
#endif
/* With buckets of caches these have an argument more. */
#define SITS_TEST_NODE_GFP (1 + IS_ENABLED(CONFIG_SLAB_BUCKETS))

static struct sits_test_point sits_test_points[] = {
	{ SITS_TEST_F("__kmalloc"), 1, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_CACHE, 1, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_F("__kmalloc_node"), SITS_TEST_NODE_GFP, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_F("__kmalloc_node_track_caller"), SITS_TEST_NODE_GFP, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_F("kmem_cache_alloc"), 1, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_F("kmem_cache_alloc_lru"), 2, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_F("kmem_cache_alloc_node"), 1, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_F("__alloc_pages"), 0, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_F("alloc_pages"), 0, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_KVMALLOC, SITS_TEST_NODE_GFP, -ENOMEM, SITS_TEST_NULL },
	{ SITS_TEST_F("__vmalloc"), 1, -ENOMEM, SITS_TEST_NULL },
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	{ "__kmem_cache_create_args", -1, -ENOMEM, SITS_TEST_NULL },
#else
	{ "kmem_cache_create", -1, -ENOMEM, SITS_TEST_NULL },
#endif
	{ "fget", -1, -EBADF, SITS_TEST_NULL },
	{ "dma_buf_get", -1, -EBADF, SITS_TEST_ERROR },
	{ "vm_insert_page", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "kstrndup", -1, -ENOMEM, SITS_TEST_NULL },
	{ "alloc_workqueue", -1, -ENOMEM, SITS_TEST_NULL },
	{ "account_locked_vm", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "sg_alloc_table", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "dma_map_sgtable", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "get_unused_fd_flags", -1, -EMFILE, SITS_TEST_ERROR },
	{ "anon_inode_getfile", -1, -ENFILE, SITS_TEST_ERROR },
	{ "pin_user_pages_fast", -1, -EFAULT, SITS_TEST_ERROR },
	{ "dma_buf_export", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "dma_buf_attach", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "dma_buf_map_attachment", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "dma_buf_map_attachment_unlocked", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "misc_register", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "crypto_alloc_aead", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "crypto_alloc_skcipher", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "crypto_aead_setkey", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "crypto_aead_setauthsize", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "crypto_aead_decrypt", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "crypto_skcipher_setkey", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "crypto_skcipher_decrypt", -1, -ENOMEM, SITS_TEST_ERROR },
	{ "vfs_iocb_iter_read", -1, -EIO, SITS_TEST_ERROR },
	{ "vfs_getattr_nosec", -1, -EIO, SITS_TEST_ERROR },
	{ "_copy_from_user", -1, -EFAULT, SITS_TEST_REST },
	{ "_copy_to_user", -1, -EFAULT, SITS_TEST_REST },
};

static DEFINE_MUTEX(sits_test_lock);	/* for arming, and all that is set by it */
static const struct module *sits_test_module;	/* sits.ko */
static const struct task_struct *sits_test_target;
static const struct sits_test_point *sits_test_failed;
static u32 sits_test_mode, sits_test_nth, sits_test_nr_points;
static atomic_t sits_test_seen;

/* To where a probed function's entry is sent: back. */
void sits_test_return(void);
asm(".pushsection .text, \"ax\"\n"
    ".type sits_test_return, @function\n"
    ".globl sits_test_return\n"
    "sits_test_return:\n"
    ASM_ENDBR
    ASM_RET
    ".size sits_test_return, . - sits_test_return\n"
    ".popsection\n");

static bool sits_test_matches(const struct sits_test_point *point, struct pt_regs *regs)
{
	unsigned long caller = *(unsigned long *)kernel_stack_pointer(regs);
	const struct module *mod = READ_ONCE(sits_test_module);
	gfp_t gfp = GFP_KERNEL;

	if (point->gfp_arg >= 0)
		gfp = (__force gfp_t)regs_get_kernel_argument(regs, point->gfp_arg);
	if (gfp & __GFP_NOFAIL)
		return false;
	if (READ_ONCE(sits_test_mode) == SITS_TEST_FAIL_OURS)
		return mod && within_module(caller, mod);
	/* Nobody promises an answer to those that may not wait, and what fails then is logged. */
	return point->gfp_arg >= 0 && gfp & __GFP_DIRECT_RECLAIM && current == READ_ONCE(sits_test_target);
}

static int sits_test_pre(struct kprobe *kp, struct pt_regs *regs)
{
	struct sits_test_point *point = container_of(kp, struct sits_test_point, kp);

	/* in_task() would say no: a probe by a breakpoint counts as an NMI. Who may wait is a task. */
	if (!READ_ONCE(sits_test_mode) || !sits_test_matches(point, regs))
		return 0;
	if (atomic_inc_return(&sits_test_seen) != READ_ONCE(sits_test_nth))
		return 0;
	WRITE_ONCE(sits_test_failed, point);
	regs_set_return_value(regs, point->ret == SITS_TEST_NULL ? 0 :
			      point->ret == SITS_TEST_ERROR ? (unsigned long)(long)point->error :
			      regs_get_kernel_argument(regs, 2));
	instruction_pointer_set(regs, (unsigned long)sits_test_return);
	return 1;
}

/* With one, the probe is not made a jump, which could not go elsewhere. */
static void sits_test_post(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}

static void sits_test_disarm(struct sits_test_fail *arg)
{
	const struct sits_test_point *point;

	WRITE_ONCE(sits_test_mode, 0);
	point = READ_ONCE(sits_test_failed);
	arg->seen = atomic_read(&sits_test_seen);
	arg->injected = point != NULL;
	arg->error = point ? point->error : 0;
	arg->points = sits_test_nr_points;
	memset(arg->name, 0, sizeof(arg->name));
	if (point)
		strscpy(arg->name, point->name, sizeof(arg->name));
}

static long sits_test_fail_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct sits_test_fail arg;
	int ret = 0;

	if (copy_from_user(&arg, (void __user *)uarg, sizeof(arg)))
		return -EFAULT;
	mutex_lock(&sits_test_lock);
	switch (cmd) {
	case SITS_TEST_FAIL_ARM:
		sits_test_failed = NULL;
		sits_test_target = current;
		atomic_set(&sits_test_seen, 0);
		sits_test_nth = arg.nth;
		WRITE_ONCE(sits_test_mode, arg.mode);
		break;
	case SITS_TEST_FAIL_DISARM:
		sits_test_disarm(&arg);
		break;
	default:
		ret = -ENOTTY;
	}
	mutex_unlock(&sits_test_lock);
	if (cmd == SITS_TEST_FAIL_DISARM && copy_to_user((void __user *)uarg, &arg, sizeof(arg)))
		ret = -EFAULT;
	return ret;
}

static int sits_test_fail_release(struct inode *inode, struct file *file)
{
	WRITE_ONCE(sits_test_mode, 0);
	return 0;
}

static const struct file_operations sits_test_fail_fops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= sits_test_fail_ioctl,
	.release	= sits_test_fail_release,
};

static struct miscdevice sits_test_fail_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "sits-test-fail",
	.mode	= 0600,
	.fops	= &sits_test_fail_fops,
};

static int sits_test_notify(struct notifier_block *nb, unsigned long state, void *data)
{
	const struct module *mod = data;

	if (strcmp(mod->name, "sits"))
		return NOTIFY_DONE;
	if (state == MODULE_STATE_COMING)
		WRITE_ONCE(sits_test_module, mod);
	else if (state == MODULE_STATE_GOING)
		WRITE_ONCE(sits_test_module, NULL);
	return NOTIFY_DONE;
}

static struct notifier_block sits_test_nb = {
	.notifier_call = sits_test_notify,
};

static void sits_test_unprobe(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(sits_test_points); i++)
		if (sits_test_points[i].there)
			unregister_kprobe(&sits_test_points[i].kp);
}

static void sits_test_probe(void)
{
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(sits_test_points); i++) {
		struct sits_test_point *point = &sits_test_points[i];

		point->kp.symbol_name = point->name;
		point->kp.pre_handler = sits_test_pre;
		point->kp.post_handler = sits_test_post;
		ret = register_kprobe(&point->kp);
		point->there = !ret;
		sits_test_nr_points += !ret;
		if (ret)
			pr_info("sits_test_fail: no probe in %s: %d\n", point->name, ret);
	}
}

static int __init sits_test_fail_init(void)
{
	int ret = register_module_notifier(&sits_test_nb);

	if (ret)
		return ret;
	ret = misc_register(&sits_test_fail_misc);
	if (ret) {
		unregister_module_notifier(&sits_test_nb);
		return ret;
	}
	sits_test_probe();
	return 0;
}

static void __exit sits_test_fail_exit(void)
{
	sits_test_unprobe();
	misc_deregister(&sits_test_fail_misc);
	unregister_module_notifier(&sits_test_nb);
}

module_init(sits_test_fail_init);
module_exit(sits_test_fail_exit);

MODULE_DESCRIPTION("Makes the nth call fail, for the tests");
MODULE_LICENSE("GPL");
