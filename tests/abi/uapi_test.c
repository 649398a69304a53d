// SPDX-License-Identifier: MIT
/*
 * uapi_test.c - the layout of what crosses /dev/sits, written out independently of the header.
 *
 * Sizes and offsets are asserted at compile time; a change of any is an ABI break. What the numbers of the
 * ioctls have to keep is checked at run time.
 */
#include <linux/sits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define AT(type, field, off) _Static_assert(offsetof(struct type, field) == (off), #type "." #field)

SIZE(sits_get_info, 56);
AT(sits_get_info, size, 0);
AT(sits_get_info, flags, 4);
AT(sits_get_info, abi_version, 8);
AT(sits_get_info, reserved, 12);
AT(sits_get_info, features, 16);
AT(sits_get_info, region_limit_bytes, 24);
AT(sits_get_info, region_used_bytes, 32);
AT(sits_get_info, nr_regions, 40);
AT(sits_get_info, nr_queues, 44);
AT(sits_get_info, nr_channels, 48);
AT(sits_get_info, tee, 52);

SIZE(sits_region_create, 96);
AT(sits_region_create, size, 0);
AT(sits_region_create, flags, 4);
AT(sits_region_create, len_bytes, 8);
AT(sits_region_create, kind, 16);
AT(sits_region_create, node, 20);
AT(sits_region_create, fd_flags, 24);
AT(sits_region_create, fd, 28);
AT(sits_region_create, name, 32);

SIZE(sits_region_facts, 160);
AT(sits_region_facts, size, 0);
AT(sits_region_facts, flags, 4);
AT(sits_region_facts, fd, 8);
AT(sits_region_facts, kind, 12);
AT(sits_region_facts, len_bytes, 16);
AT(sits_region_facts, mapped_bytes, 24);
AT(sits_region_facts, huge_bytes, 32);
AT(sits_region_facts, page_bytes, 40);
AT(sits_region_facts, node, 44);
AT(sits_region_facts, state, 48);
AT(sits_region_facts, nr_importers, 52);
AT(sits_region_facts, refused_imports, 56);
AT(sits_region_facts, digest, 64);
AT(sits_region_facts, name, 96);

SIZE(sits_region_import, 104);
AT(sits_region_import, size, 0);
AT(sits_region_import, flags, 4);
AT(sits_region_import, from, 8);
AT(sits_region_import, src_fd, 12);
AT(sits_region_import, addr, 16);
AT(sits_region_import, len_bytes, 24);
AT(sits_region_import, fd_flags, 32);
AT(sits_region_import, fd, 36);
AT(sits_region_import, name, 40);

SIZE(sits_region_seal, 16);
AT(sits_region_seal, size, 0);
AT(sits_region_seal, flags, 4);
AT(sits_region_seal, fd, 8);
AT(sits_region_seal, reserved, 12);

SIZE(sits_device_allow, 80);
AT(sits_device_allow, size, 0);
AT(sits_device_allow, flags, 4);
AT(sits_device_allow, fd, 8);
AT(sits_device_allow, reserved, 12);
AT(sits_device_allow, device, 16);

SIZE(sits_dma_seg, 16);
AT(sits_dma_seg, bus_addr, 0);
AT(sits_dma_seg, len_bytes, 8);

SIZE(sits_dma_map, 96);
AT(sits_dma_map, size, 0);
AT(sits_dma_map, flags, 4);
AT(sits_dma_map, fd, 8);
AT(sits_dma_map, fd_map, 12);
AT(sits_dma_map, device, 16);
AT(sits_dma_map, segs, 80);
AT(sits_dma_map, nr_segs, 88);
AT(sits_dma_map, reserved, 92);

SIZE(sits_dma_unmap, 16);
AT(sits_dma_unmap, size, 0);
AT(sits_dma_unmap, flags, 4);
AT(sits_dma_unmap, fd_map, 8);
AT(sits_dma_unmap, reserved, 12);

SIZE(sits_weights_range, 24);
AT(sits_weights_range, file_off, 0);
AT(sits_weights_range, len_bytes, 8);
AT(sits_weights_range, region_off, 16);

