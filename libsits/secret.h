/* SPDX-License-Identifier: MIT */
/*
 * secret.h - memory for keys: pages of their own, locked, never dumped, zeros in a forked child.
 */
#ifndef SITS_LIBSITS_SECRET_H
#define SITS_LIBSITS_SECRET_H

#include <stddef.h>

struct sits_ctx;

/**
 * sits_secret_alloc() - Zeroed memory for @len bytes of secrets.
 * @out: freed with sits_secret_free(), which wants the same @len
 * Return: 0; -ENOMEM; -EPERM where it can't be locked; logged, with the limit.
 */
int sits_secret_alloc(struct sits_ctx *ctx, size_t len, void **out);

/** sits_secret_free() - Wipe and free; NULL is allowed. @p: taken. */
void sits_secret_free(void *p, size_t len);

/** sits_scratch_alloc() - As sits_secret_alloc(), for bulk plaintext passing through: where the limit on locked
 * memory is too small it goes on unlocked. NULL without memory. Freed with sits_secret_free(). */
void *sits_scratch_alloc(size_t len);

#endif
