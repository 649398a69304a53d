/* SPDX-License-Identifier: MIT */
/*
 * info_providers.h - what `sits info` finds out about the providers and the kernel module, by trying.
 */
#ifndef SITS_TOOLS_INFO_PROVIDERS_H
#define SITS_TOOLS_INFO_PROVIDERS_H

#include <jansson.h>

struct sits_ctx;

/**
 * info_regions() - What a small region of each kind effectively is, for this caller.
 * @said: where @ctx's log function keeps the last ERR line; emptied
 * Return: {"pinned": {...}, "huge": {...}, "protected": {...}}, each with "error" where it could not be had; what could not be
 * found out is null.
 */
json_t *info_regions(struct sits_ctx *ctx, char *said);

/**
 * info_providers() - Which there are.
 * @chosen: the context in use; its regions are @regions
 * @run_dir: as given, or NULL
 * Return: {"kernel": {"available": true, "regions": {...}}, "user": {"available": false, "error": "..."}}; "warning" is what an
 * available one lacks, where it is not the chosen one.
 */
json_t *info_providers(struct sits_ctx *chosen, json_t *regions, const char *run_dir);

/** info_module() - Version, ABI and features of the module. Return: an object; null where /dev/sits does not answer. */
json_t *info_module(void);

/** info_print_regions() - As a table on stdout. @provider: its name; @regions: from info_regions(). */
void info_print_regions(const char *provider, const json_t *regions);

#endif
