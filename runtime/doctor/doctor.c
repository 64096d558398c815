/* `ranvier doctor`: what this machine has for ranvier, and what is missing for what. It needs no library that
 * another command does not: it asks the other programs, and works where they do not start. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/doctor/finding.h"
#include "runtime/doctor/gpus.h"
#include "runtime/doctor/programs.h"

#include "runtime/base/command_line.h"
#include "runtime/base/file.h"
#include "runtime/base/setting.h"
#include "runtime/base/version.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

struct settings {
        bool json;
};

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_SET, "json", .offset = offsetof(struct settings, json), .help = "Print what was found as JSON"},
        {.help = NULL},
};
/* clang-format on */

static const char documentation[] =
        "Says what this machine has for ranvier, by trying it: whether a step of training and a prediction "
        "work, and with which MPI, BLAS, SimGrid, GPUs and plugins; and what is missing for what, with the "
        "Debian package to install.\v"
        "  ranvier doctor\n\n"
        "The exit status is 0 if training on the processors, alone and under mpirun, and predicting work, "
        "else 1. It takes some seconds.\n";

/* ---- the machine ---- */

/* Processors that this process may use. */
static int processors(void)
{
        cpu_set_t set;
        return sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
}

static void examine_machine(json_t *machine)
{
        struct utsname system;
        const json_int_t page = sysconf(_SC_PAGESIZE);
        uname(&system);
        json_object_set_new(machine, "system", json_sprintf("%s %s", system.sysname, system.release));
        json_object_set_new(machine, "architecture", json_string(system.machine));
        json_object_set_new(machine, "processors", json_integer(processors()));
        json_object_set_new(machine, "memory_bytes", json_integer(sysconf(_SC_PHYS_PAGES) * page));
        json_object_set_new(machine, "free_memory_bytes", json_integer(sysconf(_SC_AVPHYS_PAGES) * page));
}

static double gibibytes(const json_t *machine, const char *key)
{
        return (double)json_integer_value(json_object_get(machine, key)) / 1073741824.0;
}

/* ---- what is printed ---- */

/* Whether all that is needed is here. */
static bool works(const struct findings *findings)
{
        for (int i = 0; i < findings->count; i++)
                if (findings->rows[i].needed && !findings->rows[i].has)
                        return false;
        return true;
}

static int print_json(const struct findings *findings, struct rv_error_info *err)
{
        json_t *rows = json_array();
        for (int i = 0; i < findings->count; i++) {
                const struct finding *row = &findings->rows[i];
                json_t *object = json_pack("{s:s, s:b, s:b, s:s, s:s}", "name", row->name, "has", row->has,
                                           "needed", row->needed, "says", row->says, "use", row->use);
                if (!row->has && row->install[0])
                        json_object_set_new(object, "install", json_string(row->install));
                json_array_append_new(rows, object);
        }
        json_t *all = json_pack("{s:s, s:b, s:O, s:o}", "ranvier", RANVIER_VERSION, "works", works(findings),
                                "machine", findings->machine, "found", rows);
        const int rc = file_print_json(all, err);
        json_decref(all);
        return rc;
}

static void print_missing(const struct findings *findings)
{
        bool any = false;
        for (int i = 0; i < findings->count; i++) {
                const struct finding *row = &findings->rows[i];
                if (row->has || !row->install[0])
                        continue;
                printf("%s  %-22s %s\n", any ? "" : "\nTo install:\n", row->install, row->use);
                any = true;
        }
}

static void print_verdict(const struct findings *findings)
{
        const char *before = "\nDoes not work: ";
        if (works(findings))
                printf("\nTraining on this machine's processors and predicting work.\n");
        for (int i = 0; i < findings->count; i++)
                if (findings->rows[i].needed && !findings->rows[i].has) {
                        printf("%s%s", before, findings->rows[i].name);
                        before = ", ";
                }
        if (!works(findings))
                printf(".\n");
}

static void print_words(const struct findings *findings)
{
        const json_t *machine = findings->machine;
        const json_t *name = json_object_get(machine, "processor");
        const json_int_t count = json_integer_value(json_object_get(machine, "processors"));
        printf("ranvier %s, on %s, %s\n\n", RANVIER_VERSION,
               json_string_value(json_object_get(machine, "system")),
               json_string_value(json_object_get(machine, "architecture")));
        printf("  %-4s %-12s %lld processor%s for this process%s%s; %.1f GiB of memory, %.1f of it free\n",
               "", "machine", (long long)count, rv_plural(count), name ? ", " : "",
               name ? json_string_value(name) : "", gibibytes(machine, "memory_bytes"),
               gibibytes(machine, "free_memory_bytes"));
        for (int i = 0; i < findings->count; i++) {
                const struct finding *row = &findings->rows[i];
                printf("  %-4s %-12s %s\n", row->has ? "yes" : "no", row->name, row->says);
        }
        print_missing(findings);
        print_verdict(findings);
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        return settings_take(option_rows, state->input, key, text, command_line_error(state));
}

static int examine(const struct settings *settings, bool *all, struct rv_error_info *err)
{
        char folder[PATH_MAX];
        struct findings findings = {.machine = json_object()};
        if (file_program_folder(folder, sizeof folder))
                return rv_fail(err, RV_ESYSTEM, "the folder of this program cannot be told");
        examine_machine(findings.machine);
        programs_examine(&findings, folder);
        gpus_examine(&findings);
        int rc = RV_OK;
        if (!settings->json)
                print_words(&findings);
        else
                rc = print_json(&findings, err);
        *all = works(&findings);
        json_decref(findings.machine);
        return rc;
}

int main(int argc, char **argv)
{
        struct argp_option options[SETTINGS + 1];
        settings_options(option_rows, options, 1);
        const struct argp argp = {options, parse_option, "", documentation, NULL, NULL, NULL};
        struct settings settings = {0};
        struct rv_error_info err = {.code = RV_OK};
        bool all = true;
        int rc = command_line_parse(&argp, argc, argv, &settings, false, &err);
        if (rc == RV_OK)
                rc = examine(&settings, &all, &err);
        const int status = command_line_end("doctor", rc, &err);
        return status ? status : !all;
}
