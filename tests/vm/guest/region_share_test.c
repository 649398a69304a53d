// SPDX-License-Identifier: MIT
/*
 * region_share_test.c - regions in other hands: other processes, other drivers (vgem by PRIME), and memory of others
 * (vgem, and udmabuf and the system heap where the kernel has them) as regions.
 */
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "region_common.h"

/* The little of DRM's interface that it takes, as the kernel's include/uapi/drm/drm.h has it: that header is a package's. */
struct drm_version {
	int version_major;
	int version_minor;
	int version_patchlevel;
	size_t name_len;
	char *name;
	size_t date_len;
	char *date;
	size_t desc_len;
	char *desc;
};

struct drm_gem_close {
	uint32_t handle;
	uint32_t pad;
};

struct drm_prime_handle {
	uint32_t handle;
	uint32_t flags;
	int32_t fd;
};

struct drm_mode_create_dumb {
	uint32_t height;
	uint32_t width;
	uint32_t bpp;
	uint32_t flags;
	uint32_t handle;
	uint32_t pitch;
	uint64_t size;
};

#define DRM_IOCTL_VERSION		_IOWR('d', 0x00, struct drm_version)
#define DRM_IOCTL_GEM_CLOSE		_IOW('d', 0x09, struct drm_gem_close)
#define DRM_IOCTL_PRIME_HANDLE_TO_FD	_IOWR('d', 0x2d, struct drm_prime_handle)
#define DRM_IOCTL_PRIME_FD_TO_HANDLE	_IOWR('d', 0x2e, struct drm_prime_handle)
#define DRM_IOCTL_MODE_CREATE_DUMB	_IOWR('d', 0xb2, struct drm_mode_create_dumb)

static int drm = -1;
static char pci_device[SITS_NAME_MAX];

/* -------------------------------------------------------------------- processes */

static void send_fd(int sock, int fd)
{
	char c = 'f', ctl[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &c, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	need(sendmsg(sock, &m, 0) == 1, "sendmsg");
}

static int recv_fd(int sock)
{
	char c, ctl[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &c, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl) };
	int fd = -1;

	if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

/* Makes a region, writes to it, hands it on, and ends: by itself, or killed. */
static void test_passing(bool killed)
{
	const char *how = killed ? "killed" : "gone";
	int socks[2], fd, status;
	pid_t pid;
	char *p, c;

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, socks), "socketpair");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		fd = create(SITS_KIND_PINNED, 0, 2 * PAGE);
		p = map(fd, 2 * PAGE, PROT_READ | PROT_WRITE);
		memset(p, 'p', 2 * PAGE);
		send_fd(socks[1], fd);
		if (killed)
			pause();
		_exit(read(socks[1], &c, 1) == 1 ? 0 : 1);
	}
	fd = recv_fd(socks[0]);
	check(fd >= 0, "passed: received");
	if (killed)
		kill(pid, SIGKILL);
	else
		need(write(socks[0], "x", 1) == 1, "write");
	waitpid(pid, &status, 0);
	close(socks[0]);
	close(socks[1]);
	p = map(fd, 2 * PAGE, PROT_READ | PROT_WRITE);
	check(!is_err(p) && p[0] == 'p' && p[2 * PAGE - 1] == 'p', "passed: its maker is %s, contents are there", how);
	check_int(facts(fd).len_bytes, 2 * PAGE, "passed: its maker is %s, facts", how);
	check_int(close(fd), 0, "passed: close");
	check_int(close(fd) ? -errno : 0, -EBADF, "passed: close twice");
	check(p[PAGE] == 'p', "passed: the mapping stays");
	munmap(p, 2 * PAGE);
	check(nothing_left(), "passed: its maker is %s, nothing is left", how);
}

/* A descriptor in a socket that nobody reads is gone with the socket. */
static void test_in_flight(void)
{
	int socks[2], fd = create(SITS_KIND_HUGE, 0, HUGE);

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, socks), "socketpair");
	send_fd(socks[1], fd);
	close(fd);
	check_int(info().nr_regions, 1, "in flight: the socket holds the region");
	close(socks[0]);
	close(socks[1]);
	check(nothing_left(), "in flight: nothing is left");
}

