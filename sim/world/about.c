#include "sim/world/about.h"

#include <xbt/base.h>

#include <simgrid/version.h>
#include <stdio.h>

int about_main(void)
{
        int major, minor, patch;
        sg_version_get(&major, &minor, &patch);
        return printf("{\"simgrid\": \"%d.%d.%d\"}\n", major, minor, patch) < 0 || fflush(stdout);
}
