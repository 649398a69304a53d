// SPDX-License-Identifier: MIT
/*
 * init.c - first process of the test guest: runs the tests of a list and tells the host, then powers off.
 *
 * Static, and packed into the initramfs as /init by tests/vm/run, which also reads what this writes. The list is
 * /sits/.vm/list, a test a line, fields parted by tabs:
 *
 *	name	timeout in seconds	modules to load first	command
 *
 * The second serial port carries the report, a line each:
 *
 *	:slow N			first of all: the time limits here are N times those of the list
 *	|TEXT			what the test printed
 *	:begin NAME
 *	:fail TEXT		something about the test is wrong besides what it prints
 *	:end NAME HOW VALUE	HOW is exit, signal, timeout or stuck
 *	:done TAINT		the end of the list, with /proc/sys/kernel/tainted
 *
 * Kernel command line: sits.shell gives an interactive shell in place of the tests; sits.probe powers off at once. As an
 * ordinary command in that shell, "/init NAME..." runs tests of the list and reports on standard output.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define LIST		"/sits/.vm/list"
#define MODULE_TIMEOUT	60	/* seconds for modprobe: an exit function that waits for ever is a finding */
#define USUAL_BOOT_MS	10000
#define SLOWNESS_MAX	16
#define LEAKS		"/sys/kernel/debug/kmemleak"	/* of a debug kernel */
#define LEAK_AGE	6	/* seconds: kmemleak does not look at what is younger than 5 */
#define KILL_PATIENCE	10	/* seconds until a killed process counts as stuck in the kernel */

static int report_fd = -1;
static int child_fd = -1;	/* signalfd of SIGCHLD */
static bool at_line_start = true;
static int slowness = 1;	/* factor of all time limits */

struct test {
	char *name;
	int timeout;		/* seconds */
	char *modules;		/* parted by commas */
	char *command;
};

struct end {
	const char *how;	/* "exit", "signal", "timeout", "stuck" */
	int value;
};

static void write_all(int fd, const char *buf, size_t len)
{
	while (len) {
		ssize_t n = write(fd, buf, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		buf += n;
		len -= n;
	}
}

__attribute__((format(printf, 1, 2)))
static void report(const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	for (int i = 0; i < n; i++)
		if (line[i] == '\n')
			line[i] = ' ';
	line[n++] = '\n';
	if (!at_line_start)
		write_all(report_fd, "\n", 1);
	at_line_start = true;
	write_all(report_fd, line, n);
}

/* Send on what a test printed, each line marked. */
static void report_output(const char *buf, size_t len)
{
	while (len) {
		const char *nl = memchr(buf, '\n', len);
		size_t n = nl ? (size_t)(nl - buf) + 1 : len;

		if (at_line_start)
			write_all(report_fd, "|", 1);
		write_all(report_fd, buf, n);
		at_line_start = nl != NULL;
		buf += n;
		len -= n;
	}
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	write_all(fd, text, strlen(text));
	close(fd);
}

/* A line in the kernel's log, so that what follows there can be told apart by test. */
static void mark(const char *what, const char *name)
{
	char line[256];

	snprintf(line, sizeof(line), "<5>sits-vm: %s %s\n", what, name);
	write_file("/dev/kmsg", line);
}

static long long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

static void mount_on(const char *type, const char *dir, const char *options)
{
	mkdir(dir, 0755);
	if (mount(type, dir, type, 0, options) && getpid() == 1)
		fprintf(stderr, "sits-vm: mount %s on %s: %s\n", type, dir, strerror(errno));
}

static void mount_all(void)
{
	mount_on("proc", "/proc", NULL);
	mount_on("sysfs", "/sys", NULL);
	mount_on("devtmpfs", "/dev", NULL);
	mount_on("devpts", "/dev/pts", "ptmxmode=0666");
	mount_on("tmpfs", "/dev/shm", "mode=1777");
	mount_on("tmpfs", "/tmp", "mode=1777");
	mount_on("tmpfs", "/run", "mode=0755");
	mount_on("debugfs", "/sys/kernel/debug", NULL);
	mount_on("tracefs", "/sys/kernel/tracing", NULL);
	mount_on("cgroup2", "/sys/fs/cgroup", NULL);
	mount_on("hugetlbfs", "/dev/hugepages", NULL);
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
}

static void write_number(const char *path, int n)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", n);
	write_file(path, text);
}

