#include "runtime/doctor/programs.h"

#include "runtime/base/child.h"
#include "runtime/base/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER = 65536, PATIENCE_SECONDS = 120, WORDS = 40 };

/* ---- running a program ---- */

/* A program that ran: what it printed, standard error included, and how it ended. */
struct answer {
        char text[ANSWER];
        int status; /* as waitpid has it; -1: it could not be started */
        double seconds;
};

static int start_program(void *context, int to)
{
        char *const *words = context;
        dup2(to, STDOUT_FILENO);
        dup2(to, STDERR_FILENO);
        alarm(PATIENCE_SECONDS); /* stays across exec: one that hangs is ended */
        execvp(words[0], words);
        dprintf(to, "%s cannot be started: %s\n", words[0], strerror(errno));
        return 127;
}

static double seconds_now(void)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whether it ran and ended with 0. */
static bool ask(char *const *words, struct answer *answer)
{
        struct child child;
        struct rv_error_info err;
        const double start = seconds_now();
        answer->status = -1;
        answer->text[0] = 0;
        if (child_start(&child, start_program, (void *)(uintptr_t)words, "to look for a program", &err)) {
                snprintf(answer->text, sizeof answer->text, "%s", err.sentence);
                return false;
        }
        const size_t length = child_answer(&child, answer->text, sizeof answer->text - 1, &answer->status);
        answer->text[length] = 0;
        answer->seconds = seconds_now() - start;
        return answer->status == 0;
}

/* What Open MPI says at length, in short. */
static const struct cause {
        const char *mark, *says, *install;
} causes[] = {
        {"plm_rsh_agent", "Open MPI finds neither ssh nor rsh, without which it does not start",
         "openssh-client"},
        {"run as root",
         "mpirun refuses to run as root: set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, "
         "or "
         "be another user",
         ""},
};

/* The line of an answer that says what is wrong: ranvier's own, or the loader's, or the first one. */
static const char *complaint(const struct answer *answer, char text[400])
{
        static const char *const marks[] = {"error while loading", "ranvier "};
        const char *from = answer->text;
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
                const char *found = strstr(answer->text, marks[i]);
                if (!found)
                        continue;
                while (found > answer->text && found[-1] != '\n')
                        found--;
                from = found;
                break;
        }
        from += strspn(from, "\n-");
        if (*from)
                snprintf(text, 400, "%.*s", (int)strcspn(from, "\n"), from);
        else
                child_end(answer->status, text, 400);
        return text;
}

/* A row of a program that failed. */
static struct finding *add_failed(struct findings *findings, const char *name, const char *use,
                                  const struct answer *answer)
{
        char text[400];
        const struct cause *cause = NULL;
        for (size_t i = 0; !cause && i < sizeof causes / sizeof *causes; i++)
                if (strstr(answer->text, causes[i].mark))
                        cause = &causes[i];
        struct finding *row =
                finding_add(findings, name, use, false, "%s", cause ? cause->says : complaint(answer, text));
        if (cause)
                snprintf(row->install, sizeof row->install, "%s", cause->install);
        else
                finding_install_library(row, answer->text);
        return row;
}

/* ---- the programs of ranvier ---- */

/* What a program says with --about; the caller owns it. NULL: it does not start, and `answer` says why. */
static json_t *ask_about(const char *path, struct answer *answer)
{
        char *const words[] = {(char *)(uintptr_t)path, (char[]){"--about"}, NULL};
        return ask(words, answer) ? json_loads(answer->text, 0, NULL) : NULL;
}

static const char *member(const json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));
        return text ? text : "unknown";
}

/* What ranvier-train says of MPI, BLAS and the kernels that the processor runs. */
static void add_libraries(struct findings *findings, const json_t *about)
{
        const json_t *kernels = json_object_get(about, "cpu_kernels");
        const size_t count = json_array_size(kernels);
        char all[128] = "";
        for (size_t i = 0; i < count; i++)
                snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "",
                         json_string_value(json_array_get(kernels, i)));
        json_object_set(findings->machine, "processor", json_object_get(about, "processor"));
        finding_add(findings, "MPI", "for train and calibrate", true, "%s", member(about, "mpi"));
        finding_add(findings, "BLAS", "for train, calibrate and sample", true, "%.100s; kernels for %s",
                    member(about, "blas"), member(about, "blas_kernels"));
        finding_add(findings, "CPU kernels", "for train, calibrate and sample", count > 0,
                    "%s, the fastest of those that run here: %s",
                    count ? json_string_value(json_array_get(kernels, count - 1)) : "none", all);
}

/* Those that no trial below starts: only whether they start. */
static void examine_others(struct findings *findings, const char *folder)
{
        static const struct {
                const char *program, *verb, *name, *use;
        } others[] = {
                {"ranvier-calibrate", NULL, "calibrate", "to measure a machine"},
                {"ranvier-sample", NULL, "sample", "for text from a model"},
                {"ranvier-plot", "compare", "compare", "for compare and plot"},
        };
        static struct answer answer;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
                char path[PATH_MAX], version[] = "--version", verb[16] = "";
                snprintf(path, sizeof path, "%s/%s", folder, others[i].program);
                snprintf(verb, sizeof verb, "%s", others[i].verb ? others[i].verb : version);
                char *const words[] = {path, verb, others[i].verb ? version : NULL, NULL};
                if (access(path, X_OK))
                        finding_add(findings, others[i].name, others[i].use, false, "%s is not there", path);
                else if (!ask(words, &answer))
                        add_failed(findings, others[i].name, others[i].use, &answer);
        }
}

