// SPDX-License-Identifier: MIT
/*
 * sm4_load_test.c - loads on sits_sm4.ko while the ground shakes: processors go and come, memory is short and moved about, signals
 * arrive, other users of the cipher compete. Each load gives what was sealed.
 */
#include <linux/if_alg.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "proc_crypto.h"
#include "weights_common.h"

#define LEN	(6 * MIB + 777)
#define MAX_VANISHED 100
#define CPU1	"/sys/devices/system/cpu/cpu1/online"

static uint8_t *data;
static int file_fd;
/* For threads and children: until this is set. */
static int *stop;

/*
 * Load @times, by ioctl and by ring in turn. One that finds no cipher is tried again where @vanished counts those; may be NULL.
 * Return: how many went wrong.
 */
static int load_counting(int times, int *vanished)
{
	int wrong = 0;

	for (int i = 0; i < times; i++) {
		int region = create(i % 3 ? SITS_KIND_HUGE : SITS_KIND_PINNED, 0, LEN), ret;
		struct sits_weights_load a = load_arg(file_fd, region);

		ret = ways[i % 2].fn(&a);
		if (ret == -ENOPKG && vanished && *vanished < MAX_VANISHED) {
			++*vanished;
			i--;
		} else if (ret || !region_is(region, data, LEN)) {
			printf("# load %d by %s: %s\n", i, ways[i % 2].name, ret ? strerror(-ret) : "wrong contents");
			wrong++;
		}
		close(region);
	}
	return wrong;
}

static int load_many(int times)
{
	return load_counting(times, NULL);
}

/* The driver of gcm(sm4) with the highest priority, and how many use it. */
static int users_of_best(char best[128])
{
	char block[PROC_CRYPTO_BYTES], name[128], priority[128], refcnt[128];
	FILE *f = fopen("/proc/crypto", "re");
	int max = -1, users = -1;

	while (f && proc_crypto_next(f, block)) {
		proc_crypto_field(block, "name", name);
		proc_crypto_field(block, "priority", priority);
		if (strcmp(name, "gcm(sm4)") || atoi(priority) <= max)
			continue;
		max = atoi(priority);
		proc_crypto_field(block, "refcnt", refcnt);
		users = atoi(refcnt);
		proc_crypto_field(block, "driver", best);
	}
	if (f)
		fclose(f);
	return users;
}

/* The same once nobody uses it: requests under way do, and since 6.12 the self-tests, which follow a module's loading. */
static int users_at_rest(char best[128])
{
	int users;

	for (int tries = 0; (users = users_of_best(best)) != 1 && tries < 3000; tries++)
		usleep(10000);
	return users;
}

struct loads {
	int wrong, vanished;
};

static void *load_thread(void *arg)
{
	struct loads *l = arg;

	l->wrong = load_counting(6, &l->vanished);
	__atomic_store_n(stop, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* A load uses our gcm(sm4), and keeps the module meanwhile. */
static void test_in_use(void)
{
	int before, more = 0, refused = 0, removed = 0;
	struct loads loads = { .wrong = -1 };
	char best[128] = "";
	pthread_t thread;

	before = users_at_rest(best);
	printf("# gcm(sm4) is %s\n", best);
	check(strstr(best, "gcm-sm4-sits-"), "in use: gcm(sm4) is ours");
	*stop = 0;
	need(!pthread_create(&thread, NULL, load_thread, &loads), "pthread_create");
	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		more += users_of_best(best) > before;
		/*
		 * sits.ko itself does not hold it: what does, is a load. Between two of them it goes, and comes back for the next;
		 * one that comes just as it goes finds none.
		 */
		if (users_of_best(best) <= before)
			continue;
		if (!syscall(SYS_delete_module, "sits_sm4", O_NONBLOCK))
			removed++;
		else
			refused += errno == EAGAIN;
	}
	pthread_join(thread, NULL);
	check_int(system("modprobe sits_sm4"), 0, "in use: the module is there");
	check_int(loads.wrong, 0, "in use: loads");
	check(!loads.vanished || removed, "in use: %d found no cipher, it was removed %d times", loads.vanished, removed);
	check(more, "in use: seen %d times", more);
	check(refused, "in use: the module can't be removed, %d times", refused);
	check_int(users_at_rest(best), before, "in use: not any more");
}

/* -------------------------------------------------------------------------------------- processors */

static void *hotplug_thread(void *arg)
{
	int *turns = arg;

	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		if (write_text(CPU1, "0") || write_text(CPU1, "1"))
			break;
		++*turns;
	}
	return NULL;
}

static void test_hotplug(void)
{
	int turns = 0, wrong = 0, rounds = 0;
	pthread_t thread;

	if (access(CPU1, W_OK)) {
		skip("processors go and come", "this kernel, or this guest of one processor, can't");
		return;
	}
	*stop = 0;
	need(!pthread_create(&thread, NULL, hotplug_thread, &turns), "pthread_create");
	do {
		wrong += load_many(4);
	} while (__atomic_load_n(&turns, __ATOMIC_RELAXED) < 4 && rounds++ < 20);
	__atomic_store_n(stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	check_int(wrong, 0, "processors go and come: loads");
	check(turns >= 4, "processors go and come: %d times", turns);
	check_int(read_number(CPU1), 1, "processors go and come: both are there again");
}

/* ------------------------------------------------------------------------------------------ memory */

static long available_bytes(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "MemAvailable: %ld", &kib);
	if (f)
		fclose(f);
	return kib * 1024;
}

