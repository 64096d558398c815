/* A cluster: platform JSON (or the profile's own machine) -> SimGrid platform XML. */
#ifndef RANVIER_SIM_PLATFORM_H
#define RANVIER_SIM_PLATFORM_H

#include "calibrate/profile.h"

#include <stdio.h>

/* Bandwidths and latencies are of one direction; both directions are links of their own. */
struct platform {
        char name[64], path[256], source[256];
        char note[512]; /* what the user should know about where the figures come from, or "" */
        int gpus_per_node, nodes;
        int64_t gpu_memory_bytes;         /* 0: not known */
        double gpu_peak_flops_per_second; /* 0: not known; for percent of peak */
        /* A GPU to its node's switch; a message inside a node crosses two of these. */
        double gpu_link_bytes_per_second, gpu_link_seconds;
        /* A node to the fabric over all its rails; neighbouring GPUs share a rail, and a message between
         * nodes crosses the rail of either end. */
        double nic_bytes_per_second, nic_seconds;
        int rails;
        /* GPUs of a node belong to its sockets in equal blocks. A copy crosses the GPU's host link and, if it
         * is limited, the memory of its socket, which both directions and all GPUs of the socket share. */
        int sockets;
        double host_link_bytes_per_second, host_link_seconds; /* memory of its socket to one GPU */
        double host_memory_bytes_per_second;                  /* of a socket; 0: never limits */
        int64_t host_memory_bytes;                            /* of a node; 0: not known */
        /* What a message between GPUs of two sockets crosses besides; 0: nothing. */
        double socket_link_bytes_per_second, socket_link_seconds;
        double reduce_seconds_per_byte;    /* arithmetic of an all-reduce on the device */
        double collective_latency_seconds; /* software cost of starting one step of a collective */
        int collective_segments; /* parts of a step's block: one is reduced while the next arrives */
        /* Local: the profile's loads whose messages and all-reduces (by enum half) these links are, and whose
         * copies are taken as measured; NULL: none. */
        const struct profile_load *messages, *allreduces[HALF_FORMATS], *copies;
        bool staged;   /* messages or all-reduces go through host memory: their ends there are written too */
        char xml[256]; /* a SimGrid XML file given as it is, else "" */
};

/* `name_or_path`: "local" (from the profile), a preset (sim/platforms), a JSON file or a SimGrid .xml. */
int platform_load(struct platform *platform, const char *name_or_path, const struct profile *profile,
                  int ranks, struct rv_error_info *err);

/* Local: sets the links so that a message of `bytes`, the plan's one size, takes what was measured for it
 * (between two measured sizes: in proportion) rather than what the line fitted over all sizes says. */
void platform_meet_messages(struct platform *platform, int64_t bytes);

/* What an all-reduce of `bytes` between `ranks` costs beside its messages: the platform's constants or, where
 * all-reduces were measured, what is left of the measured one with blocks of that size. */
struct platform_collective {
        double step_seconds, reduce_seconds_per_byte;
};
struct platform_collective platform_collective(const struct platform *platform, int ranks, int64_t bytes,
                                               enum half half);

/* Bytes of host memory that each of `ranks` ranks can have for itself: its node's, in equal shares. 0: not
 * known. */
int64_t platform_host_share(const struct platform *platform, int ranks);

/* The socket that GPU `gpu` of a node belongs to, and the rail that it sends over. */
int platform_socket(const struct platform *platform, int gpu);
int platform_rail(const struct platform *platform, int gpu);

/* Hosts without links: enough where nothing crosses the network (a replayed trace). */
struct platform platform_without_network(int ranks);

/* Writes SimGrid XML for the first `gpus` GPUs: a zone a node; host "gpu-<rank>", whose property
 * PLATFORM_MEMORY names the host that stands for its socket's memory, and PLATFORM_STAGING, if staged, the
 * one that sends and receives for it from there. A staged message crosses no link of a GPU, which its copies
 * have crossed: inside a node it crosses the memory of each end's socket (once, if they are one) and what
 * joins the sockets, between nodes the rails as any message. Linear in nodes. */
#define PLATFORM_MEMORY  "memory"
#define PLATFORM_STAGING "staging"
int platform_write_xml(const struct platform *platform, int gpus, FILE *stream, struct rv_error_info *err);

#endif
