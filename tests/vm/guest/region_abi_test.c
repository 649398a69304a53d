// SPDX-License-Identifier: MIT
/*
 * region_abi_test.c - each ioctl of /dev/sits for regions: valid, then with one field wrong at a time.
 */
#include <stddef.h>

#include "region_common.h"

#define BAD(type, field, val, err) { #field " = " #val, offsetof(struct type, field), \
	sizeof(((struct type *)0)->field), { (uint64_t)(val) }, NULL, err }
#define BAD_TEXT(type, field, what, str, err) { #field " " what, offsetof(struct type, field), \
	sizeof(((struct type *)0)->field), { 0 }, str, err }

/* 63 bytes and no NUL within the field's 64. */
#define LONG_NAME "0123456789012345678901234567890123456789012345678901234567890123"

struct bad {
	const char *what;
	size_t off;
	size_t len;
	uint64_t value[1];
	const char *text;
	int err;
};

struct ioc {
	const char *name;
	unsigned long cmd;
	size_t len;
	void (*fill)(void *arg);
	void (*undo)(void *arg);
	const struct bad *bad;
};

/* Objects that valid calls name. */
static int pinned, protected, null_fd, dma_fd;
static char pci_device[SITS_NAME_MAX];
static void *user_pages;
static struct sits_dma_seg segs[1024];

static void close_at(void *arg, size_t off)
{
	int fd;

	memcpy(&fd, (char *)arg + off, sizeof(fd));
	close(fd);
}

static void fill_none(void *arg)
{
}

static void fill_create(void *arg)
{
	struct sits_region_create *a = arg;

	a->len_bytes = PAGE;
	a->kind = SITS_KIND_PINNED;
	a->node = -1;
	a->fd_flags = O_CLOEXEC;
	strcpy((char *)a->name, "good");
}

static void undo_create(void *arg)
{
	close_at(arg, offsetof(struct sits_region_create, fd));
}

static const struct bad bad_create[] = {
	BAD(sits_region_create, flags, 4, -EINVAL),
	BAD(sits_region_create, flags, 1u << 31, -EINVAL),
	BAD(sits_region_create, flags, SITS_CREATE_REQUIRE_HUGE, -EINVAL),
	BAD(sits_region_create, flags, SITS_CREATE_DEVICE_ONLY, -EINVAL),
	BAD(sits_region_create, len_bytes, 0, -EINVAL),
	BAD(sits_region_create, len_bytes, UINT64_MAX, -EINVAL),
	BAD(sits_region_create, len_bytes, 1ull << 63, -EINVAL),
	BAD(sits_region_create, len_bytes, 1ull << 45, -ENOMEM),
	BAD(sits_region_create, kind, 0, -EINVAL),
	BAD(sits_region_create, kind, SITS_KIND_IMPORTED, -EINVAL),
	BAD(sits_region_create, kind, UINT32_MAX, -EINVAL),
	BAD(sits_region_create, node, -2, -EINVAL),
	BAD(sits_region_create, node, 63, -EINVAL),
	BAD(sits_region_create, node, INT32_MAX, -EINVAL),
	BAD(sits_region_create, fd_flags, O_NONBLOCK, -EINVAL),
	BAD_TEXT(sits_region_create, name, "not terminated", LONG_NAME, -EINVAL),
	BAD_TEXT(sits_region_create, name, "with a line feed", "a\nb", -EINVAL),
	BAD_TEXT(sits_region_create, name, "with a delete", "a\177b", -EINVAL),
	{ 0 }
};

static void fill_facts(void *arg)
{
	((struct sits_region_facts *)arg)->fd = pinned;
}

static const struct bad bad_facts[] = {
	BAD(sits_region_facts, flags, 1, -EINVAL),
	BAD(sits_region_facts, fd, -1, -EBADF),
	BAD(sits_region_facts, fd, 0, -EINVAL),
	{ 0 }
};

static const struct bad bad_info[] = {
	BAD(sits_get_info, flags, 1, -EINVAL),
	{ 0 }
};

static void fill_import_user(void *arg)
{
	struct sits_region_import *a = arg;

	a->from = SITS_IMPORT_USER;
	a->src_fd = -1;
	a->addr = (uintptr_t)user_pages;
	a->len_bytes = 3 * PAGE;
	strcpy((char *)a->name, "good");
}

