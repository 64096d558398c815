/* What a cluster is: its nodes, GPUs, memories and links, and the rules by which its communication library
 * does collectives.
 *
 * platform_load fills a struct platform from one of four sources: the machine that a profile was measured on
 * ("local"), a preset, a JSON file (platform_file.c) or a SimGrid XML file, which is taken as it is. All
 * later modules ask this struct: the closed forms of collectives, the world on paper, and SimGrid's world,
 * for which platform_write_xml turns it into SimGrid XML. What kernels take is not here but in the profile.
 *
 * Ranks are placed on GPUs in order: rank 0 is the first GPU of the first node, and so on. Figures are in
 * bytes, seconds, bytes per second and flops per second. Bandwidths and latencies are of one direction; the
 * two directions are links of their own unless it is said that they share one. */
#ifndef RANVIER_SIM_PLATFORM_PLATFORM_H
#define RANVIER_SIM_PLATFORM_PLATFORM_H

#include "calibrate/profile/profile.h"
#include "sim/platform/collective_table.h"

#include <stdio.h>

/* How nodes reach each other. */
enum fabric_kind {
        /* One switch that never limits: only the nodes' rails do. */
        FABRIC_SWITCH,
        /* A tree of switches; the trunks are thinner upwards where the tree is oversubscribed. */
        FABRIC_FAT_TREE,
        /* Groups of switches: all switches of a group are joined, and so are all groups with each other. */
        FABRIC_DRAGONFLY,
        /* One switch for each node, joined to its two neighbours in each dimension. */
        FABRIC_TORUS
};

enum { FABRIC_LEVELS = 4 };

/* The fabric of a platform; fabric.h has what is computed from it. Members of the other kinds are 0. */
struct fabric {
        enum fabric_kind kind;
        /* Fat tree: how many numbers `below` has. Torus: how many dimensions `shape` has. */
        int levels;
        /* Fat tree: nodes below a switch of the lowest level, such switches below one of the next level, and
         * so on; one more level above joins all. */
        int below[FABRIC_LEVELS];
        /* Fat tree, by level: how many times more the adapters of the nodes below a switch carry together
         * than the trunk that leads upwards from it. */
        double oversubscription[FABRIC_LEVELS];
        /* Torus: nodes in each dimension; node numbers run along the first dimension first. */
        int shape[FABRIC_LEVELS];
        /* Dragonfly: the number of groups, the routers of a group and the nodes of a router. */
        int groups, routers, router_nodes;
        /* Torus: a link between neighbours. Dragonfly: a link inside a group. */
        double link_bytes_per_second;
        /* Dragonfly: the one link between two groups. */
        double global_link_bytes_per_second;
        /* Latency of a link from one switch to the next. */
        double hop_seconds;
};

/* The algorithms by which a collective among p members can be done. */
enum collective_algorithm {
        /* The platform's library chooses. */
        COLLECTIVE_CHOICE,
        /* p - 1 steps of a p-th of the buffer to scatter, as many to gather (Patarasuk & Yuan 2009). */
        COLLECTIVE_RING,
        /* Two binary trees at once, each with half of the buffer, in pipelined parts (Sanders, Speck & Traeff
         * 2009; NCCL's). */
        COLLECTIVE_TREE,
        /* A binomial tree to the first member and back, with the whole buffer in every message. */
        COLLECTIVE_BINOMIAL,
        /* Recursive doubling: log2(p) exchanges of the whole buffer. */
        COLLECTIVE_DOUBLING,
        /* Recursive halving: exchanges of half, a quarter, ... of the buffer and back (Rabenseifner 2004). */
        COLLECTIVE_HALVING,
        /* One ring in the order of ranks, which leaves a node over one rail at a time. */
        COLLECTIVE_FLAT_RING,
        /* A ring inside each node to scatter, rings between nodes, a ring inside each node to gather. */
        COLLECTIVE_HIERARCHICAL,
        COLLECTIVE_ALGORITHMS
};
/* Returns the name that platform files use: "auto", "ring", "tree", ... */
const char *collective_algorithm_name(enum collective_algorithm algorithm);

/* The library whose rules choose an algorithm for an all-reduce (collective_rules.c). Unless an algorithm is
 * forced, reduce-scatters and all-gathers are rings with all of them. */
enum collective_library {
        /* By size alone: doubling below 4 KiB, from there on a ring. */
        LIBRARY_PLAIN,
        /* The ring or the trees and the protocol that NCCL's tuning model expects to end first. */
        LIBRARY_NCCL,
        /* MPI_Allreduce of Open MPI 4.1: its fixed table of ranks and bytes. */
        LIBRARY_OPEN_MPI,
        /* MPI_Iallreduce of Open MPI in place: always a binomial tree. */
        LIBRARY_OPEN_MPI_NONBLOCKING,
        /* runtime/net/mpi.c of this project: the same tree for few bytes; for more, each member sums its part
         * and all parts are gathered, which is priced as a ring. */
        LIBRARY_RANVIER
};

enum { COLLECTIVE_PROTOCOLS = 3 };

