// SPDX-License-Identifier: MIT
/*
 * zerocopy_drm_test.c - regions and a graphics driver, vgem, by libdrm as any client of DRM would: PRIME import and back, the same
 * memory on both sides, and vgem's own buffers as regions that a DMA engine fills.
 */
#include "import_common.h"

#if __has_include(<xf86drm.h>)
#include <xf86drm.h>
#include <xf86drmMode.h>

static int drm = -1;

static void open_vgem(void)
{
	drmDevicePtr devices[8];
	int nr = drmGetDevices2(0, devices, 8);

	for (int i = 0; i < nr && drm < 0; i++) {
		drmVersionPtr v;

		if (!(devices[i]->available_nodes & 1 << DRM_NODE_PRIMARY))
			continue;
		drm = open(devices[i]->nodes[DRM_NODE_PRIMARY], O_RDWR | O_CLOEXEC);
		v = drm >= 0 ? drmGetVersion(drm) : NULL;
		if (drm >= 0 && (!v || strcmp(v->name, "vgem"))) {
			close(drm);
			drm = -1;
		}
		drmFreeVersion(v);
	}
	if (nr > 0)
		drmFreeDevices(devices, nr);
	/* libdrm lists devices by their bus, and this one's may be none that it knows. */
	if (drm < 0)
		drm = drmOpen("vgem", NULL);
	need(drm >= 0, "vgem");
}

static void fill_all(unsigned long *p, unsigned long len, unsigned long seed)
{
	for (unsigned long i = 0; i < len / sizeof(*p); i++)
		p[i] = (i + seed) * 2654435761u;
}

static bool has_all(const unsigned long *p, unsigned long len, unsigned long seed)
{
	for (unsigned long i = 0; i < len / sizeof(*p); i++)
		if (p[i] != (i + seed) * 2654435761u)
			return false;
	return true;
}

static void test_round_trip(const char *name, unsigned int kind, unsigned long len)
{
	uint64_t caps = 0;
	uint32_t handle = 0, again = 0;
	int fd = create(kind, 0, len), back = -1, imp = importer();
	unsigned long *p = map(fd, len, PROT_READ | PROT_WRITE), *q;

	check(!drmGetCap(drm, DRM_CAP_PRIME, &caps) && caps == (DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT),
	      "%s: vgem imports and exports", name);
	fill_all(p, len, 1);
	check_int(drmPrimeFDToHandle(drm, fd, &handle), 0, "%s: imported", name);
	check_int(drmPrimeFDToHandle(drm, fd, &again), 0, "%s: imported once more", name);
	check_int(again, handle, "%s: the same buffer to DRM", name);
	check_int(facts(fd).nr_importers, 1, "%s: one importer", name);
	check_int(drmPrimeHandleToFD(drm, handle, DRM_CLOEXEC | DRM_RDWR, &back), 0, "%s: exported", name);
	check_int(facts(back).len_bytes, len, "%s: what comes back is the region", name);
	q = map(back, len, PROT_READ | PROT_WRITE);
	check(!is_err(q) && has_all(q, len, 1), "%s: with its contents", name);
	fill_all(q, len, 2);
	check(has_all(p, len, 2), "%s: it is one memory", name);

	/* A second device beside vgem. */
	check_int(imp_attach(imp, back, EDU), 0, "%s: edu attached, too", name);
	check_int(imp_map(imp, SITS_TEST_BIDIRECTIONAL), 0, "%s: and mapped", name);
	fill((char *)p, 3);
	imp_edu(imp, SITS_TEST_EDU_READ, 0);
	imp_edu(imp, SITS_TEST_EDU_WRITE, len - PAGE);
	check(has((char *)q + len - PAGE, 3), "%s: its DMA shows in the memory that vgem has", name);
	check_int(facts(fd).nr_importers, 2, "%s: two importers", name);
	close(imp);
	close(fd);
	close(back);
	munmap(p, len);
	munmap(q, len);
	check_int(info().nr_regions, 1, "%s: DRM's handle alone holds the region", name);
	check_int(drmPrimeHandleToFD(drm, handle, DRM_CLOEXEC, &back), 0, "%s: and brings it back", name);
	q = map(back, len, PROT_READ);
	check(!is_err(q) && has((char *)q + len - PAGE, 3), "%s: with its contents still", name);
	munmap(q, len);
	close(back);
	check_int(drmCloseBufferHandle(drm, handle), 0, "%s: closed", name);
	check(nothing_left(), "%s: nothing is left", name);
}

