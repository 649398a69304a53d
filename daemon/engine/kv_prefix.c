// SPDX-License-Identifier: MIT
/*
 * kv_prefix.c - the index of KV pages by the tokens that led to them; see kv.h.
 */
#include <errno.h>
#include <string.h>

#include "daemon/engine/kv_node.h"
#include "daemon/siphash.h"

/* A page shared in part is copied. Fewer tokens than this are computed sooner than a page is copied. */
#define MIN_PART 4
/* Siblings looked at for a page to share in part; the newest come first. */
#define MAX_SIBLINGS 32

static uint64_t hash_block(const struct sits_kv *kv, uint32_t parent, uint64_t scope, const int32_t *token, uint32_t nr)
{
	struct sits_sip s = sits_sip_begin(kv->hash_key);
	uint32_t i;

	sits_sip_word(&s, scope);
	sits_sip_word(&s, (uint64_t)nr << 32 | parent);
	for (i = 0; i < nr; i += 2)
		sits_sip_word(&s, (uint32_t)token[i] | (i + 1 < nr ? (uint64_t)(uint32_t)token[i + 1] << 32 : 0));
	return sits_sip_end(&s, NULL, 0);
}

/* ---- nodes in and out ---- */

static bool is_block(const struct sits_kv_node *n, uint32_t parent, uint64_t scope, const int32_t *token, uint32_t nr)
{
	return n->fill == nr && n->parent == parent && n->scope == scope &&
	       !memcmp(n->token, token, nr * sizeof(*token));
}

static uint32_t find(const struct sits_kv *kv, uint32_t parent, uint64_t scope, const int32_t *token, uint32_t nr,
		     uint64_t *hash)
{
	uint32_t p;

	*hash = hash_block(kv, parent, scope, token, nr);
	for (p = kv->bucket[*hash & kv->bucket_mask]; p != SITS_KV_NONE; p = kv->node[p].chain)
		if (kv->node[p].hash == *hash && is_block(&kv->node[p], parent, scope, token, nr))
			break;
	return p;
}

static uint32_t *children(struct sits_kv *kv, uint32_t parent)
{
	return parent == SITS_KV_NONE ? &kv->roots : &kv->node[parent].child;
}

static void insert(struct sits_kv *kv, uint32_t p, uint32_t parent, uint64_t scope, const int32_t *token, uint32_t nr,
		   uint64_t hash)
{
	uint32_t *bucket = &kv->bucket[hash & kv->bucket_mask], *sibs = children(kv, parent);
	struct sits_kv_node *n = &kv->node[p];

	n->fill = nr;
	n->parent = parent;
	n->scope = scope;
	n->hash = hash;
	memcpy(n->token, token, nr * sizeof(*token));
	n->child = SITS_KV_NONE;
	n->chain = *bucket;
	*bucket = p;
	n->prev = SITS_KV_NONE;
	n->next = *sibs;
	if (*sibs != SITS_KV_NONE)
		kv->node[*sibs].prev = p;
	*sibs = p;
}

/* A leaf. Return: whether its page became free. */
static bool take_out(struct sits_kv *kv, uint32_t p)
{
	struct sits_kv_node *n = &kv->node[p];
	uint32_t *at = &kv->bucket[n->hash & kv->bucket_mask];

	while (*at != p)
		at = &kv->node[*at].chain;
	*at = n->chain;
	if (n->prev != SITS_KV_NONE)
		kv->node[n->prev].next = n->next;
	else
		*children(kv, n->parent) = n->next;
	if (n->next != SITS_KV_NONE)
		kv->node[n->next].prev = n->prev;
	n->fill = 0;
	explicit_bzero(n->token, sizeof(n->token));
	if (n->ref)
		return false;
	sits_kv_lru_del(kv, p);
	sits_kv_wipe(kv, p);
	return true;
}

uint32_t sits_kv_prune(struct sits_kv *kv, uint32_t page)
{
	uint32_t p = page, up, freed = 0;

	do {
		while (kv->node[p].child != SITS_KV_NONE)
			p = kv->node[p].child;
		up = kv->node[p].parent;
		freed += take_out(kv, p);
		if (p == page)
			break;
		p = up;
	} while (true);
	return freed;
}

/* ---- sequences ---- */

static uint32_t common(const int32_t *a, const int32_t *b, uint32_t nr)
{
	uint32_t i = 0;

	while (i < nr && a[i] == b[i])
		i++;
	return i;
}

/* The child of @parent that shares most tokens. Return: how many; 0 where a copy does not pay. */
static uint32_t best_part(struct sits_kv *kv, uint32_t parent, uint64_t scope, const int32_t *token, uint32_t nr,
			  uint32_t *best)
{
	uint32_t p = *children(kv, parent), most = 0, tries, n;

	for (tries = 0; p != SITS_KV_NONE && tries < MAX_SIBLINGS; p = kv->node[p].next, tries++) {
		if (kv->node[p].scope != scope)
			continue;
		n = common(kv->node[p].token, token, nr < kv->node[p].fill ? nr : kv->node[p].fill);
		if (n > most) {
			most = n;
			*best = p;
		}
	}
	return most < MIN_PART ? 0 : most;
}

/* One page more of the class, or of those it has already. */
static bool within_limit(const struct sits_kv *kv, uint32_t p, uint32_t cls)
{
	return kv->node[p].class_ref[cls] || kv->held[cls] < kv->limit[cls];
}