/* Takes most of what there is, gives it back, has caches dropped and memory compacted; again and again. */
static int hog(void *arg)
{
	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		long len = available_bytes() - 160 * (long)MIB;
		uint8_t *p = len > 0 ? mmap(NULL, (size_t)len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;

		if (p != MAP_FAILED) {
			/* In large pages, which are filled sooner, where there are some. */
			madvise(p, (size_t)len, MADV_HUGEPAGE);
			for (long at = 0; at < len && !__atomic_load_n(stop, __ATOMIC_ACQUIRE); at += (long)PAGE)
				p[at] = 1;
			munmap(p, (size_t)len);
		}
		write_text("/proc/sys/vm/drop_caches", "3");
		write_text("/proc/sys/vm/compact_memory", "1");
		__atomic_fetch_add(stop + 1, 1, __ATOMIC_RELAXED);
	}
	return 0;
}

static void test_memory_pressure(void)
{
	int wrong = 0, status = -1, rounds = 0;
	pid_t pid;

	stop[0] = stop[1] = 0;
	fflush(stdout);
	pid = fork();
	need(pid >= 0, "fork");
	if (!pid)
		_exit(hog(NULL));
	do {
		wrong += load_many(4);
	} while (!__atomic_load_n(stop + 1, __ATOMIC_RELAXED) && rounds++ < 40);
	__atomic_store_n(stop, 1, __ATOMIC_RELEASE);
	check(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status), "memory is short: %d times", stop[1]);
	check_int(wrong, 0, "memory is short: loads");
	check(stop[1] >= 1, "memory is short: it was");
}

/* ----------------------------------------------------------------------------------------- signals */

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
	alarms++;
}

static void test_signals(void)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	int wrong = 0;

	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 6; i++) {
		int region = create(SITS_KIND_HUGE, 0, LEN);
		struct sits_weights_load a = load_arg(file_fd, region);
		int ret = load_ioctl(&a);

		if (ret || !region_is(region, data, LEN)) {
			printf("# load %d: %s\n", i, ret ? strerror(-ret) : "wrong contents");
			wrong++;
		}
		close(region);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	check_int(wrong, 0, "signals with a handler: loads go on");
	check(alarms > 0, "signals with a handler: %d arrived", (int)alarms);
}

static int load_until_killed(void *arg)
{
	for (;;)
		load_many(1);
	return 0;
}

static void test_killed(void)
{
	char best[128] = "";
	int before = users_at_rest(best), seen = 0;

	for (int i = 0; i < 5; i++) {
		pid_t pid;
		int status;

		fflush(stdout);
		pid = fork();
		need(pid >= 0, "fork");
		if (!pid) {
			freopen("/dev/null", "w", stdout);
			_exit(load_until_killed(NULL));
		}
		/* In the middle of a load. */
		while (users_of_best(best) <= before && !waitpid(pid, &status, WNOHANG))
			sched_yield();
		kill(pid, SIGKILL);
		seen += waitpid(pid, &status, 0) == pid && WIFSIGNALED(status);
	}
	check_int(seen, 5, "killed: five times in a load");
	/* Requests under way end before the cipher is let go of. */
	check_int(users_at_rest(best), before, "killed: the cipher is not in use any more");
	check_int(load_many(2), 0, "killed: loads afterwards");
}

/* ------------------------------------------------------------------------------------- competition */

/* Programs that keep both processors' vector registers busy by the same driver. */
static int rival(void *arg)
{
	struct sockaddr_alg sa = { .salg_family = AF_ALG, .salg_type = "skcipher", .salg_name = "ctr(sm4)" };
	int tfm = socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), op;
	static uint8_t in[32768], out[32768];

	if (tfm < 0 || bind(tfm, (struct sockaddr *)&sa, sizeof(sa)) || setsockopt(tfm, SOL_ALG, ALG_SET_KEY, kek_raw, 16))
		return 1;
	op = accept4(tfm, NULL, 0, SOCK_CLOEXEC);
	while (op >= 0 && !__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		if (send(op, in, sizeof(in), 0) != sizeof(in) || read(op, out, sizeof(out)) != sizeof(out))
			return 2;
		__atomic_fetch_add(stop + 1, 1, __ATOMIC_RELAXED);
	}
	return op < 0;
}

static void test_rivals(void)
{
	int wrong, status = -1;
	pid_t pid;

	stop[0] = stop[1] = 0;
	fflush(stdout);
	pid = fork();
	need(pid >= 0, "fork");
	if (!pid)
		_exit(rival(NULL));
	while (!__atomic_load_n(stop + 1, __ATOMIC_RELAXED) && !waitpid(pid, &status, WNOHANG))
		sched_yield();
	wrong = load_many(6);
	__atomic_store_n(stop, 1, __ATOMIC_RELEASE);
	check(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status), "rivals: %d pieces of theirs", stop[1]);
	check_int(wrong, 0, "rivals: loads");
}

int main(void)
{
	setup();
	stop = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(stop != MAP_FAILED, "mmap");
	data = random_bytes(LEN);
	seal_bytes(in_dir("good.sits"), data, LEN, kek, 1 << 18);
	file_fd = open(in_dir("good.sits"), O_RDONLY);
	need(file_fd >= 0, "open");
	test_in_use();
	test_hotplug();
	test_memory_pressure();
	test_signals();
	test_killed();
	test_rivals();
	close(file_fd);
	teardown();
	return done();
}
