/* The SimGrid XML of a platform. A node is a zone with full routing among its few GPUs; the nodes hang under
 * a core zone with a switch, so that the file and the routes SimGrid keeps grow with the nodes and not with
 * their square. The links of all nodes are in a zone before theirs: SimGrid looks for the link of a name in
 * one zone after the other. */
#include "sim/platform/fabric.h"

/* What the fabric carries: it never limits, the rails do. SimGrid forbids routes without a link. */
static const char FABRIC[] = "bandwidth=\"1e18Bps\" latency=\"0s\" sharing_policy=\"FATPIPE\"";

static void write_link(FILE *stream, const char *name, int a, int b, double bytes_per_second, double seconds)
{
        fprintf(stream, "   <link id=\"%s-%d-%d\" bandwidth=\"%.17gBps\" latency=\"%.17gs\"/>\n", name, a, b,
                bytes_per_second, seconds);
}

/* What is written of one node: its first `gpus` GPUs, of which the first is rank `first`. */
struct node {
        const struct platform *platform;
        int index, first, gpus;
        int used;   /* of its GPUs, by all of the plan's ranks: those written, unless it is folded */
        bool alone; /* nothing is sent to other nodes */
};

static bool is_folded(const struct node *node)
{
        return node->platform->folded_ranks > 0 || node->platform->folded_tp > 0;
}

/* Whether a GPU does what it is written for, rather than a copy of it. */
static bool is_simulated(const struct node *node, int gpu)
{
        const struct platform *p = node->platform;
        return gpu < node->gpus && (p->folded_tp == 0 || (node->first + gpu) % p->folded_tp == 0) &&
               (!p->folded_beside || (node->first + gpu) / p->folded_shards % p->folded_beside == 0);
}

/* What is left for the GPUs that are simulated of something that a block of them shares: their part, if
 * copies of them that are not simulated use the rest. */
static double part_of(const struct node *node, int (*block_of)(const struct platform *, int), int block)
{
        int simulated = 0, used = 0;
        for (int i = 0; i < node->used; i++) {
                bool in = block_of(node->platform, i) == block;
                used += in;
                simulated += in && is_simulated(node, i);
        }
        return used > 0 && simulated > 0 ? (double)simulated / used : 1;
}

/* Whether messages have links; whether copies do (they have none where they are taken as measured). */
static bool has_network(const struct platform *p)
{
        return p->gpu_link_bytes_per_second > 0;
}

static bool has_copies(const struct platform *p)
{
        return p->host_link_bytes_per_second > 0 && !p->copies;
}

/* Whether staged messages have ends of their own: where there are copies beside them. */
static bool has_staging(const struct platform *p)
{
        return p->staged && has_network(p) && has_copies(p);
}

static int sockets_of(const struct node *node)
{
        return platform_socket(node->platform, node->gpus - 1) + 1;
}

static void write_twin_names(const struct node *node, int gpu, FILE *stream)
{
        if (is_folded(node))
                fprintf(stream,
                        "<prop id=\"" PLATFORM_NEAR "\" value=\"near-%d\"/><prop id=\"" PLATFORM_FAR
                        "\" value=\"far-%d\"/>",
                        node->first + gpu, node->first + gpu);
}

