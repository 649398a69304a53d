// SPDX-License-Identifier: MIT
/*
 * weights_bad_test.c - sealed files that were changed, cut, extended, or are being written to, and disks that fail: each
 * load refuses, tells where, and leaves no plaintext in memory. Memory is looked at from below, by its physical address.
 */
#include <elf.h>
#include <pthread.h>

#include "weights_common.h"

#define CHUNK	65536u
#define NR	21		/* chunks: two spans */
#define LEN	((NR - 1) * CHUNK + 1000)

static uint8_t *data;
static const char *path;
static uint64_t data_off;

/* ----------------------------------------------------------- physical memory, by /proc/kcore and DMA_MAP */

struct phys {
	unsigned int nr;
	struct sits_dma_seg segs[1024];
};

static void get_phys(int region, struct phys *ph)
{
	struct sits_dma_map m = { .size = sizeof(m), .flags = SITS_DMA_TO_DEVICE, .fd = region, .segs = (uintptr_t)ph->segs,
				  .nr_segs = 1024 };
	DIR *d = opendir("/sys/bus/pci/devices");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			snprintf((char *)m.device, sizeof(m.device), "%.12s", e->d_name);
	if (d)
		closedir(d);
	/* There is no IOMMU: bus addresses are those of memory. */
	need(!xioctl(dev, SITS_IOC_DMA_MAP, &m), "DMA_MAP");
	close(m.fd_map);
	ph->nr = m.nr_segs;
}

/* Where in /proc/kcore is that piece of memory? */
static off_t kcore_off(int fd, uint64_t pa, uint64_t len)
{
	Elf64_Ehdr eh;
	Elf64_Phdr p;

	need(pread(fd, &eh, sizeof(eh), 0) == sizeof(eh), "read /proc/kcore");
	for (int i = 0; i < eh.e_phnum; i++) {
		need(pread(fd, &p, sizeof(p), eh.e_phoff + i * sizeof(p)) == sizeof(p), "read /proc/kcore");
		/* The kernel's own text and what has no fixed address say -1. */
		if (p.p_type == PT_LOAD && p.p_paddr != ~0ul && p.p_paddr <= pa && pa + len <= p.p_paddr + p.p_memsz)
			return p.p_offset + (pa - p.p_paddr);
	}
	need(false, "find memory in /proc/kcore");
	return -1;
}

/* The memory that a region was found to have, in order; freed by the caller. */
static uint8_t *peek(const struct phys *ph, size_t len)
{
	int fd = open("/proc/kcore", O_RDONLY);
	uint8_t *p = calloc(1, len + HUGE);
	size_t at = 0;

	need(fd >= 0 && p, "open /proc/kcore");
	for (unsigned int i = 0; i < ph->nr && at < len; i++) {
		need(pread(fd, p + at, ph->segs[i].len_bytes, kcore_off(fd, ph->segs[i].bus_addr, ph->segs[i].len_bytes)) ==
		     (ssize_t)ph->segs[i].len_bytes, "read /proc/kcore");
		at += ph->segs[i].len_bytes;
	}
	close(fd);
	return p;
}

static bool is_wiped(const struct phys *ph, size_t len)
{
	uint8_t *p = peek(ph, len);
	bool zero = !p[0] && !memcmp(p, p + 1, len - 1);

	free(p);
	return zero;
}

/* --------------------------------------------------------------------------------------- changed bytes */

static int load(int way, int region, struct sits_weights_load *a)
{
	int fd = open(path, O_RDONLY), ret;

	*a = load_arg(fd, region);
	ret = ways[way].fn(a);
	close(fd);
	return ret;
}

static void flip(uint64_t off, uint8_t mask)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	need(pread(fd, &byte, 1, off) == 1, "read");
	byte ^= mask;
	need(pwrite(fd, &byte, 1, off) == 1, "write");
	close(fd);
}

