/* SPDX-License-Identifier: GPL-2.0 */
/*
 * queue.h - the request path: what a queue, a channel, a request and a chunk are.
 *
 * queue.c has queues: their names, their ends, who waits for what. fetch.c is the daemon's side of
 * a queue, channel.c the client's, request.c the life of a request between them, park.c commands
 * of io_uring that wait. The lock order and the lives are in docs/kernel-module.md.
 */
#ifndef SITS_QUEUE_H
#define SITS_QUEUE_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/timerqueue.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "include/uapi/linux/sits.h"

struct cred;
struct io_uring_cmd;
struct pid_namespace;
struct sits_park;

#define SITS_DEPTH_MAX		1048576u
#define SITS_CLIENTS_MAX	65536u
#define SITS_ARENA_MAX		(64ull << 20)
#define SITS_PARKED_MAX		1024		/* commands that wait, per file */
#define SITS_REQUEST_INLINE	256		/* bytes of a request that lie in its struct */
#define SITS_CHUNK_OVERHEAD	128		/* what keeping a chunk costs beside its bytes */
#define SITS_PUMP_MAX		64		/* chunks that one task hands out at a time */

/* For bytes of users: rather no memory than the OOM killer's choice. */
#define SITS_QUEUE_GFP	(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/* Numbered places for objects: a number is used once, and finds its object in one step. */
struct sits_ident {
	u64 id;		/* 0: free */
	union {
		void *obj;
		u32 next_free;
	};
};

struct sits_idents {
	struct sits_ident *ident;
	u32 nr;
	u32 free;	/* first; @nr: none */
	u64 count;
};

/**
 * struct sits_chunk - bytes for a client, or an end, on its channel's ready list
 * @link: in sits_channel.ready
 * @next_trash: in a struct sits_trash
 * @req: whose; valid while the chunk is on the list
 * @creq: its number for the client
 * @data: bytes, behind the struct
 * @len: of them
 * @done: of these, what the client has
 * @status: where @last
 * @last: the end: holds the reference to @req
 */
struct sits_chunk {
	struct list_head link;
	struct sits_chunk *next_trash;
	struct sits_request *req;
	u64 creq;
	u8 *data;
	u32 len;
	u32 done;
	s32 status;
	bool last;
};

enum sits_request_state {
	SITS_REQUEST_WAITING,
	SITS_REQUEST_FETCHING,	/* its bytes are on the way to the daemon */
	SITS_REQUEST_RUNNING,
	SITS_REQUEST_ENDED,	/* out of the queue; its end may wait for the client */
};

/**
 * struct sits_request - from SUBMIT until its end is collected
 *
 * Allocated by SUBMIT. One reference is the queue's, then the end's; it goes with the client's
 * collecting the end, or where there is no client any more. A fetch under way holds another. All
 * under sits_queue.lock but the bytes, which do not change.
 *
 * @ref: references
 * @state: where it is
 * @link: in the channel's waiting or running list
 * @next_trash: in a struct sits_trash
 * @cancel: in sits_queue.cancels
 * @timeout: in sits_queue.timeouts
 * @client: NULL once it is gone
 * @id: for the daemon
 * @creq: for the client
 * @deadline_ns: 0: none
 * @backlog: bytes of its chunks that wait, overhead included
 * @cancel_status: what it ends with if it never gets to the daemon
 * @cancel_seen: a CANCEL event was due; there is one in a request's life
 * @end: where it ends without bytes: so that an end needs no memory
 * @data: the bytes, @small or an allocation of its own
 */
struct sits_request {
	struct kref ref;
	enum sits_request_state state;
	struct list_head link;
	struct sits_request *next_trash;
	struct list_head cancel;
	struct timerqueue_node timeout;
	struct sits_channel *client;
	u64 client_id;
	kuid_t uid;
	u32 pid;
	s32 cancel_status;
	bool cancel_seen;
	u64 id;
	u64 creq;
	u64 deadline_ns;
	u64 backlog;
	struct sits_chunk end;
	u32 len;
	u8 *data;
	u8 small[SITS_REQUEST_INLINE];
};

