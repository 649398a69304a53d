/* SPDX-License-Identifier: MIT */
/*
 * fused.h - template: operations that stand for several in turn, and the choice of the largest.
 *
 * After prepare.h and ops.h in one translation unit, of whose steps these are made, in the same order: so the bits are
 * those of the operations one by one.
 */
#ifndef SITS_KERNELS_X86_FUSED_H
#define SITS_KERNELS_X86_FUSED_H

/*
 * Elements at a time: quantising a group waits for its largest, so it does not follow each group's numbers at once; a
 * few groups are made first, which the processor overlaps, and they are still in the nearest cache then.
 */
#define FUSE (8 * SITS_QG)

INLINE void quantise_some(const float *y, size_t n, struct sits_q16 *out)
{
	for (size_t i = 0; i < n / SITS_QG; i++)
		quantise(y + i * SITS_QG, out + i);
}

/* x += r, and the sum of squares of the new x as square_sum() adds it. */
INLINE float add_square_sum(float *x, const float *r, size_t C)
{
	vf a[4] = { v_zero(), v_zero(), v_zero(), v_zero() }, v;
	size_t c = 0;

	for (; c + 4 * VL <= C; c += 4 * VL) {
		UNROLL for (size_t i = 0; i < 4; i++) {
			v = v_add(v_load(x + c + i * VL), v_load(r + c + i * VL));
			v_store(x + c + i * VL, v);
			a[i] = v_fma(v, v, a[i]);
		}
	}
	for (; c < C; c += VL) {
		size_t n = C - c < VL ? C - c : VL;

		v = v_add(v_load_n(x + c, n), v_load_n(r + c, n));
		v_store_n(x + c, v, n);
		a[0] = v_fma(v, v, a[0]);
	}
	return v_hsum(v_add(v_add(a[0], a[1]), v_add(a[2], a[3])));
}

void ISA(add_rmsnorm_prepare)(uint32_t wtype, float *x, const float *r, const float *w, float *y, size_t T, size_t C,
			      float eps, void *out)
{
	bool groups = sits_cpu_act_class(wtype) == SITS_ACT_Q16;
	size_t row = sits_cpu_act_row_bytes(wtype, C);

	for (size_t t = 0; t < T; t++, x += C, y += C) {
		uint8_t *o = (uint8_t *)out + t * row;
		double mean = (double)(r ? add_square_sum(x, r + t * C, C) : square_sum(x, C)) / (double)C + (double)eps;
		vf scale = v_set1((float)(1.0 / __builtin_sqrt(mean)));

		for (size_t c0 = 0; c0 < C; c0 += FUSE) {
			size_t n = C - c0 < FUSE ? C - c0 : FUSE, c = c0;

			for (; c + VL <= c0 + n; c += VL)
				v_store(y + c, v_mul(v_mul(v_load(x + c), scale), v_load(w + c)));
			if (c < c0 + n) {
				size_t left = c0 + n - c;

				v_store_n(y + c, v_mul(v_mul(v_load_n(x + c, left), scale), v_load_n(w + c, left)), left);
			}
			if (groups)
				quantise_some(y + c0, n, (struct sits_q16 *)o + c0 / SITS_QG);
		}
		if (!groups)
			ISA(act_prepare)(wtype, y, C, 1, C, o);
	}
}

void ISA(silu_mul_prepare)(uint32_t wtype, float *y, const float *a, const float *b, size_t T, size_t K, void *out)
{
	bool groups = sits_cpu_act_class(wtype) == SITS_ACT_Q16;
	size_t row = sits_cpu_act_row_bytes(wtype, K);

	for (size_t t = 0; t < T; t++, y += K, a += K, b += K) {
		uint8_t *o = (uint8_t *)out + t * row;

		if (!groups) {
			ISA(silu_mul)(y, a, b, K);
			ISA(act_prepare)(wtype, y, K, 1, K, o);
			continue;
		}
		for (size_t k = 0; k < K; k += FUSE) {
			size_t n = K - k < FUSE ? K - k : FUSE;

			for (size_t i = k; i < k + n; i += VL)
				v_store(y + i, v_mul(silu(v_load(a + i)), v_load(b + i)));
			quantise_some(y + k, n, (struct sits_q16 *)o + k / SITS_QG);
		}
	}
}

INLINE void norm_heads(const struct sits_rope_store *rs, float *x, const float *w, size_t heads)
{
	size_t D = rs->shape->Dk;

	if (w)
		ISA(rmsnorm)(x, x, w, rs->norm_all ? 1 : heads, rs->norm_all ? heads * D : D, rs->eps);
}

INLINE void rotate_heads(const struct sits_rope_store *rs, float *x, size_t heads, const struct angles *a, size_t i, size_t n)
{
	for (size_t h = 0; h < heads; h++, x += rs->shape->Dk) {
		if (rs->neox)
			rotate_split(x + i, x + rs->R / 2 + i, a, n);
		else
			rotate_adjacent(x + 2 * i, a, n);
	}
}

