// SPDX-License-Identifier: MIT
/*
 * fault_weights_test.c - each call that may fail in WEIGHTS_LOAD does, one after another: as an ioctl, and as a command of io_uring,
 * whose work other tasks do. A load that failed leaves a region that nobody can read, and that can be loaded.
 */
#include "fault_common.h"
#include "weights_common.h"

#define LEN 200000u	/* four chunks, the last shorter */

static uint8_t *data;
static int file = -1, region = -1;
static struct sits_weights_load arg;
static struct io_uring ring;
static int unreadable, readable, loaded, bad;

static void prepare_load(void)
{
	region = create(SITS_KIND_PROTECTED, 0, LEN);
	arg = load_arg(file, region);
	need(region >= 0, "a region");
}

static int call_ioctl(void)
{
	return load_ioctl(&arg);
}

/* The command's own allocations by io_uring are not what is looked at. */
static int call_ring(void)
{
	ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)&arg, 0);
	return ring_wait(&ring);
}

/* What failed before the load began left an empty region; what failed later, one that is closed. */
static void undo_load(int ret)
{
	struct sits_region_facts f = facts(region);
	uint8_t *p = map(region, LEN, PROT_READ);
	bool zero = true;

	if (ret >= 0) {
		loaded++;
		bad += !(f.state & SITS_REGION_F_LOADED) || is_err(p) || memcmp(p, data, LEN);
	} else if (is_err(p)) {
		unreadable++;
		bad += err_of(p) != -ENODATA || !(f.state & SITS_REGION_F_LOADING) || f.state & SITS_REGION_F_SEALED;
	} else {
		readable++;
		for (unsigned int i = 0; i < LEN; i++)
			zero &= !p[i];
		bad += !zero || f.state & (SITS_REGION_F_LOADING | SITS_REGION_F_LOADED | SITS_REGION_F_SEALED);
	}
	if (!is_err(p))
		munmap(p, LEN);
	if (ret < 0) {
		arg = load_arg(file, region);
		ret = load_ioctl(&arg);
		if (ret || !region_is(region, data, LEN)) {
			printf("# and then the load failed with %d\n", ret);
			bad++;
		}
	}
	close(region);
}

static void sweep(const char *name, int (*call)(void), unsigned int mode)
{
	/* A read that fails is told as EIO; a tag that does not verify as EBADMSG, but none of that is injected here. */
	struct operation op = { .name = name, .prepare = prepare_load, .call = call, .undo = undo_load };

	unreadable = readable = loaded = bad = 0;
	fault_sweep(&op, mode);
	printf("# %d regions untouched, %d closed, %d loaded\n", readable, unreadable, loaded);
	check_int(bad, 0, "%s: after each failure the region is empty or closed, and can be loaded", name);
}

int main(void)
{
	setup();
	fault_open();
	data = random_bytes(LEN);
	seal_bytes(in_dir("file"), data, LEN, kek, 65536);
	file = open(in_dir("file"), O_RDONLY | O_CLOEXEC);
	need(file >= 0, "open the file");
	/* Once, so that ciphers and keys are where they will be. */
	prepare_load();
	check_int(call_ioctl(), 0, "a load");
	undo_load(0);

	sweep("WEIGHTS_LOAD", call_ioctl, SITS_TEST_FAIL_OURS);
	sweep("WEIGHTS_LOAD, all memory", call_ioctl, SITS_TEST_FAIL_MEMORY);
	ring_init(&ring, 0);
	sweep("WEIGHTS_LOAD by io_uring", call_ring, SITS_TEST_FAIL_OURS);
	io_uring_queue_exit(&ring);
	close(file);
	free(data);
	check(nothing_left(), "nothing is left");
	teardown();
	return done();
}
