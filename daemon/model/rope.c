// SPDX-License-Identifier: MIT
/*
 * rope.c - see rope.h.
 */
#include "daemon/model/rope.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The dimension whose wave turns @rotations times in the original context. */
static double yarn_dim(const struct sits_rope *r, double rotations)
{
	return r->dims * log(r->orig_context / (rotations * 2 * M_PI)) / (2 * log(r->base));
}

/* Share of interpolation, 0 to 1, of pair i: fast waves stay as they are, slow ones are stretched. */
static double yarn_ramp(const struct sits_rope *r, uint32_t i)
{
	double low = fmax(floor(yarn_dim(r, r->beta_fast)), 0);
	double high = fmin(ceil(yarn_dim(r, r->beta_slow)), r->dims - 1.0);

	return fmin(fmax((i - low) / fmax(high - low, 0.001), 0), 1);
}

static double scaled_freq(const struct sits_rope *r, uint32_t i)
{
	double freq = pow(r->base, -2.0 * i / r->dims), ramp;

	switch (r->scaling) {
	case SITS_ROPE_LINEAR:
		return freq / r->factor;
	case SITS_ROPE_YARN:
		ramp = yarn_ramp(r, i);
		return freq / r->factor * ramp + freq * (1 - ramp);
	default:
		return freq;
	}
}

int sits_rope_plan(struct sits_model *m, const void *factors, struct sits_diag *diag)
{
	const struct sits_rope *r = &m->hp.rope;
	uint32_t i, half = r->dims / 2;
	float f = 1;

	m->inv_freq = malloc(half * sizeof(*m->inv_freq));
	if (!m->inv_freq)
		return -ENOMEM;
	for (i = 0; i < half; i++) {
		if (factors)
			memcpy(&f, (const uint8_t *)factors + i * sizeof(f), sizeof(f));
		m->inv_freq[i] = scaled_freq(r, i) / (double)f;
		if (!isfinite(m->inv_freq[i]))
			return sits_diag_fail(diag, -EBADMSG,
					      "model: rotary frequency %" PRIu32 " is %g: a RoPE key or element %" PRIu32
					      " of the frequency factors is not usable", i, (double)m->inv_freq[i], i);
	}
	m->rope_mscale = 1;
	if (r->scaling == SITS_ROPE_YARN)
		m->rope_mscale = r->attn_factor > 0 ? r->attn_factor : r->factor > 1 ? 0.1 * log(r->factor) + 1 : 1;
	if (!isfinite(m->rope_mscale))
		return sits_diag_fail(diag, -EBADMSG, "model: the attention factor of YaRN is %g, not usable",
				      (double)m->rope_mscale);
	return 0;
}