SIZE(sits_weights_load, 264);
AT(sits_weights_load, size, 0);
AT(sits_weights_load, flags, 4);
AT(sits_weights_load, file_fd, 8);
AT(sits_weights_load, region_fd, 12);
AT(sits_weights_load, min_version, 16);
AT(sits_weights_load, nr_inflight, 24);
AT(sits_weights_load, cancel, 28);
AT(sits_weights_load, progress_bytes, 32);
AT(sits_weights_load, plain_bytes, 40);
AT(sits_weights_load, model_version, 48);
AT(sits_weights_load, bad_chunk, 56);
AT(sits_weights_load, read_ns, 64);
AT(sits_weights_load, cipher_ns, 72);
AT(sits_weights_load, total_ns, 80);
AT(sits_weights_load, digest, 88);
AT(sits_weights_load, key, 120);
AT(sits_weights_load, ranges, 248);
AT(sits_weights_load, nr_ranges, 256);
AT(sits_weights_load, reserved, 260);

SIZE(sits_queue_create, 72);
AT(sits_queue_create, size, 0);
AT(sits_queue_create, flags, 4);
AT(sits_queue_create, depth, 8);
AT(sits_queue_create, per_client, 12);
AT(sits_queue_create, max_clients, 16);
AT(sits_queue_create, mode, 20);
AT(sits_queue_create, chunk_backlog, 24);
AT(sits_queue_create, fd_flags, 28);
AT(sits_queue_create, fd, 32);
AT(sits_queue_create, reserved, 36);
AT(sits_queue_create, name, 40);

SIZE(sits_queue_facts, 120);
AT(sits_queue_facts, size, 0);
AT(sits_queue_facts, flags, 4);
AT(sits_queue_facts, depth, 8);
AT(sits_queue_facts, per_client, 12);
AT(sits_queue_facts, max_clients, 16);
AT(sits_queue_facts, mode, 20);
AT(sits_queue_facts, chunk_backlog, 24);
AT(sits_queue_facts, nr_clients, 28);
AT(sits_queue_facts, nr_waiting, 32);
AT(sits_queue_facts, nr_running, 36);
AT(sits_queue_facts, requests, 40);
AT(sits_queue_facts, answered, 48);
AT(sits_queue_facts, cancelled, 56);
AT(sits_queue_facts, refused_busy, 64);
AT(sits_queue_facts, bytes_in, 72);
AT(sits_queue_facts, bytes_out, 80);
AT(sits_queue_facts, name, 88);

SIZE(sits_channel_create, 56);
AT(sits_channel_create, size, 0);
AT(sits_channel_create, flags, 4);
AT(sits_channel_create, arena_bytes, 8);
AT(sits_channel_create, fd_flags, 16);
AT(sits_channel_create, fd, 20);
AT(sits_channel_create, queue, 24);

SIZE(sits_event, 40);
AT(sits_event, kind, 0);
AT(sits_event, len, 4);
AT(sits_event, req, 8);
AT(sits_event, client, 16);
AT(sits_event, deadline_ns, 24);
AT(sits_event, uid, 32);
AT(sits_event, pid, 36);

SIZE(sits_fetch, 16);
AT(sits_fetch, addr, 0);
AT(sits_fetch, len, 8);
AT(sits_fetch, flags, 12);

SIZE(sits_commit_desc, 32);
AT(sits_commit_desc, size, 0);
AT(sits_commit_desc, flags, 4);
AT(sits_commit_desc, req, 8);
AT(sits_commit_desc, addr, 16);
AT(sits_commit_desc, len, 24);
AT(sits_commit_desc, status, 28);

SIZE(sits_commit, 16);
AT(sits_commit, addr, 0);
AT(sits_commit, reserved, 8);

SIZE(sits_submit, 16);
AT(sits_submit, off, 0);
AT(sits_submit, len, 4);
AT(sits_submit, timeout_ms, 8);
AT(sits_submit, off_req, 12);

SIZE(sits_chunk_hdr, 24);
AT(sits_chunk_hdr, req, 0);
AT(sits_chunk_hdr, len, 8);
AT(sits_chunk_hdr, status, 12);
AT(sits_chunk_hdr, flags, 16);
AT(sits_chunk_hdr, reserved, 20);

SIZE(sits_recv, 16);
AT(sits_recv, off, 0);
AT(sits_recv, len, 4);
AT(sits_recv, flags, 8);
AT(sits_recv, reserved, 12);

SIZE(sits_cancel, 16);
AT(sits_cancel, req, 0);
AT(sits_cancel, reserved, 8);