static void test_flipped(int region, const struct phys *ph)
{
	const struct {
		const char *what;
		uint64_t off;
		int err;
		uint64_t bad;
		bool begun;
	} flips[] = {
		{ "magic", 0, -EBADMSG, SITS_BAD_HEADER, false },
		{ "version", 8, -EPROTONOSUPPORT, SITS_BAD_HEADER, false },
		{ "suite", 12, -EPROTONOSUPPORT, SITS_BAD_HEADER, false },
		{ "chunk size", 17, -EBADMSG, SITS_BAD_HEADER, false },
		{ "reserved", 20, -EBADMSG, SITS_BAD_HEADER, false },
		{ "length", 24, -EBADMSG, SITS_BAD_HEADER, false },
		{ "length, by far", 31, -EBADMSG, SITS_BAD_HEADER, false },
		{ "model version", 32, -EBADMSG, SITS_BAD_HEADER, false },
		{ "salt", 40, -EBADMSG, SITS_BAD_HEADER, false },
		{ "model id", 64, -EBADMSG, SITS_BAD_HEADER, false },
		{ "key id", 192, -ENOKEY, SITS_BAD_HEADER, false },
		{ "wrap nonce", 208, -EBADMSG, SITS_BAD_HEADER, false },
		{ "reserved, in the middle", 2000, -EBADMSG, SITS_BAD_HEADER, false },
		{ "wrapped key", 4064, -EBADMSG, SITS_BAD_HEADER, false },
		{ "wrap tag", 4095, -EBADMSG, SITS_BAD_HEADER, false },
		{ "first tag", 4096, -EBADMSG, 0, true },
		{ "last tag", 4096 + 16 * NR - 1, -EBADMSG, NR - 1, true },
		{ "zeros behind the tags", 4096 + 16 * NR, -EBADMSG, SITS_BAD_TAG_TABLE, false },
		{ "last zero behind the tags", data_off - 1, -EBADMSG, SITS_BAD_TAG_TABLE, false },
		{ "first byte of the first chunk", data_off, -EBADMSG, 0, true },
		{ "last byte of the first chunk", data_off + CHUNK - 1, -EBADMSG, 0, true },
		{ "chunk 16, of the second span", data_off + 16 * CHUNK, -EBADMSG, 16, true },
		{ "last byte of all", data_off + LEN - 1, -EBADMSG, NR - 1, true },
	};
	bool failed = false;
	struct sits_weights_load a;

	for (size_t i = 0; i < sizeof(flips) / sizeof(flips[0]); i++) {
		int way = i % 2;

		flip(flips[i].off, flips[i].what[0] == 'm' && flips[i].off == 64 ? 2 : 1);
		check_int(load(way, region, &a), flips[i].err, "changed: %s, %s", flips[i].what, ways[way].name);
		check_int(a.bad_chunk, flips[i].bad, "changed: %s: told", flips[i].what);
		flip(flips[i].off, flips[i].what[0] == 'm' && flips[i].off == 64 ? 2 : 1);
		failed |= flips[i].begun;
		check_int(facts(region).state, SITS_REGION_F_PINNABLE | (failed ? SITS_REGION_F_LOADING : 0), "changed: %s: state",
			  flips[i].what);
		if (!flips[i].begun)
			continue;
		check(is_wiped(ph, LEN), "changed: %s: memory is wiped", flips[i].what);
		check_int(err_of(map(region, LEN, PROT_READ)), -ENODATA, "changed: %s: can't be mapped", flips[i].what);
		check_int(seal(region, 0), -ENODATA, "changed: %s: can't be sealed", flips[i].what);
	}
	/* Which one is told does not depend on who finds what first. */
	for (int i = 0; i < 6; i++) {
		uint64_t first = rnd() % NR, second = first + 1 + rnd() % (NR - first);
		uint64_t off[2] = { data_off + first * CHUNK + rnd() % 1000, data_off + (second < NR ? second : first) * CHUNK + 5000 };

		if (off[1] >= data_off + LEN)
			off[1] = off[0] + 1;
		flip(off[0], 0x80);
		flip(off[1], 0x80);
		check_int(load(i % 2, region, &a), -EBADMSG, "two chunks changed");
		check_int(a.bad_chunk, first, "two chunks changed: the first is told");
		flip(off[0], 0x80);
		flip(off[1], 0x80);
	}
	check_int(load(0, region, &a), 0, "changed: all bytes as they were");
	check(region_is(region, data, LEN), "changed: then the contents are right");
	uint8_t *p = peek(ph, LEN);

	check(!memcmp(p, data, LEN), "looking at memory from below shows what is there");
	free(p);
}

