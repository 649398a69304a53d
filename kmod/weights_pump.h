/* SPDX-License-Identifier: GPL-2.0 */
/*
 * weights_pump.h - the chunks of a sealed file, read into a region and opened there.
 */
#ifndef SITS_WEIGHTS_PUMP_H
#define SITS_WEIGHTS_PUMP_H

#include <linux/types.h>

struct sits_region;
struct sits_weights_file;
struct sits_weights_range;

#define SITS_INFLIGHT_MAX 256

int sits_weights_pump_init(void);
void sits_weights_pump_fini(void);

/**
 * struct sits_weights_run - what is to be done, and what came of it
 * @wf: open, borrowed
 * @region: large enough, being loaded; borrowed
 * @ranges: of the file, checked by sits_weights_file_check_ranges(); borrowed
 * @nr_ranges: 0 for a file with nothing in it
 * @nr_inflight: pieces to be read or decrypted at a time, at most SITS_INFLIGHT_MAX; 0: a default
 * @direct: read past the page cache, where the file's file system can
 * @poll: called by the caller's task now and then with the bytes that are there; an error ends the
 * run
 * @arg: for @poll
 * @bad_chunk: out, with an error: where it was, the first if there were several
 * @read_ns: out: time in which reads were waited for, with nothing to decrypt
 * @cipher_ns: out: time spent decrypting, summed over cores
 */
struct sits_weights_run {
	const struct sits_weights_file *wf;
	struct sits_region *region;
	const struct sits_weights_range *ranges;
	u32 nr_ranges;
	u32 nr_inflight;
	bool direct;
	int (*poll)(void *arg, u64 done_bytes);
	void *arg;
	u64 bad_chunk;
	u64 read_ns;
	u64 cipher_ns;
};

/**
 * sits_weights_pump() - Read and open all chunks of the ranges.
 * @run: borrowed
 *
 * Reads are issued by the caller, so that what they cost is the caller's; direct ones complete
 * while others are decrypted on all cores. Nothing is left running on return. On failure the region
 * holds rubbish.
 *
 * Return: 0; -EBADMSG: a chunk does not verify; -ESTALE: the file ended early; -ENOMEM; what @poll,
 * a read or the cipher gave.
 */
int sits_weights_pump(struct sits_weights_run *run);

#endif
