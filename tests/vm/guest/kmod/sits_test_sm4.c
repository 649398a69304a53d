// SPDX-License-Identifier: GPL-2.0
/*
 * sits_test_sm4.c - one request to a driver of the crypto API, with scatterlists as a test wants them, which AF_ALG cannot make:
 * pieces of any length at any place in a page, entries that are contiguous in memory, empty ones; in place or not; in a task,
 * in a soft interrupt, and where the vector registers are in use already.
 */
#include <crypto/aead.h>
#include <crypto/internal/cipher.h>
#include <crypto/internal/simd.h>
#include <crypto/skcipher.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/interrupt.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <asm/fpu/api.h>
#include <asm/simd.h>

#include "sits_test_sm4.h"

#define SITS_TEST_GUARD		64
#define SITS_TEST_GUARD_BYTE	0xa5

/* A list of pieces; each group of adjoining ones has its own pages, with guards around. */
struct sits_test_list {
	struct sg_table table;
	unsigned int nr;
	struct sits_test_sm4_piece *pieces;
	u8 **groups;		/* by piece; NULL for one that adjoins */
	size_t *group_len;	/* of the pages */
};

struct sits_test_req {
	struct sits_test_sm4 arg;
	struct sits_test_list src, dst;
	void *tfm;
	void *req;
	u8 key[64], iv[16];
	struct completion done;
	struct tasklet_struct tasklet;
	int ret;
	bool no_simd;
};

static DEFINE_MUTEX(sits_test_lock);

/* ---------------------------------------------------------------------------- lists */

static void sits_test_list_free(struct sits_test_list *l)
{
	unsigned int i;

	for (i = 0; l->groups && i < l->nr; i++)
		if (l->groups[i])
			free_pages_exact(l->groups[i], l->group_len[i]);
	kvfree(l->groups);
	kvfree(l->group_len);
	kvfree(l->pieces);
	if (l->table.sgl)
		sg_free_table(&l->table);
	memset(l, 0, sizeof(*l));
}

