// SPDX-License-Identifier: MIT
/*
 * load_bench.c - loading a sealed model beside loading its plaintext, into the same kind of region.
 *
 *   load_bench SEALED KEY PLAINTEXT [ROUNDS [NAME]]
 *
 * Both sides read by the same pump, in the same spans; the plaintext side does nothing with them. They take turns, and medians
 * are compared. One JSON line for O_DIRECT, one for the page cache; ratio is the sealed load's time over the
 * plaintext's. Behind each come where the time of the sealed load's threads went, as libsits logs it: shares of all cores' time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libsits/internal.h"
#include "libsits/io.h"
#include "libsits/pump.h"
#include "sits/sealed.h"

#define ROUNDS		7
#define ROUNDS_MAX	101

static struct sits_ctx *ctx;

/* Of the last load: seconds, of all threads together but for the first. */
static double logged_total, logged_read, logged_cipher;

static void die(const char *what, int err)
{
	fprintf(stderr, "load_bench: %s: %s\n", what, strerror(-err));
	exit(1);
}

static void log_line(void *arg, int severity, const char *line)
{
	const char *times = strstr(line, ": loaded: ");

	if (times)
		sscanf(times, ": loaded: %*u bytes in %lf s; all threads together: reads %lf s; cipher %lf s", &logged_total,
		       &logged_read, &logged_cipher);
	if (severity <= SITS_LOG_WARN)
		fprintf(stderr, "load_bench: %s\n", line);
}

static struct sits_region *make_region(uint64_t len)
{
	struct sits_region_opts o = { .size = sizeof(o), .kind = SITS_REGION_HUGE, .node = -1, .len_bytes = len,
				      .flags = SITS_REGION_ALLOW_UNLOCKED, .name = "load_bench" };
	struct sits_region *r;
	int ret = sits_region_create(ctx, &o, &r);

	if (ret)
		die("region", ret);
	return r;
}

/* Seconds to load the sealed file. */
static double load_sealed(const char *path, const struct sits_key *key, uint64_t len, bool cached)
{
	struct sits_load_opts o = { .size = sizeof(o), .flags = cached ? SITS_LOAD_BUFFERED : 0 };
	struct sits_region *r = make_region(len);
	uint64_t start = sits_now_ns();
	int ret = sits_weights_load(ctx, path, r, key, &o, NULL);
	double s = (double)(sits_now_ns() - start) * 1e-9;

	if (ret)
		die(path, ret);
	sits_region_destroy(r);
	return s;
}

/* Seconds to load the plaintext, and to seal the region as the other side does. */
static double load_plain(const char *path, uint64_t len, bool cached)
{
	static const uint8_t no_digest[32];
	struct sits_pump p = { .in_direct_fd = -1, .out_fd = -1, .total_bytes = len, .span_bytes = SITS_PUMP_SPAN_BYTES };
	struct sits_region *r = make_region(len);
	uint64_t start = sits_now_ns();
	struct stat st;
	void *data;
	double s;
	int ret;

	p.in_fd = sits_open_regular(ctx, path, O_RDONLY, &st);
	if (p.in_fd < 0)
		exit(1);
	if (!cached)
		p.in_direct_fd = sits_reopen_direct(p.in_fd);
	ret = sits_region_load_begin(r, &data);
	if (ret)
		die("region", ret);
	p.dst = data;
	ret = sits_pump_run(&p);
	if (ret)
		die(path, ret);
	ret = sits_region_load_finish(r, no_digest, false);
	if (ret)
		die("region", ret);
	s = (double)(sits_now_ns() - start) * 1e-9;
	if (p.in_direct_fd >= 0)
		close(p.in_direct_fd);
	close(p.in_fd);
	sits_region_destroy(r);
	return s;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned int n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n & 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* For direct reads nothing may be in the page cache, and for cached ones all. */
static void prepare(const char *path, bool cached)
{
	static char buf[1 << 20];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die(path, -errno);
	if (cached) {
		while (read(fd, buf, sizeof(buf)) > 0)
			;
	} else {
		fdatasync(fd);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	close(fd);
}

static void share(const char *name, const char *what, double value)
{
	printf("{\"name\": \"%s-share-%s\", \"value\": %.6g, \"unit\": \"of 1\", \"command\": \"make bench BENCH=%s\"}\n", name, what,
	       value, name);
	fflush(stdout);
}

static void bench(const char *sealed, const struct sits_key *key, const char *plain, uint64_t len, bool cached,
		  unsigned int rounds)
{
	const char *name = cached ? "load-sealed-cached" : "load-sealed-direct";
	double a[ROUNDS_MAX], b[ROUNDS_MAX], sealed_s, plain_s;
	double read[ROUNDS_MAX], cipher[ROUNDS_MAX];
	unsigned int i;
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	prepare(sealed, cached);
	prepare(plain, cached);
	for (i = 0; i < rounds; i++) {
		/* Who goes first changes too. */
		if (i & 1)
			b[i] = load_plain(plain, len, cached);
		a[i] = load_sealed(sealed, key, len, cached);
		read[i] = logged_read / (logged_total * CPU_COUNT(&set));
		cipher[i] = logged_cipher / (logged_total * CPU_COUNT(&set));
		if (!(i & 1))
			b[i] = load_plain(plain, len, cached);
	}
	sealed_s = median(a, rounds);
	plain_s = median(b, rounds);
	printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"GB/s\", \"peer\": \"plaintext load, %s, %.2f GB/s\", \"ratio\": %.6g, \"threads\": %d, \"command\": \"make bench BENCH=%s\"}\n",
	       name, (double)len / sealed_s * 1e-9, cached ? "page cache" : "O_DIRECT", (double)len / plain_s * 1e-9,
	       sealed_s / plain_s, CPU_COUNT(&set), name);
	share(name, "reads", median(read, rounds));
	share(name, "cipher", median(cipher, rounds));
}

int main(int argc, char **argv)
{
	struct sits_open_opts o = { .size = sizeof(o), .provider = SITS_PROVIDER_USER, .log = log_line };
	unsigned int rounds = argc > 4 ? (unsigned int)atoi(argv[4]) : ROUNDS;
	const char *only = argc > 5 ? argv[5] : "";
	struct sits_sealed_info info;
	struct sits_key *key;
	struct stat st;
	int ret;

	if (argc < 4 || !rounds || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: load_bench SEALED KEY PLAINTEXT [ROUNDS [NAME]]\n");
		return 2;
	}
	ret = sits_open(&o, &ctx);
	if (ret)
		die("libsits", ret);
	ret = sits_key_open(ctx, argv[2], &key);
	if (ret)
		die("key", ret);
	ret = sits_sealed_inspect(ctx, argv[1], key, &info);
	if (ret)
		die(argv[1], ret);
	if (stat(argv[3], &st))
		die(argv[3], -errno);
	if ((uint64_t)st.st_size != info.plain_bytes) {
		fprintf(stderr, "load_bench: %s is not the plaintext of %s: its length differs\n", argv[3], argv[1]);
		return 1;
	}
	if (strcmp(only, "load-sealed-cached"))
		bench(argv[1], key, argv[3], info.plain_bytes, false, rounds);
	if (strcmp(only, "load-sealed-direct"))
		bench(argv[1], key, argv[3], info.plain_bytes, true, rounds);
	sits_key_close(key);
	sits_close(ctx);
	return 0;
}