static void swap_chunks(uint64_t i, uint64_t j)
{
	static uint8_t a[CHUNK], b[CHUNK], s[16], t[16];
	int fd = open(path, O_RDWR);

	need(pread(fd, a, CHUNK, data_off + i * CHUNK) == CHUNK && pread(fd, b, CHUNK, data_off + j * CHUNK) == CHUNK &&
	     pwrite(fd, b, CHUNK, data_off + i * CHUNK) == CHUNK && pwrite(fd, a, CHUNK, data_off + j * CHUNK) == CHUNK &&
	     pread(fd, s, 16, 4096 + i * 16) == 16 && pread(fd, t, 16, 4096 + j * 16) == 16 &&
	     pwrite(fd, t, 16, 4096 + i * 16) == 16 && pwrite(fd, s, 16, 4096 + j * 16) == 16, "swap chunks");
	close(fd);
}

static void test_swapped(void)
{
	int region = create(SITS_KIND_PROTECTED, 0, LEN);
	struct sits_weights_load a;

	swap_chunks(3, 7);
	check_int(load(0, region, &a), -EBADMSG, "two chunks swapped, with their tags");
	check_int(a.bad_chunk, 3, "two chunks swapped: the first is told");
	swap_chunks(3, 7);
	check_int(load(1, region, &a), 0, "and back");
	close(region);
}

static void test_lengths(void)
{
	const struct {
		uint64_t len, bad;
	} cuts[] = {
		{ 0, SITS_BAD_HEADER }, { 1, SITS_BAD_HEADER }, { 4095, SITS_BAD_HEADER }, { 4096, SITS_BAD_LENGTH },
		{ 4096 + 8, SITS_BAD_LENGTH }, { data_off - 1, SITS_BAD_LENGTH }, { data_off, SITS_BAD_LENGTH },
		{ data_off + 5 * CHUNK, SITS_BAD_LENGTH }, { data_off + LEN - 1, SITS_BAD_LENGTH },
		{ data_off + LEN + 1, SITS_BAD_LENGTH }, { data_off + LEN + 4096, SITS_BAD_LENGTH },
	};
	int region = create(SITS_KIND_PINNED, 0, LEN);
	struct sits_weights_load a;
	const char *whole = path;

	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		char cmd[400];

		snprintf(cmd, sizeof(cmd), "cp %s %s", whole, in_dir("cut.sits"));
		need(!system(cmd) && !truncate(in_dir("cut.sits"), cuts[i].len), "cut a file");
		path = in_dir("cut.sits");
		check_int(load(i % 2, region, &a), -EBADMSG, "%llu bytes of %llu, %s", (unsigned long long)cuts[i].len,
			  (unsigned long long)(data_off + LEN), ways[i % 2].name);
		check_int(a.bad_chunk, cuts[i].bad, "that is told");
		path = whole;
	}
	check_int(facts(region).state, SITS_REGION_F_PINNABLE, "wrong lengths: the region is as it was");
	close(region);
}

/* ------------------------------------------------------------------------------- written to during a load */

#define BIG (6 * MIB)

enum change { CHANGE_TOUCH, CHANGE_BYTE, CHANGE_CUT, CHANGE_EXTEND };

static int change_file(const char *file, enum change change)
{
	int fd = open(file, O_RDWR), ret = -1;
	struct stat st;
	uint8_t byte;

	if (fd < 0 || fstat(fd, &st))
		return -1;
	switch (change) {
	case CHANGE_TOUCH:
		ret = futimens(fd, NULL);
		break;
	case CHANGE_BYTE:
		ret = pread(fd, &byte, 1, st.st_size - 1) == 1 ? 0 : -1;
		byte ^= 1;
		ret |= pwrite(fd, &byte, 1, st.st_size - 1) == 1 ? 0 : -1;
		break;
	case CHANGE_CUT:
		ret = ftruncate(fd, st.st_size - 2 * MIB);
		break;
	case CHANGE_EXTEND:
		ret = ftruncate(fd, st.st_size + 1);
		break;
	}
	close(fd);
	return ret;
}