static int after_exec(int fd)
{
	struct sits_region_facts f = { .size = sizeof(f), .fd = fd };
	char *p;

	open_dev();
	if (xioctl(dev, SITS_IOC_REGION_INFO, &f) || f.len_bytes != PAGE)
		return 1;
	p = map(fd, PAGE, PROT_READ);
	return !is_err(p) && p[0] == 'e' ? 0 : 2;
}

static int do_exec(void *arg)
{
	char text[16];
	int fd = create(SITS_KIND_PINNED, 0, PAGE), keep = dup(fd);
	char *p = map(fd, PAGE, PROT_READ | PROT_WRITE);

	p[0] = 'e';
	snprintf(text, sizeof(text), "%d", keep);
	execl("/proc/self/exe", "region_share_test", text, NULL);
	return 99;
}

/* ------------------------------------------------------------------------ vgem */

static int prime_import(int fd, uint32_t *handle)
{
	struct drm_prime_handle arg = { .fd = fd };
	int ret = xioctl(drm, DRM_IOCTL_PRIME_FD_TO_HANDLE, &arg);

	*handle = arg.handle;
	return ret;
}

static int prime_export(uint32_t handle)
{
	struct drm_prime_handle arg = { .handle = handle, .flags = O_CLOEXEC | O_RDWR };
	int ret = xioctl(drm, DRM_IOCTL_PRIME_HANDLE_TO_FD, &arg);

	return ret ? ret : arg.fd;
}

static int gem_close(uint32_t handle)
{
	struct drm_gem_close arg = { .handle = handle };

	return xioctl(drm, DRM_IOCTL_GEM_CLOSE, &arg);
}

static void open_vgem(void)
{
	char path[64], name[32];
	struct drm_version v = { .name = name, .name_len = sizeof(name) - 1 };

	for (int i = 0; i < 8 && drm < 0; i++) {
		snprintf(path, sizeof(path), "/dev/dri/card%d", i);
		drm = open(path, O_RDWR | O_CLOEXEC);
		memset(name, 0, sizeof(name));
		if (drm >= 0 && (ioctl(drm, DRM_IOCTL_VERSION, &v) || strcmp(name, "vgem"))) {
			close(drm);
			drm = -1;
		}
	}
	need(drm >= 0, "vgem");
}

static void test_vgem_imports(const char *name, unsigned int kind, unsigned long len)
{
	int fd = create(kind, 0, len), back;
	char *p = map(fd, len, PROT_READ | PROT_WRITE), *q;
	uint32_t handle;
	bool same = true;

	for (unsigned long i = 0; i < len; i += sizeof(long))
		*(unsigned long *)(p + i) = i * 2654435761u;
	check_int(prime_import(fd, &handle), 0, "vgem imports %s", name);
	check_int(facts(fd).nr_importers, 1, "vgem imports %s: counted", name);
	check_int(read_number("/sys/class/misc/sits/importers"), 1, "vgem imports %s: counted in sysfs", name);
	munmap(p, len);
	check_int(seal(fd, 0), -EBUSY, "vgem imports %s: it could write, so no seal", name);
	back = prime_export(handle);
	check(back >= 0, "vgem imports %s: and exports it", name);
	close(fd);
	q = map(back, len, PROT_READ);
	for (unsigned long i = 0; !is_err(q) && i < len; i += sizeof(long))
		same &= *(unsigned long *)(q + i) == i * 2654435761u;
	check(!is_err(q) && same, "vgem imports %s: the same contents", name);
	munmap(q, len);
	check_int(gem_close(handle), 0, "vgem imports %s: closed", name);
	check_int(facts(back).nr_importers, 0, "vgem imports %s: no importer is left", name);

	check_int(seal(back, 0), 0, "vgem imports %s: sealed", name);
	check_int(prime_import(back, &handle), 0, "vgem imports %s: sealed, as it asks for both directions", name);
	gem_close(handle);
	check_int(seal(back, SITS_SEAL_REVOKE), 0, "vgem imports %s: revoked", name);
	check_int(prime_import(back, &handle), -EPERM, "vgem imports %s: refused then", name);
	close(back);
	check(nothing_left(), "vgem imports %s: nothing is left", name);
}

