// SPDX-License-Identifier: MIT
/*
 * weights_load_test.c - sealed files loaded into regions by the kernel: what arrives, from which file system, in what kind
 * of region, in chunks of any size.
 */
#include "weights_common.h"

#define EXT4_DIR "/tmp/weights-ext4"

struct load_case {
	uint32_t chunk;
	size_t len;
	unsigned int kind, create_flags, load_flags, nr_inflight;
};

#define BUFFERED SITS_LOAD_F_BUFFERED

static const struct load_case cases[] = {
	{ 4096, 0, SITS_KIND_PINNED, 0, 0, 0 },
	{ 4096, 1, SITS_KIND_PINNED, 0, 0, 1 },
	{ 4096, 4095, SITS_KIND_PINNED, 0, 0, 0 },
	{ 4096, 4096, SITS_KIND_PINNED, 0, 0, 0 },
	{ 4096, 4097, SITS_KIND_HUGE, 0, BUFFERED, 0 },
	{ 4096, 2 * MIB + 5000, SITS_KIND_PINNED, 0, 0, 2 },
	{ 65536, 65535, SITS_KIND_PROTECTED, 0, 0, 0 },
	{ 65536, 3 * MIB - 1, SITS_KIND_PROTECTED, 0, BUFFERED, 256 },
	{ 1 << 20, MIB, SITS_KIND_HUGE, 0, 0, 0 },
	{ 1 << 20, MIB + 1, SITS_KIND_HUGE, 0, 0, 0 },
	{ 1 << 20, 5 * MIB - 17, SITS_KIND_PINNED, 0, 0, 1 },
	{ 1 << 20, 6 * MIB + 513, SITS_KIND_PROTECTED, SITS_CREATE_REQUIRE_HUGE, 0, 0 },
	{ 4 << 20, 5 * MIB + 4095, SITS_KIND_HUGE, 0, 0, 3 },
	{ 16 << 20, 5, SITS_KIND_PINNED, 0, 0, 0 },
	{ 16 << 20, 17 * MIB + 1, SITS_KIND_PINNED, 0, 0, 0 },
};

static bool same_digest(const char *path, const struct sits_weights_load *a, int region)
{
	struct sits_sealed_info info;
	struct sits_region_facts f = facts(region);

	return !sits_sealed_inspect(ctx, path, kek, &info) && !memcmp(info.digest, a->digest, 32) &&
	       !memcmp(info.digest, f.digest, 32);
}

static void check_loaded(const char *what, const char *path, const struct sits_weights_load *a, int region,
			 const uint8_t *data, size_t len)
{
	struct sits_region_facts f = facts(region);

	check(a->plain_bytes == len && a->progress_bytes == len && !a->bad_chunk && a->total_ns, "%s: results", what);
	check((f.state & (SITS_REGION_F_SEALED | SITS_REGION_F_LOADED)) == (SITS_REGION_F_SEALED | SITS_REGION_F_LOADED) &&
	      !(f.state & SITS_REGION_F_LOADING), "%s: loaded and sealed", what);
	check(same_digest(path, a, region), "%s: digest", what);
	check(region_is(region, data, len), "%s: contents", what);
}

/* A region with something in it, which a load has to take away. */
static int dirty_region(const struct load_case *c)
{
	int region = create(c->kind, c->create_flags, c->len + 10000);
	struct sits_region_facts f;
	uint8_t *p;

	if (region < 0 || c->kind == SITS_KIND_PROTECTED)
		return region;
	f = facts(region);
	p = map(region, f.mapped_bytes, PROT_READ | PROT_WRITE);
	need(!is_err(p), "map a region");
	memset(p, 0xa5, f.mapped_bytes);
	munmap(p, f.mapped_bytes);
	return region;
}

static void test_case(const char *where, const char *path, const struct load_case *c, int way, const uint8_t *data)
{
	int fd = open(path, O_RDONLY), region = dirty_region(c);
	struct sits_weights_load a = load_arg(fd, region);
	char what[160];

	snprintf(what, sizeof(what), "%s, %s: %zu bytes, chunks of %u, kind %u, flags %u, %u in flight", where, ways[way].name,
		 c->len, c->chunk, c->kind, c->load_flags, c->nr_inflight);
	a.flags = c->load_flags;
	a.nr_inflight = c->nr_inflight;
	if (check_int(ways[way].fn(&a), 0, "%s", what))
		check_loaded(what, path, &a, region, data, c->len);
	if (c->len > 4 * MIB)
		printf("# %s: %.1f MB/s; reads %llu %%, cipher %llu %% of one core\n", what, c->len * 1e3 / (a.total_ns + 1),
		       a.read_ns * 100 / (a.total_ns + 1), a.cipher_ns * 100 / (a.total_ns + 1));
	close(fd);
	close(region);
}

