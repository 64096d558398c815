#include "sim/search/parts.h"

#include "runtime/base/file.h"
#include "runtime/base/progress.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds between two writings, much less than any patience. */
static const double BEAT_SECONDS = 2;

static int number_of(const char *name, int otherwise)
{
        const char *text = getenv(name);
        char *end;
        if (!text)
                return otherwise;
        long number = strtol(text, &end, 10);
        return end == text || *end || number < 0 || number > 1000000 ? otherwise : (int)number;
}

struct parts parts_find(void)
{
        struct parts parts = {.rank = number_of("OMPI_COMM_WORLD_RANK", 0),
                              .size = number_of("OMPI_COMM_WORLD_SIZE", 1),
                              .local_size = number_of("OMPI_COMM_WORLD_LOCAL_SIZE", 1)};
        if (parts.size < 1 || parts.rank >= parts.size)
                parts = (struct parts){.size = 1};
        if (parts.local_size < 1)
                parts.local_size = 1;
        return parts;
}

/* The names have the identity of this mpirun, so that nobody takes what an earlier one left. */
void parts_share(struct parts *parts, const char *csv, double patience)
{
        const char *job = getenv("PMIX_NAMESPACE");
        parts->patience = patience;
        int length =
                snprintf(parts->prefix, sizeof parts->prefix, "%.800s.%.64s.part-", csv, job ? job : "job");
        for (int i = (int)strlen(csv); i < length; i++)
                if (parts->prefix[i] == '/')
                        parts->prefix[i] = '-';
}

static void path_of(const struct parts *parts, int rank, char *path, size_t path_size)
{
        snprintf(path, path_size, "%s%d", parts->prefix, rank);
}

/* ---- outcomes as JSON ---- */

static json_t *outcome_json(int job, const struct outcome *o)
{
        json_t *object = json_pack("{s:i, s:i, s:I, s:i, s:i, s:s}", "job", job, "state", (int)o->state,
                                   "host", (json_int_t)o->host_bytes, "shapes", o->shapes, "measured",
                                   o->shapes_measured, "failure", o->failure);
        if (object)
                figures_write(&o->figures, object);
        return object;
}

/* A failure has no figures. */
static void take_outcome(const char *path, const json_t *object, struct jobs *jobs)
{
        struct outcome o = {.state = OUTCOME_PENDING};
        struct rv_error_info ignored;
        int job, state;
        json_int_t host;
        const char *failure;
        if (json_unpack((json_t *)object, "{s:i, s:i, s:I, s:i, s:i, s:s}", "job", &job, "state", &state,
                        "host", &host, "shapes", &o.shapes, "measured", &o.shapes_measured, "failure",
                        &failure) ||
            job < 0 || job >= jobs->count || state <= OUTCOME_PENDING || state > OUTCOME_FAILED ||
            (state == OUTCOME_DONE && figures_read(&o.figures, path, object, &ignored)))
                return;
        o.state = (enum outcome_state)state;
        o.host_bytes = host;
        snprintf(o.failure, sizeof o.failure, "%s", failure);
        jobs->list[job].outcome = o;
}

int parts_tell(struct parts *parts, const struct jobs *jobs, bool complete, struct rv_error_info *err)
{
        char path[1000];
        if (!complete && parts->beat > 0 && progress_clock() - parts->written < BEAT_SECONDS)
                return 0;
        json_t *outcomes = json_array();
        for (int i = 0; i < jobs->count; i++)
                if (jobs->list[i].outcome.state != OUTCOME_PENDING)
                        json_array_append_new(outcomes, outcome_json(i, &jobs->list[i].outcome));
        json_t *document = json_pack("{s:I, s:b, s:o}", "beat", (json_int_t)++parts->beat, "complete",
                                     complete, "outcomes", outcomes);
        if (!document)
                return rv_fail(err, RV_ESYSTEM, "no memory for the results of rank %d", parts->rank);
        path_of(parts, parts->rank, path, sizeof path);
        int rc = file_write_json(path, document, err);
        json_decref(document);
        parts->written = progress_clock();
        return rc;
}

/* ---- the first rank ---- */

/* What is known of another rank. */
struct other {
        int64_t beat;
        double seen; /* when its beat last changed */
        bool complete;
};

static void listen_to(const struct parts *parts, int rank, struct other *other, struct jobs *jobs)
{
        char path[1000];
        struct rv_error_info ignored; /* not there yet */
        path_of(parts, rank, path, sizeof path);
        json_t *document = access(path, R_OK) == 0 ? file_read_json(path, &ignored) : NULL;
        int64_t beat = json_integer_value(json_object_get(document, "beat"));
        if (document && beat != other->beat) {
                other->beat = beat;
                other->seen = progress_clock();
        }
        if (json_is_true(json_object_get(document, "complete"))) {
                const json_t *outcomes = json_object_get(document, "outcomes");
                for (size_t i = 0; i < json_array_size(outcomes); i++)
                        take_outcome(path, json_array_get(outcomes, i), jobs);
                other->complete = true;
                unlink(path);
        }
        json_decref(document);
}

static void remove_files(const struct parts *parts)
{
        for (int rank = 1; rank < parts->size; rank++) {
                char path[1000];
                path_of(parts, rank, path, sizeof path);
                unlink(path);
        }
}

/* The first rank that is neither complete nor was heard of for too long; 0: none; -1: all are complete. */
static int silent_rank(const struct parts *parts, const struct other *others)
{
        bool all = true;
        for (int rank = 1; rank < parts->size; rank++) {
                if (!others[rank].complete && progress_clock() - others[rank].seen > parts->patience)
                        return rank;
                all = all && others[rank].complete;
        }
        return all ? -1 : 0;
}

int parts_gather(const struct parts *parts, struct jobs *jobs, struct rv_error_info *err)
{
        struct other *others = calloc((size_t)parts->size, sizeof *others);
        if (!others)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d ranks", parts->size);
        int silent;
        for (int rank = 1; rank < parts->size; rank++)
                others[rank].seen = progress_clock();
        for (;;) {
                for (int rank = 1; rank < parts->size; rank++)
                        if (!others[rank].complete)
                                listen_to(parts, rank, &others[rank], jobs);
                silent = silent_rank(parts, others);
                if (silent)
                        break;
                nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        }
        free(others);
        if (silent < 0)
                return 0;
        remove_files(parts);
        return rv_fail(
                err, RV_ESYSTEM,
                "rank %d has shown no sign of life for %.0f s, in %s%d: it is gone, or does not see the "
                "same files (--patience waits longer)",
                silent, parts->patience, parts->prefix, silent);
}
