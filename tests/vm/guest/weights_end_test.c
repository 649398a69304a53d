// SPDX-License-Identifier: MIT
/*
 * weights_end_test.c - loads that do not come to their end: cancelled, their caller killed or gone, out of memory, two at
 * once. Whatever happens, the region can be loaded afterwards, and nothing is left when all is closed.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "weights_common.h"

#define LEN	(4 * MIB + 777)
#define CGROUP	"/sys/fs/cgroup/sits-weights"

static uint8_t *data;
static int file_fd;
/* Of a load in another process or thread: seen by all. */
static struct sits_weights_load *shared;

static int new_region(void)
{
	int region = create(SITS_KIND_HUGE, 0, LEN);

	need(region >= 0, "make a region");
	return region;
}

static void set_shared(int region, const char *key)
{
	struct sits_weights_load a = load_arg(file_fd, region);

	memset(a.key, 0, sizeof(a.key));
	memcpy(a.key, key, strlen(key));
	/* One piece at a time: so there is time left. */
	a.nr_inflight = 1;
	*shared = a;
}

static uint64_t progress(void)
{
	return __atomic_load_n(&shared->progress_bytes, __ATOMIC_RELAXED);
}

/* Load to the end, after whatever load is being given up. */
static bool loads_after(int region)
{
	struct sits_weights_load a = load_arg(file_fd, region);
	int ret, tries = 0;

	do {
		ret = load_ioctl(&a);
	} while (ret == -EBUSY && tries++ < 3000 && !usleep(10000));
	if (ret == -EACCES)	/* the other one has come to its end */
		ret = 0;
	if (ret)
		printf("# load afterwards: %s\n", strerror(-ret));
	return !ret && region_is(region, data, LEN);
}

static bool is_failed(int region)
{
	return facts(region).state == (SITS_REGION_F_PINNABLE | SITS_REGION_F_LOADING) &&
	       err_of(map(region, LEN, PROT_READ)) == -ENODATA;
}

/* ------------------------------------------------------------------------------------------------ cancel */

static void *load_thread(void *arg)
{
	return (void *)(intptr_t)load_ioctl(arg);
}

static void *load_thread_ring(void *arg)
{
	return (void *)(intptr_t)load_ring(arg);
}

static void test_cancel(void)
{
	int cancelled = 0, odd = 0;

	for (int i = 0; i < 16; i++) {
		int region = new_region(), ret;
		uint64_t at = rnd() % LEN;
		pthread_t thread;
		void *res;

		set_shared(region, KEY_NAME);
		shared->nr_inflight = i % 4;
		need(!pthread_create(&thread, NULL, i % 2 ? load_thread_ring : load_thread, shared), "pthread_create");
		while (i > 1 && progress() < at)
			sched_yield();
		__atomic_store_n(&shared->cancel, 1, __ATOMIC_RELAXED);
		pthread_join(thread, &res);
		ret = (int)(intptr_t)res;
		cancelled += ret == -ECANCELED;
		if (ret != 0 && ret != -ECANCELED)
			odd++;
		/* Before it began, the region is as it was; else wiped. */
		if (ret && facts(region).state != SITS_REGION_F_PINNABLE && !is_failed(region))
			odd++;
		if (shared->cancel != 1 || !loads_after(region))
			odd++;
		close(region);
	}
	printf("# %d of 16 loads cancelled\n", cancelled);
	check(cancelled >= 2, "cancel: loads end early");
	check_int(odd, 0, "cancel: wiped, and can be loaded then");
	check(nothing_left(), "cancel: nothing is left");
}

/* --------------------------------------------------------------------------------------- during a load */

static void test_meanwhile(void)
{
	struct sits_dma_map m = { .size = sizeof(m), .flags = SITS_DMA_TO_DEVICE };
	int region = new_region(), busy = 0, others = 0, seen = 0, second = 0;
	struct sits_weights_load a = load_arg(file_fd, region);
	DIR *d = opendir("/sys/bus/pci/devices");
	struct dirent *e;
	pthread_t thread;
	void *res;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			snprintf((char *)m.device, sizeof(m.device), "%.12s", e->d_name);
	if (d)
		closedir(d);
	m.fd = region;
	set_shared(region, KEY_NAME);
	need(!pthread_create(&thread, NULL, load_thread, shared), "pthread_create");
	while (!progress())
		sched_yield();
	/* A look before and after each: only what was asked in between counts. */
	while (!(facts(region).state & SITS_REGION_F_SEALED)) {
		void *p = map(region, PAGE, PROT_READ);
		long got[4] = { err_of(p), xioctl(dev, SITS_IOC_DMA_MAP, &m), seal(region, 0), load_ioctl(&a) };
		struct sits_region_facts f = facts(region);

		/* What came after the load's end succeeds, and would hold the region. */
		if (!got[0])
			munmap(p, PAGE);
		if (!got[1])
			close(m.fd_map);
		if (f.state & SITS_REGION_F_SEALED)
			break;
		seen += !!(f.state & SITS_REGION_F_LOADING);
		for (int i = 0; i < 3; i++) {
			busy += got[i] == -EBUSY;
			others += got[i] != -EBUSY;
		}
		second += got[3] == -EBUSY;
		others += got[3] != -EBUSY;
	}
	pthread_join(thread, &res);
	check_int((intptr_t)res, 0, "meanwhile: the load is not disturbed");
	check(busy && seen && !others, "meanwhile: mapping, importing and sealing are refused, %d times", busy);
	check(second, "meanwhile: a second load is refused");
	check(region_is(region, data, LEN), "meanwhile: contents");
	close(region);
}

