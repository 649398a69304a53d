// SPDX-License-Identifier: GPL-2.0
/*
 * sits_test_splat.c - for tests/vm/harness.t: a module that does wrong when it is loaded, in ways that the kernel goes on after,
 * so that it shows whether the harness sees them.
 */
#include <linux/module.h>
#include <linux/refcount.h>

static int __init sits_test_splat_init(void)
{
	refcount_t users = REFCOUNT_INIT(1);

	WARN(1, "sits_test_splat: a warning\n");
	refcount_dec(&users);
	return 0;
}

static void __exit sits_test_splat_exit(void)
{
}

module_init(sits_test_splat_init);
module_exit(sits_test_splat_exit);

MODULE_DESCRIPTION("Warnings, for the test of the test harness");
MODULE_LICENSE("GPL");
