#include "runtime/real/supervise.h"

#include "runtime/checkpoint/newest.h"
#include "runtime/base/file.h"
#include "runtime/real/train_options.h"
#include "runtime/real/watch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Seconds: in which hosts are to answer; the most that is waited before a restart; --hang-timeout's default.
 */
enum { ANSWER = 20, LONGEST_PAUSE = 60, HANG = 3600 };

/* Exit statuses. */
enum { FAILED = 1, USAGE = 2, STOPPED = 75 };

struct supervisor {
        int argc;
        char **argv;                    /* a copy: parsing puts options first */
        struct train_settings settings; /* as the command line says */
        struct watch watch;
        char program[PATH_MAX];
        char *mpirun;   /* a copy of --mpirun, cut into words */
        int dp;         /* of the next start, or the last */
        int64_t newest; /* the step of the newest checkpoint; -1: there is none; */
        int threads;    /* and how many a rank had that wrote it */
        bool again;     /* it is not the first start */
};

bool supervise_is_asked(int argc, char **argv)
{
        if (getenv("OMPI_COMM_WORLD_RANK"))
                return false;
        for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
                if (strcmp(argv[i], "--restarts") == 0 || strncmp(argv[i], "--restarts=", 11) == 0)
                        return true;
        return false;
}

/* ---- what is started ---- */

/* A command that is being made; the words are others'. */
struct command {
        const char **words;
        int count;
};