/* Two that begin at the same time: one wins, or one after the other fails. */
static void test_two_at_once(void)
{
	int odd = 0;

	for (int i = 0; i < 8; i++) {
		int region = new_region(), got[2], won = 0;
		struct sits_weights_load a[2] = { load_arg(file_fd, region), load_arg(file_fd, region) };
		pthread_t threads[2];
		void *res;

		for (int t = 0; t < 2; t++)
			need(!pthread_create(&threads[t], NULL, (i + t) % 2 ? load_thread_ring : load_thread, &a[t]), "pthread_create");
		for (int t = 0; t < 2; t++) {
			pthread_join(threads[t], &res);
			got[t] = (int)(intptr_t)res;
			won += !got[t];
			odd += got[t] && got[t] != -EBUSY && got[t] != -EACCES;
		}
		odd += won != 1 || !region_is(region, data, LEN);
		close(region);
	}
	check_int(odd, 0, "two at once: one of them wins");

	int region[2] = { new_region(), new_region() };
	struct sits_weights_load a[2] = { load_arg(file_fd, region[0]), load_arg(file_fd, region[1]) };
	struct io_uring ring;

	ring_init(&ring, 0);
	for (int t = 0; t < 2; t++)
		ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)&a[t], 0);
	check(!ring_wait(&ring) && !ring_wait(&ring), "two regions at once, from one file and ring");
	io_uring_queue_exit(&ring);
	check(region_is(region[0], data, LEN) && region_is(region[1], data, LEN), "two regions at once: contents");
	close(region[0]);
	close(region[1]);
	check(nothing_left(), "two at once: nothing is left");
}

/* -------------------------------------------------------------------------------------- death of the caller */

enum death { BY_IOCTL, BY_RING, BY_SQPOLL, WITH_CHILD, NR_DEATHS };

static const char *const deaths[] = { "ioctl", "ring", "ring with a thread", "ring that a child still has" };

/* In a child: begin to load, and be killed at it. */
static int be_killed(enum death how, int *child_pipe)
{
	struct io_uring ring;
	char c;

	if (how == BY_IOCTL)
		return load_ioctl(shared) ? 2 : 0;
	ring_init(&ring, how == BY_SQPOLL ? IORING_SETUP_SQPOLL : 0);
	ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)shared, 0);
	if (how == WITH_CHILD && fork() == 0) {
		/* Until the test closes the other end. */
		close(child_pipe[1]);
		_exit(read(child_pipe[0], &c, 1) != 0);
	}
	for (;;)
		pause();
}

static void test_killed(enum death how)
{
	int odd = 0, early = 0;

	for (int i = 0; i < 5; i++) {
		int region = new_region(), pipe_fds[2], status;
		uint64_t at = 1 + rnd() % (LEN / 2);
		pid_t pid;

		need(!pipe(pipe_fds), "pipe");
		set_shared(region, KEY_NAME);
		fflush(stdout);
		pid = fork();
		need(pid >= 0, "fork");
		if (!pid)
			_exit(be_killed(how, pipe_fds));
		/* The first one at no certain moment at all. */
		while (i && progress() < at)
			sched_yield();
		kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0)
			;
		/* Whoever is gone is not written to any more, and neither is its region once it could be taken. */
		odd += !loads_after(region);
		early += progress() < LEN;
		close(region);
		close(pipe_fds[0]);
		close(pipe_fds[1]);
	}
	printf("# %s: %d of 5 loads ended early\n", deaths[how], early);
	check(early, "killed, %s: the load ends with its caller", deaths[how]);
	check_int(odd, 0, "killed, %s: the region can be loaded then", deaths[how]);
	check(nothing_left(), "killed, %s: nothing is left", deaths[how]);
}

/* The thread that submitted is gone, the ring and the process are not. */
static struct io_uring thread_ring;

static void *submit_and_exit(void *arg)
{
	ring_submit(&thread_ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)shared, 0);
	while (!progress() && !io_uring_cq_ready(&thread_ring))
		sched_yield();
	return NULL;
}

