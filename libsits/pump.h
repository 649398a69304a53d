/* SPDX-License-Identifier: MIT */
/*
 * pump.h - files go through a function on all cores, with reads (and writes) in flight.
 *
 * The input is taken in spans. Each worker thread claims the next span, keeps a few reads in flight through
 * an io_uring of its own, hands each span to the work function as it arrives, and, where there is an output,
 * writes it there. Where there is no io_uring, the workers read and write by themselves, one span at a time.
 *
 * What comes through the page cache is a copy anyway. For such input there may be another function, which gets pieces that lie in a
 * buffer small enough for a core's own cache, and leaves its results at their place: memory is gone through once then.
 */
#ifndef SITS_LIBSITS_PUMP_H
#define SITS_LIBSITS_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sits/sealed.h"

#define SITS_PUMP_SPAN_BYTES	(1u << 20)	/* what a read is, where chunks are not larger */
#define SITS_PUMP_ALIGN		4096u		/* offsets and buffers of direct I/O */
#define SITS_PUMP_PIECE_BYTES	(1u << 20)	/* about the second cache of a core */

#define SITS_PUMP_NO_URING	(1u << 0)	/* do without io_uring, even where there is one */

enum sits_pump_stage { SITS_PUMP_OK, SITS_PUMP_READ, SITS_PUMP_EOF, SITS_PUMP_WORK, SITS_PUMP_WRITE, SITS_PUMP_SETUP };

/**
 * struct sits_pump_part - one input of several: a file, or a part of one.
 * @in_fd: the input, through the page cache
 * @in_direct_fd: the same file opened with O_DIRECT, or -1; given up by itself where the filesystem refuses
 * @in_off: where the input begins; a multiple of SITS_PUMP_ALIGN with O_DIRECT
 * @total_bytes: how much there is
 * @span_bytes: bytes per span, a multiple of SITS_PUMP_ALIGN
 * @first_off: what the functions and @fail_off of the pump count from: the offset of the part's first byte
 * @dst: where the input goes, page-aligned, @total_bytes rounded up to SITS_PUMP_ALIGN long; NULL: into buffers
 *       of the pump, wiped at the end
 * @arg: of the functions
 */
struct sits_pump_part {
	int in_fd, in_direct_fd;
	uint64_t in_off, total_bytes, first_off;
	size_t span_bytes;
	uint8_t *dst;
	void *arg;
};

/**
 * struct sits_pump - what to move; zeroed, then filled by the caller, who keeps all that it points to.
 * @in_fd, @in_direct_fd, @in_off, @total_bytes, @span_bytes, @dst, @arg: of the only part, where there are no @parts
 * @parts: several inputs, which are taken one after the other; all have a @dst, or none
 * @nr_parts: of these
 * @out_fd: where spans are written after the work, or -1; of an only part
 * @out_off: where the output begins
 * @threads: workers, 0 means one per core
 * @work: called from worker threads, for spans in any order; may be NULL. @off counts from the part's first_off, @bad
 *        names the offset of what went wrong (set to @off before the call)
 * @piece: where it is given, called in place of @work for spans that come through the page cache, with one piece of the span
 *        after the other: @src is a piece of at most SITS_PUMP_PIECE_BYTES, @dst its final place, or NULL
 * @state_bytes: of @state, in which @piece keeps what it needs from one piece to the next; secret memory
 * @fail_stage, @fail_part, @fail_off: out: what failed, and where; of several failures the first
 * @fail_bytes: out: what no worker could get in memory, after -ENOMEM at SITS_PUMP_SETUP; 0: not known
 * @read_ns, @work_ns: out: time of all workers together that went to reads or to waiting for them, and to the functions
 */
struct sits_pump {
	int in_fd, in_direct_fd, out_fd;
	unsigned int flags, threads;
	uint64_t in_off, out_off, total_bytes;
	size_t span_bytes;
	uint8_t *dst;
	const struct sits_pump_part *parts;
	unsigned int nr_parts;
	int (*work)(void *arg, uint64_t off, uint8_t *buf, size_t len, uint64_t *bad);
	int (*piece)(void *arg, void *state, uint64_t off, uint8_t *dst, const uint8_t *src, size_t len, uint64_t *bad);
	size_t state_bytes;
	void *arg;
	sits_progress_fn progress;
	void *progress_arg;

	enum sits_pump_stage fail_stage;
	unsigned int fail_part;
	uint64_t fail_off, fail_bytes;
	uint64_t read_ns, work_ns;
};

/** sits_pump_span() - The span for chunks of @chunk_bytes (a power of two). */
size_t sits_pump_span(uint32_t chunk_bytes);

/** sits_pump_run() - Move it all. No memory, buffer or I/O of it is in use after the return.
 * Return: 0; -ECANCELED; what the work or the I/O answered, with @fail_stage and @fail_off; -ENOMEM. */
int sits_pump_run(struct sits_pump *p);

#endif
