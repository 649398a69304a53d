/* SPDX-License-Identifier: MIT */
/*
 * backends.h - the tables that dispatch.c chooses from, and what they share. Inside kernels/ only.
 */
#ifndef SITS_KERNELS_BACKENDS_H
#define SITS_KERNELS_BACKENDS_H

#include "kernels/kernels.h"

extern const struct sits_backend sits_backend_ref;
#ifdef SITS_KERNELS_X86
extern const struct sits_backend sits_backend_avx2;
extern const struct sits_backend sits_backend_avx512;
#endif

#endif