static void test_thread_gone(void)
{
	int region = new_region(), ret;
	pthread_t thread;

	ring_init(&thread_ring, 0);
	set_shared(region, KEY_NAME);
	need(!pthread_create(&thread, NULL, submit_and_exit, NULL), "pthread_create");
	pthread_join(thread, NULL);
	ret = ring_wait(&thread_ring);
	check(ret == -ECANCELED || !ret, "thread gone: answered");
	printf("# thread gone: %d\n", ret);
	io_uring_queue_exit(&thread_ring);
	check(loads_after(region), "thread gone: the region can be loaded then");
	close(region);
}

static void test_ring_closed(void)
{
	int odd = 0;

	for (int i = 0; i < 4; i++) {
		int region = new_region();
		struct io_uring ring;

		ring_init(&ring, 0);
		set_shared(region, KEY_NAME);
		ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)shared, 0);
		while (i && !progress())
			sched_yield();
		io_uring_queue_exit(&ring);
		odd += !loads_after(region);
		close(region);
	}
	check_int(odd, 0, "ring closed: the region can be loaded then");
	check(nothing_left(), "ring closed: nothing is left");
}

/* Some wait for a load when they execute another program, others end it: both must come through. */
static int exec_while_loading(void *arg)
{
	struct io_uring ring;

	ring_init(&ring, 0);
	ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)shared, 0);
	while (!progress())
		sched_yield();
	execl("/bin/true", "true", NULL);
	return 127;
}

static void test_exec(void)
{
	int region = new_region();

	set_shared(region, KEY_NAME);
	check_int(in_child(exec_while_loading, NULL), 0, "exec: the new program runs");
	check(loads_after(region), "exec: the region can be loaded then");
	close(region);
}

/* The struct goes while the load runs. */
static void test_struct_gone(void)
{
	for (int way = 0; way < 2; way++) {
		struct sits_weights_load *a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int region = new_region();
		pthread_t thread;
		void *res;

		*a = load_arg(file_fd, region);
		a->nr_inflight = 1;
		need(!pthread_create(&thread, NULL, way ? load_thread_ring : load_thread, a), "pthread_create");
		while (!__atomic_load_n(&a->progress_bytes, __ATOMIC_RELAXED))
			sched_yield();
		munmap(a, PAGE);
		pthread_join(thread, &res);
		check_int((intptr_t)res, -EFAULT, "struct gone, %s", ways[way].name);
		check(is_failed(region), "struct gone, %s: the region is wiped", ways[way].name);
		close(region);
	}
}

/* What was given by descriptor is held by the load. */
static void test_descriptors_closed(void)
{
	int file = open(in_dir("good.sits"), O_RDONLY), region = new_region(), other = dup(region);
	struct sits_weights_load a = load_arg(file, region);
	struct io_uring ring;

	ring_init(&ring, 0);
	ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)&a, 0);
	close(file);
	close(region);
	check_int(ring_wait(&ring), 0, "descriptors closed during the load");
	check(region_is(other, data, LEN), "descriptors closed: contents");
	close(other);
	/* The region, too. */
	region = new_region();
	a = load_arg(file_fd, region);
	ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)&a, 0);
	close(region);
	check_int(ring_wait(&ring), 0, "nobody has the region any more");
	io_uring_queue_exit(&ring);
	check(nothing_left(), "descriptors closed: nothing is left");
}

static int unload(void)
{
	return syscall(SYS_delete_module, "sits", O_NONBLOCK) ? -errno : 0;
}

/* Return: what becomes of the module's unloading while a load runs, and nothing else is there. */
static int unload_beside_load(void)
{
	int region = new_region(), ret;
	struct io_uring ring;

	ring_init(&ring, 0);
	set_shared(region, KEY_NAME);
	ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)shared, 0);
	close(region);
	close(dev);
	ret = unload();
	ring_wait(&ring);
	io_uring_queue_exit(&ring);
	return ret;
}

static void test_unload(void)
{
	int ret, tries = 0;

	/* Where it has gone, the load was over before: once more. */
	while (!(ret = unload_beside_load()) && tries++ < 20) {
		need(!system("modprobe sits"), "load the module again");
		open_dev();
	}
	check_int(ret, -EAGAIN, "unload: a load runs, and nothing else is there");
	tries = 0;
	do {
		ret = unload();
	} while (ret == -EAGAIN && tries++ < 3000 && !usleep(10000));
	check_int(ret, 0, "unload: after it");
	check_int(system("modprobe sits"), 0, "load the module again");
	open_dev();
}

/* --------------------------------------------------------------------------------------------------- memory */

static long current_bytes(void)
{
	return read_number(CGROUP "/memory.current");
}