static void test_vgem_protected(void)
{
	int fd = create(SITS_KIND_PROTECTED, 0, 4 * PAGE);
	uint32_t handle;

	check_int(prime_import(fd, &handle), -EPERM, "protected: vgem is not allowed");
	check_int(facts(fd).refused_imports, 1, "protected: refusal is counted");
	check_int(allow(fd, "vgems"), 0, "protected: allow another");
	check_int(prime_import(fd, &handle), -EPERM, "protected: still refused");
	check_int(allow(fd, "vgem"), 0, "protected: allow vgem");
	check_int(prime_import(fd, &handle), 0, "protected: then it imports");
	gem_close(handle);
	close(fd);
	check(nothing_left(), "protected: nothing is left");
}

/* ----------------------------------------------------------------- others' memory */

static int dma_map(int fd, struct sits_dma_seg *segs, uint32_t *nr)
{
	struct sits_dma_map arg = {
		.size = sizeof(arg), .flags = SITS_DMA_TO_DEVICE | SITS_DMA_FROM_DEVICE, .fd = fd,
		.segs = (uintptr_t)segs, .nr_segs = *nr,
	};
	int ret;

	memcpy(arg.device, pci_device, sizeof(arg.device));
	ret = xioctl(dev, SITS_IOC_DMA_MAP, &arg);
	*nr = arg.nr_segs;
	return ret ? ret : arg.fd_map;
}

/* @foreign: a dma-buf of another exporter; taken. */
static void test_foreign(const char *name, int foreign, unsigned long len)
{
	struct dma_buf_sync sync = { DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW };
	struct sits_dma_seg segs[64];
	struct sits_region_facts f = { .size = sizeof(f), .fd = foreign };
	uint32_t nr = 64, handle;
	unsigned long total = 0;
	int fd, m, ret;
	char *p, *q;

	if (!check(foreign >= 0, "%s: made", name))
		return;
	check_int(xioctl(dev, SITS_IOC_REGION_INFO, &f), -EINVAL, "%s: not a region so far", name);
	fd = import(SITS_IMPORT_DMABUF, foreign, NULL, 0);
	check(fd >= 0, "%s: imported", name);
	f = facts(fd);
	check(f.kind == SITS_KIND_IMPORTED && f.len_bytes == len && f.mapped_bytes == len && f.node == -1 && !f.state,
	      "%s: facts", name);
	check_int(info().region_used_bytes, 0, "%s: not our memory", name);
	p = map(foreign, len, PROT_READ | PROT_WRITE);
	q = map(fd, len, PROT_READ | PROT_WRITE);
	if (check(!is_err(p) && !is_err(q), "%s: map both", name)) {
		memset(p, 'f', len);
		check(q[0] == 'f' && q[len - 1] == 'f', "%s: the same memory", name);
		munmap(p, len);
		munmap(q, len);
	}
	check_int(xioctl(fd, DMA_BUF_IOCTL_SYNC, &sync), 0, "%s: CPU access begins", name);
	sync.flags = DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW;
	check_int(xioctl(fd, DMA_BUF_IOCTL_SYNC, &sync), 0, "%s: CPU access ends", name);
	check_int(seal(fd, 0), -EOPNOTSUPP, "%s: can't be sealed", name);
	check_int(import(SITS_IMPORT_DMABUF, fd, NULL, 0), -EINVAL, "%s: an import of an import", name);
	close(foreign);

	m = dma_map(fd, segs, &nr);
	check(m >= 0, "%s: DMA_MAP", name);
	for (uint32_t i = 0; m >= 0 && i < nr; i++)
		total += segs[i].len_bytes;
	check_int(total, len, "%s: bytes of its segments", name);
	check_int(facts(fd).nr_importers, 1, "%s: an importer", name);
	close(m);
	ret = prime_import(fd, &handle);
	check_int(ret, 0, "%s: vgem imports the region", name);
	if (!ret)
		gem_close(handle);
	check_int(facts(fd).nr_importers, 0, "%s: no importer is left", name);
	close(fd);
	check(nothing_left(), "%s: nothing is left", name);
}