/* The constants of one of NCCL's protocols, which are LL, LL128 and Simple in this order. */
struct collective_protocol {
        /* Seconds once in a collective, done as a ring or as trees. */
        double start_seconds, tree_start_seconds;
        /* Seconds of a step inside a node, the latency of the links included. */
        double near_step_seconds;
        /* The same between nodes, for a step of a ring and for a level of a tree. */
        double far_step_seconds, far_level_seconds;
        /* The share of the links' bandwidth that reaches the buffer, inside a node and between nodes. */
        double near_efficiency, far_efficiency;
};

/* How a platform's collectives are chosen and priced. */
struct collective_rules {
        enum collective_library library;
        /* An algorithm that is always used, or COLLECTIVE_CHOICE. */
        enum collective_algorithm algorithm;
        /* Used with LIBRARY_NCCL only, like the members that follow. */
        struct collective_protocol protocols[COLLECTIVE_PROTOCOLS];
        /* No collective of n members takes less than min_seconds + n min_seconds_per_member. */
        double min_seconds, min_seconds_per_member;
        /* Seconds a byte for a member's block (buffer / members), once: what a ring cannot hide behind its
         * links. */
        double copy_seconds_per_byte;
};

/* Fills `protocols` with the constants of NCCL 2.8 for links inside a node that are NVLink or, if `pcie`, PCI
 * Express. */
void collective_nccl_protocols(bool pcie, struct collective_protocol protocols[COLLECTIVE_PROTOCOLS]);

/* A cluster. */
struct platform {
        /* `path` is the file that was read, `source` says where the figures come from. */
        char name[64], path[256], source[256];
        /* What a user should know about where the figures come from, or "". */
        char note[512];
        /* The device, as profiles name it; "" if the platform does not say. */
        char gpu[64];
        int gpus_per_node, nodes;
        /* Ranks that can compute at once, where more than that share a machine's processors; else 0. */
        int processors;
        /* Which part of a rank that computes one takes that waits, where they share processors. */
        double waiting;
        /* Processors of a rank of its own, if its copies are work for these too (a CPU device whose copies
         * were not paced to a link), as its kernels are; else 0. */
        int lane_processors;
        /* `nodes` is no limit: a plan that needs more gets them (platform_load). */
        bool expandable;
        /* Memory of a GPU; 0 if it is not known. */
        int64_t gpu_memory_bytes;
        /* Peak of a GPU, for percent of peak; 0 if it is not known. */
        double gpu_peak_flops_per_second;
        /* The link from a GPU to its node's switch; a message inside a node crosses two of these. 0 bytes per
         * second means that the platform has no links for messages, which then take no time. */
        double gpu_link_bytes_per_second, gpu_link_seconds;
        /* A GPU's own PCI Express link, which its copies and its messages between nodes cross. If the GPUs
         * have no other link (gpu_link_is_pcie), their messages inside the node cross it too, and gpu_link is
         * as fast. 0 bytes per second means that it never limits. */
        double pcie_bytes_per_second;
        bool gpu_link_is_pcie;
        /* From a node to the fabric, over all its rails together. Blocks of neighbouring GPUs share a rail,
         * and a message between nodes crosses a rail at either end. */
        double nic_bytes_per_second, nic_seconds;
        int rails;
        /* The GPUs of a node belong to its sockets in equal blocks. A copy crosses the GPU's host link and,
         * if that has a limit too, the memory of its socket, which both directions and all GPUs of the socket
         * share. */
        int sockets;
        /* What a node draws at most, and where that is from; 0: it is not known. */
        double node_watts;
        char node_power_source[192];
        /* Between a socket's memory and one of its GPUs, in either direction. */
        double host_link_bytes_per_second, host_link_seconds;
        /* Of a socket's memory, for copies in both directions together; 0 means that it never limits. */
        double host_memory_bytes_per_second;
        /* Host memory of a node; 0 if it is not known. */
        int64_t host_memory_bytes;
        /* What a message between GPUs of two sockets crosses besides; 0 means nothing. */
        double socket_link_bytes_per_second, socket_link_seconds;
        /* Arithmetic of an all-reduce on the device, for each byte summed. */
        double reduce_seconds_per_byte;
        /* Software time to start one step of a collective. */
        double collective_latency_seconds;
        /* Parts of a step's block: one is reduced while the next one arrives. */
        int collective_segments;
        struct collective_rules collectives;
        /* What collectives of its nodes, or between them, were measured to take; they come before the rules
         * above. platform_free frees it. */
        struct collective_table measured_collectives;
        struct fabric fabric;
        /* Nodes of several kinds: [group_count], each with the figures of its own kind and with `nodes` of
         * them, in the order of ranks. The figures above are then those of the first group, and `nodes`
         * counts all nodes. NULL means that all nodes are equal. platform_free frees it. */
        struct platform *groups;
        int group_count;
        /* Local platform: the loads of the profile whose messages and all-reduces (by enum dtype) these links
         * stand for, and whose copies are taken as they were measured. They belong to the profile, which must
         * live as long. NULL means none. */
        const struct profile_load *messages, *allreduces[DTYPES], *copies;
        /* Set by predict_save: what nodes write checkpoints at, each; 0: as was measured (`files`). */
        double file_bytes_per_second;
        /* Local platform: the load of the profile that has the lines of checkpoints. NULL: none were
         * measured. */
        const struct profile_load *files;
        /* Set by costs_open: messages or all-reduces go through host memory, so that platform_write_xml
         * writes the ends of staged messages too. */
        bool staged;
        /* Collectives of shards go through host memory: their copies are a part of them. */
        bool stages_shards;
        /* Set by predict_run when replicas are folded: the number of all ranks of the plan, of which one
         * replica stands for all. platform_write_xml then writes twins of each GPU's neighbours, and what
         * replicas share is as wide as this one's part of it. 0 means that nothing is folded. */
        int folded_ranks;
        /* If replicas are folded that lie beside each other, the number of replicas and the GPUs (shards) of
         * each; else 0. */
        int folded_beside, folded_shards;
        /* Set by predict_run when shards are folded: the shards of a stage, of which the first stands for
         * all, and what shards share is as wide as its part. 0 means that they are not. */
        int folded_tp;
        /* The path of a SimGrid XML file that is used as it is, else "". */
        char xml[256];
};