/*
 * How long the kernel took to boot says how much of a processor the host has to spare: with two that are idle it is
 * 4 to 8 seconds of emulation. The kernel's own watchdogs get more time than by default, but less than the tests do.
 */
static void set_limits(void)
{
	slowness = (int)(now_ms() / USUAL_BOOT_MS);
	slowness = slowness < 1 ? 1 : slowness > SLOWNESS_MAX ? SLOWNESS_MAX : slowness;
	write_number("/proc/sys/kernel/hung_task_timeout_secs", 40 * slowness);
	write_number("/proc/sys/kernel/watchdog_thresh", slowness > 1 ? 60 : 30);
	write_file("/proc/sys/kernel/sysrq", "1");
	/* In the directory of whoever dies: tests look for it there. */
	write_file("/proc/sys/kernel/core_pattern", "core");
}

/* Stack of every thread that is not the kernel's own: what a test was stuck in. */
static void report_stacks(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *d;
	char cmd[2048];

	while (dir && (d = readdir(dir))) {
		if (!isdigit((unsigned char)d->d_name[0]) || atoi(d->d_name) == 1)
			continue;
		/* A file of /proc has no size, so "test -s" would find every command line empty. */
		snprintf(cmd, sizeof(cmd),
			 "grep -q . /proc/%s/cmdline && for t in /proc/%s/task/*; do "
			 "echo \"# ${t#/proc/} $(cat $t/comm): $(sed -n 's/^State:.//p' $t/status), $(cat $t/syscall)\"; "
			 "sed 's/^/#   /' $t/stack; done 2>/dev/null", d->d_name, d->d_name);
		FILE *f = popen(cmd, "r");
		char line[512];

		while (f && fgets(line, sizeof(line), f))
			report_output(line, strlen(line));
		if (f)
			pclose(f);
	}
	if (dir)
		closedir(dir);
}

static pid_t spawn(const char *command, int *out_fd)
{
	sigset_t none;
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -1;
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setsid();
		setenv("SITS_TEST_GUEST", "1", 1);
		/* Where a test has the module loaded, what runs on each provider runs on both. */
		setenv("SITS_TEST_PROVIDERS", access("/dev/sits", F_OK) ? "user" : "user kernel", 1);
		dup2(null, 0);
		dup2(fds[1], 1);
		dup2(fds[1], 2);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	close(fds[1]);
	*out_fd = fds[0];
	return pid;
}

/* Reap all that ended. Return whether @pid did, with its status. */
static bool reap(pid_t pid, int *status)
{
	bool ended = false;
	pid_t got;
	int st;

	/* As an ordinary command this has no children but its own. */
	while ((got = waitpid(-1, &st, WNOHANG)) > 0) {
		if (got == pid) {
			ended = true;
			*status = st;
		}
	}
	return ended;
}

/*
 * Forward output until @pid ended, or until @deadline. A descendant may hold the pipe open for longer than that:
 * what it prints after the end is nobody's.
 */
static bool forward(pid_t pid, int out_fd, long long deadline, int *status)
{
	struct pollfd fds[2] = { { .fd = child_fd, .events = POLLIN }, { .fd = out_fd, .events = POLLIN } };
	struct signalfd_siginfo info;
	char buf[4096];
	bool ended;
	ssize_t n;

	for (;;) {
		ended = reap(pid, status);
		if (ended || now_ms() >= deadline)
			break;
		if (poll(fds, 2, (int)(deadline - now_ms())) <= 0)
			continue;
		if (fds[0].revents && read(child_fd, &info, sizeof(info)) < 0)
			continue;
		if (fds[1].revents) {
			n = read(out_fd, buf, sizeof(buf));
			if (n > 0)
				report_output(buf, n);
			else
				fds[1].fd = -1;
		}
	}
	fcntl(out_fd, F_SETFL, O_NONBLOCK);
	while (fds[1].fd >= 0 && (n = read(out_fd, buf, sizeof(buf))) > 0)
		report_output(buf, n);
	return ended;
}

