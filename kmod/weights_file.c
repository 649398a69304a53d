// SPDX-License-Identifier: GPL-2.0
/*
 * weights_file.c - an opened sealed file: its header, authenticated, its tag table, the cipher for
 * its chunks. docs/sealed-file.md has the format.
 *
 * No value of the header is used before it is authentic. SM4 is the kernel's crypto API's: whatever
 * driver has the highest priority. Reading the chunks is left to weights_pump.c.
 */
#include <crypto/aead.h>
#include <crypto/skcipher.h>
#include <linux/fs.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/stat.h>
#include <linux/uio.h>
#include <linux/vmalloc.h>

#include "kmod/region.h"
#include "kmod/weights_file.h"

/* Read and digested at a time, of the tag table. */
#define SITS_TAGS_PIECE (64u << 10)

int sits_weights_file_check(const struct file *file)
{
	const struct inode *inode = file_inode(file);

	if (!(file->f_mode & FMODE_READ))
		return -EBADF;
	return S_ISREG(inode->i_mode) || S_ISBLK(inode->i_mode) ? 0 : -EINVAL;
}

static bool sits_weights_is_regular(const struct sits_weights_file *wf)
{
	return S_ISREG(file_inode(wf->file)->i_mode);
}

static int sits_weights_get_stamp(const struct sits_weights_file *wf,
				  struct sits_weights_stamp *stamp)
{
	struct kstat st = { };
	int ret;

	memset(stamp, 0, sizeof(*stamp));
	if (!sits_weights_is_regular(wf))
		return 0;
	ret = vfs_getattr_nosec(&wf->file->f_path, &st, STATX_BASIC_STATS, AT_STATX_SYNC_AS_STAT);
	if (ret)
		return ret;
	stamp->size_bytes = st.size;
	stamp->ino = st.ino;
	stamp->dev = st.dev;
	stamp->mtime = st.mtime;
	stamp->ctime = st.ctime;
	return 0;
}

int sits_weights_file_unchanged(const struct sits_weights_file *wf)
{
	const struct sits_weights_stamp *was = &wf->stamp;
	struct sits_weights_stamp now;
	int ret;

	ret = sits_weights_get_stamp(wf, &now);
	if (ret)
		return ret;
	if (now.size_bytes == was->size_bytes && now.ino == was->ino && now.dev == was->dev &&
	    timespec64_equal(&now.mtime, &was->mtime) && timespec64_equal(&now.ctime, &was->ctime))
		return 0;
	return -ESTALE;
}

static u64 sits_weights_size(const struct sits_weights_file *wf)
{
	if (sits_weights_is_regular(wf))
		return wf->stamp.size_bytes;
	/* A device's size is not that of its node. */
	return i_size_read(wf->file->f_mapping->host);
}

/*
 * Through the page cache, whatever the file was opened for. Return 0; -ESTALE where the file ends.
 */
