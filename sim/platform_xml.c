/* The SimGrid XML of a platform. A node is a zone with full routing among its few GPUs; the nodes hang under
 * a core zone with a switch, so that the file and the routes SimGrid keeps grow with the nodes and not with
 * their square. In a zone, SimGrid wants links before routes. */
#include "sim/platform.h"

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
        bool alone; /* no other node is written */
};

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

static void write_hosts(const struct node *node, FILE *stream)
{
        bool copies = has_copies(node->platform);
        for (int i = 0; i < node->gpus; i++) {
                fprintf(stream, "   <host id=\"gpu-%d\" speed=\"1f\"", node->first + i);
                if (!copies) {
                        fprintf(stream, "/>\n");
                        continue;
                }
                fprintf(stream, "><prop id=\"" PLATFORM_MEMORY "\" value=\"memory-%d-%d\"/>", node->index,
                        platform_socket(node->platform, i));
                if (has_staging(node->platform))
                        fprintf(stream, "<prop id=\"" PLATFORM_STAGING "\" value=\"host-%d\"/>",
                                node->first + i);
                fprintf(stream, "</host>\n");
        }
        for (int i = 0; has_staging(node->platform) && i < node->gpus; i++)
                fprintf(stream, "   <host id=\"host-%d\" speed=\"1f\"/>\n", node->first + i);
        for (int s = 0; copies && s < sockets_of(node); s++)
                fprintf(stream, "   <host id=\"memory-%d-%d\" speed=\"1f\"/>\n", node->index, s);
        fprintf(stream, "   <router id=\"router-%d\"/>\n", node->index);
}