static void undo_import(void *arg)
{
	close_at(arg, offsetof(struct sits_region_import, fd));
}

static const struct bad bad_import_user[] = {
	BAD(sits_region_import, flags, 1, -EINVAL),
	BAD(sits_region_import, from, 0, -EINVAL),
	BAD(sits_region_import, from, 3, -EINVAL),
	BAD(sits_region_import, src_fd, 0, -EINVAL),
	BAD(sits_region_import, addr, 1, -EINVAL),
	BAD(sits_region_import, addr, PAGE, -EFAULT),
	BAD(sits_region_import, addr, 0xffff888000000000ull, -EFAULT),
	BAD(sits_region_import, addr, -PAGE, -EINVAL),
	BAD(sits_region_import, len_bytes, 0, -EINVAL),
	BAD(sits_region_import, len_bytes, 1, -EINVAL),
	BAD(sits_region_import, len_bytes, -PAGE, -EINVAL),
	BAD(sits_region_import, len_bytes, 4 * PAGE, -EFAULT),
	BAD(sits_region_import, fd_flags, 1, -EINVAL),
	BAD_TEXT(sits_region_import, name, "not terminated", LONG_NAME, -EINVAL),
	{ 0 }
};

/* There is a foreign dma-buf on some kernels only: here this call is wrong in each way, and right in another test. */
static void fill_import_dmabuf(void *arg)
{
	struct sits_region_import *a = arg;

	a->from = SITS_IMPORT_DMABUF;
	a->src_fd = pinned;
}

static const struct bad bad_import_dmabuf[] = {
	BAD(sits_region_import, src_fd, -1, -EBADF),
	BAD(sits_region_import, src_fd, 0, -EINVAL),
	BAD(sits_region_import, flags, 0, -EINVAL),	/* a region of ours is one already */
	BAD(sits_region_import, addr, PAGE, -EINVAL),
	BAD(sits_region_import, len_bytes, PAGE, -EINVAL),
	{ 0 }
};

static void fill_seal(void *arg)
{
	((struct sits_region_seal *)arg)->fd = pinned;
}

static const struct bad bad_seal[] = {
	BAD(sits_region_seal, flags, 2, -EINVAL),
	BAD(sits_region_seal, reserved, 1, -EINVAL),
	BAD(sits_region_seal, fd, -1, -EBADF),
	BAD(sits_region_seal, fd, 0, -EINVAL),
	{ 0 }
};

static void fill_allow(void *arg)
{
	struct sits_device_allow *a = arg;

	a->fd = protected;
	strcpy((char *)a->device, "0000:00:05.0");
}

static const struct bad bad_allow[] = {
	BAD(sits_device_allow, flags, 1, -EINVAL),
	BAD(sits_device_allow, reserved, 1, -EINVAL),
	BAD(sits_device_allow, fd, -1, -EBADF),
	BAD(sits_device_allow, fd, 0, -EINVAL),
	BAD_TEXT(sits_device_allow, device, "empty", "", -EINVAL),
	BAD_TEXT(sits_device_allow, device, "not terminated", LONG_NAME, -EINVAL),
	BAD_TEXT(sits_device_allow, device, "with a control character", "a\1", -EINVAL),
	{ 0 }
};

static void fill_dma_map(void *arg)
{
	struct sits_dma_map *a = arg;

	a->flags = SITS_DMA_TO_DEVICE | SITS_DMA_FROM_DEVICE;
	a->fd = pinned;
	memcpy(a->device, pci_device, sizeof(a->device));
	a->segs = (uintptr_t)segs;
	a->nr_segs = 1024;
}

static void undo_dma_map(void *arg)
{
	close_at(arg, offsetof(struct sits_dma_map, fd_map));
}

static const struct bad bad_dma_map[] = {
	BAD(sits_dma_map, flags, 0, -EINVAL),
	BAD(sits_dma_map, flags, 4, -EINVAL),
	BAD(sits_dma_map, reserved, 1, -EINVAL),
	BAD(sits_dma_map, fd, -1, -EBADF),
	BAD(sits_dma_map, fd, 0, -EINVAL),
	BAD_TEXT(sits_dma_map, device, "empty", "", -EINVAL),
	BAD_TEXT(sits_dma_map, device, "not terminated", LONG_NAME, -EINVAL),
	BAD_TEXT(sits_dma_map, device, "that there is none of", "ffff:00:00.0", -ENODEV),
	BAD(sits_dma_map, segs, 0, -EFAULT),
	BAD(sits_dma_map, nr_segs, 0, -ENOSPC),
	{ 0 }
};