/* ---- trials ---- */

/* Appends the words of a line to `words`, which have `used`; they stay in `line`. */
static void split(char *line, char **words, int used)
{
        char *place = NULL;
        for (char *word = strtok_r(line, " ", &place); word && used < WORDS - 1;
             word = strtok_r(NULL, " ", &place))
                words[used++] = word;
        words[used] = NULL;
}

/* Text to train on. Returns 0, or -1 with nothing left behind. */
static int write_text(char *path, size_t size)
{
        enum { TIMES = 400 };
        struct rv_error_info err;
        FILE *stream = file_open_temporary(path, size, &err);
        if (!stream)
                return -1;
        for (int i = 0; i < TIMES; i++)
                fprintf(stream, "%d: the quick brown fox jumps over the lazy dog.\n", i);
        if (fclose(stream) == 0)
                return 0;
        unlink(path);
        return -1;
}

/* One step of the smallest preset, by `before` (mpirun, or "") on `ranks`. */
static bool try_training(const char *before, const char *program, int ranks, struct answer *answer)
{
        char data[PATH_MAX], line[512], *words[WORDS], path[PATH_MAX], starter[256];
        if (write_text(data, sizeof data)) {
                snprintf(answer->text, sizeof answer->text, "no text to train on could be written to %s",
                         data);
                return false;
        }
        int used = 0;
        snprintf(starter, sizeof starter, "%s", before);
        split(starter, words, 0);
        while (words[used])
                used++;
        snprintf(path, sizeof path, "%s", program);
        words[used++] = path;
        snprintf(line, sizeof line,
                 "tiny --dp %d --steps 1 --micro-batch-size 1 --batch-size %d --threads 1 --data", ranks,
                 ranks);
        split(line, words, used);
        while (words[used])
                used++;
        words[used++] = data;
        words[used] = NULL;
        const bool works = ask(words, answer);
        unlink(data);
        return works;
}

static void examine_training(struct findings *findings, const char *folder)
{
        static const char use[] = "to train on this machine's processors";
        static struct answer answer;
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/ranvier-train", folder);
        json_t *about = ask_about(path, &answer);
        if (about)
                add_libraries(findings, about);
        json_decref(about);
        struct finding *row = about && try_training("", path, 1, &answer)
                                      ? finding_add(findings, "training", use, true,
                                                    "works: a step of the preset tiny, in %.1f s with its "
                                                    "start",
                                                    answer.seconds)
                                      : add_failed(findings, "training", use, &answer);
        row->needed = true;
}

/* mpirun, by two ranks that train. */
static void examine_ranks(struct findings *findings, const char *folder)
{
        static const char use[] = "to train and calibrate on several ranks";
        static struct answer answer;
        char path[PATH_MAX], version[128];
        char *const words[] = {(char[]){"mpirun"}, (char[]){"--version"}, NULL};
        struct finding *row;
        snprintf(path, sizeof path, "%s/ranvier-train", folder);
        if (!ask(words, &answer)) {
                row = finding_add(findings, "mpirun", use, false, "mpirun is not there");
                snprintf(row->install, sizeof row->install, "openmpi-bin");
                row->needed = true;
                return;
        }
        snprintf(version, sizeof version, "%.*s", (int)strcspn(answer.text, "\n"), answer.text);
        if (try_training("mpirun --oversubscribe -n 2", path, 2, &answer))
                row = finding_add(findings, "mpirun", use, true, "%s: two ranks train together%s", version,
                                  geteuid() ? "" : ", and as root too");
        else
                row = add_failed(findings, "mpirun", use, &answer);
        row->needed = true;
}

static void examine_predicting(struct findings *findings, const char *folder)
{
        static const char use[] = "to predict: simulate, sweep, validate, price";
        static struct answer answer;
        char path[PATH_MAX], *words[WORDS] = {path};
        char line[] = "simulate tiny --profile a100-datasheet --platform generic --gpus 2 --dp 2 "
                      "--micro-batch-size 1 --batch-size 2";
        struct finding *row;
        snprintf(path, sizeof path, "%s/ranvier-sim", folder);
        json_t *about = ask_about(path, &answer);
        split(line, words, 1);
        if (about && ask(words, &answer))
                row = finding_add(findings, "predicting", use, true,
                                  "works, by SimGrid %s: two GPUs with the preset tiny, in %.1f s",
                                  member(about, "simgrid"), answer.seconds);
        else
                row = add_failed(findings, "predicting", use, &answer);
        row->needed = true;
        json_decref(about);
}

static void examine_figures(struct findings *findings)
{
        static const char use[] = "for figures: plot, compare --plot, sweep --plot";
        static struct answer answer;
        char *const words[] = {(char[]){"gnuplot"}, (char[]){"--version"}, NULL};
        if (ask(words, &answer)) {
                finding_add(findings, "figures", use, true, "%.*s", (int)strcspn(answer.text, "\n"),
                            answer.text);
                return;
        }
        struct finding *row = finding_add(findings, "figures", use, false, "gnuplot is not there");
        snprintf(row->install, sizeof row->install, "gnuplot-nox");
}

void programs_examine(struct findings *findings, const char *folder)
{
        examine_training(findings, folder);
        examine_ranks(findings, folder);
        examine_predicting(findings, folder);
        examine_others(findings, folder);
        examine_figures(findings);
}