static int vgem_buffer(unsigned long len)
{
	struct drm_mode_create_dumb arg = { .width = len / 4, .height = 1, .bpp = 32 };
	int fd, ret = xioctl(drm, DRM_IOCTL_MODE_CREATE_DUMB, &arg);

	if (ret)
		return ret;
	fd = prime_export(arg.handle);
	gem_close(arg.handle);
	return fd;
}

static int udmabuf_buffer(unsigned long len)
{
	int mem = memfd_create("udmabuf", MFD_ALLOW_SEALING | MFD_CLOEXEC), ret;
	struct udmabuf_create arg = { .memfd = mem, .flags = UDMABUF_FLAGS_CLOEXEC, .size = len };
	int u = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);

	need(mem >= 0 && !ftruncate(mem, len) && !fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK), "memfd");
	ret = ioctl(u, UDMABUF_CREATE, &arg);
	ret = ret < 0 ? -errno : ret;
	close(u);
	close(mem);
	return ret;
}

static int heap_buffer(unsigned long len)
{
	struct dma_heap_allocation_data arg = { .len = len, .fd_flags = O_RDWR | O_CLOEXEC };
	int h = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC);
	int ret = xioctl(h, DMA_HEAP_IOCTL_ALLOC, &arg);

	close(h);
	return ret ? ret : (int)arg.fd;
}

static void test_user(void)
{
	unsigned long len = HUGE + 5 * PAGE;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sits_dma_seg segs[1024];
	uint32_t nr = 1024, handle;
	int fd, m, ret;

	memset(p, 'u', len);
	fd = import(SITS_IMPORT_USER, -1, p, len);
	check(fd >= 0, "own memory: imported");
	check(facts(fd).kind == SITS_KIND_IMPORTED && facts(fd).mapped_bytes == len, "own memory: facts");
	check_int(info().region_used_bytes, len, "own memory: counted");
	check_int(err_of(map(fd, PAGE, PROT_READ)), -ENODEV, "own memory: its owner has it mapped");
	m = dma_map(fd, segs, &nr);
	check(m >= 0 && nr >= 2, "own memory: DMA_MAP");
	ret = prime_import(fd, &handle);
	check_int(ret, 0, "own memory: vgem imports it");
	check_int(facts(fd).nr_importers, 2, "own memory: two importers");
	if (!ret)
		gem_close(handle);
	munmap(p, len);
	close(fd);
	check_int(info().region_used_bytes, len, "own memory: unmapped, and still pinned for the device");
	close(m);
	check(nothing_left(), "own memory: nothing is left");

	/* Memory that may not be written can't be handed to devices that might. */
	p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check_int(import(SITS_IMPORT_USER, -1, p, PAGE), -EFAULT, "own memory: read-only");
	munmap(p, PAGE);
	fd = create(SITS_KIND_PROTECTED, 0, PAGE);
	p = map(fd, PAGE, PROT_READ);
	check_int(import(SITS_IMPORT_USER, -1, p, PAGE), -EFAULT, "own memory: a protected region");
	munmap(p, PAGE);
	close(fd);
	check(nothing_left(), "own memory: nothing is left of failures");
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

int main(int argc, char **argv)
{
	if (argc > 1)
		return after_exec(atoi(argv[1]));
	open_dev();
	find_pci_device();
	open_vgem();
	test_passing(false);
	test_passing(true);
	test_in_flight();
	check_int(in_child(do_exec, NULL), 0, "a region goes on through exec");
	check(nothing_left(), "exec: nothing is left");
	test_vgem_imports("small pages", SITS_KIND_PINNED, 5 * PAGE);
	test_vgem_imports("huge pages", SITS_KIND_HUGE, 2 * HUGE);
	test_vgem_protected();
	test_foreign("memory of vgem", vgem_buffer(8 * PAGE), 8 * PAGE);
	if (!access("/dev/udmabuf", F_OK))
		test_foreign("udmabuf", udmabuf_buffer(8 * PAGE), 8 * PAGE);
	else
		skip("udmabuf", "this kernel has none");
	if (!access("/dev/dma_heap/system", F_OK))
		test_foreign("system heap", heap_buffer(8 * PAGE), 8 * PAGE);
	else
		skip("system heap", "this kernel has none");
	test_user();
	close(drm);
	return done();
}
