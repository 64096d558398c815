/* What mpirun says between what its ranks say, however it is cut into pieces. */
#include "runtime/real/mpirun_said.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

#define BORDER "--------------------------------------------------------------------------\n"

static const char killed[] =
        "step 3/6   loss 4.5\n" BORDER "Primary job  terminated normally, but 1 process returned\n"
        "a non-zero exit code. Per user-direction, the job has been aborted.\n" BORDER BORDER
        "mpirun noticed that process rank 1 with PID 712 on node node3 exited on signal 9 (Killed).\n" BORDER
        "no end";

/* What is handed on of a text that comes in pieces of `size` bytes; the caller frees it. */
static char *hand_on(const char *text, size_t size, struct said *said)
{
        char *handed = NULL;
        size_t length;
        *said = (struct said){.to = open_memstream(&handed, &length)};
        for (size_t at = 0, all = strlen(text); at < all; at += size)
                said_take(said, text + at, all - at < size ? all - at : size);
        said_end(said);
        fclose(said->to);
        return handed;
}

static void check(const char *text, const char *handed, int status, const char *ended)
{
        static struct said said;
        for (size_t size = 1; size < 400; size = size * 2 + 1) {
                char end[SAID_TEXT], *got = hand_on(text, size, &said);
                assert_string_equal(got, handed);
                assert_string_equal(said_text(&said, status, end), ended);
                free(got);
        }
}

static void a_rank_that_was_killed_is_named(void **state)
{
        (void)state;
        check(killed, "step 3/6   loss 4.5\nno end", 137 << 8,
              "rank 1 on node3 was ended by signal 9 (Killed)");
}

static void a_host_that_was_lost_is_named(void **state)
{
        (void)state;
        check(BORDER "ORTE has lost communication with a remote daemon.\n\n"
                     "  HNP daemon   : [[1,0],0] on node a\n  Remote daemon: [[1,0],1] on node b\n\n" BORDER,
              "", 1 << 8, "mpirun lost the host b");
}

static void an_abort_is_told_from_a_status(void **state)
{
        (void)state;
        check(BORDER
              "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n" BORDER,
              "", 1 << 8, "rank 2 has called MPI_Abort");
        check(BORDER "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
                     "the job to be terminated. The first process to do so was:\n\n"
                     "  Process name: [[9478,1],1]\n  Exit code:    75\n" BORDER,
              "", 75 << 8, "a rank ended with status 75");
}

static void what_is_not_known_is_handed_on(void **state)
{
        (void)state;
        static const char other[] =
                BORDER "There are not enough slots available in the system to satisfy\n" BORDER,
                          open[] = "begun\n" BORDER "of a block that has no end\n";
        check(other, other, 1 << 8, "mpirun ended with status 1");
        check(open, open, SIGKILL, "mpirun was ended by signal 9 (Killed)");
}

static void a_sentence_of_ours_within_a_block_is_not_lost(void **state)
{
        (void)state;
        check(BORDER "ranvier train: no memory\nPrimary job  terminated normally, but\n" BORDER,
              "ranvier train: no memory\n", 1 << 8, "mpirun ended with status 1");
}

static void long_lines_and_blocks_are_handed_on(void **state)
{
        (void)state;
        char *text = malloc(100002);
        memset(text, 'x', 100000);
        strcpy(text + 100000, "\n");
        check(text, text, 0, "mpirun ended with status 0");
        for (size_t at = 90; at < 100000; at += 91)
                text[at] = '\n';
        memcpy(text, BORDER, strlen(BORDER));
        check(text, text, 0, "mpirun ended with status 0");
        free(text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_rank_that_was_killed_is_named),
                cmocka_unit_test(a_host_that_was_lost_is_named),
                cmocka_unit_test(an_abort_is_told_from_a_status),
                cmocka_unit_test(what_is_not_known_is_handed_on),
                cmocka_unit_test(a_sentence_of_ours_within_a_block_is_not_lost),
                cmocka_unit_test(long_lines_and_blocks_are_handed_on),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
