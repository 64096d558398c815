/* `ranvier`: a dispatcher, as git is. The commands are programs of their own beside it (or in libexec),
 * because SimGrid and Open MPI cannot live in one process. */
#include "runtime/base/file.h"
#include "runtime/base/nearest.h"
#include "runtime/base/version.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATUS_FAILED = 1, STATUS_USAGE = 2 };

struct command {
        const char *name;
        const char *program;
        const char *verb; /* the program's first argument, or NULL */
        const char *summary;
};

static const struct command commands[] = {
        {"train", "ranvier-train", NULL, "train a GPT on text, over the ranks that mpirun starts"},
        {"calibrate", "ranvier-calibrate", NULL, "measure this machine's kernels, copies and messages"},
        {"simulate", "ranvier-sim", "simulate", "predict a training run, here or on a cluster"},
        {"compare", "ranvier-plot", "compare", "a predicted and a measured report side by side, with errors"},
        {"plot", "ranvier-plot", "plot", "figures from reports and traces"},
        {"report", "ranvier-plot", "report", "one page of HTML from reports, tables and traces"},
        {"sample", "ranvier-sample", NULL, "text from a trained model"},
        {"reshard", "ranvier-reshard", NULL, "a checkpoint of a training as a model, or in other parts"},
        {"plan", "ranvier-sim", "plan", "the best plan for a model on a machine, and what it takes"},
        {"sweep", "ranvier-sim", "sweep",
         "the best plans for several numbers of GPUs, with and without offloading"},
        {"validate", "ranvier-sim", "validate", "predictions against runs that others measured, with errors"},
        {"price", "ranvier-sim", "price", "what kernels of a table take by a profile, against their seconds"},
        {"frameworks", "ranvier-sim", "frameworks", "how other frameworks run a model, with sources"},
        {"machines", "ranvier-sim", "machines",
         "the machines that --machine knows, with figures and sources"},
        {"doctor", "ranvier-doctor", NULL,
         "what this machine has for all that, and what is missing for what"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const char workflow[] =
        "\n"
        "'ranvier COMMAND --help' says what a command takes. From a text to a checked prediction, on two "
        "cores:\n"
        "\n"
        "  Measure this machine while two ranks work:\n"
        "    ranvier calibrate --ranks 2 --quick --out here.json\n"
        "  Train the preset 'demo' as a pipeline of two stages:\n"
        "    mpirun -n 2 --bind-to core ranvier train demo --data book.txt --pp 2 --dp 1 \\\n"
        "        --micro-batch-size 4 --batch-size 32 --steps 20 --report measured.json\n"
        "  Predict the same run, then see how right that was:\n"
        "    ranvier simulate demo --profile here.json --platform local --gpus 2 --pp 2 --dp 1 \\\n"
        "        --micro-batch-size 4 --batch-size 32 --report predicted.json\n"
        "    ranvier compare predicted.json measured.json\n";

static const char about[] =
        "Trains GPTs in parallel over MPI and predicts such runs, with one scheduling core for both.";

static void print_help(void)
{
        printf("Usage: ranvier COMMAND [OPTION...]\n\n"
               "%s\n\n"
               "Commands:\n",
               about);
        for (int i = 0; i < COMMANDS; i++)
                printf("  %-10s %s\n", commands[i].name, commands[i].summary);
        fputs(workflow, stdout);
}

/* What man pages and completions are made of (runtime/manual); a command describes itself. */
static void print_description(void)
{
        json_t *all = json_array();
        for (int i = 0; i < COMMANDS; i++)
                json_array_append_new(all, json_pack("{s:s, s:s}", "name", commands[i].name, "summary",
                                                     commands[i].summary));
        json_t *whole = json_pack("{s:s, s:s, s:o}", "about", about, "more", workflow, "commands", all);
        json_dumpf(whole, stdout, JSON_INDENT(1));
        printf("\n");
        json_decref(whole);
}

static const struct command *find_command(const char *name)
{
        for (int i = 0; i < COMMANDS; i++)
                if (strcmp(commands[i].name, name) == 0)
                        return &commands[i];
        return NULL;
}

/* Whether to complain: of the ranks that mpirun started, the first does. */
static bool is_first_rank(void)
{
        const char *rank = getenv("OMPI_COMM_WORLD_RANK");
        return !rank || strcmp(rank, "0") == 0;
}

static int refuse_unknown(const char *name)
{
        struct nearest nearest = {.word = name};
        for (int i = 0; i < COMMANDS; i++)
                nearest_offer(&nearest, commands[i].name);
        if (!is_first_rank())
                return STATUS_USAGE;
        if (name[0] == '-')
                fprintf(stderr, "ranvier: unknown option %s; 'ranvier --help' lists the commands\n", name);
        else if (nearest.known)
                fprintf(stderr,
                        "ranvier: unknown command '%s'; the nearest is '%s', 'ranvier --help' lists all\n",
                        name, nearest.known);
        else
                fprintf(stderr, "ranvier: unknown command '%s'; 'ranvier --help' lists what there is\n",
                        name);
        return STATUS_USAGE;
}

/* The full path of a command's program. */
static int find_program(const char *program, char *path, size_t path_size)
{
        static const char *const places[] = {"", "/../libexec/ranvier"};
        char folder[PATH_MAX];
        if (file_program_folder(folder, sizeof folder) == 0)
                for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
                        int length = snprintf(path, path_size, "%s%s/%s", folder, places[i], program);
                        if (length > 0 && (size_t)length < path_size && access(path, X_OK) == 0)
                                return RV_OK;
                }
        fprintf(stderr,
                "ranvier: %s is neither beside this program nor in ../libexec/ranvier; is it built?\n",
                program);
        return RV_ESYSTEM;
}

/* Replaces this process; returns only if that fails. */
static int run(const char *path, char **arguments)
{
        fflush(NULL);
        /* Kernels have threads of their own. OpenBLAS would start as many when it is loaded, which look for
         * work for a while, of every rank at the same time. */
        setenv("OPENBLAS_NUM_THREADS", "1", 1);
        execvp(path, arguments);
        fprintf(stderr, "ranvier: %s cannot be started: %s\n", path, strerror(errno));
        return STATUS_FAILED;
}

static int run_command(const struct command *command, int count, char **arguments)
{
        char program[PATH_MAX];
        if (find_program(command->program, program, sizeof program) != RV_OK)
                return STATUS_FAILED;
        char **all = calloc((size_t)count + 3, sizeof *all);
        if (!all) {
                fprintf(stderr, "ranvier: no memory\n");
                return STATUS_FAILED;
        }
        int used = 0;
        all[used++] = program;
        if (command->verb)
                all[used++] = (char *)command->verb;
        memcpy(all + used, arguments, (size_t)count * sizeof *all);
        int status = run(program, all);
        free(all);
        return status;
}

/* The status of a command that only prints. */
static int end_of_print(void)
{
        struct rv_error_info err;
        if (file_check_printed(&err) == RV_OK)
                return 0;
        fprintf(stderr, "ranvier: %s\n", err.sentence);
        return STATUS_FAILED;
}

/* Standard input, output and error that are closed would be taken by the files that are opened next. What is
 * written to these fails, as to closed ones. */
static void fill_closed(void)
{
        for (int descriptor = 0; descriptor <= 2; descriptor++)
                if (fcntl(descriptor, F_GETFD) == -1 &&
                    open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY) != descriptor)
                        exit(STATUS_FAILED);
}

int main(int argc, char **argv)
{
        fill_closed();
        if (argc < 2 || strcmp(argv[1], "--help") == 0 || (strcmp(argv[1], "help") == 0 && argc == 2)) {
                print_help();
                return end_of_print();
        }
        if (strcmp(argv[1], "--version") == 0) {
                printf("ranvier %s\n", RANVIER_VERSION);
                return end_of_print();
        }
        if (strcmp(argv[1], "--describe") == 0) {
                print_description();
                return end_of_print();
        }
        if (strcmp(argv[1], "help") == 0) { /* `ranvier help train` is `ranvier train --help` */
                argv[1] = argv[2];
                argv[2] = "--help";
        }
        const struct command *command = find_command(argv[1]);
        return command ? run_command(command, argc - 2, argv + 2) : refuse_unknown(argv[1]);
}