static void test_protected(void)
{
	int fd = create(SITS_KIND_PROTECTED, 0, 4 * PAGE);
	uint32_t handle = 0;

	check_int(drmPrimeFDToHandle(drm, fd, &handle) ? -errno : 0, -EPERM, "protected: refused");
	check_int(facts(fd).refused_imports, 1, "protected: counted");
	check_int(allow(fd, "vgem"), 0, "protected: allow vgem");
	check_int(drmPrimeFDToHandle(drm, fd, &handle), 0, "protected: imported");
	check_int(facts(fd).nr_importers, 1, "protected: an importer");
	drmCloseBufferHandle(drm, handle);
	check_int(seal(fd, SITS_SEAL_REVOKE), 0, "protected: revoked");
	check_int(drmPrimeFDToHandle(drm, fd, &handle) ? -errno : 0, -EPERM, "protected: revoked, vgem is refused as well");
	close(fd);
	check(nothing_left(), "protected: nothing is left");
}

/* A client of DRM that dies takes its handles with it. */
static int import_and_die(void *arg)
{
	uint32_t handle = 0;
	int fd = create(SITS_KIND_HUGE, 0, HUGE);

	close(drm);
	drm = -1;
	open_vgem();
	if (drmPrimeFDToHandle(drm, fd, &handle))
		return 1;
	kill(getpid(), 9);
	return 2;
}

/* A buffer that DRM made, as a region; DMA into it by a device that knows nothing of DRM. */
static void test_buffer_as_region(void)
{
	struct drm_mode_create_dumb dumb = { .width = 4096, .height = 4, .bpp = 32 };
	uint32_t handle = 0;
	int theirs = -1, fd, imp = importer();
	char *p, *q;

	check_int(drmIoctl(drm, DRM_IOCTL_MODE_CREATE_DUMB, &dumb), 0, "vgem's buffer: made");
	check_int(drmPrimeHandleToFD(drm, dumb.handle, DRM_CLOEXEC | DRM_RDWR, &theirs), 0, "vgem's buffer: exported");
	fd = import(SITS_IMPORT_DMABUF, theirs, NULL, 0);
	check(fd >= 0, "vgem's buffer: a region");
	check_int(facts(fd).mapped_bytes, dumb.size, "vgem's buffer: its size");
	p = map(theirs, dumb.size, PROT_READ | PROT_WRITE);
	q = map(fd, dumb.size, PROT_READ);
	fill(p, 4);
	check_int(imp_attach(imp, fd, EDU), 0, "vgem's buffer: edu attached to the region");
	check_int(imp_map(imp, SITS_TEST_BIDIRECTIONAL), 0, "vgem's buffer: mapped");
	check_int(imp_edu(imp, SITS_TEST_EDU_READ, 0), 0, "vgem's buffer: read by edu");
	check_int(imp_edu(imp, SITS_TEST_EDU_WRITE, dumb.size - PAGE), 0, "vgem's buffer: written by edu");
	check(has(p + dumb.size - PAGE, 4), "vgem's buffer: DRM's mapping sees it");
	check(has(q + dumb.size - PAGE, 4), "vgem's buffer: the region's mapping sees it");
	/* The region goes back into DRM as a buffer like any other. */
	check_int(drmPrimeFDToHandle(drm, fd, &handle), 0, "vgem's buffer: the region imported by vgem");
	drmCloseBufferHandle(drm, handle);
	munmap(p, dumb.size);
	munmap(q, dumb.size);
	close(theirs);
	close(fd);
	drmCloseBufferHandle(drm, dumb.handle);
	check_int(imp_edu(imp, SITS_TEST_EDU_READ, 0), 0, "vgem's buffer: closed by all, and edu has it");
	close(imp);
	check(nothing_left(), "vgem's buffer: nothing is left");
}

int main(void)
{
	open_dev();
	find_edu();
	open_vgem();
	test_round_trip("small pages", SITS_KIND_PINNED, 5 * PAGE);
	test_round_trip("huge pages", SITS_KIND_HUGE, 2 * HUGE);
	test_protected();
	check_int(in_child(import_and_die, NULL), 128 + 9, "a client of DRM is killed");
	check(nothing_left(), "a client of DRM is killed: nothing is left");
	test_buffer_as_region();
	close(drm);
	return done();
}
#else
int main(void)
{
	printf("1..0 # SKIP built without libdrm (Debian: libdrm-dev)\n");
	return 0;
}
#endif