static void write_hosts(const struct node *node, FILE *stream)
{
        bool copies = has_copies(node->platform);
        for (int i = 0; i < node->gpus; i++) {
                fprintf(stream, "   <host id=\"gpu-%d\" speed=\"1f\"", node->first + i);
                if (!copies) {
                        fprintf(stream, ">");
                        write_twin_names(node, i, stream);
                        fprintf(stream, "</host>\n");
                        continue;
                }
                fprintf(stream, "><prop id=\"" PLATFORM_MEMORY "\" value=\"memory-%d-%d\"/>", node->index,
                        platform_socket(node->platform, i));
                if (has_staging(node->platform))
                        fprintf(stream, "<prop id=\"" PLATFORM_STAGING "\" value=\"host-%d\"/>",
                                node->first + i);
                write_twin_names(node, i, stream);
                fprintf(stream, "</host>\n");
        }
        for (int i = 0; has_staging(node->platform) && i < node->gpus; i++)
                fprintf(stream, "   <host id=\"host-%d\" speed=\"1f\"/>\n", node->first + i);
        for (int i = 0; is_folded(node) && i < node->gpus; i++)
                fprintf(stream,
                        "   <host id=\"near-%d\" speed=\"1f\"/>\n   <host id=\"far-%d\" speed=\"1f\"/>\n",
                        node->first + i, node->first + i);
        for (int s = 0; copies && s < sockets_of(node); s++)
                fprintf(stream, "   <host id=\"memory-%d-%d\" speed=\"1f\"/>\n", node->index, s);
        fprintf(stream, "   <router id=\"router-%d\"/>\n", node->index);
}

/* Where PCI Express is what joins GPUs, their own link to it has only the latency. */
static void write_gpu_link(const struct node *node, const char *name, int gpu, FILE *stream)
{
        const struct platform *p = node->platform;
        if (p->gpu_link_is_pcie)
                fprintf(stream,
                        "   <link id=\"%s-%d-%d\" bandwidth=\"1e18Bps\" latency=\"%.17gs\" "
                        "sharing_policy=\"FATPIPE\"/>\n",
                        name, node->index, gpu, p->gpu_link_seconds);
        else
                write_link(stream, name, node->index, gpu, p->gpu_link_bytes_per_second, p->gpu_link_seconds);
}

static void write_rails(const struct node *node, FILE *stream)
{
        const struct platform *p = node->platform;
        for (int i = 0; i <= platform_rail(p, node->gpus - 1); i++) {
                const double rate = p->nic_bytes_per_second / p->rails * part_of(node, platform_rail, i);
                write_link(stream, "up", node->index, i, rate, p->nic_seconds);
                write_link(stream, "down", node->index, i, rate, p->nic_seconds);
        }
        if (is_folded(node))
                fprintf(stream,
                        "   <link id=\"hops-%d\" bandwidth=\"1e18Bps\" latency=\"%.17gs\" "
                        "sharing_policy=\"FATPIPE\"/>\n",
                        node->index, p->fabric.hop_seconds * fabric_hops(&p->fabric, 0, 1));
}

static void write_network_links(const struct node *node, FILE *stream)
{
        const struct platform *p = node->platform;
        for (int i = 0; (node->gpus > 1 || is_folded(node)) && i < node->gpus; i++) {
                write_gpu_link(node, "out", i, stream);
                write_gpu_link(node, "in", i, stream);
        }
        int sockets = p->socket_link_bytes_per_second > 0 ? sockets_of(node) : 0;
        for (int s = 0; s < sockets * sockets; s++)
                if (s / sockets != s % sockets)
                        fprintf(stream,
                                "   <link id=\"socket-%d-%d-%d\" bandwidth=\"%.17gBps\" "
                                "latency=\"%.17gs\"/>\n",
                                node->index, s / sockets, s % sockets,
                                p->socket_link_bytes_per_second * part_of(node, platform_socket, s / sockets),
                                p->socket_link_seconds);
        if (!node->alone)
                write_rails(node, stream);
}

/* A GPU's own PCI Express link, which copies and messages cross. */
static void write_pcie_links(const struct node *node, FILE *stream)
{
        const struct platform *p = node->platform;
        for (int i = 0; p->pcie_bytes_per_second > 0 && i < node->gpus; i++) {
                write_link(stream, "pcie-out", node->index, i, p->pcie_bytes_per_second, 0);
                write_link(stream, "pcie-in", node->index, i, p->pcie_bytes_per_second, 0);
        }
}