static void fill_dma_unmap(void *arg)
{
	struct sits_dma_map m = { .size = sizeof(m) };

	fill_dma_map(&m);
	need(!ioctl(dev, SITS_IOC_DMA_MAP, &m), "DMA_MAP");
	dma_fd = m.fd_map;
	((struct sits_dma_unmap *)arg)->fd_map = dma_fd;
}

static void undo_dma_unmap(void *arg)
{
	close(dma_fd);
}

static const struct bad bad_dma_unmap[] = {
	BAD(sits_dma_unmap, flags, 1, -EINVAL),
	BAD(sits_dma_unmap, reserved, 1, -EINVAL),
	BAD(sits_dma_unmap, fd_map, -1, -EBADF),
	BAD(sits_dma_unmap, fd_map, 0, -EINVAL),
	{ 0 }
};

#define IOC(name, type, fill, undo, bad) { #name, SITS_IOC_##name, sizeof(struct type), fill, undo, bad }

static const struct ioc iocs[] = {
	IOC(GET_INFO, sits_get_info, fill_none, NULL, bad_info),
	IOC(REGION_CREATE, sits_region_create, fill_create, undo_create, bad_create),
	IOC(REGION_INFO, sits_region_facts, fill_facts, NULL, bad_facts),
	IOC(REGION_IMPORT, sits_region_import, fill_import_user, undo_import, bad_import_user),
	IOC(DEVICE_ALLOW, sits_device_allow, fill_allow, NULL, bad_allow),
	IOC(DMA_MAP, sits_dma_map, fill_dma_map, undo_dma_map, bad_dma_map),
	IOC(DMA_UNMAP, sits_dma_unmap, fill_dma_unmap, undo_dma_unmap, bad_dma_unmap),
	/* The last: nothing can be mapped for writing then. */
	IOC(REGION_SEAL, sits_region_seal, fill_seal, NULL, bad_seal),
};

/* A page before one that can't be touched: what reads or writes beyond a struct is found out. */
static char *edge;

static void *prepare(const struct ioc *ioc, size_t len)
{
	void *arg = edge - len;
	uint32_t size = len;

	memset(edge - PAGE, 0, PAGE);
	ioc->fill(arg);
	memcpy(arg, &size, sizeof(size));
	return arg;
}

static void test_good(const struct ioc *ioc)
{
	void *arg = prepare(ioc, ioc->len);

	if (check_int(xioctl(dev, ioc->cmd, arg), 0, "%s: valid", ioc->name) && ioc->undo)
		ioc->undo(arg);

	/* Of a later version, with what that has beyond left zero. */
	arg = prepare(ioc, ioc->len + 8);
	if (check_int(xioctl(dev, ioc->cmd, arg), 0, "%s: longer, and zero there", ioc->name) && ioc->undo)
		ioc->undo(arg);

	arg = prepare(ioc, ioc->len);
	if (check_int(xioctl(dev, ioc->cmd ^ (8u << _IOC_SIZESHIFT), arg), 0,
		      "%s: the size bits of its number do not count", ioc->name) && ioc->undo)
		ioc->undo(arg);
}

