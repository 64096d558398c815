/* ranvier-sim: the commands that predict. The dispatcher names the verb; without one it is simulate. */
#include "sim/simulate.h"

#include <string.h>

int main(int argc, char **argv)
{
        static char simulate[] = "ranvier simulate";
        if (argc > 1 && strcmp(argv[1], "simulate") == 0) {
                argv++;
                argc--;
        }
        argv[0] = simulate;
        return simulate_main(argc, argv);
}