static void write_pcie_crossing(const struct node *node, const char *way, int gpu, bool crosses, FILE *stream)
{
        if (crosses && node->platform->pcie_bytes_per_second > 0)
                fprintf(stream, "<link_ctn id=\"pcie-%s-%d-%d\"/>", way, node->index, gpu);
}

static void write_copy_links(const struct node *node, FILE *stream)
{
        const struct platform *p = node->platform;
        for (int i = 0; i < node->gpus; i++) {
                write_link(stream, "fetch", node->index, i, p->host_link_bytes_per_second,
                           p->host_link_seconds);
                write_link(stream, "store", node->index, i, p->host_link_bytes_per_second,
                           p->host_link_seconds);
        }
        for (int s = 0; p->host_memory_bytes_per_second > 0 && s < sockets_of(node); s++)
                write_link(stream, "memory", node->index, s,
                           p->host_memory_bytes_per_second * part_of(node, platform_socket, s), 0);
}

/* SimGrid wants a link on every route, also where nothing limits. */
static void write_staging_link(const struct node *node, FILE *stream)
{
        fprintf(stream, "   <link id=\"inside-%d\" %s/>\n", node->index, FABRIC);
}

/* The memory of a GPU's socket, if it limits. */
static void write_memory_crossing(const struct node *node, int gpu, FILE *stream)
{
        if (node->platform->host_memory_bytes_per_second > 0)
                fprintf(stream, "<link_ctn id=\"memory-%d-%d\"/>", node->index,
                        platform_socket(node->platform, gpu));
}

static void write_staged_route(const struct node *node, int from, int to, FILE *stream)
{
        const struct platform *p = node->platform;
        int a = platform_socket(p, from), b = platform_socket(p, to);
        fprintf(stream,
                "   <route src=\"host-%d\" dst=\"host-%d\" symmetrical=\"NO\"><link_ctn id=\"inside-%d\"/>",
                node->first + from, node->first + to, node->index);
        write_memory_crossing(node, from, stream);
        if (a != b && p->socket_link_bytes_per_second > 0)
                fprintf(stream, "<link_ctn id=\"socket-%d-%d-%d\"/>", node->index, a, b);
        if (a != b)
                write_memory_crossing(node, to, stream);
        fprintf(stream, "</route>\n");
}

static void write_staged_rail(const struct node *node, int gpu, FILE *stream)
{
        const int n = node->index, rank = node->first + gpu, rail = platform_rail(node->platform, gpu);
        fprintf(stream, "   <route src=\"host-%d\" dst=\"router-%d\" symmetrical=\"NO\">", rank, n);
        write_memory_crossing(node, gpu, stream);
        fprintf(stream,
                "<link_ctn id=\"up-%d-%d\"/></route>\n"
                "   <route src=\"router-%d\" dst=\"host-%d\" symmetrical=\"NO\"><link_ctn "
                "id=\"down-%d-%d\"/>",
                n, rail, n, rank, n, rail);
        write_memory_crossing(node, gpu, stream);
        fprintf(stream, "</route>\n");
}

/* To the twins of a GPU from its end in host memory: out of the memory of its socket and into it again, which
 * inside a node is once, as between GPUs of one socket. */
static void write_staged_twin_routes(const struct node *node, int gpu, FILE *stream)
{
        const int n = node->index, rank = node->first + gpu, rail = platform_rail(node->platform, gpu);
        fprintf(stream,
                "   <route src=\"host-%d\" dst=\"near-%d\" symmetrical=\"NO\"><link_ctn id=\"inside-%d\"/>",
                rank, rank, n);
        write_memory_crossing(node, gpu, stream);
        fprintf(stream, "</route>\n");
        if (node->alone)
                return;
        fprintf(stream, "   <route src=\"host-%d\" dst=\"far-%d\" symmetrical=\"NO\">", rank, rank);
        write_memory_crossing(node, gpu, stream);
        fprintf(stream, "<link_ctn id=\"up-%d-%d\"/><link_ctn id=\"hops-%d\"/><link_ctn id=\"down-%d-%d\"/>",
                n, rail, n, n, rail);
        write_memory_crossing(node, gpu, stream);
        fprintf(stream, "</route>\n");
}

