/* ranvier-sim: the commands that predict. The dispatcher names the verb; without one it is simulate. */
#include "sim/world/about.h"
#include "sim/world/frameworks.h"
#include "sim/world/machines.h"
#include "sim/world/simulate.h"
#include "sim/search/plan.h"
#include "sim/search/sweep.h"
#include "sim/evidence/price.h"
#include "sim/evidence/validate.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* SimGrid, and who has no memory left, abort. */
static void say_aborted(int number)
{
        static const char sentence[] =
                "ranvier: ended without a result: no memory was left, or SimGrid failed as it says above\n";
        (void)number;
        if (write(STDERR_FILENO, sentence, sizeof sentence - 1) < 0)
                _exit(1);
        _exit(1);
}

int main(int argc, char **argv)
{
        signal(SIGABRT, say_aborted);
        static char names[][sizeof "ranvier frameworks"] = {
                "ranvier simulate", "ranvier sweep", "ranvier validate", "ranvier frameworks",
                "ranvier machines", "ranvier price", "ranvier plan"};
        static int (*const commands[])(int argc, char **argv) = {
                simulate_main, sweep_main, validate_main, frameworks_main,
                machines_main, price_main, plan_main};
        int command = 0;
        if (argc == 2 && strcmp(argv[1], "--about") == 0)
                return about_main();
        for (int i = 0; argc > 1 && i < (int)(sizeof commands / sizeof *commands); i++)
                if (strcmp(argv[1], names[i] + strlen("ranvier ")) == 0) {
                        command = i;
                        argv++;
                        argc--;
                        break;
                }
        argv[0] = names[command];
        return commands[command](argc, argv);
}