static int sits_weights_pread(struct file *file, void *buf, size_t len, u64 off)
{
	while (len) {
		struct kvec vec = { .iov_base = buf, .iov_len = len };
		struct iov_iter iter;
		struct kiocb iocb;
		ssize_t n;

		init_sync_kiocb(&iocb, file);
		iocb.ki_flags &= ~IOCB_DIRECT;
		iocb.ki_pos = off;
		iov_iter_kvec(&iter, ITER_DEST, &vec, 1, len);
		n = vfs_iocb_iter_read(file, &iocb, &iter);
		if (n <= 0)
			return n ? n : -ESTALE;
		buf += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* -------------------------------------------------------------------------- header */

/* A kernel without the algorithm says -ENOENT. */
static int sits_weights_no_cipher(int ret)
{
	return ret == -ENOENT ? -ENOPKG : ret;
}

static struct crypto_aead *sits_weights_alloc_gcm(void)
{
	struct crypto_aead *gcm = crypto_alloc_aead("gcm(sm4)", 0, 0);
	int ret;

	if (IS_ERR(gcm))
		return ERR_PTR(sits_weights_no_cipher(PTR_ERR(gcm)));
	ret = crypto_aead_setauthsize(gcm, SITS_GCM_TAG_LEN);
	if (ret) {
		crypto_free_aead(gcm);
		return ERR_PTR(ret);
	}
	return gcm;
}

/*
 * Authenticate the whole page and decrypt the file key in its place: associated data, ciphertext
 * and tag lie there in the order that the API wants.
 */
static int sits_weights_unwrap(struct crypto_aead *gcm, u8 page[SITS_SEALED_HDR_BYTES],
			       const u8 kek[SITS_SM4_KEY_LEN])
{
	const u32 flags = CRYPTO_TFM_REQ_MAY_BACKLOG | CRYPTO_TFM_REQ_MAY_SLEEP;
	u8 nonce[SITS_GCM_IV_LEN];
	DECLARE_CRYPTO_WAIT(wait);
	struct aead_request *req;
	struct scatterlist sg;
	int ret;

	ret = crypto_aead_setkey(gcm, kek, SITS_SM4_KEY_LEN);
	if (ret)
		return ret;
	req = aead_request_alloc(gcm, SITS_GFP);
	if (!req)
		return -ENOMEM;
	memcpy(nonce, page + SITS_SEALED_OFF_NONCE, sizeof(nonce));
	sg_init_one(&sg, page, SITS_SEALED_HDR_BYTES);
	aead_request_set_callback(req, flags, crypto_req_done, &wait);
	aead_request_set_ad(req, SITS_SEALED_OFF_WRAPPED_KEY);
	aead_request_set_crypt(req, &sg, &sg, SITS_SM4_KEY_LEN + SITS_GCM_TAG_LEN, nonce);
	ret = crypto_wait_req(crypto_aead_decrypt(req), &wait);
	aead_request_free(req);
	return ret;
}

static int sits_weights_set_ecb_key(struct sits_weights_file *wf, const u8 *file_key)
{
	struct crypto_skcipher *ecb = crypto_alloc_skcipher("ecb(sm4)", 0, 0);
	int ret;

	if (IS_ERR(ecb))
		return sits_weights_no_cipher(PTR_ERR(ecb));
	wf->ecb = ecb;
	ret = crypto_skcipher_setkey(ecb, file_key, SITS_SM4_KEY_LEN);
	/* It holds the key-encryption key. */
	crypto_free_aead(wf->gcm);
	wf->gcm = NULL;
	return ret;
}

/* @page: its file key is decrypted in place, to be wiped by the caller. */
static int sits_weights_authenticate(struct sits_weights_file *wf, u8 page[SITS_SEALED_HDR_BYTES],
				     const u8 kek[SITS_SM4_KEY_LEN])
{
	u8 *file_key = page + SITS_SEALED_OFF_WRAPPED_KEY, id[SITS_SEALED_KEY_ID_LEN];
	struct crypto_aead *gcm;
	struct sits_sm3 sm3;
	int ret;

	ret = sits_sealed_parse(page, &wf->hdr, NULL);
	if (ret)
		return ret;
	sits_sealed_key_id(kek, id);
	if (memcmp(id, wf->hdr.key_id, sizeof(id)))
		return -ENOKEY;
	gcm = sits_weights_alloc_gcm();
	if (IS_ERR(gcm))
		return PTR_ERR(gcm);
	wf->gcm = gcm;
	ret = sits_weights_unwrap(gcm, page, kek);
	if (ret)
		return ret;
	memcpy(wf->salt, page + SITS_SEALED_OFF_SALT, sizeof(wf->salt));
	sits_sealed_digest_init(&sm3, page);
	sits_sm3_final(&sm3, wf->hdr_digest);
	if (wf->hdr.suite == SITS_SEALED_SUITE_ECB)
		return sits_weights_set_ecb_key(wf, file_key);
	return crypto_aead_setkey(gcm, file_key, SITS_SM4_KEY_LEN);
}

static int sits_weights_check(const struct sits_weights_file *wf,
			      const struct sits_weights_rules *rules, u64 *bad)
{
	u64 size = sits_weights_size(wf), want = wf->hdr.file_bytes;

	/* A device is as long as it is. */
	if (size < want || (size > want && sits_weights_is_regular(wf))) {
		*bad = SITS_BAD_LENGTH;
		return -EBADMSG;
	}
	*bad = SITS_BAD_HEADER;
	if (wf->hdr.suite == SITS_SEALED_SUITE_ECB && !rules->allow_ecb)
		return -EPROTONOSUPPORT;
	return wf->hdr.model_version < rules->min_version ? -EKEYEXPIRED : 0;
}

static bool sits_weights_range_is_valid(const struct sits_sealed_hdr *h,
					const struct sits_weights_range *range)
{
	u64 mask = h->chunk_bytes - 1;

	if (!range->len_bytes || range->file_off > h->plain_bytes ||
	    range->len_bytes > h->plain_bytes - range->file_off)
		return false;
	if (range->file_off & mask || !PAGE_ALIGNED(range->region_off))
		return false;
	/* The last chunk may be short. */
	return !(range->len_bytes & mask) ||
	       range->file_off + range->len_bytes == h->plain_bytes;
}

int sits_weights_file_check_ranges(const struct sits_weights_file *wf,
				   const struct sits_weights_range *ranges, u32 nr_ranges,
				   u64 room_bytes)
{
	u64 file_end = 0, region_end = 0;
	u32 i;

	for (i = 0; i < nr_ranges; i++) {
		const struct sits_weights_range *range = &ranges[i];

		if (!sits_weights_range_is_valid(&wf->hdr, range))
			return -EINVAL;
		if (range->file_off < file_end || range->region_off < region_end)
			return -EINVAL;
		if (range->region_off > room_bytes ||
		    range->len_bytes > room_bytes - range->region_off)
			return -EFBIG;
		file_end = range->file_off + range->len_bytes;
		region_end = range->region_off + range->len_bytes;
	}
	return 0;
}

/* ---------------------------------------------------------------------------- tags */

static bool sits_weights_is_zero(const u8 *p, u64 len)
{
	return !len || (!p[0] && !memcmp(p, p + 1, len - 1));
}

/* The tag table, into wf->tags and the digest, and the zeros behind it. */
static int sits_weights_read_tags(struct sits_weights_file *wf, struct sits_sm3 *sm3, u64 *bad)
{
	const struct sits_sealed_hdr *h = &wf->hdr;
	u64 off, len, total = h->data_off - h->tags_off;
	int ret;

	/* For 2^32 chunks it is larger than what kvmalloc() makes. */
	wf->tags = __vmalloc(total, SITS_GFP);
	if (!wf->tags)
		return -ENOMEM;
	for (off = 0; off < total; off += len) {
		len = min_t(u64, total - off, SITS_TAGS_PIECE);
		ret = sits_weights_pread(wf->file, wf->tags + off, len, h->tags_off + off);
		if (ret)
			return ret;
		if (off < h->tags_bytes)
			sits_sm3_update(sm3, wf->tags + off, min(len, h->tags_bytes - off));
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	if (!sits_weights_is_zero(wf->tags + h->tags_bytes, total - h->tags_bytes)) {
		*bad = SITS_BAD_TAG_TABLE;
		return -EBADMSG;
	}
	return 0;
}

static int sits_weights_open(struct sits_weights_file *wf, u8 page[SITS_SEALED_HDR_BYTES],
			     const u8 kek[SITS_SM4_KEY_LEN],
			     const struct sits_weights_rules *rules, u64 *bad)
{
	struct sits_sm3 sm3;
	int ret;

	ret = sits_weights_get_stamp(wf, &wf->stamp);
	if (ret)
		return ret;
	*bad = SITS_BAD_HEADER;
	if (sits_weights_size(wf) < SITS_SEALED_HDR_BYTES)
		return -EBADMSG;
	ret = sits_weights_pread(wf->file, page, SITS_SEALED_HDR_BYTES, 0);
	if (ret)
		return ret;
	ret = sits_weights_authenticate(wf, page, kek);
	if (ret)
		return ret;
	ret = sits_weights_check(wf, rules, bad);
	if (ret)
		return ret;
	*bad = 0;
	sits_sealed_digest_init(&sm3, page);
	ret = wf->hdr.tags_bytes ? sits_weights_read_tags(wf, &sm3, bad) : 0;
	sits_sm3_final(&sm3, wf->digest);
	return ret;
}

int sits_weights_file_open(struct sits_weights_file *wf, struct file *file,
			   const u8 kek[SITS_SM4_KEY_LEN],
			   const struct sits_weights_rules *rules, u64 *bad)
{
	int ret = -ENOMEM;
	u8 *page;

	*bad = 0;
	memset(wf, 0, sizeof(*wf));
	wf->file = file;
	page = kmalloc(SITS_SEALED_HDR_BYTES, SITS_GFP);
	if (page)
		ret = sits_weights_open(wf, page, kek, rules, bad);
	kfree_sensitive(page);
	if (ret)
		sits_weights_file_close(wf);
	return ret;
}

void sits_weights_file_close(struct sits_weights_file *wf)
{
	vfree(wf->tags);
	/* These wipe their keys. NULL is allowed. */
	crypto_free_aead(wf->gcm);
	crypto_free_skcipher(wf->ecb);
	wf->tags = NULL;
	wf->gcm = NULL;
	wf->ecb = NULL;
}
