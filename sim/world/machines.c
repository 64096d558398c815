/* `ranvier machines`: what can be simulated by name. */
#include "sim/world/machines.h"

#include "runtime/base/command_line.h"
#include "runtime/base/file.h"
#include "runtime/base/setting.h"
#include "sim/platform/fabric.h"
#include "sim/platform/platform.h"
#include "sim/platform/platform_file.h"
#include "sim/world/named_machine.h"

#include <stdlib.h>
#include <string.h>

/* A machine with its platform and, if it is there, its profile. */
struct listed {
        struct named_machine machine;
        struct platform platform;
        struct profile profile;
};

static int listed_open(struct listed *l, const char *name, struct rv_error_info *err)
{
        *l = (struct listed){.machine = {.gpus = 0}};
        int rc = named_machine_load(&l->machine, name, err);
        if (rc == 0)
                rc = platform_load(&l->platform, l->machine.platform, NULL, 1, err);
        if (rc == 0 && l->machine.profile[0])
                rc = profile_load(&l->profile, l->machine.profile, err);
        return rc;
}

static void listed_close(struct listed *l)
{
        if (l->profile.load_count)
                profile_free(&l->profile);
        platform_free(&l->platform);
}

/* Where the seconds of its kernels come from. */
static const char *kernels(const struct profile *profile)
{
        bool points = false;
        for (int i = 0; i < profile->load_count; i++)
                points = points || profile->loads[i].point_count > 0 || profile->loads[i].tables.count > 0;
        return !profile->load_count                       ? "-"
               : profile->measured || points              ? "measured"
               : json_object_size(profile->fitted_on) > 0 ? "fitted"
                                                          : "datasheet";
}

/* ---- all ---- */

static void inside(const struct platform *p, char text[32])
{
        snprintf(text, 32, "%s %.4g", p->gpu_link_is_pcie ? "PCIe" : "NVLink",
                 p->gpu_link_bytes_per_second / 1e9);
}

static void between(const struct platform *p, char text[32])
{
        snprintf(text, 32, "%.4g / %d", p->nic_bytes_per_second / 1e9, p->rails);
}

static void print_row(const struct listed *l)
{
        const struct platform *p = &l->platform;
        char near[32], far[32], nodes[32];
        inside(p, near);
        between(p, far);
        snprintf(nodes, sizeof nodes, "%d%s", p->nodes, p->expandable ? "+" : "");
        printf("%-15s %-16s %6d %7s  %-10s  %-10s  %-15s %-15s %s\n", l->machine.name, p->gpu,
               p->gpus_per_node, nodes, near, far, l->machine.profile, l->machine.platform,
               kernels(&l->profile));
}

static int print_all(struct rv_error_info *err)
{
        char names[NAMED_MACHINES_TEXT], missing[NAMED_MACHINES_TEXT] = "", *place = NULL;
        named_machine_list(names);
        printf("%-15s %-16s %6s %7s  %-10s  %-10s  %-15s %-15s %s\n", "machine", "GPU", "a node", "nodes",
               "inside", "nic/rails", "profile", "platform", "kernels");
        for (char *name = strtok_r(names, " ", &place); name; name = strtok_r(NULL, " ", &place)) {
                struct listed l;
                int rc = listed_open(&l, name, err);
                if (rc == 0 && l.machine.profile[0])
                        print_row(&l);
                else if (rc == 0)
                        snprintf(missing + strlen(missing), sizeof missing - strlen(missing), " %s", name);
                listed_close(&l);
                if (rc)
                        return rc;
        }
        printf("\nRates are GB/s in one direction: inside, of a GPU to the others of its node; nic, of a "
               "node to others, over "
               "so many rails.\nA + behind nodes: a plan gets as many as it needs. 8xNAME is one node, or a "
               "part of one, "
               "of any. Kernels are\nmeasured, fitted on published runs, or from a datasheet alone.\n");
        if (missing[0])
                printf("Machines whose profile is not there yet:%s.\n", missing);
        return 0;
}

/* ---- one ---- */

static void print_figure(const char *key, const json_t *figure, int depth);

/* A text or a list in a line, an object member by member; a source stands below what it is of. */
static void print_member(const char *key, const json_t *value, int depth)
{
        const char *member;
        json_t *inner;
        if (json_is_object(value) && json_object_get(value, "value")) {
                print_figure(key, value, depth);
                return;
        }
        if (!json_is_object(value)) {
                char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
                printf("%*s%-*s %s\n", 2 * depth, "", 24 - 2 * depth, key,
                       text ? text : json_string_value(value));
                free(text);
                return;
        }
        printf("%*s%s\n", 2 * depth, "", key);
        json_object_foreach((json_t *)(uintptr_t)value, member, inner)
        {
                print_member(member, inner, depth + 1);
        }
}

static void print_figure(const char *key, const json_t *figure, int depth)
{
        const char *source = json_string_value(json_object_get(figure, "source"));
        printf("%*s%-*s %.6g %s\n", 2 * depth, "", 24 - 2 * depth, key,
               json_number_value(json_object_get(figure, "value")),
               json_string_value(json_object_get(figure, "unit")));
        if (source)
                printf("%*s%s\n", 28, "", source);
}

