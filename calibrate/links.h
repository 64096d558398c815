/* Measures what moves data: copies between host and device, messages, all-reduces. It also lets ranks wait
 * without taking a core from those at work. The samples become the lines of a profile (samples_load). */
#ifndef RANVIER_CALIBRATE_LINKS_H
#define RANVIER_CALIBRATE_LINKS_H

#include "calibrate/bench.h"

/* Copies from host to device and back, each `repetitions` times after a warm-up, with nothing else going on:
 * 4 KiB to 16 MiB, each size four times the one before. To and from a GPU it also measures each while the
 * other direction of the link copies too. (Copies of the CPU device are a thread's work, which shares the
 * processor with everything else.) It opens and closes a device of its own. Returns RV_OK, or an error with
 * a sentence: no such device, or no memory. */
int links_copies(struct net *net, const struct request *request, int repetitions, struct samples *samples,
                 struct rv_error_info *err);

/* Sends messages between ranks 0 and 1, one way, each rank in turn: 4 KiB to 8 MiB, each size twice the one
 * before. All ranks call it. The sender's `bench` computes meanwhile, and so do those of later ranks; the
 * receiver's lane is idle, because so it is when a run waits for a message. A message's seconds are from the
 * sender's clock to the receiver's, which must be the same: all ranks are on one machine. Returns RV_OK, or
 * RV_ESYSTEM where there is no memory. */
int links_messages(struct net *net, struct bench *bench, int repetitions, struct samples *samples,
                   struct rv_error_info *err);

/* Runs each of `count` (at least 1) all-reduces over all ranks `repetitions` times, with nothing else going
 * on. All ranks call it. Returns RV_OK, or RV_ESYSTEM where there is no memory for the largest. */
int links_allreduces(struct net *net, const struct family_reduction *reductions, int count, int repetitions,
                     struct samples *samples, struct rv_error_info *err);

/* Sleeps, looking at the network every 5 ms, until rank 0 calls links_wake, which wakes all other ranks. */
void links_sleep(struct net *net);
void links_wake(struct net *net);

/* Posts a receive that nothing answers until links_take_receive. A rank of a pipeline always has one posted,
 * and looking for it is part of its polling, so measurements have one too. All ranks call both; `receive`
 * must stay where it is in between. */
struct links_receive {
        char received, sent;
};
void links_post_receive(struct net *net, struct links_receive *receive);
void links_take_receive(struct net *net, struct links_receive *receive);

#endif
