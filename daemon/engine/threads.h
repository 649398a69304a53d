/* SPDX-License-Identifier: MIT */
/*
 * threads.h - a team of threads that walks one program in step.
 *
 * sits_threads_run() has every thread, the caller among them, execute the same body. The body is
 * a run of stages; a stage is a bag of independent tasks that threads claim one at a time, then a
 * barrier. The last thread to arrive runs the stage's tail, alone, before the others go on: the
 * place for short serial work that would not pay for a stage of its own.
 *
 *	thread 0  |t0|t2   |t5|.....|tail|t0 ...
 *	thread 1  |t1|t3|t4   |t6   |....|t1 ...
 *
 * Claiming, rather than a fixed share for each, keeps a thread whose core was taken away for a
 * moment from holding all others up. Results can't depend on who claims what as long as tasks
 * write to disjoint places.
 *
 * Waiting threads spin for some microseconds, then sleep on a futex; an idle team uses no CPU.
 */
#ifndef SITS_ENGINE_THREADS_H
#define SITS_ENGINE_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"

struct sits_threads;

#define SITS_THREADS_MAX 256

/* The products of many rows have 90 KiB of tiles on the stack (kernels/x86/matmul_quant.h), sanitizers add to that. */
#define SITS_THREADS_STACK (1u << 20)

/**
 * sits_threads_start() - pthread_create() with a stack of SITS_THREADS_STACK, whatever the limit (ulimit -s) is. Each thread that
 * runs a team is one of these, as the team's own are.
 * Return: 0; -EAGAIN, -ENOMEM where the system has no more threads, or no memory for the stack.
 */
int sits_threads_start(pthread_t *thread, void *(*fn)(void *arg), void *arg);

/** sits_threads_usable() - Physical cores that this process may run on, bounded by the cgroup's CPU quota; >= 1. */
uint32_t sits_threads_usable(void);

/**
 * sits_threads_plan() - Where a team would be, if the calling thread created it now.
 * @nr: @pin: as for sits_threads_create()
 * @nodes: out: its NUMA nodes; those of all CPUs of the mask where it would not be pinned
 */
void sits_threads_plan(uint32_t nr, int pin, cpu_set_t *nodes);

/**
 * sits_threads_create() - Start a team.
 * @nr: threads with the caller's one (see sits_threads_start()), 1 to SITS_THREADS_MAX; 0: sits_threads_usable()
 * @pin: bind each thread, the caller's too, to a CPU of its own in the order of topology.h, if there are enough
 * Return: 0; -EINVAL; -ENOMEM; -EAGAIN where the system has no more threads.
 */
int sits_threads_create(uint32_t nr, int pin, struct sits_threads **out, struct sits_diag *diag);

/** sits_threads_destroy() - Stop the team, and give the caller its old CPU mask back. Context: the creator's thread. */
void sits_threads_destroy(struct sits_threads *t);

uint32_t sits_threads_nr(const struct sits_threads *t);

/** sits_threads_nodes() - NUMA nodes that pinned threads are on; 0 for a team that is not pinned. */
uint32_t sits_threads_nodes(const struct sits_threads *t);

/** sits_threads_run() - Execute @body(arg, self) on every thread, self from 0 (the caller) up; returns when all are done. */
void sits_threads_run(struct sits_threads *t, void (*body)(void *arg, uint32_t self), void *arg);

/**
 * sits_threads_stage() - One stage, inside a body; every thread calls it, with equal arguments.
 * @nr: tasks; 0 is allowed
 * @task: called once for each i < nr, by some thread
 * @tail: called once after all tasks, before any thread returns; may be NULL
 */
void sits_threads_stage(struct sits_threads *t, uint32_t self, size_t nr,
			void (*task)(void *arg, size_t i, uint32_t self), void (*tail)(void *arg), void *arg);

#endif