/* In the order of their numbers. */
static const struct {
	unsigned long cmd;
	unsigned int nr;
	unsigned int bytes;
} ioctls[] = {
	{ SITS_IOC_GET_INFO, 0x40, 56 },
	{ SITS_IOC_REGION_CREATE, 0x41, 96 },
	{ SITS_IOC_REGION_INFO, 0x42, 160 },
	{ SITS_IOC_REGION_IMPORT, 0x43, 104 },
	{ SITS_IOC_REGION_SEAL, 0x44, 16 },
	{ SITS_IOC_DEVICE_ALLOW, 0x45, 80 },
	{ SITS_IOC_DMA_MAP, 0x46, 96 },
	{ SITS_IOC_DMA_UNMAP, 0x47, 16 },
	{ SITS_IOC_WEIGHTS_LOAD, 0x48, 264 },
	{ SITS_IOC_QUEUE_CREATE, 0x49, 72 },
	{ SITS_IOC_CHANNEL_OPEN, 0x4a, 56 },
	{ SITS_IOC_QUEUE_INFO, 0x50, 120 },
	{ SITS_IOC_FETCH, 0x60, 16 },
	{ SITS_IOC_COMMIT, 0x61, 16 },
	{ SITS_IOC_CLOSE_INTAKE, 0x62, 0 },
	{ SITS_IOC_SUBMIT, 0x70, 16 },
	{ SITS_IOC_RECV, 0x71, 16 },
	{ SITS_IOC_CANCEL, 0x72, 16 },
};

#define NR_IOCTLS (sizeof(ioctls) / sizeof(ioctls[0]))

static void numbers_are_fixed(void **state)
{
	for (size_t i = 0; i < NR_IOCTLS; i++) {
		assert_int_equal(_IOC_TYPE(ioctls[i].cmd), 0xbc);
		assert_int_equal(_IOC_NR(ioctls[i].cmd), ioctls[i].nr);
		assert_int_equal(_IOC_SIZE(ioctls[i].cmd), ioctls[i].bytes);
	}
}

/* The size bits do not count: the numbers alone have to tell the ioctls apart. */
static void numbers_are_unique(void **state)
{
	for (size_t i = 1; i < NR_IOCTLS; i++)
		assert_true(ioctls[i - 1].nr < ioctls[i].nr);
}

/* The VFS answers numbers 1 and 2 without a type (FIBMAP, FIGETBSZ) before a driver sees them. */
static void numbers_have_a_direction(void **state)
{
	for (size_t i = 0; i < NR_IOCTLS; i++)
		if (ioctls[i].bytes)
			assert_int_equal(_IOC_DIR(ioctls[i].cmd), _IOC_READ | _IOC_WRITE);
}

/* Without SQE128 a command has 16 bytes of payload. */
static void hot_commands_fit_an_sqe(void **state)
{
	for (size_t i = 0; i < NR_IOCTLS; i++)
		if (ioctls[i].nr >= 0x60)
			assert_true(ioctls[i].bytes <= 16);
}

static void flags_are_single_bits(void **state)
{
	static const uint64_t states[] = {
		SITS_REGION_F_SEALED, SITS_REGION_F_PINNABLE, SITS_REGION_F_DEVICE_ONLY, SITS_REGION_F_ENCRYPTED,
		SITS_REGION_F_LOADED, SITS_REGION_F_LOADING, SITS_REGION_F_REVOKED,
	};
	static const uint64_t features[] = {
		SITS_FEATURE_REGION, SITS_FEATURE_IMPORT, SITS_FEATURE_DMA_MAP, SITS_FEATURE_WEIGHTS,
		SITS_FEATURE_QUEUE, SITS_FEATURE_URING_CMD, SITS_FEATURE_HUGE_PMD,
	};

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		assert_int_equal(states[i], 1ull << i);
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		assert_int_equal(features[i], 1ull << i);
	assert_int_equal(SITS_CREATE_REQUIRE_HUGE | SITS_CREATE_DEVICE_ONLY, 3);
	assert_int_equal(SITS_DMA_TO_DEVICE | SITS_DMA_FROM_DEVICE, 3);
	assert_int_equal(SITS_LOAD_F_ALLOW_ECB | SITS_LOAD_F_BUFFERED, 3);
	assert_int_equal(SITS_SEAL_REVOKE, 1);
	assert_int_equal(SITS_BAD_HEADER, UINT64_MAX);
	assert_int_equal(SITS_BAD_TAG_TABLE, UINT64_MAX - 1);
	assert_int_equal(SITS_BAD_LENGTH, UINT64_MAX - 2);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_fixed),
		cmocka_unit_test(numbers_are_unique),
		cmocka_unit_test(numbers_have_a_direction),
		cmocka_unit_test(hot_commands_fit_an_sqe),
		cmocka_unit_test(flags_are_single_bits),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
