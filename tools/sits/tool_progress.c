// SPDX-License-Identifier: MIT
/*
 * tool_progress.c - a progress bar on stderr, and the signals that stop long work.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/sits/cmd.h"

#define REDRAW_NS	100000000
#define BAR_MAX		40

static volatile sig_atomic_t caught;

static struct {
	bool drawn;
	uint64_t start_ns, last_ns, last_done;
} bar;

static void on_signal(int sig)
{
	/* The second one ends the program at once; what is left behind then, the next run removes. */
	if (caught) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
	caught = sig;
}

void tool_catch_signals(void)
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, old;
	size_t i;

	for (i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
		sigaction(sigs[i], NULL, &old);
		/* nohup(1) and background jobs of a script have it ignored, and so it stays. */
		if (old.sa_handler != SIG_IGN)
			sigaction(sigs[i], &sa, NULL);
	}
}

int tool_signal(void)
{
	return caught;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static unsigned int columns(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || !w.ws_col ? 80 : w.ws_col;
}

static void show(const char *line, unsigned int width)
{
	fprintf(stderr, "\r\033[K%.*s", (int)width - 1, line);
	fflush(stderr);
	bar.drawn = true;
}

static void draw(const char *label, uint64_t done, uint64_t total, uint64_t now)
{
	static const char full[BAR_MAX + 1] = "########################################";
	char a[32], b[32], rate[32], left[32] = "", line[256];
	unsigned int width = columns(), cells, filled;
	double seconds = (double)(now - bar.start_ns) * 1e-9;
	double per_second = seconds > 0.2 ? (double)done / seconds : 0;
	int percent = total ? (int)((double)done * 100 / (double)total) : 100;

	if (per_second > 0 && done < total)
		snprintf(left, sizeof(left), "  %.0f s left", (double)(total - done) / per_second);
	cells = width > 90 ? BAR_MAX : width > 70 ? BAR_MAX / 2 : 10;
	filled = (unsigned int)percent * cells / 100;
	snprintf(line, sizeof(line), "%.*s %3d%% [%.*s%*s] %s of %s  %s/s%s", width > 90 ? 40 : 12, label, percent,
		 (int)filled, full, (int)(cells - filled), "", tool_bytes(done, a), tool_bytes(total, b),
		 tool_bytes((uint64_t)per_second, rate), left);
	show(line, width);
}

int tool_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
	uint64_t now;

	if (caught)
		return 1;
	if (!isatty(STDERR_FILENO))
		return 0;
	now = now_ns();
	if (!bar.start_ns || done_bytes < bar.last_done)
		bar.start_ns = now;
	else if (done_bytes < total_bytes && now - bar.last_ns < REDRAW_NS)
		return 0;
	bar.last_ns = now;
	bar.last_done = done_bytes;
	draw(arg, done_bytes, total_bytes, now);
	return 0;
}

int tool_progress_quiet(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
	return caught != 0;
}

static void count(const char *label, uint64_t done, uint64_t total, const char *what)
{
	uint64_t now = now_ns();
	char line[128];

	if (!isatty(STDERR_FILENO) || (bar.drawn && now - bar.last_ns < REDRAW_NS))
		return;
	bar.last_ns = now;
	snprintf(line, sizeof(line), "%.60s %" PRIu64 " of %" PRIu64 "%s", label, done, total, what);
	show(line, columns());
}

void tool_progress_files(const char *label, unsigned int done, unsigned int total)
{
	count(label, done, total, " files");
}

void tool_progress_count(const char *label, uint64_t done, uint64_t total)
{
	count(label, done, total, "");
}

void tool_progress_end(void)
{
	if (!bar.drawn)
		return;
	fputs("\r\033[K", stderr);
	bar.drawn = false;
}
