/* A cluster: platform JSON (or the profile's own machine) -> SimGrid platform XML. */
#ifndef RANVIER_SIM_PLATFORM_H
#define RANVIER_SIM_PLATFORM_H

#include "calibrate/profile.h"

#include <stdio.h>

struct platform {
        char name[64], path[256], source[256];
        int gpus_per_node, nodes;
        int64_t gpu_memory_bytes;             /* 0: not known */
        double gpu_peak_flops_per_second;     /* 0: not known; for percent of peak */
        double gpu_link_bytes_per_second, gpu_link_seconds;   /* each GPU to its node's switch, each direction */
        double nic_bytes_per_second, nic_seconds;             /* a node to the fabric, each direction, all rails */
        double host_link_bytes_per_second, host_link_seconds; /* host memory to one GPU */
        double reduce_seconds_per_byte;       /* arithmetic of an all-reduce on the device */
        double collective_latency_seconds;    /* software cost of starting one step of a collective */
        char xml[256];                        /* a SimGrid XML file given as it is, else "" */
};

/* `name_or_path`: "local" (from the profile), a preset (sim/platforms), a JSON file or a SimGrid .xml. */
int platform_load(struct platform *, const char *name_or_path, const struct profile *, int ranks, struct rv_error_info *err);

/* Writes SimGrid XML for the first `gpus` GPUs: a zone a node; host "gpu-<rank>". Linear in nodes. */
int platform_write_xml(const struct platform *, int gpus, FILE *stream, struct rv_error_info *err);

#endif
