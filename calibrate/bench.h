/* A stage that runs as in training, with its kernels timed where they stand: in their real order, on their
 * real working set, launched by a main thread that polls the device and the network as a run's does.
 * measure.c opens a bench for each visit to a run of the family; phase.h, links.h and overhead.h use its
 * devices and its polling.
 *
 * There is no pipeline here: a stage has random weights and tokens, and of shards the collectives are left
 * out. */
#ifndef RANVIER_CALIBRATE_BENCH_H
#define RANVIER_CALIBRATE_BENCH_H

#include "calibrate/family.h"
#include "calibrate/samples.h"
#include "runtime/device/device.h"
#include "runtime/optim/optim.h"

/* Opens the device that everything is measured on, as requested. `graphs`: groups of kernels may be handed
 * to it as graphs. Kernels are timed without, because a recorder sees them one by one. NULL with a sentence
 * if it cannot; else the caller closes it (device->ops->close). */
struct device *bench_device(const struct request *request, bool graphs, struct rv_error_info *err);

/* The optimizer that updates are timed with. */
extern const struct optim bench_optim;

struct bench;

/* Opens a device, and on it the stage of `run` with random weights and tokens. NULL with a sentence if it
 * cannot; else the caller ends it with bench_close. */
struct bench *bench_open(const struct family_run *run, const struct request *request,
                         struct rv_error_info *err);
void bench_close(struct bench *bench);

/* Returns what the bench's device says of itself, valid as long as the bench. */
const struct device_description *bench_description(const struct bench *bench);

/* Returns the algorithms of products that were timed so far, which the caller frees; NULL: none. */
char *bench_products(const struct bench *bench);

/* Runs one forward, one backward and one of the run's optimizers, number `turn` modulo how many there are.
 * An optimizer is the look for an overflow (in mixed precision), the norm, the updates, and the clearing of
 * gradients. `ranks` ranks do this at once: all of the net, which must all call it, or 1, this one alone.
 * The kernels and the gaps between operations are added to `samples`; NULL: it is a warm-up. Returns the
 * seconds that the compute lane spent in the forward and the backward. */
double bench_pass(struct bench *bench, struct net *net, int ranks, int turn, struct samples *samples);

/* Runs one forward and a backward in two parts, as of --schedule zero-bubble, if that launches kernels that
 * no other pass does, and adds those, and no others, to `samples`, which must not be NULL. */
void bench_parted_pass(struct bench *bench, struct net *net, struct samples *samples);

/* Runs one forward and backward without a recorder, whose own cost is then not in the time. Returns the
 * seconds from before their launch until the host knows of their end. */
double bench_plain_pass(struct bench *bench, struct net *net);

/* Returns the kernel that tells the peak: a square matrix product of `size` rows, in fp32 on the processor,
 * in the fastest of the requested formats on a GPU. */
struct kernel bench_peak_kernel(const struct request *request, int size);
/* Returns its size: 1024 on the processor; on a GPU the smallest power of two from 256 to 8192 whose product
 * takes a millisecond, or 8192. 0 with a sentence if it cannot be measured. */
int bench_peak_size(const struct request *request, struct net *net, struct rv_error_info *err);
/* Runs that product of random numbers `repetitions` times after a warm-up, on a device of its own, and adds
 * the times to `samples`. Returns RV_OK or an error with a sentence. */
int bench_peak(const struct request *request, struct net *net, int size, int repetitions,
               struct samples *samples, struct rv_error_info *err);

/* Allocates a square product's matrices a, b and c on a device that nothing was reserved on, whose dtype
 * becomes the kernel's; a and b are random numbers. Returns RV_OK or an error with a sentence. */
int bench_matrices(struct device *device, const struct kernel *kernel, void *matrices[3],
                   struct rv_error_info *err);

/* Keep the compute lane busy without waiting: the caller calls bench_feed again and again while it polls for
 * something else, then bench_drain, which waits until the lane is idle. */
void bench_feed(struct bench *bench);
void bench_drain(struct bench *bench);

/* Returns a token that the device has reached, or -1 after a look at the network and a rest. */
int bench_poll(struct device *device, struct net *net);
/* Waits for `token` of a device as a run's main thread does: it looks at device and network in turn, and
 * rests in between. Other tokens, and what the network has completed, are dropped. */
void bench_poll_until(struct device *device, struct net *net, int token);

#endif