/* The angles are the same for q and k: they are computed once. */
void ISA(rope_store)(const struct sits_rope_store *rs)
{
	struct angles a = { { 0 }, { 0 }, { 0 }, { 0 } };
	size_t D = rs->shape->Dk;

	norm_heads(rs, rs->q, rs->q_norm, rs->H);
	norm_heads(rs, rs->k, rs->k_norm, rs->shape->G);
	for (size_t i = 0; i < rs->R / 2; i += ROPE_PAIRS) {
		size_t n = rs->R / 2 - i < ROPE_PAIRS ? rs->R / 2 - i : ROPE_PAIRS;

		angles_init(&a, rs->pos, rs->inv_freq + i, n, rs->neox);
		rotate_heads(rs, rs->q, rs->H, &a, i, n);
		rotate_heads(rs, rs->k, rs->shape->G, &a, i, n);
	}
	for (size_t h = 0; h < rs->H && rs->q_scale != 1; h++) {
		for (size_t d = 0; d < rs->R; d++)
			rs->q[h * D + d] *= rs->q_scale;
	}
	ISA(kv_store)(rs->shape, rs->layer, rs->slot, rs->k, rs->v);
}

/* p = e / sum, so p / sqrt(mean p^2 + eps) = e / sqrt(mean e^2 + eps sum^2): nothing is divided twice. */
void ISA(softmax_rmsnorm)(float *y, const float *x, const float *w, size_t T, size_t C, float eps)
{
	for (size_t t = 0; t < T; t++, x += C, y += C) {
		vf top = v_set1(-INFINITY), sum = v_zero(), squares = v_zero(), scale;
		double s;
		size_t n;

		for (size_t c = 0; c < C; c += VL) {
			n = C - c < VL ? C - c : VL;
			top = v_max(top, v_keep_n(v_load_n(x + c, n), n, v_set1(-INFINITY)));
		}
		top = v_set1(v_hmax(top));
		for (size_t c = 0; c < C; c += VL) {
			vf e;

			n = C - c < VL ? C - c : VL;
			e = v_keep_n(v_exp(v_sub(v_load_n(x + c, n), top)), n, v_zero());
			v_store_n(y + c, e, n);
			sum = v_add(sum, e);
			squares = v_fma(e, e, squares);
		}
		s = (double)v_hsum(sum);
		scale = v_set1((float)(1 / __builtin_sqrt((double)v_hsum(squares) / (double)C + (double)eps * s * s)));
		for (size_t c = 0; c < C; c += VL) {
			n = C - c < VL ? C - c : VL;
			v_store_n(y + c, v_mul(v_mul(v_load_n(y + c, n), scale), w ? v_load_n(w + c, n) : v_set1(1)), n);
		}
	}
}

/* ---- the k largest: a heap whose root is the worst of those chosen ---- */

INLINE bool worse(const float *x, uint32_t a, uint32_t b)
{
	return x[a] < x[b] || (x[a] == x[b] && a > b);
}

static void sift_down(const float *x, uint32_t *heap, size_t n, size_t at)
{
	uint32_t id = heap[at];

	for (size_t child; (child = 2 * at + 1) < n; at = child) {
		if (child + 1 < n && worse(x, heap[child + 1], heap[child]))
			child++;
		if (!worse(x, heap[child], id))
			break;
		heap[at] = heap[child];
	}
	heap[at] = id;
}

size_t ISA(topk)(const float *x, size_t n, size_t k, uint32_t *id)
{
	size_t have = 0, i = 0;

	if (!k)
		return 0;
	for (; i < n && have < k; i++) {
		if (x[i] == x[i])
			id[have++] = (uint32_t)i;
	}
	for (size_t at = have / 2; at-- > 0;)
		sift_down(x, id, have, at);
	while (i < n) {
		vf least = v_set1(x[id[0]]);
		uint32_t over = 0;
		size_t left;

		/* Nothing equal or less comes in: it has a higher index than the root. */
		for (; i + 4 * VL <= n && !over; i += 4 * VL) {
			UNROLL for (size_t j = 0; j < 4; j++)
				over |= v_greater(v_load(x + i + j * VL), least);
		}
		if (over)
			i -= 4 * VL;
		left = n - i < 4 * VL ? n - i : 4 * VL;
		for (size_t j = 0; j < left; j++, i++) {
			if (x[i] > x[id[0]]) {
				id[0] = (uint32_t)i;
				sift_down(x, id, have, 0);
			}
		}
	}
	for (size_t last = have; last-- > 1;) {	/* the worst to the end, again and again */
		uint32_t worst = id[0];

		id[0] = id[last];
		sift_down(x, id, last, 0);
		id[last] = worst;
	}
	return have;
}

#endif
