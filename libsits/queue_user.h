/* SPDX-License-Identifier: MIT */
/*
 * queue_user.h - a daemon's queue over unix sockets: its structs.
 *
 * queue_user.c holds the queue and its requests, queue_client.c one client's connection: messages
 * in, chunks out. One mutex guards all of it; nothing under it blocks.
 *
 * A request is WAITING (its bytes still in the client's arena) until fetch hands it out, then
 * FETCHED until commit ends it. A client that goes leaves no WAITING request behind, and its FETCHED
 * ones without a client: the daemon gets a CANCEL for each and ends it.
 */
#ifndef SITS_QUEUE_USER_H
#define SITS_QUEUE_USER_H

#include <sys/stat.h>

#include "libsits/queue_loop.h"

enum request_state { REQUEST_FREE, REQUEST_WAITING, REQUEST_FETCHED };

/* A place in the queue's table, allocated with it; on the free list where not in use. */
struct request {
	TAILQ_ENTRY(request) link;	/* free list, or the client's waiting or fetched list */
	TAILQ_ENTRY(request) cancel;	/* the queue's list of CANCEL events, if cancel_due */
	enum request_state state;
	bool cancel_due;		/* event not delivered yet */
	bool cancel_seen;		/* one CANCEL event a request */
	uint64_t id;			/* count, then the place in the table; 0 where free */
	struct client *client;		/* NULL once it is gone */
	uint64_t client_id;
	uint32_t client_uid, client_pid;
	uint64_t creq;			/* the client's number */
	uint64_t off, len;		/* in the arena */
	uint64_t tx_start;
	uint64_t deadline_ns;		/* 0: none */
	uint64_t backlog;		/* bytes of its answer kept back, with overhead */
};
TAILQ_HEAD(request_list, request);

/* An answer, or the rest of one, that could not be sent yet. Freed when it has been. */
struct held {
	TAILQ_ENTRY(held) link;
	uint64_t req_id;		/* whose backlog it counts to, while that lives */
	uint64_t creq;
	int32_t status;
	bool last;
	size_t len, sent;
	uint8_t data[];
};
TAILQ_HEAD(held_list, held);

/* Allocated when a connection is accepted, freed when the loop has closed it. */
struct client {
	struct sits_conn conn;		/* first */
	TAILQ_ENTRY(client) ready;	/* round robin of clients with waiting requests */
	bool on_ready;
	struct queue *queue;
	uint64_t id;
	uint32_t uid, pid;
	uint64_t hello_by_ns;		/* 0 once HELLO has come */
	uint8_t *arena;
	uint64_t arena_bytes;
	struct sits_wire_ctl *ctl;
	uint64_t tx_off, tx_bytes, tx_end;
	uint64_t rx_off;
	struct sits_ring rx;
	uint64_t last_creq;
	uint32_t nr_requests;		/* waiting and fetched */
	uint32_t nr_owed;		/* ends among the held */
	struct request_list waiting, fetched;
	struct held_list held;
};
TAILQ_HEAD(client_list, client);

/* Allocated by create, freed by destroy. */
struct queue {
	struct sits_queue base;		/* first */
	pthread_mutex_t lock;
	struct sits_loop loop;
	struct sits_queue_opts opts;
	char name[SITS_QUEUE_NAME_MAX];
	int lock_fd, listen_fd;
	struct stat sock_file;		/* of the socket's name */
	bool intake_closed;
	int wake_asked;			/* atomic */
	struct request *table;		/* opts.depth */
	struct request_list free;
	uint32_t nr_used;
	struct request_list cancels;
	struct client_list ready;
	uint32_t nr_clients;		/* connections, with those that have not said HELLO */
	uint32_t nr_mute;		/* those */
	uint64_t next_client, next_count;
	uint64_t next_timer_ns;		/* no deadline is earlier; 0: none */
	unsigned int events_since_turn;
	uint64_t warn_window_ns;
	unsigned int nr_warnings;
	uint8_t *copy;			/* bytes of the last fetched request */
	size_t copy_room;
	struct sits_queue_stats stats;
};

#pragma GCC visibility push(hidden)

/* queue_user.c: requests. All with the lock held. */
struct request *sits_uq_request_new(struct queue *q, struct client *c);
void sits_uq_request_free(struct queue *q, struct request *r);
struct request *sits_uq_request_find(struct queue *q, uint64_t id);
/* End a request that is WAITING; FETCHED: have a CANCEL delivered. */
void sits_uq_request_cancel(struct queue *q, struct request *r, int status);
void sits_uq_note_timer(struct queue *q, uint64_t when_ns);
void sits_uq_warn(struct queue *q, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* queue_client.c: connections. All with the lock held. */
extern const struct sits_loop_handler sits_uq_handler;
/* The client is gone: its requests are dropped or cancelled, its memory unmapped. Idempotent. */
void sits_uq_client_drop(struct client *c);
/* Tell it which requests have been copied out of its arena. */
void sits_uq_client_publish_tx(struct client *c);
/* Send, or keep, a piece of an answer to @creq. Return: 0; -ENOBUFS; -EPIPE; -ENOMEM. */
int sits_uq_client_answer(struct client *c, struct request *r, uint64_t creq, const void *data,
			  size_t len, int status, bool last);
/* Send what is kept, as far as it goes. */
void sits_uq_client_flush(struct client *c);

#pragma GCC visibility pop

#endif
