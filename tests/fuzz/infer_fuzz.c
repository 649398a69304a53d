// SPDX-License-Identifier: MIT
/*
 * infer_fuzz.c - the inference request's parser. What it accepts, the builder makes again, and that
 * reads the same.
 */
#include <errno.h>

#include "include/sits/infer.h"
#include "tests/fuzz/fuzz.h"

struct seen {
	const uint8_t *data;
	size_t size, bytes, nr, stop_at;
	struct sits_infer_builder *again;
};

static int on_field(void *arg, uint16_t type, const void *bytes, size_t len)
{
	struct seen *s = arg;
	const uint8_t *p = bytes;
	size_t i;
	unsigned int sum = 0;

	FUZZ_CHECK(type >= SITS_FIELD_PROMPT && type <= SITS_FIELD_TAG);
	FUZZ_CHECK(p >= s->data && p <= s->data + s->size && len <= (size_t)(s->data + s->size - p));
	for (i = 0; i < len; i++)
		sum += p[i];
	FUZZ_CHECK(sum <= 255 * len);
	s->bytes += len;
	if (s->again)
		FUZZ_CHECK(!sits_infer_builder_add(s->again, type, bytes, len));
	return ++s->nr == s->stop_at ? 77 : 0;
}

static void check_again(struct seen *first, const struct sits_infer_request_hdr *hdr)
{
	struct seen second = { 0 };
	struct sits_infer_request_hdr h;
	const void *bytes;
	size_t len;

	memcpy(sits_infer_builder_hdr(first->again), hdr, sizeof(*hdr));
	FUZZ_CHECK(!sits_infer_builder_bytes(first->again, &bytes, &len));
	second.data = bytes;
	second.size = len;
	FUZZ_CHECK(!sits_infer_parse(bytes, len, &h, on_field, &second, NULL, 0));
	FUZZ_CHECK(second.nr == first->nr && second.bytes == first->bytes);
	FUZZ_CHECK(h.nr_fields == hdr->nr_fields && h.op == hdr->op && h.max_tokens == hdr->max_tokens && h.seed == hdr->seed);
	second.stop_at = first->nr;
	second.nr = 0;
	FUZZ_CHECK(sits_infer_parse(bytes, len, &h, on_field, &second, NULL, 0) == (first->nr ? 77 : 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sits_infer_request_hdr hdr;
	struct seen s = { .data = data, .size = size };
	char err[160] = "";
	int ret, bare;

	FUZZ_CHECK(!sits_infer_builder_create(&s.again));
	ret = sits_infer_parse(data, size, &hdr, on_field, &s, err, sizeof(err));
	FUZZ_CHECK(ret == 0 || ret == -EINVAL || ret == -EMSGSIZE);
	bare = sits_infer_parse(data, size, &hdr, NULL, NULL, NULL, 0);
	FUZZ_CHECK(bare == ret);
	if (ret) {
		FUZZ_CHECK(!s.nr);	/* nothing of a refused request is shown */
		fuzz_check_words(err, sizeof(err));
	} else {
		FUZZ_CHECK(s.nr == hdr.nr_fields);
		FUZZ_CHECK(hdr.temperature >= 0 && hdr.temperature <= 100 && hdr.top_p > 0 && hdr.top_p <= 1);
		check_again(&s, &hdr);
	}
	sits_infer_builder_destroy(s.again);
	return 0;
}
