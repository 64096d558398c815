#!/bin/sh
# Who may include whom: nothing includes upward. Prints each include that breaks an arrow; status 1 if there is one.
cd "$(dirname "$0")/.." || exit 2
sources=$(git ls-files '*.c' '*.h' '*.cpp' '*.cu' '*.cuh')
[ -n "$sources" ] || { echo "arrows: git lists no sources here" >&2; exit 2; }
echo "$sources" | grep -v '^tests/' | xargs grep -Ho '^#include "[^"]*"' | tr -d '"' | sed 's/#include //' |
awk -F: '
function room(path) {
        sub(/\/[^\/]*$/, "", path)
        return path
}
BEGIN {
        may["runtime/base"] = "runtime/base"
        may["models/kernels"] = "models/kernels runtime/base/dtype.h"
        may["models/passes"] = "models models/kernels"
        may["models/families"] = "models models/families runtime/base"
        may["models"] = "models models/kernels models/families runtime/base"
        may["runtime/sched"] = "runtime/sched runtime/sched/policies/policies.h runtime/base/minmax.h"
        may["runtime/sched/policies"] = "runtime/sched runtime/base/minmax.h"
        may["runtime/plan"] = "models runtime/base runtime/sched runtime/plan"
        may["runtime/engine"] = "models runtime/base runtime/sched runtime/plan runtime/engine"
        may["runtime/report"] = "models runtime/base runtime/sched runtime/plan runtime/report"
        may["runtime/launch"] = "models runtime/base runtime/sched runtime/plan runtime/launch"
        may["runtime/kineto"] = "models runtime/base runtime/kineto"
        may["runtime/device"] = "models runtime/base runtime/device"
        processor = "models runtime/base runtime/device runtime/device/cpu runtime/device/cpu/kernels runtime/device/cpu/mixed"
        may["runtime/device/cpu"] = may["runtime/device/cpu/kernels"] = may["runtime/device/cpu/mixed"] = processor
        may["runtime/device/cuda"] = "models runtime/base runtime/device runtime/device/cuda"
        may["runtime/net"] = "models runtime/base runtime/net"
        may["runtime/net/nccl"] = "models runtime/base runtime/net runtime/device/cuda"
        may["runtime/data"] = "models runtime/base runtime/data"
        may["runtime/checkpoint"] = "models runtime/base runtime/checkpoint"
        may["runtime/reshard"] = "models runtime/base runtime/checkpoint runtime/reshard"
        may["runtime/nn"] = "models runtime/base runtime/device runtime/data runtime/nn"
        may["runtime/optim"] = "models runtime/base runtime/device runtime/nn runtime/optim"
        may["runtime/real"] = "models runtime/base runtime/sched runtime/plan runtime/launch runtime/engine runtime/report runtime/device runtime/net runtime/data" \
                " runtime/checkpoint runtime/nn runtime/optim runtime/real"
        may["runtime"] = may["runtime/manual"] = "runtime/base runtime/manual"
        may["runtime/doctor"] = "runtime/base runtime/doctor"
        below = "models runtime/base runtime/sched runtime/plan runtime/engine runtime/report calibrate/profile/profile.h"
        may["sim/platform"] = below " sim/platform"
        may["sim/collective"] = below " sim/platform sim/collective"
        may["sim/world"] = below " runtime/launch sim/platform sim/collective sim/world"
        may["sim/library"] = below " runtime/launch sim/platform sim/collective sim/world sim/library"
        may["sim/search"] = below " runtime/launch sim/platform sim/collective sim/world sim/search"
        may["sim/evidence"] = below " sim/platform sim/collective sim/world sim/search sim/evidence"
        may["sim"] = "sim/world sim/search sim/evidence"
        may["calibrate/profile"] = "models runtime/base runtime/sched runtime/plan runtime/engine calibrate/profile"
        may["calibrate"] = "models runtime/base runtime/sched runtime/plan runtime/engine runtime/report runtime/device runtime/net runtime/data runtime/nn" \
                " runtime/optim calibrate/profile calibrate/trace/trace.h runtime/checkpoint/stream.h calibrate"
        may["calibrate/trace"] = "models runtime/base runtime/kineto runtime/device calibrate/profile calibrate calibrate/trace"
        may["plots"] = "models runtime/base runtime/sched runtime/plan runtime/engine runtime/report runtime/kineto plots plots/html/report.h"
        may["plots/html"] = "models runtime/base runtime/plan runtime/report plots plots/html"
}
{
        from = room($1)
        if (index(" " may[from] " ", " " room($2) " ") || index(" " may[from] " ", " " $2 " "))
                next
        print "arrows: " $1 " must not include " $2
        wrong = 1
}
END { exit wrong }' || exit 1
if echo "$sources" | xargs grep -nE '^ *#.*SIMULATI'; then
        echo "arrows: a conditional on the world: there is one core and one build"
        exit 1
fi
