#include "runtime/real/mpirun_said.h"

#include "runtime/base/child.h"

#include <string.h>

/* Open MPI's texts. */
static const char killed[] = "noticed that process rank ", aborted[] = "MPI_ABORT was invoked on rank ",
                  lost[] = "ORTE has lost communication with a remote daemon",
                  lost_node[] = "Remote daemon: ", code[] = "Exit code: ",
                  crowded[] = "There are not enough slots available in the system";

/* Blocks that say no more than said_text does. */
static bool is_known(const char *line)
{
        static const char *const texts[] = {
                killed,
                aborted,
                lost,
                "Primary job  terminated normally",
                "noticed that the job aborted",
                "detected that one or more processes exited with non-zero status"};
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
                if (strstr(line, texts[i]))
                        return true;
        return false;
}

/* The first that ended is who ended the others. */
static bool is_first(const struct said *s)
{
        return s->signal == 0 && !s->aborted && !s->lost;
}

/* What a line of a block says. */
static void read_line(struct said *s, const char *line)
{
        const char *at;
        if ((at = strstr(line, killed)) && is_first(s)) {
                if (sscanf(at + strlen(killed), "%d with PID %*d on node %63s exited on signal %d", &s->rank,
                           s->node, &s->signal) != 3)
                        s->node[0] = 0;
        } else if ((at = strstr(line, aborted)) && is_first(s))
                s->aborted = sscanf(at + strlen(aborted), "%d", &s->rank) == 1;
        else if (strstr(line, lost) && is_first(s))
                s->lost = true;
        else if (s->lost && (at = strstr(line, lost_node)) && (at = strstr(at, "on node "))) {
                if (sscanf(at, "on node %63s", s->node) != 1)
                        s->node[0] = 0;
        } else if ((at = strstr(line, code)) && s->code == 0) {
                if (sscanf(at + strlen(code), "%d", &s->code) != 1)
                        s->code = 0;
        } else if (strstr(line, crowded))
                s->crowded = true;
        s->known |= is_known(line);
}

static bool is_border(const char *line, size_t length)
{
        return length > 60 && strspn(line, "-") + 1 == length;
}

static void leave_block(struct said *s)
{
        if (!s->known)
                fwrite(s->block, 1, s->held, s->to);
        s->held = 0;
        s->inside = s->known = false;
}

static void hold(struct said *s)
{
        if (s->length > sizeof s->block - s->held) { /* it is none of mpirun's */
                leave_block(s);
                fwrite(s->line, 1, s->length, s->to);
                return;
        }
        s->inside = true;
        memcpy(s->block + s->held, s->line, s->length);
        s->held += s->length;
}

/* A line with its end, or a part of a long one. */
static void take_line(struct said *s)
{
        const bool border = is_border(s->line, s->length);
        s->line[s->length] = 0;
        if (s->inside) /* what others say of such things is not mpirun's */
                read_line(s, s->line);
        if (border && s->inside) {
                hold(s);
                leave_block(s);
        } else if (border || (s->inside && strncmp(s->line, "ranvier train:", 14) != 0))
                hold(s);
        else if (strncmp(s->line, "mpirun: Forwarding signal", 25) != 0)
                fwrite(s->line, 1, s->length, s->to);
        s->length = 0;
}

void said_take(struct said *s, const char *text, size_t size)
{
        for (size_t i = 0; i < size; i++) {
                s->line[s->length++] = text[i];
                if (text[i] == '\n' || s->length == sizeof s->line - 1)
                        take_line(s);
        }
        fflush(s->to);
}

void said_end(struct said *s)
{
        if (s->length > 0)
                take_line(s);
        leave_block(s);
        fflush(s->to);
}

bool said_is_over(const struct said *s)
{
        return !is_first(s) || s->code != 0;
}

char *said_text(const struct said *s, int status, char text[SAID_TEXT])
{
        const char *on = s->node[0] ? " on " : "";
        if (s->signal)
                snprintf(text, SAID_TEXT, "rank %d%s%s was ended by signal %d (%s)", s->rank, on, s->node,
                         s->signal, strsignal(s->signal));
        else if (s->aborted)
                snprintf(text, SAID_TEXT, "rank %d has called MPI_Abort", s->rank);
        else if (s->lost)
                snprintf(text, SAID_TEXT, "mpirun lost the host%s%s", s->node[0] ? " " : "", s->node);
        else if (s->code)
                snprintf(text, SAID_TEXT, "a rank ended with status %d", s->code);
        else {
                char end[SAID_TEXT - 8];
                snprintf(text, SAID_TEXT, "mpirun %s", child_end(status, end, sizeof end));
        }
        return text;
}
