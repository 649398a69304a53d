/* SPDX-License-Identifier: MIT */
/*
 * mem.h - memory for what users said and were told: KV pages, activations, logits; and for the few weights that can't be
 * used where they were loaded.
 *
 * Left out of core dumps, blank in a forked child, locked against swap where the limit allows.
 * Pages come on first touch, so a generous reservation costs nothing until it is used.
 */
#ifndef SITS_ENGINE_MEM_H
#define SITS_ENGINE_MEM_H

#include <stddef.h>

/**
 * sits_mem_map() - Reserve zeroed memory.
 * @len: bytes, >= 1
 * @out: out: 64-byte aligned, on a huge-page boundary where @len is that large
 * Return: 0; -EINVAL for a length that overflows; -ENOMEM.
 */
int sits_mem_map(size_t len, void **out);

/** sits_mem_unmap() - Give memory back; @p NULL is allowed; @len as it was mapped. */
void sits_mem_unmap(void *p, size_t len);

#endif
