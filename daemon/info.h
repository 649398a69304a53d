/* SPDX-License-Identifier: MIT */
/*
 * info.h - the answer to INFO: what this daemon serves, how it is protected, what it has done.
 */
#ifndef SITS_DAEMON_INFO_H
#define SITS_DAEMON_INFO_H

#include <stdbool.h>
#include <stdint.h>

struct sits_config;
struct sits_counters;
struct sits_loop;
struct sits_node;
struct sits_queue;

/* Where the facts come from; all borrowed during the call. */
struct sits_info_source {
	const struct sits_node *node;
	const struct sits_config *cfg;
	struct sits_loop *loop;
	struct sits_queue *queue;
	const struct sits_counters *counters;
	uint64_t start_ns;	/* CLOCK_MONOTONIC */
	bool draining;
};

/** sits_info_json() - One JSON object as text, freed with free(); NULL where memory is out. */
char *sits_info_json(const struct sits_info_source *s);

#endif
