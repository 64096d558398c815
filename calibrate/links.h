/* What moves data: copies, messages, all-reduces. And ranks that wait without taking a core from those at
 * work. */
#ifndef RANVIER_CALIBRATE_LINKS_H
#define RANVIER_CALIBRATE_LINKS_H

#include "calibrate/bench.h"

/* Copies from host to device and back, 4 KiB to 16 MiB, `repetitions` of each, with nothing else going on;
 * and, to and from a GPU, while the other direction of its link copies too. (Copies of the CPU device are a
 * thread's work, which shares the processor with everything else.) */
int links_copies(struct net *net, const struct request *request, int repetitions, struct samples *samples,
                 struct rv_error_info *err);

/* Messages between ranks 0 and 1, 4 KiB to 8 MiB, one way, each rank sending in turn: the sender's `bench`
 * computes, the receiver's lane is idle (the messages that a run waits for find it so; a busy receiver does
 * not wait). The clocks of both ranks must be the same: they are on one machine. */
int links_messages(struct net *net, struct bench *bench, int repetitions, struct samples *samples,
                   struct rv_error_info *err);

/* All-reduces over all ranks, `repetitions` of each of the `count`, with nothing else going on. */
int links_allreduces(struct net *net, const struct family_reduction *reductions, int count, int repetitions,
                     struct samples *samples, struct rv_error_info *err);

/* Sleeps, waking only now and then to look, until rank 0 calls links_wake. */
void links_sleep(struct net *net);
void links_wake(struct net *net);

/* Posts a receive that nothing answers until links_take_receive: a rank of a pipeline always has one posted,
 * and looking for it is part of its polling. Collective. */
struct links_receive {
        char received, sent;
};
void links_post_receive(struct net *net, struct links_receive *receive);
void links_take_receive(struct net *net, struct links_receive *receive);

#endif