static struct command begin_command(struct supervisor *s, int more)
{
        const char *text = s->settings.start.mpirun ? s->settings.start.mpirun : "mpirun";
        struct command made = {calloc(strlen(text) + (size_t)more + 8, sizeof *made.words), 0};
        free(s->mpirun);
        s->mpirun = strdup(text);
        if (!made.words || !s->mpirun)
                abort();
        char *rest = NULL;
        for (char *word = strtok_r(s->mpirun, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
                made.words[made.count++] = word;
        if (getuid() == 0)
                made.words[made.count++] = "--allow-run-as-root";
        return made;
}

/* Ranks on hosts, of each as many as it has slots, or `each`. */
static char *add_hosts(const struct hosts *hosts, int each, struct command *to)
{
        char *text = hosts_text(hosts, each);
        if (!text)
                abort();
        to->words[to->count++] = "--host";
        to->words[to->count++] = text;
        return text;
}

/* Whether hosts, with one slot each, start a program that does nothing. */
static bool answer(struct supervisor *s, const struct hosts *hosts)
{
        char number[16];
        struct command made = begin_command(s, 8);
        char *text = add_hosts(hosts, 1, &made);
        snprintf(number, sizeof number, "%d", hosts->count);
        made.words[made.count++] = "-n";
        made.words[made.count++] = number;
        made.words[made.count++] = "true";
        const bool answered = watch_try(&s->watch, (char *const *)made.words, ANSWER);
        free(text);
        free(made.words);
        return answered;
}

/* All together, and only if that fails each by itself. */
static void try_hosts(struct supervisor *s)
{
        struct hosts *all = &s->settings.start.hosts;
        for (int i = 0; i < all->count; i++)
                all->list[i].gone = false;
        if (all->count == 0 || answer(s, all))
                return;
        for (int i = 0; i < all->count && s->watch.asked == 0; i++) {
                struct host *host = &all->list[i];
                host->gone = !answer(s, &(struct hosts){host, 1});
                if (host->gone && s->watch.asked == 0)
                        fprintf(stderr, "ranvier train: host %s does not answer: it is left out\n",
                                host->name);
        }
}

/* The words of the ranks' command line, and in the first place one for the program. */
struct words {
        char **list; /* to be freed */
        int count;
        char dp[16], batch[24], threads[16]; /* values that stand in it, so that it is not to be copied */
};

/* Makes those of a start with `dp` replicas that goes on from `resume` (NULL: from nothing). */
static void make_words(const struct supervisor *s, const char *resume, int dp, struct words *made)
{
        static const char *const ours[] = {"restarts", "ranks",  "hosts",        "hostfile",
                                           "mpirun",   "resume", "hang-timeout", NULL},
                                 *const init[] = {"init", NULL}, *const sizes[] = {"dp", "batch-size", NULL},
                                 *const threads[] = {"threads", NULL};
        enum { ADDED = 8 };
        char **list = calloc((size_t)s->argc + ADDED + 1, sizeof *list);
        const char *added[ADDED];
        int more = 0;
        if (!list)
                abort();
        memcpy(list, s->argv, (size_t)s->argc * sizeof *list);
        int left = train_options_drop(s->argc, list, ours);
        if (resume) {
                left = train_options_drop(left, list, init);
                added[more++] = "--resume";
                added[more++] = resume;
        }
        if (dp != s->settings.plan.dp) { /* a file of --from may have the batch by replicas */
                left = train_options_drop(left, list, sizes);
                snprintf(made->dp, sizeof made->dp, "%d", dp);
                snprintf(made->batch, sizeof made->batch, "%lld", (long long)s->settings.plan.batch_size);
                added[more++] = "--dp";
                added[more++] = made->dp;
                added[more++] = "--batch-size";
                added[more++] = made->batch;
        }
        if (resume && s->again && s->threads > 0) { /* another host may have more, and bits would change */
                left = train_options_drop(left, list, threads);
                snprintf(made->threads, sizeof made->threads, "%d", s->threads);
                added[more++] = "--threads";
                added[more++] = made->threads;
        }
        memmove(list + 1 + more, list + 1, (size_t)left * sizeof *list); /* with the NULL */
        memcpy(list + 1, added, (size_t)more * sizeof *list);
        made->list = list;
        made->count = left + more;
}

/* What the next start goes on from; NULL: from nothing. The user's own is what the first one does, or all as
 * long as there is nothing newer. */
static const char *choose_beginning(const struct supervisor *s)
{
        const struct train_settings *t = &s->settings;
        const bool own = t->resume && !file_would_replace(t->checkpoint, t->resume);
        if (own && !s->again)
                return t->resume;
        return s->newest >= 0 ? t->checkpoint : own ? t->resume : NULL;
}

/* Whether so many replicas can train this: what the ranks would say. */
static bool replicas_fit(const struct supervisor *s, int dp)
{
        struct words words;
        struct train_settings settings;
        struct rv_error_info err;
        const int64_t ranks = options_ranks(&s->settings.plan) / s->settings.plan.dp * dp;
        const struct net net = {.ranks = (int)ranks, .rank = 1, .local_ranks = 1, .max_micro_batch = INT_MAX};
        make_words(s, choose_beginning(s), dp, &words);
        const bool fits = train_options_parse(&settings, words.count, words.list, &net, &err) == 0;
        train_options_free(&settings);
        free(words.list);
        return fits;
}

/* Chooses how many replicas there are, for the hosts that answer. False: none fit; `why` says so. */
static bool choose_replicas(struct supervisor *s, char why[SAID_TEXT])
{
        const int wanted = s->settings.plan.dp, before = s->dp;
        const int64_t replica = options_ranks(&s->settings.plan) / wanted;
        const struct hosts *hosts = &s->settings.start.hosts;
        const int slots = hosts_slots(hosts);
        s->dp = wanted;
        if (hosts->count == 0)
                return true;
        while (s->dp > 0 && (s->dp * replica > slots || (s->dp < wanted && !replicas_fit(s, s->dp))))
                s->dp--;
        if (s->dp == 0) {
                s->dp = before;
                snprintf(why, SAID_TEXT,
                         "the plan needs %lld rank%s, the hosts that answer have %d slot%s, and no smaller "
                         "--dp "
                         "fits these",
                         (long long)(wanted * replica), rv_plural(wanted * replica), slots, rv_plural(slots));
                return false;
        }
        if (s->dp != before)
                fprintf(stderr,
                        "ranvier train: the hosts that answer have %d slot%s: --dp %d from here on, with the "
                        "same batch\n",
                        slots, rv_plural(slots), s->dp);
        return true;
}

/* ---- starting, and again ---- */

/* Looks at the newest checkpoint. */
static void find_newest(struct supervisor *s)
{
        char name[FOLDER_CHECKPOINT];
        struct newest newest = newest_begin(s->settings.checkpoint, NULL);
        json_t *index = newest_next(&newest, name, NULL);
        s->newest = index ? json_integer_value(json_object_get(index, "step")) : -1;
        s->threads = (int)json_integer_value(json_object_get(index, "threads"));
        json_decref(index);
        free(newest.steps);
}

/* Seconds that ranks which do not hang may say nothing. */
static double silence_allowed(const struct supervisor *s)
{
        return s->settings.start.hang_seconds > 0 ? s->settings.start.hang_seconds : HANG;
}

static int run_ranks(struct supervisor *s, struct watch_end *end, struct rv_error_info *err)
{
        char ranks[24];
        struct words words;
        const struct hosts *hosts = &s->settings.start.hosts;
        const int64_t replica = options_ranks(&s->settings.plan) / s->settings.plan.dp;
        snprintf(ranks, sizeof ranks, "%lld", (long long)(replica * s->dp));
        make_words(s, choose_beginning(s), s->dp, &words);
        struct command made = begin_command(s, words.count + 8);
        char *text = hosts->count ? add_hosts(hosts, 0, &made) : NULL;
        made.words[made.count++] = "-n";
        made.words[made.count++] = ranks;
        made.words[made.count++] = s->program;
        for (int i = 1; i < words.count; i++)
                made.words[made.count++] = words.list[i];
        const int rc = watch_run(&s->watch, (char *const *)made.words, silence_allowed(s), end, err);
        free(text);
        free(made.words);
        free(words.list);
        return rc;
}

/* The exit status that ends the training, of one that a restart would not mend; -1: it would. */
static int final_status(const struct watch_end *end)
{
        const int status = WIFEXITED(end->status) ? WEXITSTATUS(end->status) : -1;
        if (status == 0 || end->said.crowded)
                return status;
        if (end->why == WATCH_SILENT || end->said.signal || end->said.aborted || end->said.lost)
                return -1;
        /* Ranks that end by themselves with 1 have said why. mpirun itself does without a word of theirs. */
        if (end->said.code == FAILED || end->said.code == USAGE || end->said.code == STOPPED)
                return end->said.code;
        return status == USAGE || status == STOPPED ? status : -1;
}

/* A start, up to its end. Returns the status that ends the training, or -1 and `why` it did not go on. */
static int attempt(struct supervisor *s, char why[SAID_TEXT])
{
        struct rv_error_info err;
        struct watch_end end;
        try_hosts(s);
        if (s->watch.asked > 0 || !choose_replicas(s, why))
                return -1;
        if (run_ranks(s, &end, &err) != RV_OK) {
                fprintf(stderr, "ranvier train: %s\n", err.sentence);
                return FAILED;
        }
        if (end.why == WATCH_SILENT)
                snprintf(why, SAID_TEXT, "the ranks said nothing for %g s, and were ended",
                         silence_allowed(s));
        else
                said_text(&end.said, end.status, why);
        if (end.why == WATCH_STUCK)
                fprintf(stderr, "ranvier train: mpirun did not end by itself, and was ended\n");
        return final_status(&end);
}

/* Where the training goes on from: "step 10 of 40". */
static const char *place(const struct supervisor *s, char text[64])
{
        const char *from = choose_beginning(s);
        if (s->newest >= 0)
                snprintf(text, 64, "step %lld of %lld", (long long)s->newest,
                         (long long)s->settings.optim.steps);
        else
                snprintf(text, 64, "%.60s", from ? from : "the beginning");
        return text;
}

/* Asked to stop, it did before ranks could keep a checkpoint, as they do once they train. */
static int end_asked(const struct supervisor *s)
{
        char text[64];
        fprintf(stderr, "ranvier train: stopped, as asked: what is kept goes on from %s\n", place(s, text));
        return s->watch.asked == 1 ? STOPPED : FAILED;
}

static int end_tired(const struct supervisor *s, const char *why)
{
        char text[64];
        fprintf(stderr,
                "ranvier train: %s, and none of --restarts %d is left: what is kept goes on from %s\n", why,
                s->settings.start.restarts, place(s, text));
        return FAILED;
}

/* The first restart is at once; where that does not help, something may need time. */
static void wait_before(struct supervisor *s, int failed)
{
        const double seconds = failed < 2 ? 0 : failed < 8 ? 1 << (failed - 2) : LONGEST_PAUSE;
        watch_pause(&s->watch, seconds < LONGEST_PAUSE ? seconds : LONGEST_PAUSE);
}

static int keep_training(struct supervisor *s)
{
        const int restarts = s->settings.start.restarts;
        char why[SAID_TEXT], text[64];
        find_newest(s);
        for (int failed = 0;;) {
                const int status = attempt(s, why);
                if (status >= 0)
                        return status;
                const int64_t before = s->newest;
                find_newest(s);
                if (s->newest > before)
                        failed = 0;
                if (s->watch.asked > 0)
                        return end_asked(s);
                if (failed++ == restarts)
                        return end_tired(s, why);
                fprintf(stderr, "ranvier train: %s: starts again from %s, %d restart%s left\n", why,
                        place(s, text), restarts - failed, restarts - failed == 1 ? " is" : "s are");
                s->again = true;
                wait_before(s, failed);
        }
}

int supervise(int argc, char **argv)
{
        const struct net alone = {.ranks = 1, .local_ranks = 1, .max_micro_batch = INT_MAX};
        struct supervisor s = {.argc = argc, .argv = calloc((size_t)argc + 1, sizeof *argv)};
        struct rv_error_info err = {0};
        if (!s.argv)
                abort();
        memcpy(s.argv, argv, (size_t)argc * sizeof *argv);
        int rc = train_options_parse(&s.settings, argc, argv, &alone, &err);
        if (rc == 0 && readlink("/proc/self/exe", s.program, sizeof s.program - 1) < 0)
                rc = rv_fail(&err, RV_ESYSTEM, "this program cannot be found in /proc/self/exe");
        if (rc == 0)
                rc = watch_open(&s.watch, &err);
        s.dp = s.settings.plan.dp;
        const int status = rc == 0 ? keep_training(&s) : command_line_end("train", rc, &err);
        watch_close(&s.watch);
        free(s.argv);
        free(s.mpirun);
        train_options_free(&s.settings);
        return status;
}