static void write_staged_routes(const struct node *node, FILE *stream)
{
        for (int i = 0; i < node->gpus; i++) {
                if (is_folded(node) && has_network(node->platform))
                        write_staged_twin_routes(node, i, stream);
                for (int j = 0; j < node->gpus; j++)
                        if (i != j)
                                write_staged_route(node, i, j, stream);
                if (!node->alone)
                        write_staged_rail(node, i, stream);
        }
}

/* From one GPU of the node to another; `to_name` is the host there. */
static void write_message_route(const struct node *node, int from, int to, const char *to_name, FILE *stream)
{
        const struct platform *p = node->platform;
        const bool pcie = p->gpu_link_is_pcie;
        int a = platform_socket(p, from), b = platform_socket(p, to);
        fprintf(stream,
                "   <route src=\"gpu-%d\" dst=\"%s-%d\" symmetrical=\"NO\"><link_ctn id=\"out-%d-%d\"/>",
                node->first + from, to_name, node->first + to, node->index, from);
        write_pcie_crossing(node, "out", from, pcie, stream);
        if (a != b && p->socket_link_bytes_per_second > 0)
                fprintf(stream, "<link_ctn id=\"socket-%d-%d-%d\"/>", node->index, a, b);
        write_pcie_crossing(node, "in", to, pcie, stream);
        fprintf(stream, "<link_ctn id=\"in-%d-%d\"/></route>\n", node->index, to);
}

static void write_rail_routes(const struct node *node, int gpu, FILE *stream)
{
        const int n = node->index, rank = node->first + gpu, rail = platform_rail(node->platform, gpu);
        fprintf(stream, "   <route src=\"gpu-%d\" dst=\"router-%d\" symmetrical=\"NO\">", rank, n);
        write_pcie_crossing(node, "out", gpu, true, stream);
        fprintf(stream,
                "<link_ctn id=\"up-%d-%d\"/></route>\n"
                "   <route src=\"router-%d\" dst=\"gpu-%d\" symmetrical=\"NO\"><link_ctn "
                "id=\"down-%d-%d\"/>",
                n, rail, n, rank, n, rail);
        write_pcie_crossing(node, "in", gpu, true, stream);
        fprintf(stream, "</route>\n");
}

/* To the twins of a GPU: out of its node and into it again, and out of it and into it. */
static void write_twin_routes(const struct node *node, int gpu, FILE *stream)
{
        const int n = node->index, rank = node->first + gpu, rail = platform_rail(node->platform, gpu);
        write_message_route(node, gpu, gpu, "near", stream);
        if (node->alone)
                return;
        fprintf(stream, "   <route src=\"gpu-%d\" dst=\"far-%d\" symmetrical=\"NO\">", rank, rank);
        write_pcie_crossing(node, "out", gpu, true, stream);
        fprintf(stream, "<link_ctn id=\"up-%d-%d\"/><link_ctn id=\"hops-%d\"/><link_ctn id=\"down-%d-%d\"/>",
                n, rail, n, n, rail);
        write_pcie_crossing(node, "in", gpu, true, stream);
        fprintf(stream, "</route>\n");
}

static void write_network_routes(const struct node *node, FILE *stream)
{
        for (int i = 0; i < node->gpus; i++) {
                for (int j = 0; j < node->gpus; j++)
                        if (i != j)
                                write_message_route(node, i, j, "gpu", stream);
                if (!node->alone)
                        write_rail_routes(node, i, stream);
                if (is_folded(node))
                        write_twin_routes(node, i, stream);
        }
}

/* Both directions of a copy cross one link that is the socket's memory: SimGrid shares a link's bandwidth
 * among all that cross it, whichever way. */
