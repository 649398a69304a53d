// SPDX-License-Identifier: MIT
/*
 * attack_load_test.c - plaintext that comes by WEIGHTS_LOAD: who looks before the load has ended, what a load that failed leaves, and
 * where in all of memory the plaintext is: in the region, and while it is there. Sealing needs it, too: so that is done by a process
 * of its own, which overwrites what it wrote. What there is of it before the first load does not count.
 */
#include "import_common.h"
#include "pattern.h"
#include "weights_common.h"

#define PAGES 256ul
#define LEN (PAGES * PAGE)
#define LARGE (6 * LEN)

static struct pattern secret;
static struct finds before;

static struct finds scan(void)
{
	const struct pattern *p = &secret;
	struct finds f = { 0 };
	long long bytes = pattern_scan_memory(&p, &f, 1);

	check(bytes > 256ll << 20, "all memory: read");
	return f;
}

static bool was_before(uint64_t at)
{
	for (long i = 0; i < before.pages && i < 512; i++)
		if (before.at[i] == at)
			return true;
	return false;
}

/* Pages that have it, besides those that had it before. */
static long found(struct finds *f)
{
	long n = 0;

	*f = scan();
	for (long i = 0; i < f->pages && i < 512; i++)
		if (!was_before(f->at[i]))
			f->at[n++] = f->at[i];
	f->pages = n;
	return n;
}

static void seal_pattern(const char *name, unsigned char *data, unsigned long len)
{
	struct sits_seal_opts o = { .size = sizeof(o), .chunk_bytes = 65536, .model_id = "test", .model_version = 7, .force = 1 };
	const char *plain = in_dir("plain");
	struct sits_key *key = NULL;
	char spec[300];
	int fd;

	/* An opened key is not in a child's memory. */
	snprintf(spec, sizeof(spec), "file:%s", in_dir("kek"));
	need(!sits_key_open(ctx, spec, &key), "open the key");
	pattern_fill(&secret, data, len);
	write_new(plain, data, len);
	need(!sits_seal(ctx, plain, in_dir(name), key, &o), "seal %s", name);
	sits_key_close(key);
	memset(data, 0, len);
	fd = open(plain, O_WRONLY | O_CLOEXEC);
	need(fd >= 0 && write(fd, data, len) == (ssize_t)len, "overwrite the plaintext");
	close(fd);
	unlink(plain);
}

static int seal_files(void *arg)
{
	unsigned char *data = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	seal_pattern("good", data, LEN);
	seal_pattern("large", data, LARGE);
	return 0;
}

static int load_file(const char *name, int region)
{
	int file = open(in_dir(name), O_RDONLY | O_CLOEXEC);
	struct sits_weights_load a = load_arg(file, region);
	int ret = load_ioctl(&a);

	close(file);
	return ret;
}

/* The sealed file, with one bit of its last chunk another. */
static void spoil_file(void)
{
	char cmd[600];
	off_t end;
	char c;
	int fd;

	snprintf(cmd, sizeof(cmd), "cp %s %s", in_dir("good"), in_dir("bad"));
	need(!system(cmd), "copy the file");
	fd = open(in_dir("bad"), O_RDWR | O_CLOEXEC);
	end = lseek(fd, 0, SEEK_END);
	need(pread(fd, &c, 1, end - 100) == 1, "read the file");
	c ^= 1;
	need(pwrite(fd, &c, 1, end - 100) == 1, "write the file");
	close(fd);
}

