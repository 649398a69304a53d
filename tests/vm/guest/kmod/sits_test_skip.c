// SPDX-License-Identifier: GPL-2.0
/*
 * sits_test_skip.c - a function of a module that is loaded later does nothing: what a broken variant of a cipher looks like.
 *
 * A kprobe at its entry, there before the module's own init runs, returns to the caller at once.
 */
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <asm/ibt.h>

static char *function = "";
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "The function, as MODULE:NAME");

static unsigned int hits;
module_param(hits, uint, 0444);
MODULE_PARM_DESC(hits, "How often it was called, so far");

/* To where the function's entry is sent: back. */
void sits_test_skip_return(void);
asm(".pushsection .text, \"ax\"\n"
    ".type sits_test_skip_return, @function\n"
    ".globl sits_test_skip_return\n"
    "sits_test_skip_return:\n"
    ASM_ENDBR
    ASM_RET
    ".size sits_test_skip_return, . - sits_test_skip_return\n"
    ".popsection\n");

static int sits_test_skip_pre(struct kprobe *kp, struct pt_regs *regs)
{
	WRITE_ONCE(hits, READ_ONCE(hits) + 1);
	instruction_pointer_set(regs, (unsigned long)sits_test_skip_return);
	return 1;
}

/* With one, the probe is not made a jump, which could not go elsewhere. */
static void sits_test_skip_post(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe sits_test_skip_kp;
static bool sits_test_skip_there;

static void sits_test_unprobe(void)
{
	if (sits_test_skip_there)
		unregister_kprobe(&sits_test_skip_kp);
	sits_test_skip_there = false;
}

static void sits_test_probe(void)
{
	int ret;

	sits_test_skip_kp = (struct kprobe) {
		.symbol_name = function,
		.pre_handler = sits_test_skip_pre,
		.post_handler = sits_test_skip_post,
	};
	ret = register_kprobe(&sits_test_skip_kp);
	sits_test_skip_there = !ret;
	if (ret)
		pr_info("sits_test_skip: no probe in %s: %d\n", function, ret);
}

static int sits_test_skip_notify(struct notifier_block *nb, unsigned long state, void *data)
{
	const struct module *mod = data;
	size_t len = strlen(mod->name);

	if (strncmp(mod->name, function, len) || function[len] != ':')
		return NOTIFY_DONE;
	if (state == MODULE_STATE_COMING)
		sits_test_probe();
	else if (state == MODULE_STATE_GOING)
		sits_test_unprobe();
	return NOTIFY_DONE;
}

/* After ftrace and kprobes have seen the module come. */
static struct notifier_block sits_test_skip_nb = {
	.notifier_call	= sits_test_skip_notify,
	.priority	= -1,
};

static int __init sits_test_skip_init(void)
{
	return register_module_notifier(&sits_test_skip_nb);
}

static void __exit sits_test_skip_exit(void)
{
	unregister_module_notifier(&sits_test_skip_nb);
	sits_test_unprobe();
}

module_init(sits_test_skip_init);
module_exit(sits_test_skip_exit);

MODULE_DESCRIPTION("A function that does nothing, for the tests");
MODULE_LICENSE("GPL");