/* The group that piece @first begins: its pages, and the entries of all that adjoin. Return: the next piece. */
static int sits_test_list_group(struct sits_test_list *l, unsigned int first, struct scatterlist **sg)
{
	size_t at = SITS_TEST_GUARD + l->pieces[first].offset, len = at + SITS_TEST_GUARD;
	unsigned int end, i;
	u8 *p;

	for (end = first; end < l->nr; end++) {
		if (end > first && l->pieces[end].offset != SITS_TEST_SM4_ADJOIN)
			break;
		len += l->pieces[end].len;
	}
	p = alloc_pages_exact(len, GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	l->groups[first] = p;
	l->group_len[first] = len;
	memset(p, SITS_TEST_GUARD_BYTE, len);
	for (i = first; i < end; i++, *sg = sg_next(*sg)) {
		sg_set_page(*sg, virt_to_page(p), l->pieces[i].len, at);
		at += l->pieces[i].len;
	}
	return end;
}

static int sits_test_list_make(struct sits_test_list *l, unsigned int nr, u64 pieces, u32 len, u64 data)
{
	struct scatterlist *sg;
	u8 *flat;
	size_t sum = 0;
	int i, ret;

	if (!nr || nr > SITS_TEST_SM4_MAX_PIECES || len > SITS_TEST_SM4_MAX_BYTES)
		return -EINVAL;
	l->pieces = kvmalloc_array(nr, sizeof(*l->pieces), GFP_KERNEL);
	l->groups = kvcalloc(nr, sizeof(*l->groups), GFP_KERNEL);
	l->group_len = kvcalloc(nr, sizeof(*l->group_len), GFP_KERNEL);
	flat = kvmalloc(len + 1, GFP_KERNEL);
	ret = -ENOMEM;
	if (!l->pieces || !l->groups || !l->group_len || !flat)
		goto out;
	l->nr = nr;
	ret = -EFAULT;
	if (copy_from_user(l->pieces, u64_to_user_ptr(pieces), nr * sizeof(*l->pieces)) ||
	    copy_from_user(flat, u64_to_user_ptr(data), len))
		goto out;
	ret = -EINVAL;
	for (i = 0; i < nr; i++) {
		sum += l->pieces[i].len;
		if (l->pieces[i].len > len || (i ? l->pieces[i].offset >= PAGE_SIZE &&
		    l->pieces[i].offset != SITS_TEST_SM4_ADJOIN : l->pieces[i].offset >= PAGE_SIZE))
			goto out;
	}
	if (sum != len)
		goto out;
	ret = sg_alloc_table(&l->table, nr, GFP_KERNEL);
	if (ret)
		goto out;
	sg = l->table.sgl;
	for (i = 0; i < nr; i = ret) {
		ret = sits_test_list_group(l, i, &sg);
		if (ret < 0)
			goto out;
	}
	sg_copy_from_buffer(l->table.sgl, nr, flat, len);
	ret = 0;
out:
	kvfree(flat);
	return ret;
}

static int sits_test_list_copy_out(struct sits_test_list *l, u32 len, u64 data)
{
	u8 *flat = kvmalloc(len + 1, GFP_KERNEL);
	int ret = 0;

	if (!flat)
		return -ENOMEM;
	sg_copy_to_buffer(l->table.sgl, l->nr, flat, len);
	if (copy_to_user(u64_to_user_ptr(data), flat, len))
		ret = -EFAULT;
	kvfree(flat);
	return ret;
}

/* Bytes around the pieces that are not as they were. */
static u32 sits_test_list_overrun(const struct sits_test_list *l)
{
	unsigned int i, j;
	u32 bad = 0;

	for (i = 0; i < l->nr; i = j) {
		size_t begin = SITS_TEST_GUARD + l->pieces[i].offset, end = begin, k;

		for (j = i; j < l->nr && (j == i || l->pieces[j].offset == SITS_TEST_SM4_ADJOIN); j++)
			end += l->pieces[j].len;
		for (k = 0; k < l->group_len[i]; k++)
			bad += (k < begin || k >= end) && l->groups[i][k] != SITS_TEST_GUARD_BYTE;
	}
	return bad;
}

/* ------------------------------------------------------------------------- requests */

static int sits_test_cipher(struct sits_test_req *r)
{
	struct crypto_cipher *tfm = r->tfm;
	u8 *dst = sg_virt(r->dst.table.sgl);
	const u8 *src = sg_virt(r->src.table.sgl);
	u32 i;

	if (r->arg.flags & SITS_TEST_SM4_IN_PLACE)
		dst = sg_virt(r->src.table.sgl);
	for (i = 0; i + 16 <= r->src.table.sgl->length; i += 16) {
		if (r->arg.flags & SITS_TEST_SM4_ENCRYPT)
			crypto_cipher_encrypt_one(tfm, dst + i, src + i);
		else
			crypto_cipher_decrypt_one(tfm, dst + i, src + i);
	}
	return 0;
}

/* Any context. */
static void sits_test_do(struct sits_test_req *r)
{
	bool encrypt = r->arg.flags & SITS_TEST_SM4_ENCRYPT;

	r->no_simd = !crypto_simd_usable();
	if (r->arg.type == SITS_TEST_SM4_CIPHER)
		r->ret = sits_test_cipher(r);
	else if (r->arg.type == SITS_TEST_SM4_SKCIPHER)
		r->ret = encrypt ? crypto_skcipher_encrypt(r->req) : crypto_skcipher_decrypt(r->req);
	else
		r->ret = encrypt ? crypto_aead_encrypt(r->req) : crypto_aead_decrypt(r->req);
}

static void sits_test_tasklet(struct tasklet_struct *t)
{
	struct sits_test_req *r = from_tasklet(r, t, tasklet);

	sits_test_do(r);
	complete(&r->done);
}

static int sits_test_do_there(struct sits_test_req *r)
{
	switch (r->arg.where) {
	case SITS_TEST_SM4_TASK:
		sits_test_do(r);
		return 0;
	case SITS_TEST_SM4_BH_OFF:
		local_bh_disable();
		sits_test_do(r);
		local_bh_enable();
		return 0;
	case SITS_TEST_SM4_SOFTIRQ:
		init_completion(&r->done);
		tasklet_setup(&r->tasklet, sits_test_tasklet);
		tasklet_schedule(&r->tasklet);
		wait_for_completion(&r->done);
		tasklet_kill(&r->tasklet);
		return 0;
	case SITS_TEST_SM4_FPU_HELD:
		kernel_fpu_begin();
		sits_test_do(r);
		kernel_fpu_end();
		return 0;
	default:
		return -EINVAL;
	}
}

static struct scatterlist *sits_test_dst(struct sits_test_req *r)
{
	return r->arg.flags & SITS_TEST_SM4_IN_PLACE ? r->src.table.sgl : r->dst.table.sgl;
}

/* What is not synchronous is not for this test: hence the mask. */
static int sits_test_skcipher(struct sits_test_req *r, u32 flags)
{
	struct crypto_skcipher *tfm = crypto_alloc_skcipher(r->arg.driver, 0, CRYPTO_ALG_ASYNC);
	int ret;

	if (IS_ERR(tfm))
		return PTR_ERR(tfm);
	ret = crypto_skcipher_setkey(tfm, r->key, r->arg.key_len);
	if (ret)
		goto out_free_tfm;
	ret = -EINVAL;
	if (crypto_skcipher_ivsize(tfm) != r->arg.iv_len || r->arg.len > r->arg.src_len ||
	    (!(r->arg.flags & SITS_TEST_SM4_IN_PLACE) && r->arg.len > r->arg.dst_len))
		goto out_free_tfm;
	r->req = skcipher_request_alloc(tfm, GFP_KERNEL);
	ret = -ENOMEM;
	if (!r->req)
		goto out_free_tfm;
	skcipher_request_set_callback(r->req, flags, NULL, NULL);
	skcipher_request_set_crypt(r->req, r->src.table.sgl, sits_test_dst(r), r->arg.len, r->iv);
	ret = sits_test_do_there(r);
	skcipher_request_free(r->req);
out_free_tfm:
	crypto_free_skcipher(tfm);
	return ret;
}

static int sits_test_aead(struct sits_test_req *r, u32 flags)
{
	struct crypto_aead *tfm = crypto_alloc_aead(r->arg.driver, 0, CRYPTO_ALG_ASYNC);
	int ret;

	if (IS_ERR(tfm))
		return PTR_ERR(tfm);
	ret = crypto_aead_setkey(tfm, r->key, r->arg.key_len);
	if (!ret)
		ret = crypto_aead_setauthsize(tfm, r->arg.tag_len);
	if (ret)
		goto out_free_tfm;
	ret = -EINVAL;
	if (crypto_aead_ivsize(tfm) != r->arg.iv_len)
		goto out_free_tfm;
	r->req = aead_request_alloc(tfm, GFP_KERNEL);
	ret = -ENOMEM;
	if (!r->req)
		goto out_free_tfm;
	aead_request_set_callback(r->req, flags, NULL, NULL);
	aead_request_set_ad(r->req, r->arg.aad_len);
	aead_request_set_crypt(r->req, r->src.table.sgl, sits_test_dst(r), r->arg.len, r->iv);
	ret = sits_test_do_there(r);
	aead_request_free(r->req);
out_free_tfm:
	crypto_free_aead(tfm);
	return ret;
}

static int sits_test_blocks(struct sits_test_req *r)
{
	struct crypto_cipher *tfm = crypto_alloc_cipher(r->arg.driver, 0, 0);
	int ret;

	if (IS_ERR(tfm))
		return PTR_ERR(tfm);
	ret = crypto_cipher_setkey(tfm, r->key, r->arg.key_len);
	if (!ret && (r->arg.nr_src != 1 || r->arg.nr_dst != 1 || r->arg.src_len != r->arg.dst_len))
		ret = -EINVAL;
	r->tfm = tfm;
	if (!ret)
		ret = sits_test_do_there(r);
	crypto_free_cipher(tfm);
	return ret;
}

static int sits_test_request(struct sits_test_req *r)
{
	u32 flags = r->arg.flags & SITS_TEST_SM4_SLEEP ? CRYPTO_TFM_REQ_MAY_SLEEP : 0;

	if (flags && r->arg.where != SITS_TEST_SM4_TASK)
		return -EINVAL;
	switch (r->arg.type) {
	case SITS_TEST_SM4_CIPHER:
		return sits_test_blocks(r);
	case SITS_TEST_SM4_SKCIPHER:
		return sits_test_skcipher(r, flags);
	case SITS_TEST_SM4_AEAD:
		return sits_test_aead(r, flags);
	default:
		return -EINVAL;
	}
}

static int sits_test_run(struct sits_test_req *r)
{
	struct sits_test_sm4 *a = &r->arg;
	int ret;

	a->driver[sizeof(a->driver) - 1] = 0;
	if (a->key_len > sizeof(r->key) || a->iv_len > sizeof(r->iv))
		return -EINVAL;
	if (copy_from_user(r->key, u64_to_user_ptr(a->key), a->key_len) ||
	    copy_from_user(r->iv, u64_to_user_ptr(a->iv), a->iv_len))
		return -EFAULT;
	ret = sits_test_list_make(&r->src, a->nr_src, a->src_pieces, a->src_len, a->src);
	if (!ret)
		ret = sits_test_list_make(&r->dst, a->nr_dst, a->dst_pieces, a->dst_len, a->dst);
	if (!ret)
		ret = sits_test_request(r);
	if (ret)
		return ret;
	a->result = r->ret;
	a->no_simd = r->no_simd;
	a->overrun = sits_test_list_overrun(&r->src) + sits_test_list_overrun(&r->dst);
	if (copy_to_user(u64_to_user_ptr(a->iv), r->iv, a->iv_len))
		return -EFAULT;
	ret = sits_test_list_copy_out(&r->src, a->src_len, a->src);
	return ret ? ret : sits_test_list_copy_out(&r->dst, a->dst_len, a->dst);
}

static long sits_test_sm4_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct sits_test_req *r;
	long ret = -EFAULT;

	if (cmd != SITS_TEST_SM4_DO)
		return -ENOTTY;
	r = kzalloc(sizeof(*r), GFP_KERNEL);
	if (!r)
		return -ENOMEM;
	mutex_lock(&sits_test_lock);
	if (!copy_from_user(&r->arg, (void __user *)uarg, sizeof(r->arg)))
		ret = sits_test_run(r);
	sits_test_list_free(&r->src);
	sits_test_list_free(&r->dst);
	mutex_unlock(&sits_test_lock);
	if (!ret && copy_to_user((void __user *)uarg, &r->arg, sizeof(r->arg)))
		ret = -EFAULT;
	kfree(r);
	return ret;
}

static const struct file_operations sits_test_sm4_fops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= sits_test_sm4_ioctl,
};

static struct miscdevice sits_test_sm4_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "sits-test-sm4",
	.mode	= 0600,
	.fops	= &sits_test_sm4_fops,
};
module_misc_device(sits_test_sm4_misc);

MODULE_DESCRIPTION("Requests to the crypto API as a test wants them");
MODULE_LICENSE("GPL");
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("CRYPTO_INTERNAL");
#else
MODULE_IMPORT_NS(CRYPTO_INTERNAL);
#endif