/* End whatever a test left: everything but this process. In a shell, only the test's own group. */
static void kill_rest(pid_t pid)
{
	if (getpid() == 1)
		kill(-1, SIGKILL);
	else
		kill(-pid, SIGKILL);
}

static struct end run_command(const char *command, int timeout)
{
	int out_fd, status = 0;
	struct end end;
	pid_t pid = spawn(command, &out_fd);

	if (pid < 0)
		return (struct end){ "exit", 126 };
	if (forward(pid, out_fd, now_ms() + timeout * slowness * 1000LL, &status)) {
		end = WIFSIGNALED(status) ? (struct end){ "signal", WTERMSIG(status) }
					  : (struct end){ "exit", WEXITSTATUS(status) };
		kill_rest(pid);
	} else {
		report_stacks();
		kill_rest(pid);
		end = forward(pid, out_fd, now_ms() + KILL_PATIENCE * slowness * 1000LL, &status)
			? (struct end){ "timeout", timeout * slowness } : (struct end){ "stuck", timeout * slowness };
	}
	close(out_fd);
	return end;
}

/* modprobe each of @modules, or, with @remove, take them out again in reverse order. */
static bool change_modules(const char *modules, bool remove)
{
	char *list = strdup(modules), *names[32], *save, *name;
	char command[256];
	bool good = true;
	int nr = 0;

	for (name = strtok_r(list, ",", &save); name && nr < 32; name = strtok_r(NULL, ",", &save))
		names[nr++] = name;
	for (int i = 0; i < nr && (good || remove); i++) {
		name = names[remove ? nr - 1 - i : i];
		snprintf(command, sizeof(command), "exec modprobe %s%s", remove ? "-r " : "", name);
		/* What the kernel does in the background may hold a module for a moment yet: a self-test's thread, RCU. */
		struct end end = run_command(command, MODULE_TIMEOUT);

		for (int again = 0; remove && again < 300 && !strcmp(end.how, "exit") && end.value; again++) {
			usleep(100000);
			end = run_command(command, MODULE_TIMEOUT);
		}
		if (strcmp(end.how, "exit") || end.value) {
			report(":fail modprobe %s%s: %s %d", remove ? "-r " : "", name, end.how, end.value);
			good = false;
		}
	}
	free(list);
	return good;
}

static bool run_test(const struct test *t)
{
	struct end end = { "exit", 0 };

	report(":begin %s", t->name);
	mark("begin", t->name);
	if (change_modules(t->modules, false))
		end = run_command(t->command, t->timeout);
	if (strcmp(end.how, "stuck"))
		change_modules(t->modules, true);
	mark("end", t->name);
	report(":end %s %s %d", t->name, end.how, end.value);
	return strcmp(end.how, "stuck") != 0;
}

static bool parse_test(char *line, struct test *t)
{
	char *field[4], *save = NULL;
	int nr = 0;

	line[strcspn(line, "\n")] = '\0';
	for (char *p = line; nr < 4; nr++) {
		field[nr] = p;
		save = nr < 3 ? strchr(p, '\t') : NULL;
		if (!save) {
			nr++;
			break;
		}
		*save = '\0';
		p = save + 1;
	}
	if (nr != 4)
		return false;
	*t = (struct test){ .name = field[0], .timeout = atoi(field[1]), .modules = field[2], .command = field[3] };
	return true;
}