/**
 * struct sits_channel - a client's file
 *
 * Made by CHANNEL_OPEN, freed by the file's release. Dead from when its user goes, or it is closed.
 * The first part is constant; the rest is under sits_queue.lock.
 *
 * @queue: with a reference
 * @pid: of the opener, in the namespace of the queue's maker
 * @arena: mapped by the client, which may write it at any time
 * @owner: who used it last: its end is the channel's
 * @link: in sits_queue.channels
 * @ready_link: in sits_queue.ready, while requests wait
 * @pump_link: in sits_queue.to_pump
 * @wait: RECV and poll
 * @dead: nothing goes in or out any more
 * @pumping: somebody copies to the arena without the lock: chunks are handed out by nobody else
 * @idents: of requests that have no end, or one that was not collected
 * @waiting: requests, oldest first
 * @running: requests that are FETCHING or RUNNING
 * @ready: chunks, in order
 * @recvs: struct sits_park: RECV commands that wait
 * @nr_requests: waiting and running
 * @nr_ends: on @ready
 * @nr_parked: of @recvs, and those about to be
 * @watch_round: of the watchdog, when it looked the last time
 */
struct sits_channel {
	struct sits_queue *queue;
	u64 id;
	kuid_t uid;
	u32 pid;
	void *arena;
	u64 arena_bytes;

	fl_owner_t owner;
	struct list_head link;
	struct list_head ready_link;
	struct list_head pump_link;
	wait_queue_head_t wait;
	bool dead;
	bool pumping;
	struct sits_idents idents;
	struct list_head waiting;
	struct list_head running;
	struct list_head ready;
	struct list_head recvs;
	u32 nr_requests;
	u32 nr_ends;
	u32 nr_parked;
	u64 watch_round;
};

/**
 * struct sits_queue - a daemon's file
 *
 * Made by QUEUE_CREATE. References: the file's, and one of each channel. Dead from when its daemon
 * goes, or it is closed. The first part is constant.
 *
 * @ref: references
 * @arg: as asked for
 * @cred: of the maker
 * @pid_ns: of the maker
 * @id: for the watchdog
 * @names: in the list of living queues, under its mutex
 * @lock: a leaf but for the locks of wait queues; guards all below, and the queue's channels and
 * requests
 * @owner: who fetched last: its end is the queue's
 * @wait: FETCH and poll
 * @dead: no requests, no clients any more
 * @intake_closed: no new requests
 * @idents: of requests that have not ended
 * @channels: struct sits_channel, in no order
 * @ready: channels with waiting requests, whose turn is next first
 * @to_pump: channels whose receivers are to be looked at before the lock goes
 * @cancels: requests with a CANCEL event
 * @fetches: struct sits_park: FETCH commands that wait
 * @timeouts: requests with a deadline
 * @timer: runs at the first of them
 * @pump: goes on with @to_pump where a task has done its part; holds a reference while it is due
 * @nr_parked: of @fetches, and those about to be or on their way to their task
 * @nr_hopping: FETCH commands on their way to their task for an event
 * @facts: gauges and counters; config fields are not used
 * @nr_cancels: events on @cancels
 */
struct sits_queue {
	struct kref ref;
	struct sits_queue_create arg;
	const struct cred *cred;
	struct pid_namespace *pid_ns;
	u64 id;
	struct list_head names;

	spinlock_t lock;
	fl_owner_t owner;
	wait_queue_head_t wait;
	bool dead;
	bool intake_closed;
	struct sits_idents idents;
	struct list_head channels;
	struct list_head ready;
	struct list_head to_pump;
	struct list_head cancels;
	struct list_head fetches;
	struct timerqueue_head timeouts;
	struct delayed_work timer;
	struct work_struct pump;
	u32 nr_parked;
	u32 nr_hopping;
	u32 nr_cancels;
	u64 next_client;
	struct sits_queue_facts facts;
};

