/* SPDX-License-Identifier: MIT */
/*
 * pump.h - a file goes through a function on all cores, with reads (and writes) in flight.
 *
 * The input is taken in spans. Each worker thread claims the next span, keeps a few reads in flight through
 * an io_uring of its own, hands each span to the work function as it arrives, and, where there is an output,
 * writes it there. Where there is no io_uring, the workers read and write by themselves, one span at a time.
 */
#ifndef SITS_LIBSITS_PUMP_H
#define SITS_LIBSITS_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sits/sealed.h"

#define SITS_PUMP_SPAN_BYTES	(1u << 20)	/* what a read is, where chunks are not larger */
#define SITS_PUMP_ALIGN		4096u		/* offsets and buffers of direct I/O */

#define SITS_PUMP_NO_URING	(1u << 0)	/* do without io_uring, even where there is one */

enum sits_pump_stage { SITS_PUMP_OK, SITS_PUMP_READ, SITS_PUMP_EOF, SITS_PUMP_WORK, SITS_PUMP_WRITE, SITS_PUMP_SETUP };

/**
 * struct sits_pump - what to move; zeroed, then filled by the caller, who keeps all that it points to.
 * @in_fd: the input, through the page cache
 * @in_direct_fd: the same file opened with O_DIRECT, or -1; given up by itself where the filesystem refuses
 * @in_off: where the input begins; a multiple of SITS_PUMP_ALIGN with O_DIRECT
 * @total_bytes: how much there is
 * @span_bytes: bytes per span, a multiple of SITS_PUMP_ALIGN
 * @dst: where the input goes, page-aligned, @total_bytes rounded up to SITS_PUMP_ALIGN long; NULL: into buffers
 *       of the pump, wiped at the end
 * @out_fd: where spans are written after the work, or -1
 * @out_off: where the output begins
 * @threads: workers, 0 means one per core
 * @work: called from worker threads, for spans in any order; may be NULL. @off counts from 0, @bad names the offset
 *        of what went wrong (set to @off before the call)
 * @fail_stage, @fail_off: out: what failed, and where; of several failures the one with the lowest offset
 */
struct sits_pump {
	int in_fd, in_direct_fd, out_fd;
	unsigned int flags, threads;
	uint64_t in_off, out_off, total_bytes;
	size_t span_bytes;
	uint8_t *dst;
	int (*work)(void *arg, uint64_t off, uint8_t *buf, size_t len, uint64_t *bad);
	void *arg;
	sits_progress_fn progress;
	void *progress_arg;

	enum sits_pump_stage fail_stage;
	uint64_t fail_off;
};

/** sits_pump_span() - The span for chunks of @chunk_bytes (a power of two). */
size_t sits_pump_span(uint32_t chunk_bytes);

/** sits_pump_run() - Move it all. No memory, buffer or I/O of it is in use after the return.
 * Return: 0; -ECANCELED; what the work or the I/O answered, with @fail_stage and @fail_off; -ENOMEM. */
int sits_pump_run(struct sits_pump *p);

#endif