static void test_cases(const char *where, const char *at)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/model.sits", at);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t *data = random_bytes(cases[i].len);

		seal_bytes(path, data, cases[i].len, kek, cases[i].chunk);
		for (int way = 0; way < 2; way++)
			if (cases[i].len < 4 * MIB || way == (int)i % 2)
				test_case(where, path, &cases[i], way, data);
		free(data);
	}
	unlink(path);
}

/* Files that are opened in other ways, or are none. */
static void test_files(void)
{
	size_t len = MIB + 100;
	uint8_t *data = random_bytes(len);
	char path[160];
	int fd, region;

	snprintf(path, sizeof(path), "%s/other.sits", EXT4_DIR);
	seal_bytes(path, data, len, kek, 65536);
	for (int i = 0; i < 2; i++) {
		struct sits_weights_load a;

		fd = open(path, O_RDONLY | O_DIRECT | O_NONBLOCK);
		region = create(SITS_KIND_PINNED, 0, len);
		a = load_arg(fd, region);
		a.flags = i ? SITS_LOAD_F_BUFFERED : 0;
		lseek(fd, 1234, SEEK_SET);
		check_int(load_ioctl(&a), 0, "a file opened with O_DIRECT, %s", i ? "read through the page cache" : "read directly");
		check(region_is(region, data, len), "a file opened with O_DIRECT: contents");
		check_int(lseek(fd, 0, SEEK_CUR), 1234, "a file opened with O_DIRECT: its offset is as it was");
		close(fd);
		close(region);
	}

	/* Nobody has its name any more. */
	fd = open(path, O_RDWR);
	unlink(path);
	region = create(SITS_KIND_HUGE, 0, len);
	struct sits_weights_load a = load_arg(fd, region);

	check_int(load_ring(&a), 0, "a file that was unlinked");
	check(region_is(region, data, len), "a file that was unlinked: contents");
	close(fd);
	close(region);
	free(data);
}

static void test_memfd_and_device(void)
{
	size_t len = 2 * MIB + 100, n;
	uint8_t *data = random_bytes(len), *file;
	const char *path = in_dir("m.sits");
	int fd, in, region;
	struct stat st;

	seal_bytes(path, data, len, kek, 1 << 20);
	in = open(path, O_RDONLY);
	need(in >= 0 && !fstat(in, &st), "open %s", path);
	n = st.st_size;
	file = malloc(n);
	need(file && read(in, file, n) == (ssize_t)n, "read %s", path);
	close(in);

	fd = memfd_create("weights", MFD_CLOEXEC);
	need(write(fd, file, n) == (ssize_t)n, "write a memfd");
	region = create(SITS_KIND_PINNED, 0, len);
	struct sits_weights_load a = load_arg(fd, region);

	check_int(load_ioctl(&a), 0, "a memfd");
	check(region_is(region, data, len), "a memfd: contents");
	close(fd);
	close(region);

	/* Longer than the file: that is how devices are. */
	fd = open("/dev/nullb0", O_RDWR);
	need(fd >= 0 && write(fd, file, n) == (ssize_t)n && !fsync(fd), "write the disk");
	for (int way = 0; way < 2; way++) {
		region = create(SITS_KIND_PINNED, 0, len);
		a = load_arg(fd, region);
		check_int(ways[way].fn(&a), 0, "a block device, %s", ways[way].name);
		check(region_is(region, data, len), "a block device, %s: contents", ways[way].name);
		close(region);
	}
	close(fd);
	free(file);
	free(data);
}

static void test_ecb(void)
{
	static const size_t lens[] = { 0, 1, 16, 4096, MIB + 4097 };
	const char *path = in_dir("ecb.sits");

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint8_t *data = random_bytes(lens[i]);
		int fd, region = create(SITS_KIND_PINNED, 0, lens[i] + 1);
		struct sits_weights_load a;

		seal_bytes_ecb(path, data, lens[i], 65536);
		fd = open(path, O_RDONLY);
		a = load_arg(fd, region);
		check_int(load_ioctl(&a), -EPROTONOSUPPORT, "suite 240, %zu bytes: refused without the flag", lens[i]);
		check(a.bad_chunk == SITS_BAD_HEADER, "suite 240: it is the header that says so");
		a = load_arg(fd, region);
		a.flags = SITS_LOAD_F_ALLOW_ECB;
		check_int(ways[i % 2].fn(&a), 0, "suite 240, %zu bytes: %s", lens[i], ways[i % 2].name);
		check(a.progress_bytes == lens[i] && a.model_version == 3, "suite 240: results");
		check(region_is(region, data, lens[i]), "suite 240: contents");
		close(fd);
		close(region);
		free(data);
	}
	unlink(path);
}

