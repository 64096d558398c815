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

/* The rail that GPU `gpu` of a node sends over. */
static int rail_of(const struct platform *p, int gpu)
{
        return gpu * p->rails / p->gpus_per_node;
}

static void write_links(const struct platform *p, int node, int gpus, bool alone, FILE *stream)
{
        for (int i = 0; gpus > 1 && i < gpus; i++) {
                write_link(stream, "out", node, i, p->gpu_link_bytes_per_second, p->gpu_link_seconds);
                write_link(stream, "in", node, i, p->gpu_link_bytes_per_second, p->gpu_link_seconds);
        }
        for (int i = 0; !alone && i <= rail_of(p, gpus - 1); i++) {
                write_link(stream, "up", node, i, p->nic_bytes_per_second / p->rails, p->nic_seconds);
                write_link(stream, "down", node, i, p->nic_bytes_per_second / p->rails, p->nic_seconds);
        }
}

static void write_routes(const struct platform *p, int node, int first, int gpus, bool alone, FILE *stream)
{
        for (int i = 0; i < gpus; i++) {
                for (int j = 0; j < gpus; j++)
                        if (i != j)
                                fprintf(stream,
                                        "   <route src=\"gpu-%d\" dst=\"gpu-%d\" "
                                        "symmetrical=\"NO\"><link_ctn "
                                        "id=\"out-%d-%d\"/><link_ctn id=\"in-%d-%d\"/></route>\n",
                                        first + i, first + j, node, i, node, j);
                if (alone)
                        continue;
                fprintf(stream,
                        "   <route src=\"gpu-%d\" dst=\"router-%d\" symmetrical=\"NO\"><link_ctn "
                        "id=\"up-%d-%d\"/></route>\n"
                        "   <route src=\"router-%d\" dst=\"gpu-%d\" symmetrical=\"NO\"><link_ctn "
                        "id=\"down-%d-%d\"/></route>\n",
                        first + i, node, node, rail_of(p, i), node, first + i, node, rail_of(p, i));
        }
}

static void write_node(const struct platform *p, int node, int gpus, bool alone, FILE *stream)
{
        int first = node * p->gpus_per_node;
        fprintf(stream, "  <zone id=\"node-%d\" routing=\"Full\">\n", node);
        for (int i = 0; i < gpus; i++)
                fprintf(stream, "   <host id=\"gpu-%d\" speed=\"1f\"/>\n", first + i);
        fprintf(stream, "   <router id=\"router-%d\"/>\n", node);
        if (p->gpu_link_bytes_per_second > 0) {
                write_links(p, node, gpus, alone, stream);
                write_routes(p, node, first, gpus, alone, stream);
        }
        fprintf(stream, "  </zone>\n");
}

int platform_write_xml(const struct platform *p, int gpus, FILE *stream, struct rv_error_info *err)
{
        int nodes = (gpus + p->gpus_per_node - 1) / p->gpus_per_node;
        bool network = p->gpu_link_bytes_per_second > 0;
        fprintf(stream, "<?xml version='1.0'?>\n"
                        "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                        "<platform version=\"4.1\">\n"
                        " <zone id=\"cluster\" routing=\"DijkstraCache\">\n"
                        "  <zone id=\"core\" routing=\"Full\"><router id=\"switch\"/></zone>\n");
        for (int node = 0; node < nodes; node++) {
                int left = gpus - node * p->gpus_per_node;
                write_node(p, node, left < p->gpus_per_node ? left : p->gpus_per_node, nodes == 1, stream);
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