/* Run the tests of the list, or those that @names names. */
static void run_tests(char **names)
{
	FILE *f = fopen(LIST, "re");
	char *line = NULL;
	size_t cap = 0;
	struct test t;

	if (!f) {
		report(":fail no list of tests: %s: %s", LIST, strerror(errno));
		return;
	}
	while (getline(&line, &cap, f) > 0) {
		bool chosen = !names;

		if (!parse_test(line, &t))
			continue;
		for (char **n = names; n && *n; n++)
			chosen |= !strcmp(*n, t.name);
		/* Where a process can't be killed, what comes after shows nothing. */
		if (chosen && !run_test(&t))
			break;
	}
	free(line);
	fclose(f);
}

/* What nothing points to any more, from before the tests, is not theirs. */
static void forget_leaks(void)
{
	write_file(LEAKS, "scan");
	write_file(LEAKS, "clear");
}

/* What the tests leaked goes into the kernel's log, where all trouble is looked for. */
static void tell_leaks(void)
{
	char line[256], text[300];
	FILE *f;

	if (access(LEAKS, F_OK))
		return;
	mark("begin", "kmemleak");
	sleep(LEAK_AGE);
	write_file(LEAKS, "scan");
	/* A pointer may have been in a register, or on its way: only what is found twice counts. */
	write_file(LEAKS, "scan");
	f = fopen(LEAKS, "re");
	while (f && fgets(line, sizeof(line), f)) {
		snprintf(text, sizeof(text), "<4>kmemleak: %s", line);
		write_file("/dev/kmsg", text);
	}
	if (f)
		fclose(f);
	mark("end", "kmemleak");
}

static bool on_command_line(const char *word)
{
	char line[4096] = "", *save;
	FILE *f = fopen("/proc/cmdline", "re");

	if (f) {
		if (!fgets(line, sizeof(line), f))
			line[0] = '\0';
		fclose(f);
	}
	for (char *w = strtok_r(line, " \n", &save); w; w = strtok_r(NULL, " \n", &save))
		if (!strcmp(w, word))
			return true;
	return false;
}

static void interactive_shell(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		int tty = open("/dev/ttyS0", O_RDWR);
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setsid();
		ioctl(tty, TIOCSCTTY, 1);
		for (int i = 0; i < 3; i++)
			dup2(tty, i);
		execl("/bin/sh", "-sh", NULL);
		_exit(127);
	}
	while (wait(NULL) != pid)
		;
}

static void open_report(void)
{
	struct termios t;

	report_fd = open("/dev/ttyS1", O_WRONLY | O_NOCTTY | O_CLOEXEC);
	if (report_fd < 0) {
		report_fd = 2;
		return;
	}
	tcgetattr(report_fd, &t);
	cfmakeraw(&t);
	tcsetattr(report_fd, TCSANOW, &t);
}

static void report_end(void)
{
	char taint[32] = "?";
	FILE *f = fopen("/proc/sys/kernel/tainted", "re");

	if (f) {
		if (fgets(taint, sizeof(taint), f))
			taint[strcspn(taint, "\n")] = '\0';
		fclose(f);
	}
	report(":done %s", taint);
	tcdrain(report_fd);
}

static void open_console(void)
{
	int fd = open("/dev/console", O_RDWR);

	for (int i = 0; fd >= 0 && i < 3; i++)
		dup2(fd, i);
}

int main(int argc, char **argv)
{
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	child_fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	signal(SIGPIPE, SIG_IGN);
	if (getpid() != 1) {
		report_fd = 1;
		run_tests(argc > 1 ? argv + 1 : NULL);
		return 0;
	}

	mount_all();
	open_console();
	set_limits();
	setenv("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", 1);
	setenv("HOME", "/root", 1);
	setenv("BUILD", "build", 1);
	setenv("SITS_VM", "1", 1);
	if (system("ifconfig lo 127.0.0.1 up; hostname sits-vm") || chdir("/sits"))
		fprintf(stderr, "sits-vm: the guest is not as it should be\n");
	open_report();
	report(":slow %d", slowness);
	if (on_command_line("sits.shell")) {
		interactive_shell();
	} else {
		if (!on_command_line("sits.probe")) {
			forget_leaks();
			run_tests(NULL);
			tell_leaks();
		}
		report_end();
	}
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