/* What can't be mapped is seen by its digest alone. */
static void test_device_only(void)
{
	size_t len = MIB + 1;
	uint8_t *data = random_bytes(len);
	const char *path = in_dir("d.sits");
	int fd, region = create(SITS_KIND_PROTECTED, SITS_CREATE_DEVICE_ONLY, len);
	struct sits_weights_load a;

	seal_bytes(path, data, len, kek, 1 << 20);
	fd = open(path, O_RDONLY);
	a = load_arg(fd, region);
	check_int(load_ioctl(&a), 0, "device-only: load");
	check(same_digest(path, &a, region), "device-only: digest");
	check_int(err_of(map(region, PAGE, PROT_READ)), -EPERM, "device-only: still can't be mapped");
	close(fd);
	close(region);
	free(data);
}

/* ------------------------------------------------------------------------ ranges */

#define RANGES 3

struct range_case {
	const char *what;
	uint32_t chunk;
	size_t len;
	struct sits_weights_range r[RANGES];
	unsigned int load_flags;
};

static const struct range_case range_cases[] = {
	{ "all, in its place", 65536, MIB + 77, { { 0, MIB + 77, 0 } }, 0 },
	{ "the end alone", 65536, MIB + 77, { { MIB, 77, 0 } }, 0 },
	{ "the end alone, far behind", 4096, 5000, { { 4096, 904, 3 * MIB } }, BUFFERED },
	{ "packed", 65536, 4 * MIB - 3, { { 65536, 65536, 0 }, { MIB, MIB + 65536, 65536 }, { 4 * MIB - 65536, 65533, 2 * MIB } }, 0 },
	{ "in their places", 1 << 20, 6 * MIB, { { 0, MIB, 0 }, { 3 * MIB, 2 * MIB, 3 * MIB } }, 0 },
	{ "packed at odd pages", 1 << 20, 6 * MIB, { { MIB, MIB, 4096 }, { 3 * MIB, 3 * MIB, 2 * MIB + 12288 } }, BUFFERED },
	{ "large chunks", 4 << 20, 10 * MIB, { { 0, 4 * MIB, 8192 }, { 8 * MIB, 2 * MIB, 5 * MIB } }, 0 },
};

static void test_range_case(const char *path, const struct range_case *c, unsigned int kind, int way)
{
	size_t total = 0, need_bytes = 0;
	struct sits_weights_load a;
	struct sits_region_facts f;
	uint8_t *data = random_bytes(c->len), *want;
	struct load_case dirty = { .kind = kind };
	uint32_t nr = 0;
	int fd, region;

	for (; nr < RANGES && c->r[nr].len_bytes; nr++) {
		total += c->r[nr].len_bytes;
		need_bytes = c->r[nr].region_off + c->r[nr].len_bytes;
	}
	dirty.len = need_bytes;
	want = calloc(1, need_bytes);
	need(want, "calloc");
	for (uint32_t i = 0; i < nr; i++)
		memcpy(want + c->r[i].region_off, data + c->r[i].file_off, c->r[i].len_bytes);
	seal_bytes(path, data, c->len, kek, c->chunk);
	fd = open(path, O_RDONLY);
	region = dirty_region(&dirty);
	a = load_arg(fd, region);
	a.flags = c->load_flags;
	a.ranges = (uintptr_t)c->r;
	a.nr_ranges = nr;
	check_int(ways[way].fn(&a), 0, "ranges: %s, kind %u, %s", c->what, kind, ways[way].name);
	f = facts(region);
	check(a.plain_bytes == c->len && a.progress_bytes == total, "ranges: %s: results", c->what);
	check((f.state & (SITS_REGION_F_SEALED | SITS_REGION_F_LOADED | SITS_REGION_F_PARTIAL)) ==
	      (SITS_REGION_F_SEALED | SITS_REGION_F_LOADED | SITS_REGION_F_PARTIAL), "ranges: %s: loaded in part, sealed", c->what);
	check(same_digest(path, &a, region), "ranges: %s: the digest is the file's", c->what);
	check(region_is(region, want, need_bytes), "ranges: %s: contents, and zeros between", c->what);
	close(fd);
	close(region);
	free(want);
	free(data);
}

