/* The agenda: moments in order, whatever the order in which they were noted. */
#include "runtime/base/agenda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

enum { ENTRIES = 5000, SEED = 20261121 };

static void test_moments_come_in_order_and_equal_ones_as_they_were_noted(void **state)
{
        (void)state;
        static int names[ENTRIES];
        struct agenda agenda = {0};
        struct agenda_entry entry, last = {.seconds = -1};
        unsigned seed = SEED;
        int noted = 0, taken = 0;
        while (taken < ENTRIES) {
                const bool note = noted < ENTRIES && (noted == taken || rand_r(&seed) % 2);
                if (note) {
                        /* few different moments, none before what was taken */
                        double seconds = (last.seconds < 0 ? 0 : last.seconds) + rand_r(&seed) % 8;
                        agenda_note(&agenda, seconds, &names[noted], (unsigned)noted);
                        noted++;
                        continue;
                }
                assert_true(agenda_take(&agenda, 1e9, &entry));
                assert_true(entry.seconds >= last.seconds);
                if (entry.seconds == last.seconds && entry.order < last.order)
                        fail_msg("seed %d: %d came after %d", SEED, (int)entry.serial, (int)last.serial);
                assert_ptr_equal(entry.what, &names[entry.serial]);
                last = entry;
                taken++;
        }
        assert_false(agenda_take(&agenda, 1e9, &entry));
        agenda_free(&agenda);
}

static void test_what_is_later_is_not_taken(void **state)
{
        (void)state;
        int what;
        struct agenda agenda = {0};
        struct agenda_entry entry;
        agenda_note(&agenda, 2, &what, 7);
        assert_false(agenda_take(&agenda, 1.999, &entry));
        assert_true(agenda_take(&agenda, 2, &entry));
        assert_int_equal(entry.serial, 7);
        agenda_free(&agenda);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_moments_come_in_order_and_equal_ones_as_they_were_noted),
                cmocka_unit_test(test_what_is_later_is_not_taken),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