size_t sits_kv_match(struct sits_kv *kv, struct sits_kv_table *t, uint64_t scope, const int32_t *token, size_t nr)
{
	uint32_t parent = SITS_KV_NONE, p, n;
	size_t at = 0;
	uint64_t hash;

	if (sits_kv_reserve_table(t, sits_kv_pages(nr)))
		return 0;
	for (; at + SITS_KV_PAGE_TOKENS <= nr; at += SITS_KV_PAGE_TOKENS) {
		p = find(kv, parent, scope, token + at, SITS_KV_PAGE_TOKENS, &hash);
		if (p == SITS_KV_NONE || !within_limit(kv, p, t->cls))
			break;
		sits_kv_ref(kv, p, t->cls);
		t->page[t->nr++] = p;
		parent = p;
	}
	t->nr_indexed = t->nr;
	n = nr - at < SITS_KV_PAGE_TOKENS ? nr - at : SITS_KV_PAGE_TOKENS;
	n = best_part(kv, parent, scope, token + at, n, &p);
	if (n && within_limit(kv, p, t->cls)) {
		sits_kv_ref(kv, p, t->cls);
		t->page[t->nr++] = p;
		t->cow = true;
		at += n;
	}
	return at;
}

void sits_kv_index(struct sits_kv *kv, struct sits_kv_table *t, uint64_t scope, const int32_t *token, size_t nr,
		   bool all)
{
	uint32_t parent, p, own, n;
	uint64_t hash;
	size_t at;

	/* What its later tokens saw is not all that came before. */
	if (t->cells)
		return;
	/* Others may have pruned what this one had in the index. */
	while (t->nr_indexed && !kv->node[t->page[t->nr_indexed - 1]].fill)
		t->nr_indexed--;
	/* A page that waits to be copied is another's. */
	while (t->nr_indexed < t->nr - t->cow) {
		at = (size_t)t->nr_indexed * SITS_KV_PAGE_TOKENS;
		n = nr < at ? 0 : nr - at < SITS_KV_PAGE_TOKENS ? nr - at : SITS_KV_PAGE_TOKENS;
		if (!n || (n < SITS_KV_PAGE_TOKENS && !all))
			return;
		own = t->page[t->nr_indexed];
		/* Pruned while others name it: it would get a parent that these do not name. */
		if (kv->node[own].ref > 1)
			return;
		parent = t->nr_indexed ? t->page[t->nr_indexed - 1] : SITS_KV_NONE;
		p = find(kv, parent, scope, token + at, n, &hash);
		if (p == SITS_KV_NONE) {
			insert(kv, own, parent, scope, token + at, n, hash);
		} else {
			sits_kv_ref(kv, p, t->cls);
			t->page[t->nr_indexed] = p;
			sits_kv_unref(kv, own, t->cls);
		}
		t->nr_indexed++;
	}
}

void sits_kv_unindex(struct sits_kv *kv, struct sits_kv_table *t, uint32_t from)
{
	if (from >= t->nr_indexed)
		return;
	if (kv->node[t->page[from]].fill)
		sits_kv_prune(kv, t->page[from]);
	t->nr_indexed = from;
}

uint32_t sits_kv_forget(struct sits_kv *kv, uint64_t scope)
{
	uint32_t p = kv->roots, next, freed = 0;

	/* Children are of their parent's scope. */
	for (; p != SITS_KV_NONE; p = next) {
		next = kv->node[p].next;
		if (kv->node[p].scope == scope)
			freed += sits_kv_prune(kv, p);
	}
	return freed;
}

/* ---- for tests ---- */

static const char *check_page(const struct sits_kv *kv, uint32_t p, uint32_t refs)
{
	const struct sits_kv_node *n = &kv->node[p];
	uint32_t up = n->parent, i, sum = 0;
	uint64_t hash;

	if (n->ref != refs)
		return "a page's references are not those of the tables";
	for (i = 0; i < SITS_KV_CLASSES; i++)
		sum += n->class_ref[i];
	if (sum != refs)
		return "the classes' references are not all";
	if (!n->fill)
		return NULL;
	if (find(kv, up, n->scope, n->token, n->fill, &hash) != p)
		return "an indexed page is not found";
	if (up != SITS_KV_NONE && (kv->node[up].fill != SITS_KV_PAGE_TOKENS || kv->node[up].scope != n->scope))
		return "a parent is not a full page of the scope";
	if (up != SITS_KV_NONE && kv->node[up].ref < (n->ref ? 1 : 0))
		return "a parent is not referenced while its child is";
	return NULL;
}

const char *sits_kv_check(const struct sits_kv *kv, const uint32_t *refs)
{
	uint32_t p, cached = 0, used = 0, held[SITS_KV_CLASSES] = { 0 }, i;
	const char *why;

	for (p = 0; p < kv->nr_pages; p++) {
		why = check_page(kv, p, refs[p]);
		if (why)
			return why;
		used += refs[p] > 0;
		cached += !refs[p] && kv->node[p].fill;
		for (i = 0; i < SITS_KV_CLASSES; i++)
			held[i] += kv->node[p].class_ref[i] > 0;
	}
	if (used != sits_kv_used(kv))
		return "pages used are not pages referenced";
	if (cached != kv->nr_cached || cached + used + kv->nr_free != kv->nr_pages)
		return "pages are lost";
	for (i = 0; i < SITS_KV_CLASSES; i++)
		if (held[i] != kv->held[i] || held[i] > kv->limit[i])
			return "a class's count is wrong or over its limit";
	for (p = kv->oldest; p != SITS_KV_NONE; p = kv->node[p].newer) {
		if (!kv->node[p].fill || kv->node[p].ref)
			return "a page in the list of cached ones is not one";
		cached--;
		/* Eviction from the old end must meet leaves only: whatever continues a page is older. */
		for (i = kv->node[p].newer; i != SITS_KV_NONE; i = kv->node[i].newer)
			if (kv->node[i].parent == p)
				return "a page is older than what continues it";
	}
	return cached ? "the list of cached pages is cut" : NULL;
}