/* Only what is loaded is verified, and a bad chunk is told by its number in the file. */
static void test_range_verifies(const char *path)
{
	size_t len = MIB;
	struct sits_weights_range r[2] = { { 2 * 65536, 65536, 0 }, { 5 * 65536, 2 * 65536, 65536 } };
	uint8_t *data = random_bytes(len), *want = malloc(3 * 65536), bad;
	struct sits_sealed_info sealed;

	need(want, "malloc");
	memcpy(want, data + 2 * 65536, 65536);
	memcpy(want + 65536, data + 5 * 65536, 2 * 65536);

	for (int chunk = 0; chunk < 16; chunk++) {
		bool inside = chunk == 2 || chunk == 5 || chunk == 6;
		int fd, region = create(SITS_KIND_PINNED, 0, 3 * 65536);
		struct sits_weights_load a;

		seal_bytes(path, data, len, kek, 65536);
		need(!sits_sealed_inspect(ctx, path, kek, &sealed), "inspect");
		fd = open(path, O_RDWR);
		need(pread(fd, &bad, 1, sealed.file_bytes - len + chunk * 65536 + 99) == 1, "read");
		bad ^= 1;
		need(pwrite(fd, &bad, 1, sealed.file_bytes - len + chunk * 65536 + 99) == 1, "write");
		a = load_arg(fd, region);
		a.ranges = (uintptr_t)r;
		a.nr_ranges = 2;
		check_int(ways[chunk % 2].fn(&a), inside ? -EBADMSG : 0, "ranges: chunk %d is bad", chunk);
		if (inside)
			check(a.bad_chunk == (uint64_t)chunk, "ranges: it is told which");
		else
			check(region_is(region, want, 3 * 65536), "ranges: contents");
		close(fd);
		close(region);
	}
	free(want);
	free(data);
}

static void test_ranges(const char *at)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/ranges.sits", at);
	for (size_t i = 0; i < sizeof(range_cases) / sizeof(range_cases[0]); i++)
		test_range_case(path, &range_cases[i], i % 3 == 2 ? SITS_KIND_PROTECTED : i % 3 ? SITS_KIND_HUGE : SITS_KIND_PINNED,
				(int)i % 2);
	test_range_verifies(path);
	unlink(path);
}

static void test_ecb_ranges(void)
{
	struct sits_weights_range r[2] = { { 4096, 4096, 0 }, { 12288, 5, 4096 } };
	const char *path = in_dir("ecb.sits");
	uint8_t *data = random_bytes(12293), want[4101];
	int fd, region = create(SITS_KIND_PINNED, 0, sizeof(want));
	struct sits_weights_load a;

	seal_bytes_ecb(path, data, 12293, 4096);
	memcpy(want, data + 4096, 4096);
	memcpy(want + 4096, data + 12288, 5);
	fd = open(path, O_RDONLY);
	a = load_arg(fd, region);
	a.flags = SITS_LOAD_F_ALLOW_ECB;
	a.ranges = (uintptr_t)r;
	a.nr_ranges = 2;
	check_int(load_ioctl(&a), 0, "ranges: suite 240");
	check(region_is(region, want, sizeof(want)) && a.progress_bytes == sizeof(want), "ranges: suite 240: contents");
	close(fd);
	close(region);
	unlink(path);
	free(data);
}

/* Where the time goes: a larger file, each way of reading. */
static void test_shares(void)
{
	static const char *const names[] = { "direct", "page cache, cold", "page cache, warm", "tmpfs" };
	size_t len = 12 * MIB;
	uint8_t *data = random_bytes(len);

	for (int i = 0; i < 4; i++) {
		char path[160];
		int fd, region = create(SITS_KIND_HUGE, 0, len);
		struct sits_weights_load a;

		snprintf(path, sizeof(path), "%s/shares.sits", i == 3 ? dir : EXT4_DIR);
		if (i == 0 || i == 3)
			seal_bytes(path, data, len, kek, 1 << 20);
		fd = open(path, O_RDONLY);
		if (i < 2) {
			fsync(fd);
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		}
		a = load_arg(fd, region);
		a.flags = i == 1 || i == 2 ? SITS_LOAD_F_BUFFERED : 0;
		check_int(load_ioctl(&a), 0, "12 MiB, %s", names[i]);
		printf("# 12 MiB, %s: %.1f MB/s; of %.0f ms waiting for reads %.1f %%, cipher on two cores %.1f %%, rest %.1f %%\n",
		       names[i], len * 1e3 / a.total_ns, a.total_ns / 1e6, a.read_ns * 100.0 / a.total_ns,
		       a.cipher_ns * 50.0 / a.total_ns, 100 - a.read_ns * 100.0 / a.total_ns - a.cipher_ns * 50.0 / a.total_ns);
		close(fd);
		close(region);
	}
	free(data);
}

int main(void)
{
	setup();
	test_cases("tmpfs", dir);
	test_ranges(dir);
	test_ecb();
	test_ecb_ranges();
	test_device_only();
	disk_make(96);
	test_memfd_and_device();
	ext4_make(EXT4_DIR);
	test_cases("ext4", EXT4_DIR);
	test_ranges(EXT4_DIR);
	test_files();
	test_shares();
	unmount(EXT4_DIR);
	disk_remove();
	check(nothing_left(), "nothing is left");
	teardown();
	return done();
}