/* What is to be freed once the lock is released. */
struct sits_trash {
	struct sits_request *requests;	/* references to put */
	struct sits_chunk *chunks;
};

static inline void sits_trash_request(struct sits_trash *trash, struct sits_request *r)
{
	r->next_trash = trash->requests;
	trash->requests = r;
}

static inline void sits_trash_chunk(struct sits_trash *trash, struct sits_chunk *chunk)
{
	chunk->next_trash = trash->chunks;
	trash->chunks = chunk;
}

/* ------------------------------------------------------------------- queue.c */

int sits_queue_init(void);
void sits_queue_fini(void);

/**
 * sits_queue_lookup() - The living queue of a name.
 * @name: valid
 *
 * Return: the queue with a reference, put by sits_queue_put(), or NULL.
 */
struct sits_queue *sits_queue_lookup(const u8 *name);
void sits_queue_put(struct sits_queue *q);

/* 1 to 31 characters of A-Z a-z 0-9 _ . -, not starting with '.', and a NUL */
bool sits_queue_name_is_valid(const u8 *name);

/**
 * sits_queue_unlock() - Release the lock, and do what has become due under it.
 * @q: locked; borrowed
 * @trash: emptied
 *
 * Channels on to_pump hand out their chunks, a worker those beyond SITS_PUMP_MAX; FETCH commands
 * that wait are sent on their way while there are events for them, and who sleeps or polls is
 * woken.
 */
void sits_queue_unlock(struct sits_queue *q, struct sits_trash *trash) __releases(&q->lock);

/**
 * sits_queue_kill() - End a queue and all its requests.
 * @q: borrowed
 * @status: for those that are not ended: -ESHUTDOWN or -EPIPE
 *
 * The name is free afterwards. Idempotent.
 */
void sits_queue_kill(struct sits_queue *q, int status);

/* With the lock held: is there something for FETCH? */
bool sits_queue_has_event(const struct sits_queue *q);

long sits_ioctl_queue_create(struct file *file, void __user *uarg);

/* ------------------------------------------------------------------- fetch.c */

/**
 * sits_fetch_uring() - FETCH by io_uring.
 * @payload: of the command
 *
 * Return: bytes written; -EIOCBQUEUED; -errno, never -EAGAIN.
 */
int sits_fetch_uring(struct sits_queue *q, struct io_uring_cmd *cmd, const u64 *payload,
		     unsigned int issue_flags);

/* FETCH by ioctl: waits, unless NONBLOCK. */
long sits_fetch_ioctl(struct sits_queue *q, void __user *uarg);

/* The kernel takes a FETCH that waits back. */
void sits_fetch_cancel(struct sits_queue *q, struct io_uring_cmd *cmd, unsigned int issue_flags);

/* Send a FETCH that was taken off the list to its task, where it fetches. */
void sits_fetch_hop(struct sits_park *park);

/* COMMIT. @payload: struct sits_commit, as two words. */
int sits_commit(struct sits_queue *q, const u64 *payload);

int sits_close_intake(struct sits_queue *q);

/* ----------------------------------------------------------------- channel.c */

long sits_ioctl_channel_open(struct file *file, void __user *uarg);

/**
 * sits_channel_pump() - Give ready chunks to RECV commands that wait.
 * @ch: its queue locked; the lock is released and taken again meanwhile
 * @trash: gets what was used up
 * @budget: how many it may yet give; a channel that has more stays on to_pump
 */
void sits_channel_pump(struct sits_channel *ch, struct sits_trash *trash, u32 *budget)
	__must_hold(&ch->queue->lock);

/* The oldest RECV command that waits and can be served, or NULL. Context: locked. */
struct sits_park *sits_channel_receiver(struct sits_channel *ch);

