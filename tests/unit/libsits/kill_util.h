/* SPDX-License-Identifier: MIT */
/*
 * kill_util.h - work that is killed before and after each of its system calls in turn.
 */
#ifndef SITS_TESTS_KILL_UTIL_H
#define SITS_TESTS_KILL_UTIL_H

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "tests/unit/libsits/sealed_util.h"

#define STOPS_MAX 5000

/* Does ptrace work here? */
static UNUSED bool probe_ptrace(void)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		_exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) ? 1 : 0);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* A thread stopped: go on. @sig: what to deliver. */
static UNUSED void resume(pid_t tid, int sig)
{
	/* It may have been killed meanwhile. */
	if (ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(intptr_t)sig))
		assert_int_equal(errno, ESRCH);
}

/*
 * Run @work in a child and kill it at its n-th stop at a system call.
 * Return: true if it was killed; false if it came to its end, successfully.
 */
static UNUSED bool run_killed(int (*work)(void), unsigned int n)
{
	unsigned int stops = 0;
	int status;
	pid_t pid, tid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(work() ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE |
								      PTRACE_O_EXITKILL)), 0);
	resume(pid, 0);
	for (;;) {
		tid = waitpid(-1, &status, __WALL);
		assert_true(tid > 0);
		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			if (tid != pid)
				continue;
			if (WIFSIGNALED(status)) {
				assert_int_equal(WTERMSIG(status), SIGKILL);
				return true;
			}
			if (WEXITSTATUS(status))
				fail_msg("the work failed by itself");
			return false;
		}
		if (WSTOPSIG(status) == (SIGTRAP | 0x80) && ++stops == n) {
			kill(pid, SIGKILL);
			continue;
		}
		/* System calls and new threads are not for the child to hear of, and its first stop neither. */
		resume(tid, WSTOPSIG(status) == (SIGTRAP | 0x80) || WSTOPSIG(status) == SIGTRAP ||
		       WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status));
	}
}

/* As many fsync() as these tests do take minutes on a disk. Before dir_setup(). */
static UNUSED void kill_in_memory(void)
{
	if (!access("/dev/shm", W_OK | X_OK))
		test_parent = "/dev/shm";
}

static UNUSED void need_ptrace(void)
{
	if (!probe_ptrace()) {
		print_message("# skip: ptrace is not allowed here\n");
		skip();
	}
}

#endif
