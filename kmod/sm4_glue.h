/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sm4_glue.h - what the files of sits_sm4.ko share: its variants, and a request's scatterlists.
 */
#ifndef SITS_KMOD_SM4_GLUE_H
#define SITS_KMOD_SM4_GLUE_H

#include <crypto/internal/aead.h>
#include <crypto/internal/skcipher.h>
#include <linux/crypto.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "crypto/sm4.h"
#include "crypto/sm4_core.h"

/*
 * A request is worked on in runs of at most so many bytes, between which one that may sleep gives
 * way to others. The modes hold on to the vector registers, with preemption off, for less.
 */
#define SITS_SM4_RUN_BYTES	SZ_64K

#define SITS_SM4_NR_SKCIPHERS	4

/**
 * struct sits_sm4_skcipher - a mode of one variant
 *
 * @alg: as registered
 * @core: that does the work
 */
struct sits_sm4_skcipher {
	struct skcipher_alg alg;
	const struct sits_sm4_core *core;
};

/**
 * struct sits_sm4_variant - all algorithms of one core
 *
 * Filled in while the module is loaded, constant from then on.
 *
 * @core: that does the work
 * @cipher: sm4, single blocks
 * @skciphers: ecb, cbc, ctr, xts
 * @gcm: one pass over the data
 */
struct sits_sm4_variant {
	const struct sits_sm4_core *core;
	struct crypto_alg cipher;
	struct sits_sm4_skcipher skciphers[SITS_SM4_NR_SKCIPHERS];
	struct aead_alg gcm;
};

/* Names, priority and module of an algorithm of a variant: "ctr(sm4)", "ctr-sm4-sits-gfni-avx2". */
void sits_sm4_init_base(struct crypto_alg *alg, const struct sits_sm4_core *core, const char *mode);

void sits_sm4_init_skciphers(struct sits_sm4_variant *v);
void sits_sm4_init_gcm(struct sits_sm4_variant *v);

/* ------------------------------------------------------------------- scatterlists */

/**
 * struct sits_sg - a place in a scatterlist
 *
 * All memory is mapped where this builds, so what is contiguous in a list is so in memory, also
 * beyond a page.
 *
 * @sg: entry; NULL behind the last one
 * @off: in it, less than its length
 */
struct sits_sg {
	struct scatterlist *sg;
	unsigned int off;
};

/**
 * struct sits_sg_pair - where a request is read and where it is written
 *
 * In place these are two places that move together.
 *
 * @in: read
 * @out: written
 * @may_sleep: the request allows to give way between runs
 */
struct sits_sg_pair {
	struct sits_sg in;
	struct sits_sg out;
	bool may_sleep;
};

void sits_sg_start(struct sits_sg *at, struct scatterlist *sg, size_t skip);

/*
 * Copy @len bytes from or to a list, and advance.
 * Return: 0; -EINVAL where the list is shorter, and the rest of @buf is as it was.
 */
int sits_sg_read(struct sits_sg *at, void *buf, size_t len);
int sits_sg_write(struct sits_sg *at, const void *buf, size_t len);

/* Fill @len bytes of a list with zeros. */
void sits_sg_zero(struct sits_sg *at, size_t len);

/*
 * sits_sg_runs() - Do something to @len bytes, run by run.
 * @unit: step() gets multiples of it, but the last one where @len is none
 * @step: one run; @dst may be @src
 *
 * What is contiguous goes to step() as it is; a unit in several pieces, through the stack. @unit is
 * at most SITS_SM4_BLOCK_LEN.
 * Return: 0; -EINVAL where a list is shorter than @len.
 */
int sits_sg_runs(struct sits_sg_pair *at, size_t len, unsigned int unit,
		 void (*step)(void *arg, u8 *dst, const u8 *src, size_t len), void *arg);

#endif
