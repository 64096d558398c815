/* A stage that runs as in training, with its kernels timed where they stand: in their real order, on their
 * real working set, launched by a main thread that polls. */
#ifndef RANVIER_CALIBRATE_BENCH_H
#define RANVIER_CALIBRATE_BENCH_H

#include "calibrate/family.h"
#include "calibrate/samples.h"
#include "runtime/device/device.h"
#include "runtime/optim/optim.h"

/* The device that everything is measured on, as requested. `graphs`: groups of kernels may be handed to it as
 * graphs. Kernels are timed without: a recorder sees them one by one. NULL with a sentence. */
struct device *bench_device(const struct request *request, bool graphs, struct rv_error_info *err);

/* The optimizer that updates are timed with. */
extern const struct optim bench_optim;

struct bench;

/* Opens a device and the stage of `run` on it, with random weights and tokens. NULL with a sentence. */
struct bench *bench_open(const struct family_run *run, const struct request *request,
                         struct rv_error_info *err);
void bench_close(struct bench *bench);

/* One forward, backward and optimizer (they take turns: the look for overflow in mixed precision, the norm,
 * updates; in mixed precision also what follows an overflow instead), polling as a run polls, on `ranks`
 * ranks at once (all of the net, or this one alone). Adds its kernels and the gaps between its operations to
 * `samples`, unless that is NULL (a warm-up). Returns the seconds that the compute lane spent in the forward
 * and the backward. */
double bench_pass(struct bench *bench, struct net *net, int ranks, int turn, struct samples *samples);

/* One forward and a backward in two parts, as of --schedule zero-bubble, if that launches kernels that no
 * other pass does: adds those, and no others, to `samples`. */
void bench_parted_pass(struct bench *bench, struct net *net, struct samples *samples);

/* Seconds of one forward and backward with no recorder, from before their launch until the host knows of
 * their end: what a recorder's own cost is not in. */
double bench_plain_pass(struct bench *bench, struct net *net);

/* The kernel that tells the peak: a square matrix product of random numbers, in fp32 on the processor, in the
 * fastest of the requested formats on a GPU. */
struct kernel bench_peak_kernel(const struct request *request, int size);
/* Its size: 1024 on the processor; on a GPU the smallest power of two, up to 8192, whose product takes a
 * millisecond. 0 with a sentence. */
int bench_peak_size(const struct request *request, struct net *net, struct rv_error_info *err);
/* Runs it `repetitions` times, and adds it to `samples`. */
int bench_peak(const struct request *request, struct net *net, int size, int repetitions,
               struct samples *samples, struct rv_error_info *err);

/* Keeps the compute lane busy without waiting: call it while polling for something else; then drain. */
void bench_feed(struct bench *bench);
void bench_drain(struct bench *bench);

/* A token that the device has reached, or -1 after a look at the network and a yield. */
int bench_poll(struct device *device, struct net *net);
/* Waits for `token` of a device as a run's main thread does: device and network in turn, yielding in between.
 */
void bench_poll_until(struct device *device, struct net *net, int token);

#endif
