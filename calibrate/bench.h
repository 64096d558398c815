/* A stage that runs as in training, with its kernels timed where they stand: in their real order, on their
 * real working set, launched by a main thread that polls. */
#ifndef RANVIER_CALIBRATE_BENCH_H
#define RANVIER_CALIBRATE_BENCH_H

#include "calibrate/family.h"
#include "calibrate/samples.h"
#include "runtime/device/device.h"
#include "runtime/optim/optim.h"

/* The device that everything is measured on: threads and link as requested. NULL with a sentence. */
struct device *bench_device(const struct request *request, struct rv_error_info *err);

/* The optimizer that updates are timed with. */
extern const struct optim bench_optim;

struct bench;

/* Opens a device and the stage of `run` on it, with random weights and tokens. NULL with a sentence. */
struct bench *bench_open(const struct family_run *run, const struct request *request,
                         struct rv_error_info *err);
void bench_close(struct bench *bench);

/* One forward, backward and optimizer (they take turns: the look for overflow in half precision, the norm,
 * updates; in half also what follows an overflow instead), polling as a run polls, on `ranks` ranks at once
 * (all of the net, or this one alone). Adds its kernels and the gaps between its operations to `samples`,
 * unless that is NULL (a warm-up). Returns the seconds that the compute lane spent in the forward and the
 * backward. */
double bench_pass(struct bench *bench, struct net *net, int ranks, int turn, struct samples *samples);

/* A large square matrix product in fp32, which tells the peak: added to `samples` as a matmul of this size.
 */
enum { BENCH_PEAK_SIZE = 1024 };
int bench_peak(const struct request *request, struct net *net, int repetitions, struct samples *samples,
               struct rv_error_info *err);

/* Keeps the compute lane busy without waiting: call it while polling for something else; then drain. */
void bench_feed(struct bench *bench);
void bench_drain(struct bench *bench);

/* Waits for `token` of a device as a run's main thread does: device and network in turn, yielding in between.
 */
void bench_poll_until(struct device *device, struct net *net, int token);

#endif