static void write_network_links(const struct node *node, FILE *stream)
{
        const struct platform *p = node->platform;
        for (int i = 0; node->gpus > 1 && i < node->gpus; i++) {
                write_link(stream, "out", node->index, i, p->gpu_link_bytes_per_second, p->gpu_link_seconds);
                write_link(stream, "in", node->index, i, p->gpu_link_bytes_per_second, p->gpu_link_seconds);
        }
        int sockets = p->socket_link_bytes_per_second > 0 ? sockets_of(node) : 0;
        for (int s = 0; s < sockets * sockets; s++)
                if (s / sockets != s % sockets)
                        fprintf(stream,
                                "   <link id=\"socket-%d-%d-%d\" bandwidth=\"%.17gBps\" "
                                "latency=\"%.17gs\"/>\n",
                                node->index, s / sockets, s % sockets, p->socket_link_bytes_per_second,
                                p->socket_link_seconds);
        for (int i = 0; !node->alone && i <= platform_rail(p, node->gpus - 1); i++) {
                write_link(stream, "up", node->index, i, p->nic_bytes_per_second / p->rails, p->nic_seconds);
                write_link(stream, "down", node->index, i, p->nic_bytes_per_second / p->rails,
                           p->nic_seconds);
        }
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
                write_link(stream, "memory", node->index, s, p->host_memory_bytes_per_second, 0);
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

static void write_staged_routes(const struct node *node, FILE *stream)
{
        for (int i = 0; i < node->gpus; i++) {
                for (int j = 0; j < node->gpus; j++)
                        if (i != j)
                                write_staged_route(node, i, j, stream);
                if (!node->alone)
                        write_staged_rail(node, i, stream);
        }
}

static void write_message_route(const struct node *node, int from, int to, FILE *stream)
{
        const struct platform *p = node->platform;
        int a = platform_socket(p, from), b = platform_socket(p, to);
        fprintf(stream,
                "   <route src=\"gpu-%d\" dst=\"gpu-%d\" symmetrical=\"NO\"><link_ctn id=\"out-%d-%d\"/>",
                node->first + from, node->first + to, node->index, from);
        if (a != b && p->socket_link_bytes_per_second > 0)
                fprintf(stream, "<link_ctn id=\"socket-%d-%d-%d\"/>", node->index, a, b);
        fprintf(stream, "<link_ctn id=\"in-%d-%d\"/></route>\n", node->index, to);
}

static void write_network_routes(const struct node *node, FILE *stream)
{
        const struct platform *p = node->platform;
        int n = node->index;
        for (int i = 0; i < node->gpus; i++) {
                for (int j = 0; j < node->gpus; j++)
                        if (i != j)
                                write_message_route(node, i, j, stream);
                if (!node->alone)
                        fprintf(stream,
                                "   <route src=\"gpu-%d\" dst=\"router-%d\" symmetrical=\"NO\"><link_ctn "
                                "id=\"up-%d-%d\"/></route>\n"
                                "   <route src=\"router-%d\" dst=\"gpu-%d\" symmetrical=\"NO\"><link_ctn "
                                "id=\"down-%d-%d\"/></route>\n",
                                node->first + i, n, n, platform_rail(p, i), n, node->first + i, n,
                                platform_rail(p, i));
        }
}

/* Both directions of a copy cross one link that is the socket's memory: SimGrid shares a link's bandwidth
 * among all that cross it, whichever way. */
static void write_copy_routes(const struct node *node, FILE *stream)
{
        const struct platform *p = node->platform;
        for (int i = 0; i < node->gpus; i++) {
                int s = platform_socket(p, i), n = node->index;
                char memory[64] = "";
                if (p->host_memory_bytes_per_second > 0)
                        snprintf(memory, sizeof memory, "<link_ctn id=\"memory-%d-%d\"/>", n, s);
                fprintf(stream,
                        "   <route src=\"memory-%d-%d\" dst=\"gpu-%d\" symmetrical=\"NO\"><link_ctn "
                        "id=\"fetch-%d-%d\"/>%s</route>\n"
                        "   <route src=\"gpu-%d\" dst=\"memory-%d-%d\" symmetrical=\"NO\"><link_ctn "
                        "id=\"store-%d-%d\"/>%s</route>\n",
                        n, s, node->first + i, n, i, memory, node->first + i, n, s, n, i, memory);
        }
}

static void write_node(const struct node *node, FILE *stream)
{
        bool network = has_network(node->platform), copies = has_copies(node->platform);
        fprintf(stream, "  <zone id=\"node-%d\" routing=\"Full\">\n", node->index);
        write_hosts(node, stream);
        if (network)
                write_network_links(node, stream);
        if (copies)
                write_copy_links(node, stream);
        if (has_staging(node->platform))
                write_staging_link(node, stream);
        if (network)
                write_network_routes(node, stream);
        if (copies)
                write_copy_routes(node, stream);
        if (has_staging(node->platform))
                write_staged_routes(node, stream);
        fprintf(stream, "  </zone>\n");
}

int platform_write_xml(const struct platform *p, int gpus, FILE *stream, struct rv_error_info *err)
{
        int nodes = (gpus + p->gpus_per_node - 1) / p->gpus_per_node;
        bool network = has_network(p);
        fprintf(stream, "<?xml version='1.0'?>\n"
                        "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                        "<platform version=\"4.1\">\n"
                        " <zone id=\"cluster\" routing=\"DijkstraCache\">\n"
                        "  <zone id=\"core\" routing=\"Full\"><router id=\"switch\"/></zone>\n");
        for (int node = 0; node < nodes; node++) {
                int first = node * p->gpus_per_node, left = gpus - first;
                int here = left < p->gpus_per_node ? left : p->gpus_per_node;
                write_node(&(struct node){p, node, first, here, nodes == 1}, stream);
        }
        for (int node = 0; network && nodes > 1 && node < nodes; node++)
                fprintf(stream, "  <link id=\"fabric-%d\" %s/>\n", node, FABRIC);
        for (int node = 0; network && nodes > 1 && node < nodes; node++)
                fprintf(stream,
                        "  <zoneRoute src=\"node-%d\" dst=\"core\" gw_src=\"router-%d\" "
                        "gw_dst=\"switch\"><link_ctn "
                        "id=\"fabric-%d\"/></zoneRoute>\n",
                        node, node, node);
        fprintf(stream, " </zone>\n</platform>\n");
        if (fflush(stream) || ferror(stream))
                return rv_fail(err, RV_ESYSTEM, "the platform's XML cannot be written (is the disk full?)");
        return 0;
}
