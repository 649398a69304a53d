/* SPDX-License-Identifier: GPL-2.0 */
/*
 * park.h - commands of io_uring that wait for something.
 */
#ifndef SITS_PARK_H
#define SITS_PARK_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/types.h>

struct io_uring_cmd;
struct task_struct;

/**
 * struct sits_park - a command that waits
 *
 * Allocated when there is nothing for a command yet, freed when it is done. Who takes it off its
 * list has it, and has to finish it or put it back.
 *
 * @link: in a list of the queue or the channel, under its lock; empty while somebody has it
 * @next: in a struct sits_parks of who has it
 * @cmd: the command
 * @obj: queue or channel; the command holds its file
 * @task: whose it is, with a reference
 * @owner: file table of who issued it
 * @cancelled: the kernel wants it back; under the lock
 * @in_exec: the watchdog saw its task in execve(), the last time
 * @addr: where it writes: user address, or offset in the arena
 * @len: room there
 * @res: what it is done with
 */
struct sits_park {
	struct list_head link;
	struct sits_park *next;
	struct io_uring_cmd *cmd;
	void *obj;
	struct task_struct *task;
	fl_owner_t owner;
	bool cancelled;
	bool in_exec;
	u64 addr;
	u32 len;
	int res;
};

/* Commands that were taken off their list, in order: the holder's own, without a lock. */
struct sits_parks {
	struct sits_park *first;
	struct sits_park *last;
};

/* Take one off its list. Context: under the lock of the list. */
static inline void sits_park_take(struct sits_park *park, struct sits_parks *to)
{
	list_del_init(&park->link);
	park->next = NULL;
	if (to->last)
		to->last->next = park;
	else
		to->first = park;
	to->last = park;
}

int sits_park_init(void);
void sits_park_fini(void);

/**
 * sits_park_alloc() - Make a command ready for waiting.
 * @cmd: in its issue; from here on only to be ended by sits_park_finish*()
 * @issue_flags: of it
 * @obj: queue or channel
 *
 * Context: no lock held.
 * Return: in no list; NULL where memory is short, and the command is as before.
 */
struct sits_park *sits_park_alloc(struct io_uring_cmd *cmd, unsigned int issue_flags, void *obj,
				  u64 addr, u32 len);

/* The park of a command that has one. */
struct sits_park *sits_park_of(struct io_uring_cmd *cmd);

/**
 * sits_park_finish_here() - End a command.
 * @park: taken
 * @issue_flags: as they were given to the issue, the cancel or the task work that calls
 *
 * The command, and its hold on the file, are gone afterwards.
 */
void sits_park_finish_here(struct sits_park *park, int res, unsigned int issue_flags);

/* The same from anywhere in task context, without locks. */
void sits_park_finish(struct sits_park *park, int res);

/* All of them. */
void sits_parks_finish(struct sits_parks *parks, int res);

/* GONE: the thread or the ring; PROCESS_GONE: all of it. */
enum sits_park_fate { SITS_PARK_ALIVE, SITS_PARK_GONE, SITS_PARK_PROCESS_GONE };

/* Is whoever waits still there? To be asked now and then. */
enum sits_park_fate sits_park_check(struct sits_park *park);

/*
 * Will nobody see what it brings? Then it is not to get anything: it is taken back soon. Context:
 * the command is not done.
 */
bool sits_park_is_void(const struct sits_park *park);

/* In the cancel of a command: is its process on its way to another program? */
bool sits_park_is_exec(const struct sits_park *park);

#endif
