/* A cluster: platform JSON (or the profile's own machine) -> SimGrid platform XML. */
#ifndef RANVIER_SIM_PLATFORM_PLATFORM_H
#define RANVIER_SIM_PLATFORM_PLATFORM_H

#include "calibrate/profile/profile.h"

#include <stdio.h>

/* How nodes reach each other. */
enum fabric_kind {
        FABRIC_SWITCH,    /* one that never limits: the rails do */
        FABRIC_FAT_TREE,  /* trunks of a tree of switches, thinner upwards where it is oversubscribed */
        FABRIC_DRAGONFLY, /* groups of switches, all joined inside a group, and groups with each other */
        FABRIC_TORUS      /* a switch a node, joined to its neighbours in each dimension */
};

enum { FABRIC_LEVELS = 4 };

struct fabric {
        enum fabric_kind kind;
        int levels; /* fat tree: numbers in `below`; torus: dimensions in `shape` */
        /* Fat tree: nodes below a switch of the lowest level, such switches below one of the next, ...; one
         * more level above joins all. `oversubscription`: how many times more its nodes' adapters carry than
         * the trunk from a switch of that level upwards. */
        int below[FABRIC_LEVELS];
        double oversubscription[FABRIC_LEVELS];
        int shape[FABRIC_LEVELS];            /* torus: nodes in each dimension, the first varies fastest */
        int groups, routers, router_nodes;   /* dragonfly: groups, routers of a group, nodes of a router */
        double link_bytes_per_second;        /* torus; dragonfly: inside a group */
        double global_link_bytes_per_second; /* dragonfly: from one group to another */
        double hop_seconds;                  /* from a switch to the next one */
};

/* How a collective goes. */
enum collective_algorithm {
        COLLECTIVE_CHOICE,   /* as the library chooses */
        COLLECTIVE_RING,     /* p - 1 steps of a p-th to scatter, as many to gather (Patarasuk & Yuan 2009) */
        COLLECTIVE_TREE,     /* two binary trees at once, each with half of the buffer, in pipelined parts
                                (Sanders, Speck & Traeff 2009; NCCL's) */
        COLLECTIVE_BINOMIAL, /* a tree to the first member and back, the whole buffer in every message */
        COLLECTIVE_DOUBLING, /* log2(p) exchanges of the whole buffer */
        COLLECTIVE_HALVING,  /* exchanges of half, a quarter, ... and back (Rabenseifner 2004) */
        COLLECTIVE_FLAT_RING,    /* one ring in the order of ranks, over one rail of a node at a time */
        COLLECTIVE_HIERARCHICAL, /* a ring to scatter inside a node, one between nodes, one to gather inside
                                  */
        COLLECTIVE_ALGORITHMS
};
const char *collective_algorithm_name(enum collective_algorithm algorithm); /* "ring", "tree", ... */

/* Whose rules choose how a collective goes, and what its protocols cost (collective_model.h). */
enum collective_library {
        LIBRARY_PLAIN,                /* by size alone: doubling, then a ring */
        LIBRARY_NCCL,                 /* what its tuning model puts first */
        LIBRARY_OPEN_MPI,             /* MPI_Allreduce */
        LIBRARY_OPEN_MPI_NONBLOCKING, /* MPI_Iallreduce in place */
        LIBRARY_RANVIER /* runtime/net/mpi.c: the same for few bytes, else parts are exchanged */
};

enum { COLLECTIVE_PROTOCOLS = 3 };

/* NCCL's LL, LL128 and Simple; the other libraries have one. */
struct collective_protocol {
        double start_seconds, tree_start_seconds; /* once a collective: a ring, a tree */
        double near_step_seconds; /* a step inside a node or between nodes, the links' own latency included */
        double far_step_seconds, far_level_seconds; /* level: of a tree */
        double near_efficiency, far_efficiency;     /* of the links' bandwidth that reaches the buffer */
};

struct collective_rules {
        enum collective_library library;
        enum collective_algorithm algorithm; /* always this one; COLLECTIVE_CHOICE: as the library chooses */
        struct collective_protocol protocols[COLLECTIVE_PROTOCOLS];
        double min_seconds, min_seconds_per_member; /* no collective takes less, by its members */
        double copy_seconds_per_byte; /* of a member's block, once: what a ring cannot hide behind its links
                                       */
};

/* NCCL's constants, for links inside a node that are NVLink or PCI Express. */
void collective_nccl_protocols(bool pcie, struct collective_protocol protocols[COLLECTIVE_PROTOCOLS]);

/* Bandwidths and latencies are of one direction; both directions are links of their own. */
struct platform {
        char name[64], path[256], source[256];
        char note[512]; /* what the user should know about where the figures come from, or "" */
        char gpu[64];   /* the device, as profiles name it; "": not said */
        int gpus_per_node, nodes;
        int64_t gpu_memory_bytes;         /* 0: not known */
        double gpu_peak_flops_per_second; /* 0: not known; for percent of peak */
        /* A GPU to its node's switch; a message inside a node crosses two of these. */
        double gpu_link_bytes_per_second, gpu_link_seconds;
        /* A GPU's own PCI Express link, which its copies and its messages between nodes cross, and, without
         * any other link, those inside the node (gpu_link is then as fast); 0: never limits. */
        double pcie_bytes_per_second;
        bool gpu_link_is_pcie;
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
        struct collective_rules collectives;
        struct fabric fabric;
        /* Nodes of several kinds: each entry has the figures of its own kind, and `nodes` of them, in this
         * order; the figures above are those of the first, `nodes` those of all. NULL: all are equal. */
        struct platform *groups;
        int group_count;
        /* Local: the profile's loads whose messages and all-reduces (by enum dtype) these links are, and
         * whose copies are taken as measured; NULL: none. */
        const struct profile_load *messages, *allreduces[DTYPES], *copies;
        bool staged; /* messages or all-reduces go through host memory: their ends there are written too */
        /* Not 0: one replica stands for all of the plan's so many ranks. Each GPU's neighbours are written as
         * twins of it, and what replicas share is as wide as this one's part of it. */
        int folded_ranks;
        /* Folded, where replicas of `folded_shards` GPUs each lie beside each other: so many; else 0. */
        int folded_beside, folded_shards;
        char xml[256]; /* a SimGrid XML file given as it is, else "" */
};

/* `name_or_path`: "local" (from the profile), a preset (sim/platforms), a JSON file or a SimGrid .xml. The
 * caller frees; on failure there is nothing to free. */
int platform_load(struct platform *platform, const char *name_or_path, const struct profile *profile,
                  int ranks, struct rv_error_info *err);

void platform_free(struct platform *platform);

/* Where a rank's GPU is: the figures of its kind of node, which of the groups that is (0 if there are none),
 * its node, counted over all groups, and its number in the node. */
struct platform_place {
        const struct platform *figures;
        int group, node, gpu;
};
struct platform_place platform_place(const struct platform *platform, int rank);

/* All GPUs of a platform. */
int64_t platform_gpus(const struct platform *platform);

/* Local: sets the links so that a message of `bytes`, the plan's one size, takes what was measured for it
 * (between two measured sizes: in proportion) rather than what the line fitted over all sizes says. */
void platform_meet_messages(struct platform *platform, int64_t bytes);

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
/* Folded: hosts that stand for the same GPU of the next node and for the next GPU of the same node, in copies
 * of this replica: over the links that lead to them and, since copies do what this one does, back again. */
#define PLATFORM_FAR  "far"
#define PLATFORM_NEAR "near"
int platform_write_xml(const struct platform *platform, int gpus, FILE *stream, struct rv_error_info *err);

#endif