static int print_platform(const struct platform *p, struct rv_error_info *err)
{
        static const char *const known[] = {"ranvier", "kind", "name", "source", "like", "expandable"};
        json_t *document;
        const char *key;
        json_t *value;
        int rc = platform_file_document(p->path, &document, err);
        if (rc)
                return rc;
        json_object_foreach(document, key, value)
        {
                size_t i = 0;
                while (i < sizeof known / sizeof *known && strcmp(known[i], key) != 0)
                        i++;
                if (i == sizeof known / sizeof *known)
                        print_member(key, value, 0);
                if (strcmp(key, "measured_collectives") == 0)
                        printf("%*s%s\n", 28, "", p->measured_collectives.source);
        }
        json_decref(document);
        return 0;
}

static int print_one(const char *name, struct rv_error_info *err)
{
        struct listed l;
        int rc = listed_open(&l, name, err);
        const struct platform *p = &l.platform;
        if (rc == 0) {
                printf("machine    %s: %s\n", l.machine.text, l.machine.what);
                if (l.machine.gpus)
                        printf("GPUs       %d of one node of %d\n", l.machine.gpus, p->gpus_per_node);
                else
                        printf("GPUs       %d a node, %s%d nodes\n", p->gpus_per_node,
                               p->expandable ? "as many nodes as a plan needs; its sources have " : "",
                               p->nodes);
                if (l.profile.load_count)
                        printf("profile    %s: kernels %s; %s%s\n", l.profile.path, kernels(&l.profile),
                               profile_caution(&l.profile), l.profile.source);
                else
                        printf("profile    none yet: %s is not there\n", l.machine.profiles);
                printf("platform   %s: %s\n\n", p->path, p->source);
                rc = print_platform(p, err);
        }
        listed_close(&l);
        return rc;
}

/* ---- as JSON ---- */

static json_t *listed_json(const struct listed *l)
{
        const struct platform *p = &l->platform;
        return json_pack("{s:s, s:s, s:s, s:i, s:i, s:b, s:s, s:f, s:f, s:i, s:s, s:s, s:s}", "name",
                         l->machine.name, "what", l->machine.what, "gpu", p->gpu, "gpus_per_node",
                         p->gpus_per_node, "nodes", p->nodes, "expandable", p->expandable, "inside",
                         p->gpu_link_is_pcie ? "PCIe" : "NVLink", "inside_bytes_per_second",
                         p->gpu_link_bytes_per_second, "nic_bytes_per_second", p->nic_bytes_per_second,
                         "rails", p->rails, "profile", l->machine.profile, "platform", l->machine.platform,
                         "kernels", kernels(&l->profile));
}

/* Adds a machine to `all`; of the one that was asked for, with its platform's file. */
static int add_json(json_t *all, const char *name, bool whole, struct rv_error_info *err)
{
        struct listed l;
        json_t *document = NULL;
        int rc = listed_open(&l, name, err);
        if (rc == 0 && whole)
                rc = platform_file_document(l.platform.path, &document, err);
        if (rc == 0) {
                json_t *machine = listed_json(&l);
                if (document)
                        json_object_set_new(machine, "figures", document);
                json_array_append_new(all, machine);
        }
        listed_close(&l);
        return rc;
}

static int print_json(const char *name, struct rv_error_info *err)
{
        char names[NAMED_MACHINES_TEXT], *place = NULL;
        json_t *all = json_array();
        int rc = name ? add_json(all, name, true, err) : 0;
        named_machine_list(names);
        for (char *one = strtok_r(names, " ", &place); rc == 0 && !name && one;
             one = strtok_r(NULL, " ", &place))
                rc = add_json(all, one, false, err);
        if (rc == 0)
                rc = file_print_json(name ? json_array_get(all, 0) : all, err);
        json_decref(all);
        return rc;
}

/* ---- the command line ---- */

static const char documentation[] = "Lists the machines that --machine of simulate, plan, sweep and "
                                    "validate knows, or shows one with all of its "
                                    "figures and where they are from.\v"
                                    "  ranvier machines\n"
                                    "  ranvier machines h100\n"
                                    "  ranvier simulate llama3-8b --machine 8xh100 --tp 2 --dp 4 \\\n"
                                    "      --zero 1 --micro-batch-size 1 --batch-size 64\n\n"
                                    "A machine is a file sim/machines/NAME.json that names a platform and "
                                    "profiles, of which the first that is "
                                    "there is taken. Figures of your own cluster are a platform file "
                                    "(--platform FILE), of your own GPU a profile "
                                    "(--profile FILE).\n";

struct asked {
        const char *name; /* NULL: all */
        bool json;
};

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_SET, "json", .offset = offsetof(struct asked, json), .help = "Print it as JSON"},
        {.help = NULL},
};
/* clang-format on */

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct asked *asked = state->input;
        if (key != ARGP_KEY_ARG)
                return settings_take(option_rows, asked, key, text, command_line_error(state));
        if (asked->name)
                return ARGP_ERR_UNKNOWN;
        asked->name = text;
        return 0;
}

int machines_main(int argc, char **argv)
{
        static const struct argp_option words[] = {OPTION_WORDS("MACHINE", &named_machine_words), {0}};
        const struct argp names = {.options = words};
        const struct argp_child children[] = {{&names, 0, NULL, 0}, {0}};
        struct argp_option options[SETTINGS + 1];
        settings_options(option_rows, options, 1);
        const struct argp argp = {options, parse_option, "[MACHINE]", documentation, children, NULL, NULL};
        struct asked asked = {0};
        struct rv_error_info err = {.code = RV_OK};
        int rc = command_line_parse(&argp, argc, argv, &asked, false, &err);
        if (rc == 0 && asked.json)
                rc = print_json(asked.name, &err);
        else if (rc == 0)
                rc = asked.name ? print_one(asked.name, &err) : print_all(&err);
        return command_line_end("machines", rc, &err);
}