static void test_sizes(const struct ioc *ioc)
{
	static const uint32_t wrong[] = { 0, 1, 4, 8 };
	char *arg;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		arg = prepare(ioc, ioc->len);
		memcpy(arg, &wrong[i], 4);
		check_int(xioctl(dev, ioc->cmd, arg), -EINVAL, "%s: size = %u", ioc->name, wrong[i]);
		if (ioc->undo == undo_dma_unmap)
			ioc->undo(arg);
	}
	arg = prepare(ioc, ioc->len);
	((uint32_t *)arg)[0] = ioc->len - 1;
	check_int(xioctl(dev, ioc->cmd, arg), -EINVAL, "%s: size is one short", ioc->name);
	if (ioc->undo == undo_dma_unmap)
		ioc->undo(arg);

	arg = prepare(ioc, ioc->len + 8);
	arg[ioc->len + 7] = 1;
	check_int(xioctl(dev, ioc->cmd, arg), -E2BIG, "%s: longer, and not zero there", ioc->name);
	if (ioc->undo == undo_dma_unmap)
		ioc->undo(arg);

	arg = prepare(ioc, ioc->len);
	((uint32_t *)arg)[0] = UINT32_MAX;
	check_int(xioctl(dev, ioc->cmd, arg), -E2BIG, "%s: size = UINT32_MAX", ioc->name);
	if (ioc->undo == undo_dma_unmap)
		ioc->undo(arg);

	check_int(xioctl(dev, ioc->cmd, NULL), -EFAULT, "%s: NULL", ioc->name);
	arg = prepare(ioc, ioc->len);
	if (ioc->undo == undo_dma_unmap)
		ioc->undo(arg);
	memmove(arg + 8, arg, ioc->len - 8);
	check_int(xioctl(dev, ioc->cmd, arg + 8), -EFAULT, "%s: its end is not mapped", ioc->name);
}

static void test_bad(const struct ioc *ioc)
{
	for (const struct bad *b = ioc->bad; b->what; b++) {
		char *arg = prepare(ioc, ioc->len);

		if (b->text) {
			memset(arg + b->off, 0, b->len);
			memcpy(arg + b->off, b->text, strnlen(b->text, b->len));
		} else {
			memcpy(arg + b->off, b->value, b->len);
		}
		check_int(xioctl(dev, ioc->cmd, arg), b->err, "%s: %s", ioc->name, b->what);
		if (ioc->undo == undo_dma_unmap)
			ioc->undo(arg);
	}
}

static void test_unknown(void)
{
	char arg[256] = { 0 };

	check_int(xioctl(dev, _IOWR(SITS_IOC, 0x3f, char[16]), arg), -ENOTTY, "number below the first");
	check_int(xioctl(dev, _IOWR(SITS_IOC, 0xff, char[16]), arg), -ENOTTY, "unknown number");
	check_int(xioctl(dev, _IOWR('x', 0x40, struct sits_get_info), arg), -ENOTTY, "other type");
	check_int(xioctl(dev, _IOR(SITS_IOC, 0x40, struct sits_get_info), arg), -ENOTTY, "other direction");
	check_int(read(dev, arg, 1) < 0 ? -errno : 0, -EINVAL, "read of the device");
	check_int(write(dev, arg, 1) < 0 ? -errno : 0, -EINVAL, "write of the device");
	check_int(err_of(map(dev, PAGE, PROT_READ)), -ENODEV, "mmap of the device");
}