static void write_copy_routes(const struct node *node, FILE *stream)
{
        const struct platform *p = node->platform;
        for (int i = 0; i < node->gpus; i++) {
                int s = platform_socket(p, i), n = node->index;
                fprintf(stream,
                        "   <route src=\"memory-%d-%d\" dst=\"gpu-%d\" symmetrical=\"NO\"><link_ctn "
                        "id=\"fetch-%d-%d\"/>",
                        n, s, node->first + i, n, i);
                write_memory_crossing(node, i, stream);
                write_pcie_crossing(node, "in", i, true, stream);
                fprintf(stream,
                        "</route>\n"
                        "   <route src=\"gpu-%d\" dst=\"memory-%d-%d\" symmetrical=\"NO\"><link_ctn "
                        "id=\"store-%d-%d\"/>",
                        node->first + i, n, s, n, i);
                write_memory_crossing(node, i, stream);
                write_pcie_crossing(node, "out", i, true, stream);
                fprintf(stream, "</route>\n");
        }
}

static void write_links(const struct node *node, FILE *stream)
{
        if (has_network(node->platform))
                write_network_links(node, stream);
        write_pcie_links(node, stream);
        if (has_copies(node->platform))
                write_copy_links(node, stream);
        if (has_staging(node->platform))
                write_staging_link(node, stream);
}

static void write_node(const struct node *node, FILE *stream)
{
        fprintf(stream, "  <zone id=\"node-%d\" routing=\"Full\">\n", node->index);
        write_hosts(node, stream);
        if (has_network(node->platform))
                write_network_routes(node, stream);
        if (has_copies(node->platform))
                write_copy_routes(node, stream);
        if (has_staging(node->platform))
                write_staged_routes(node, stream);
        fprintf(stream, "  </zone>\n");
}

/* Nodes of the first `gpus` GPUs. */
static int nodes_of(const struct platform *p, int gpus)
{
        return platform_place(p, gpus - 1).node + 1;
}

/* Writes something of each node. */
static void write_each(const struct platform *p, int gpus, void (*write)(const struct node *, FILE *),
                       FILE *stream)
{
        const int all = p->folded_ranks > gpus ? p->folded_ranks : gpus;
        for (int first = 0; first < gpus;) {
                const struct platform_place place = platform_place(p, first);
                const int max = place.figures->gpus_per_node, left = gpus - first, used = all - first;
                struct platform figures = *place.figures; /* of its kind, in this run */
                figures.staged = p->staged;
                figures.copies = p->copies;
                figures.folded_ranks = p->folded_ranks;
                figures.folded_beside = p->folded_beside;
                figures.folded_shards = p->folded_shards;
                figures.folded_tp = p->folded_tp;
                figures.fabric = p->fabric;
                const struct node node = {.platform = &figures,
                                          .index = place.node,
                                          .first = first,
                                          .gpus = left < max ? left : max,
                                          .used = used < max ? used : max,
                                          .alone = nodes_of(p, all) == 1};
                write(&node, stream);
                first += max;
        }
}

int platform_write_xml(const struct platform *p, int gpus, FILE *stream, struct rv_error_info *err)
{
        const int nodes = nodes_of(p, gpus);
        fprintf(stream, "<?xml version='1.0'?>\n"
                        "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                        "<platform version=\"4.1\">\n"
                        " <zone id=\"cluster\" routing=\"DijkstraCache\">\n");
        fprintf(stream, "  <zone id=\"links\" routing=\"None\">\n");
        write_each(p, gpus, write_links, stream);
        fprintf(stream, "  </zone>\n");
        if (has_network(p) && nodes > 1)
                fabric_write_zones(p, nodes, stream);
        write_each(p, gpus, write_node, stream);
        if (has_network(p) && nodes > 1)
                fabric_write_routes(p, nodes, stream);
        fprintf(stream, " </zone>\n</platform>\n");
        if (fflush(stream) || ferror(stream))
                return rv_fail(err, RV_ESYSTEM, "the platform's XML cannot be written (is the disk full?)");
        return 0;
}