/* The bytes are in the arena: others may hand out chunks again. Context: locked. */
void sits_channel_resume(struct sits_channel *ch);

/**
 * sits_channel_kill() - The client has gone.
 * @ch: borrowed
 *
 * Requests that wait are dropped, the daemon is told of those that run, RECV commands that wait
 * end with -ECANCELED. Idempotent.
 */
void sits_channel_kill(struct sits_channel *ch);

/* ----------------------------------------------------------------- request.c */

int sits_request_cache_init(void);
void sits_request_cache_fini(void);

int sits_idents_init(struct sits_idents *idents, u32 nr);
void sits_idents_fini(struct sits_idents *idents);
/* Return: a number; 0 where all are in use. */
u64 sits_idents_get(struct sits_idents *idents, void *obj);
void *sits_idents_find(const struct sits_idents *idents, u64 id);
void sits_idents_put(struct sits_idents *idents, u64 id);

/**
 * sits_request_alloc() - A request with a private copy of its bytes.
 * @ch: whose; borrowed
 * @bytes: in the arena: read once
 * @len: > 0
 *
 * Return: a request with one reference, in no list; NULL where memory is short.
 */
struct sits_request *sits_request_alloc(struct sits_channel *ch, const void *bytes, u32 len);
void sits_request_put(struct sits_request *r);

/* Its bytes are with the daemon. Context: the fetch that has it, without the lock. */
void sits_request_drop_bytes(struct sits_request *r);

/* All below with sits_queue.lock held. */

/**
 * sits_request_submit() - Take a request in.
 * @r: taken on success only
 *
 * Return: 0; -EPIPE, -ESHUTDOWN, -EBUSY, -ENOBUFS as SUBMIT says.
 */
int sits_request_submit(struct sits_queue *q, struct sits_channel *ch, struct sits_request *r);

/* Would it be refused? Return as sits_request_submit(). */
int sits_request_admit(struct sits_queue *q, const struct sits_channel *ch);

/* The oldest waiting request of the client whose turn it is, or NULL. */
struct sits_request *sits_request_next(struct sits_queue *q);

/* WAITING -> FETCHING: its client's next one comes after all others'. */
void sits_request_begin_fetch(struct sits_queue *q, struct sits_request *r);

/* FETCHING -> RUNNING, or back to the head of its list. Nothing where it has ended meanwhile. */
void sits_request_end_fetch(struct sits_queue *q, struct sits_request *r, bool good,
			    struct sits_trash *trash);

/* Take it out of the queue. The reference is the caller's from here on. */
void sits_request_forget(struct sits_queue *q, struct sits_request *r);

/**
 * sits_request_end() - End it towards its client, if there is one.
 * @r: in the queue
 * @chunk: its last bytes, or NULL; taken
 */
void sits_request_end(struct sits_queue *q, struct sits_request *r, int status,
		      struct sits_chunk *chunk, struct sits_trash *trash);

/* End it, if it waits; else have a CANCEL delivered, once. */
void sits_request_cancel(struct sits_queue *q, struct sits_request *r, int status,
			 struct sits_trash *trash);

/* Have its CANCEL event delivered. */
void sits_request_queue_cancel(struct sits_queue *q, struct sits_request *r);

/* End one that is beyond its deadline. Return: false, with the timer set, where there is none. */
bool sits_request_run_timeout(struct sits_queue *q, struct sits_trash *trash);

/**
 * sits_chunk_alloc() - A chunk, with room for bytes.
 *
 * Return: NULL where memory is short.
 */
struct sits_chunk *sits_chunk_alloc(u32 len);
void sits_chunk_free(struct sits_chunk *chunk);
void sits_trash_empty(struct sits_trash *trash);

static inline void sits_channel_needs_pump(struct sits_channel *ch)
{
	if (list_empty(&ch->pump_link))
		list_add_tail(&ch->pump_link, &ch->queue->to_pump);
}

#endif
