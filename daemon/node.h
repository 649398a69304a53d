/* SPDX-License-Identifier: MIT */
/*
 * node.h - what the daemon serves: a key, a sealed file or a directory of them, regions, a model; loaded in that order.
 */
#ifndef SITS_DAEMON_NODE_H
#define SITS_DAEMON_NODE_H

#include <signal.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/diag.h"
#include "sits/region.h"
#include "sits/sealed.h"

struct sits_ctx;
struct sits_model;

/* Owned by main(); freed by sits_node_fini(). */
struct sits_node {
	struct sits_ctx *ctx;
	struct sits_region **region;	/* [nr_regions]: the weights, a region for each file */
	uint32_t nr_regions;
	struct sits_model *model;
	struct sits_sealed_info sealed;	/* of a directory: of its manifest, but plain_bytes are those of all its files */
	uint64_t min_version;		/* what the file's version was compared with */
	uint64_t load_ns;
	uint32_t context;		/* tokens: the configuration's or the model's own */
};

/**
 * sits_node_load() - Load what @cfg names. The key is wiped before it returns.
 * @stop: becomes non-zero (from a signal handler) to give up: -ECANCELED
 * @status: told, in words, what goes on; may be NULL
 * @diag: why not; libsits' own line may have gone to the log before
 * Return: 0; -errno of the step that failed. @n is always left for sits_node_fini().
 */
int sits_node_load(struct sits_node *n, const struct sits_config *cfg, const volatile sig_atomic_t *stop,
		   void (*status)(const char *words), struct sits_diag *diag);
void sits_node_fini(struct sits_node *n);

/** sits_node_region_info() - Of all regions together: bytes are sums, a protection holds where it holds for each. */
void sits_node_region_info(const struct sits_node *n, struct sits_region_info *info);

#endif