/* The words that platform_load takes. */
extern const struct option_words platform_words;

/* Loads a platform for `ranks` ranks. `name_or_path` is "local", the name of a preset (sim/platforms), or the
 * path of a JSON or SimGrid .xml file. `profile` is used for "local" only. RV_EINPUT says what is wrong with
 * the name, the file or the profile, RV_EPLAN that a JSON platform has fewer GPUs than ranks (the hosts of a
 * SimGrid file are counted when SimGrid loads it). The caller calls platform_free; after a failure there is
 * nothing to free. */
int platform_load(struct platform *platform, const char *name_or_path, const struct profile *profile,
                  int ranks, struct rv_error_info *err);

void platform_free(struct platform *platform);

/* Gives every rank of the local platform a link of this rate to the others, without latency, instead of what
 * was measured: as `ranvier train --net-link` paces its network. Collectives are rings, whose steps and sums
 * take nothing beside it. */
void platform_pace(struct platform *platform, double bytes_per_second);

/* Where the GPU of a rank is. */
struct platform_place {
        /* The figures of its kind of node: the platform itself or one of its groups. */
        const struct platform *figures;
        /* The index of that group (0 if there are none), the node, counted over all groups, and the GPU's
         * number in the node. */
        int group, node, gpu;
};
struct platform_place platform_place(const struct platform *platform, int rank);

/* Returns the number of GPUs of all nodes, over all groups. */
int64_t platform_gpus(const struct platform *platform);

/* Scales latency and rate of the local platform's links such that a message of `bytes`, which is the plan's
 * one size, takes what was measured for it (interpolated between two measured sizes) rather than what the
 * line that was fitted over all sizes says. platform->messages must not be NULL. */
void platform_meet_messages(struct platform *platform, int64_t bytes);

/* Returns the bytes of host memory that each of `ranks` ranks can have if those of a node share it equally;
 * the least over all nodes. 0 means that it is not known. */
int64_t platform_host_share(const struct platform *platform, int ranks);

/* Return the socket that GPU number `gpu` of a node belongs to, and the rail that it sends over, counted from
 * 0. */
int platform_socket(const struct platform *platform, int gpu);
int platform_rail(const struct platform *platform, int gpu);

/* Returns `ranks` nodes of one GPU each and no links: enough where nothing crosses the network, as in a
 * replay, and the start that platforms from a SimGrid file are built on. There is nothing to free. */
struct platform platform_without_network(int ranks);

/* Properties that the XML gives to a GPU's host; each names another host. PLATFORM_MEMORY is the memory of
 * its socket, where its copies come from and go to. PLATFORM_STAGING, if platform->staged, is its end in host
 * memory for staged messages. Such a message crosses no link of a GPU, since the copies have crossed it:
 * inside a node it crosses the memory of each end's socket (once, if they are the same) and what joins the
 * sockets, between nodes the rails as any message does. */
#define PLATFORM_MEMORY  "memory"
#define PLATFORM_STAGING "staging"
/* Of a folded platform: twins of the GPU. PLATFORM_FAR stands for the same GPU of the next node and
 * PLATFORM_NEAR for the next GPU of the same node, in copies of this replica or shard. The routes to them
 * lead over the links that lead out and, since the copies do what this replica does, over those that lead in
 * again. */
#define PLATFORM_FAR  "far"
#define PLATFORM_NEAR "near"
/* Writes the SimGrid XML of the nodes of the first `gpus` GPUs to `stream`: a zone for each node and a host
 * "gpu-<rank>" for each rank, with the properties above. The size is linear in the nodes. Returns RV_ESYSTEM
 * if the stream cannot be written. Must not be used for a platform that is a SimGrid file already
 * (platform->xml). */
int platform_write_xml(const struct platform *platform, int gpus, FILE *stream, struct rv_error_info *err);

#endif