static void test_changing(const char *where, const char *at)
{
	static const char *const names[] = { "touched", "a byte written", "cut", "extended" };
	uint8_t *big = random_bytes(BIG);
	char file[128];

	snprintf(file, sizeof(file), "%s/changing.sits", at);
	for (int change = CHANGE_TOUCH; change <= CHANGE_EXTEND; change++) {
		int ret = 0, tries;
		bool odd = false;

		/* The load may be over before the change: then again. */
		for (tries = 0; tries < 20 && !ret && !odd; tries++) {
			int fd, region = create(SITS_KIND_HUGE, 0, BIG);
			struct sits_weights_load a;
			struct io_uring ring;

			seal_bytes(file, big, BIG, kek, 1 << 18);
			fd = open(file, O_RDONLY);
			fsync(fd);
			a = load_arg(fd, region);
			a.nr_inflight = 1;
			a.flags = tries % 2 ? SITS_LOAD_F_BUFFERED : 0;
			ring_init(&ring, 0);
			ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)&a, 0);
			while (!__atomic_load_n(&a.progress_bytes, __ATOMIC_RELAXED) && !io_uring_cq_ready(&ring))
				usleep(1000);
			need(!change_file(file, change), "change a file");
			ret = ring_wait(&ring);
			odd = ret && ret != -ESTALE;
			if (ret)
				odd |= err_of(map(region, BIG, PROT_READ)) != -ENODATA;
			io_uring_queue_exit(&ring);
			close(fd);
			close(region);
		}
		check_int(ret, -ESTALE, "%s: %s during the load", where, names[change]);
		check(!odd, "%s: %s during the load: no other outcome", where, names[change]);
	}
	unlink(file);
	free(big);
}

/* --------------------------------------------------------------------------------------------- a bad disk */

static void test_disk_errors(void)
{
	int fd, in, region = create(SITS_KIND_PINNED, 0, LEN);
	struct phys ph;
	struct sits_weights_load a;
	char text[64];

	get_phys(region, &ph);
	fd = open("/dev/nullb0", O_RDWR);
	in = open(path, O_RDONLY);
	need(fd >= 0 && in >= 0, "open the disk");
	for (size_t at = 0; at < data_off + LEN;) {
		static uint8_t buf[CHUNK];
		ssize_t n = read(in, buf, sizeof(buf));

		need(n > 0 && write(fd, buf, n) == n, "write the disk");
		at += n;
	}
	close(in);
	need(!fsync(fd), "fsync");
	for (int way = 0; way < 2; way++) {
		for (int where = 0; where < 3; where++) {
			uint64_t sector = (where == 0 ? 0 : where == 1 ? data_off + 18 * CHUNK : data_off + LEN - 1) / 512;

			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			snprintf(text, sizeof(text), "+%llu-%llu", (unsigned long long)sector, (unsigned long long)sector);
			need(!write_text(NULLB "/badblocks", text), "make a bad sector");
			a = load_arg(fd, region);
			check_int(ways[way].fn(&a), -EIO, "bad sector %llu, %s", (unsigned long long)sector, ways[way].name);
			check(is_wiped(&ph, LEN), "bad sector: memory is wiped");
			text[0] = '-';
			need(!write_text(NULLB "/badblocks", text), "mend a sector");
		}
	}
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	a = load_arg(fd, region);
	check_int(load_ioctl(&a), 0, "the disk is good again");
	check(region_is(region, data, LEN), "the disk is good again: contents");
	close(fd);
	close(region);
}

/* Buffers are wiped, and regions of those who are gone, too. */
static void test_freed(void)
{
	int region = create(SITS_KIND_HUGE, 0, LEN), tries = 0;
	struct sits_weights_load a;
	struct phys ph;

	get_phys(region, &ph);
	check_int(load(0, region, &a), 0, "freed: a load");
	close(region);
	while (!is_wiped(&ph, 4096) && tries++ < 3000)
		usleep(10000);
	/* Nobody has asked for memory of that size since. */
	uint8_t *p = peek(&ph, LEN);
	size_t same = 0;

	for (size_t i = 0; i + 16 <= LEN; i += 16)
		same += !memcmp(p + i, data + i, 16);
	check_int(same, 0, "freed: no block of the plaintext is left where it was");
	free(p);
}

int main(void)
{
	struct sits_sealed_info info;
	struct phys ph;
	int region;

	setup();
	path = in_dir("good.sits");
	path = strdup(path);
	data = random_bytes(LEN);
	seal_bytes(path, data, LEN, kek, CHUNK);
	need(!sits_sealed_inspect(ctx, path, kek, &info) && info.nr_chunks == NR, "inspect");
	data_off = info.file_bytes - LEN;

	region = create(SITS_KIND_PINNED, 0, LEN);
	get_phys(region, &ph);
	test_flipped(region, &ph);
	close(region);
	test_swapped();
	test_lengths();
	test_freed();
	disk_make(64);
	test_disk_errors();
	ext4_make("/tmp/weights-ext4");
	test_changing("ext4", "/tmp/weights-ext4");
	unmount("/tmp/weights-ext4");
	disk_remove();
	test_changing("tmpfs", dir);
	check(nothing_left(), "nothing is left");
	teardown();
	return done();
}
