/* SPDX-License-Identifier: MIT */
/*
 * stat_print.h - what `sits stat` gathered, for people.
 */
#ifndef SITS_TOOLS_STAT_PRINT_H
#define SITS_TOOLS_STAT_PRINT_H

#include <jansson.h>

/**
 * stat_print() - Lay it out on stdout.
 * @all: from stat_data.c and cmd_stat.c; borrowed
 * @before: the same of a moment ago, for what changed; or NULL
 */
void stat_print(const json_t *all, const json_t *before);

#endif
