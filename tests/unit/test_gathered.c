/* ZeRO-3's passes: weights gathered a layer ahead, gradients reduced behind. */
#include "sim/gathered.h"
#include "tests/unit/numbers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { STEPS = 9, SEED = 1905 };

static void assert_close(double is, double should, double tolerance)
{
        if (!(fabs(is - should) <= tolerance * should))
                fail_msg("%.17g, not %.17g", is, should);
}

static void fill(struct gathered_step *steps, double compute, double gather, double scatter)
{
        for (int i = 0; i < STEPS; i++)
                steps[i] = (struct gathered_step){compute, gather, scatter};
}

static void without_a_network_a_pass_is_its_work(void **state)
{
        (void)state;
        struct gathered_step steps[STEPS];
        fill(steps, 2, 0, 0);
        assert_close(gathered_seconds(steps, STEPS, false), 2 * STEPS, 1e-15);
        assert_true(gathered_seconds(steps, 0, false) == 0);
}

/* Work hides all but the first gather and the last reduction. */
static void longer_work_hides_the_network(void **state)
{
        (void)state;
        struct gathered_step steps[STEPS];
        fill(steps, 5, 3, 0);
        assert_close(gathered_seconds(steps, STEPS, false), 3 + 5 * STEPS, 1e-15);
        fill(steps, 5, 3, 2);
        assert_close(gathered_seconds(steps, STEPS, false), 3 + 5 * STEPS + 2, 1e-15);
}

/* And a longer network hides all but the last work. Backward, a step's gradients go before the weights of the
 * one after the next, but for the first two steps nothing is before their weights. */
static void a_longer_network_hides_the_work(void **state)
{
        (void)state;
        struct gathered_step steps[STEPS];
        fill(steps, 1, 4, 0);
        assert_close(gathered_seconds(steps, STEPS, false), 4 * STEPS + 1, 1e-15);
        fill(steps, 1, 4, 4);
        assert_close(gathered_seconds(steps, STEPS, false), 8 * STEPS, 1e-15);
}

/* Reductions that hold up all else: neither they nor the gathers behind them are hidden. */
static void blocking_reductions_hold_up_the_work(void **state)
{
        (void)state;
        struct gathered_step steps[STEPS];
        fill(steps, 5, 3, 2);
        assert_close(gathered_seconds(steps, STEPS, true), (3 + 5 + 2) * STEPS, 1e-15);
        fill(steps, 5, 0, 2);
        assert_close(gathered_seconds(steps, STEPS, true), (5 + 2) * STEPS, 1e-15);
        fill(steps, 5, 3, 0);
        assert_close(gathered_seconds(steps, STEPS, true), 3 + 5 * STEPS, 1e-15);
}

/* Not two layers ahead: after a long step, the weights of the second one behind it are not there. */
static void weights_are_one_layer_ahead(void **state)
{
        (void)state;
        struct gathered_step steps[STEPS];
        fill(steps, 0, 1, 0);
        steps[3].compute = 100;
        assert_close(gathered_seconds(steps, STEPS, false), 4 + 100 + (STEPS - 5), 1e-15);
}

/* No pass is shorter than its work or its network, and none longer than both. */
static void random_passes_are_between_their_bounds(void **state)
{
        (void)state;
        uint64_t random = SEED;
        for (int pass = 0; pass < 20000; pass++) {
                struct gathered_step steps[STEPS];
                double work = 0, network = 0;
                int count = 1 + (int)random_below(&random, STEPS);
                for (int i = 0; i < count; i++) {
                        steps[i] = (struct gathered_step){
                                1 + random_number(&random),
                                random_below(&random, 3) ? 1 + random_number(&random) : 0,
                                random_below(&random, 3) ? 1 + random_number(&random) : 0};
                        work += steps[i].compute;
                        network += steps[i].gather + steps[i].scatter;
                }
                double seconds = gathered_seconds(steps, count, false);
                assert_true(seconds >= work - 1e-12 && seconds >= network - 1e-12);
                assert_true(seconds <= work + network + 1e-12);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(without_a_network_a_pass_is_its_work),
                cmocka_unit_test(longer_work_hides_the_network),
                cmocka_unit_test(a_longer_network_hides_the_work),
                cmocka_unit_test(blocking_reductions_hold_up_the_work),
                cmocka_unit_test(weights_are_one_layer_ahead),
                cmocka_unit_test(random_passes_are_between_their_bounds),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