/* A file with a large table of tags, none of which is right: what a load of it needs first of all is memory. */
static void make_many_tags(const char *path, size_t plain)
{
	static uint8_t page[SITS_SEALED_HDR_BYTES], random_part[SITS_SEALED_RANDOM_LEN];
	struct sits_sealed_file f;

	need(!sits_sealed_init(&f, page, kek_raw, random_part, 4096, plain, "tags", 7), "make a header");
	write_new(path, page, sizeof(page));
	need(!truncate(path, f.hdr.file_bytes), "truncate");
}

/*
 * Fail at another allocation each time. The limit is never below what is in use, and there is room for what the kernel
 * itself allocates: both would wake the OOM killer, whatever the module does.
 */
static int in_small_cgroup(void *arg)
{
	const int *fds = arg;
	int no_memory = 0, bad = 0;
	char text[32];

	if (write_text(CGROUP "/cgroup.procs", "0"))
		return 1;
	for (int i = 0; i < 48; i++) {
		struct sits_weights_load a = load_arg(fds[0], fds[1]);
		int ret;

		snprintf(text, sizeof(text), "%ld", current_bytes() + (1 << 17) + i * 4 * 4096L);
		write_text(CGROUP "/memory.max", text);
		/* An ioctl: a ring needs memory of its own. */
		ret = load_ioctl(&a);
		write_text(CGROUP "/memory.max", "max");
		no_memory += ret == -ENOMEM;
		bad += ret == -EBADMSG;
		if (ret != -ENOMEM && (ret != -EBADMSG || a.bad_chunk))
			return 2;
	}
	printf("# memory cgroup: %d loads without memory, %d with\n", no_memory, bad);
	fflush(stdout);
	return no_memory ? 0 : 3;
}

/* Pages of the file that a worker reads are those of who asked for it. */
static int charged(void *arg)
{
	int fd = open(in_dir("cold.sits"), O_RDONLY), region = new_region();
	struct sits_weights_load a = load_arg(fd, region);
	long before;

	if (write_text(CGROUP "/cgroup.procs", "0"))
		return 1;
	before = current_bytes();
	a.flags = SITS_LOAD_F_BUFFERED;
	if (load_ring(&a))
		return 2;
	/* Some of what was charged before is let go of meanwhile. */
	return current_bytes() - before >= (long)LEN / 2 ? 0 : 3;
}

static void test_cgroup(void)
{
	long kills = -1;
	int fds[2];
	char line[128];
	FILE *f;

	write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if (mkdir(CGROUP, 0755) || access(CGROUP "/memory.max", F_OK)) {
		skip("memory cgroup", "no memory controller in the second version's hierarchy");
		return;
	}
	make_many_tags(in_dir("tags.sits"), 128 * MIB);
	fds[0] = open(in_dir("tags.sits"), O_RDONLY);
	fds[1] = create(SITS_KIND_HUGE, 0, 128 * MIB);
	check_int(in_child(in_small_cgroup, fds), 0, "memory cgroup: full at different moments");
	close(fds[0]);
	close(fds[1]);
	f = fopen(CGROUP "/memory.events", "re");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "oom_kill %ld", &kills);
	if (f)
		fclose(f);
	check_int(kills, 0, "memory cgroup: nobody was killed for it");

	disk_make(64);
	ext4_make("/tmp/weights-ext4");
	check_int(system("mkdir -p /tmp/weights-ext4/d"), 0, "a folder on a disk");
	{
		char was[sizeof(dir)];

		memcpy(was, dir, sizeof(dir));
		snprintf(dir, sizeof(dir), "/tmp/weights-ext4/d");
		seal_bytes(in_dir("cold.sits"), data, LEN, kek, 1 << 20);
		check_int(system("sync; echo 3 >/proc/sys/vm/drop_caches"), 0, "nothing is cached");
		check_int(in_child(charged, NULL), 0, "memory cgroup: what a worker reads is charged to who asked");
		memcpy(dir, was, sizeof(dir));
	}
	check(nothing_left(), "memory cgroup: nothing is left");
	unmount("/tmp/weights-ext4");
	disk_remove();
	for (int tries = 0; tries < 3000 && rmdir(CGROUP); tries++)
		usleep(10000);
	check(access(CGROUP, F_OK), "memory cgroup: can be removed");
}

int main(void)
{
	setup();
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(shared != MAP_FAILED, "mmap");
	data = random_bytes(LEN);
	seal_bytes(in_dir("good.sits"), data, LEN, kek, 1 << 18);
	file_fd = open(in_dir("good.sits"), O_RDONLY);
	test_cancel();
	test_meanwhile();
	test_two_at_once();
	for (int how = 0; how < NR_DEATHS; how++)
		test_killed(how);
	test_thread_gone();
	test_ring_closed();
	test_exec();
	test_struct_gone();
	test_descriptors_closed();
	test_cgroup();
	test_unload();
	check(nothing_left(), "nothing is left");
	close(file_fd);
	teardown();
	return done();
}
