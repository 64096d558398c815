/* ranvier-sim: the commands that predict. The dispatcher names the verb; without one it is simulate. */
#include "sim/world/about.h"
#include "sim/world/frameworks.h"
#include "sim/world/machines.h"
#include "sim/world/simulate.h"
#include "sim/search/plan.h"
#include "sim/search/sweep.h"
#include "sim/evidence/price.h"
#include "sim/evidence/validate.h"

#include <string.h>

int main(int argc, char **argv)
{
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