/* What can't be told by one wrong field alone. */
static void test_results(void)
{
	struct sits_get_info i = info();
	struct sits_dma_map m = { .size = sizeof(m) };
	struct sits_region_facts f;
	int fd;

	check_int(i.abi_version, SITS_ABI_VERSION, "version of the ABI");
	check((i.features & (SITS_FEATURE_REGION | SITS_FEATURE_IMPORT | SITS_FEATURE_DMA_MAP)) ==
	      (SITS_FEATURE_REGION | SITS_FEATURE_IMPORT | SITS_FEATURE_DMA_MAP), "features");
	check_int(i.reserved, 0, "reserved is zero");
	check_int(i.nr_regions, 2, "regions are counted");
	check_int(i.region_used_bytes, 3 * PAGE, "bytes of regions are counted");

	fd = create_named(SITS_KIND_PINNED, 0, 5000, "K\xc3\xb6ln");
	f = facts(fd);
	check_int(f.len_bytes, 5000, "length as asked for");
	check_int(f.mapped_bytes, 2 * PAGE, "length in pages");
	check_int(f.page_bytes, PAGE, "page size");
	check_int(f.kind, SITS_KIND_PINNED, "kind");
	check_int(f.node, 0, "node");
	check_int(f.state, SITS_REGION_F_PINNABLE, "state");
	check(!strcmp((char *)f.name, "K\xc3\xb6ln"), "name");
	check(fcntl(fd, F_GETFD) == FD_CLOEXEC, "close-on-exec as asked for");
	check_int(lseek(fd, 0, SEEK_END), 2 * PAGE, "size of the dma-buf");
	close(fd);
	check_int(xioctl(dev, SITS_IOC_REGION_INFO, &f), -EBADF, "closed descriptor");

	fill_dma_map(&m);
	m.nr_segs = 0;
	check_int(xioctl(dev, SITS_IOC_DMA_MAP, &m), -ENOSPC, "no room for segments");
	check(m.nr_segs >= 1 && m.nr_segs <= 2, "how many there are is told all the same");
	check_int(xioctl(dev, SITS_IOC_DMA_MAP, &m), 0, "DMA_MAP with that room");
	check(segs[0].bus_addr && !(segs[0].bus_addr & (PAGE - 1)), "bus address");
	check_int(segs[0].len_bytes + (m.nr_segs > 1 ? segs[1].len_bytes : 0), 2 * PAGE, "bytes of the segments");
	check(fcntl(m.fd_map, F_GETFD) == FD_CLOEXEC, "its descriptor is close-on-exec");
	check_int(facts(pinned).nr_importers, 1, "it counts as an importer");

	struct sits_dma_unmap u = { .size = sizeof(u), .fd_map = m.fd_map };

	check_int(xioctl(dev, SITS_IOC_DMA_UNMAP, &u), 0, "DMA_UNMAP");
	check_int(facts(pinned).nr_importers, 0, "no importer is left");
	check_int(xioctl(dev, SITS_IOC_DMA_UNMAP, &u), -EALREADY, "DMA_UNMAP once more");
	close(m.fd_map);
	check_int(xioctl(dev, SITS_IOC_DMA_UNMAP, &u), -EBADF, "DMA_UNMAP after close");

	check_int(allow(pinned, "vgem"), -EOPNOTSUPP, "DEVICE_ALLOW for a region that is open to all");
	check_int(allow(protected, "vgem"), 0, "DEVICE_ALLOW");
	check_int(allow(protected, "vgem"), 0, "DEVICE_ALLOW twice");
	fd = import(SITS_IMPORT_USER, -1, user_pages, PAGE);
	check_int(seal(fd, 0), -EOPNOTSUPP, "SEAL of an import");
	check_int(seal(fd, SITS_SEAL_REVOKE), -EOPNOTSUPP, "SEAL with REVOKE of an import");
	check_int(import(SITS_IMPORT_DMABUF, fd, NULL, 0), -EINVAL, "import of an import");
	close(fd);
}

static void test_allow_bound(void)
{
	int fd = create(SITS_KIND_PROTECTED, 0, PAGE), ret = 0, n;
	char name[16];

	for (n = 0; !ret && n < 1000; n++) {
		snprintf(name, sizeof(name), "device%d", n);
		ret = allow(fd, name);
	}
	check(ret == -ENOSPC && n == 65, "at most 64 devices in the list");
	close(fd);
}

static void find_pci_device(void)
{
	DIR *d = opendir("/sys/bus/pci/devices");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			snprintf(pci_device, sizeof(pci_device), "%.12s", e->d_name);
	if (d)
		closedir(d);
	need(pci_device[0], "a PCI device");
}

int main(void)
{
	int fds;

	open_dev();
	null_fd = open("/dev/null", O_RDWR);
	dup2(null_fd, 0);
	find_pci_device();
	edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(edge != MAP_FAILED && !munmap(edge + PAGE, PAGE), "mmap");
	edge += PAGE;
	user_pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(user_pages != MAP_FAILED && !munmap((char *)user_pages + 3 * PAGE, PAGE), "mmap");
	pinned = create(SITS_KIND_PINNED, 0, 2 * PAGE);
	protected = create(SITS_KIND_PROTECTED, 0, PAGE);
	need(pinned >= 0 && protected >= 0, "REGION_CREATE: %d, %d", pinned, protected);

	fds = nr_fds();
	test_results();
	for (size_t i = 0; i < sizeof(iocs) / sizeof(iocs[0]); i++) {
		test_good(&iocs[i]);
		test_sizes(&iocs[i]);
		test_bad(&iocs[i]);
	}
	test_bad(&(struct ioc)IOC(REGION_IMPORT, sits_region_import, fill_import_dmabuf, NULL, bad_import_dmabuf));
	test_unknown();
	test_allow_bound();
	check_int(nr_fds(), fds, "no descriptor is left over");
	close(pinned);
	close(protected);
	check(nothing_left(), "no memory is left over");
	return done();
}