static void test_where(void)
{
	int region = create(SITS_KIND_PROTECTED, SITS_CREATE_REQUIRE_HUGE, HUGE), bad = create(SITS_KIND_PROTECTED, 0, LEN);
	struct finds f;
	unsigned char *p;
	bool here = true;

	check_int(load_file("good", region), 0, "loaded");
	p = map(region, LEN, PROT_READ);
	check(!is_err(p) && pattern_is(&secret, p, LEN), "its owner reads it");
	check_int(found(&f), PAGES, "loaded: as many pages of all memory have it as the region has");
	for (long i = 0; i < f.pages; i++)
		here &= f.at[i] == f.at[0] + i * PAGE;
	check(here && f.at[0] % HUGE == 0, "loaded: these are the region's");

	check_int(load_file("bad", bad), -EBADMSG, "a changed file: refused");
	check_int(err_of(map(bad, PAGE, PROT_READ)), -ENODATA, "a changed file: nobody can look at what was read");
	check_int(found(&f), PAGES, "a changed file: nothing of it is left in memory");
	munmap(p, LEN);
	close(region);
	close(bad);
	check(nothing_left(), "nothing is left");
	check_int(found(&f), 0, "closed: nothing is left in memory");
	for (long i = 0; i < f.pages && i < 16; i++)
		printf("# at %#llx\n", (unsigned long long)f.at[i]);
}

static bool is_loading(int region)
{
	return facts(region).state & SITS_REGION_F_LOADING;
}

/* A load that takes a while: whoever comes meanwhile is sent away. Then it is cancelled. */
static void test_meanwhile(void)
{
	int region = create(SITS_KIND_PROTECTED, 0, LARGE), file = open(in_dir("large"), O_RDONLY | O_CLOEXEC);
	int imp = importer(), second = create(SITS_KIND_PINNED, 0, LARGE);
	struct sits_weights_load *a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sits_weights_load other = load_arg(file, region);
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	struct finds f;
	int ret;

	*a = load_arg(file, region);
	check_int(allow(region, "*"), 0, "meanwhile: devices are allowed");
	ring_init(&ring, 0);
	ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)a, 0);
	while (!is_loading(region) && io_uring_peek_cqe(&ring, &cqe) == -EAGAIN)
		usleep(100);
	check(is_loading(region), "meanwhile: the load has begun");
	check_int(err_of(map(region, PAGE, PROT_READ)), -EBUSY, "meanwhile: map");
	check_int(err_of(map(region, PAGE, PROT_READ | PROT_WRITE)), -EBUSY, "meanwhile: map to write");
	check_int(imp_attach(imp, region, 0), -EBUSY, "meanwhile: a device");
	check_int(imp_attach(imp, region, SITS_TEST_ATTACH_DYNAMIC), -EBUSY, "meanwhile: a dynamic importer");
	check_int(cpu_sync(region, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ), -EBUSY, "meanwhile: CPU access");
	check_int(seal(region, 0), -EBUSY, "meanwhile: seal");
	check_int(load_ioctl(&other), -EBUSY, "meanwhile: a second load");
	check(is_loading(region) && !(facts(region).state & SITS_REGION_F_LOADED), "meanwhile: it goes on");
	__atomic_store_n(&a->cancel, 1, __ATOMIC_RELAXED);
	ret = ring_wait(&ring);
	check_int(ret, -ECANCELED, "cancelled");
	check_int(err_of(map(region, PAGE, PROT_READ)), -ENODATA, "cancelled: map");
	check_int(imp_attach(imp, region, 0), -ENODATA, "cancelled: a device");
	check_int(found(&f), 0, "cancelled: nothing of it is left in memory");
	io_uring_queue_exit(&ring);
	munmap(a, PAGE);
	close(imp);
	close(region);
	close(second);
	close(file);
	check(nothing_left(), "meanwhile: nothing is left");
}

int main(void)
{
	if (!getenv("SITS_VM")) {
		printf("1..0 # SKIP this belongs into a virtual machine\n");
		return 0;
	}
	setup();
	pattern_set_seed();
	pattern_make(&secret);
	check_int(in_child(seal_files, NULL), 0, "files are sealed by another process");
	spoil_file();
	before = scan();
	printf("# before: %ld pages\n", before.pages);
	check(before.pages < 256, "sealing left little");
	test_where();
	test_meanwhile();
	teardown();
	return done();
}
