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
        may["models/kernels"] = "models/kernels"
        may["models/passes"] = "models models/kernels"
        may["models/families"] = "models models/families"
        may["models"] = "models models/kernels models/families"
        may["runtime/sched"] = "runtime/sched"
        may["runtime/engine"] = "models runtime/sched runtime/engine"
        may["runtime/device"] = "models runtime/device"
        may["runtime/device/cuda"] = "models runtime/device runtime/device/cuda"
        may["runtime/net"] = "models runtime/net"
        may["runtime/net/nccl"] = "models runtime/net runtime/device/cuda"
        may["runtime/data"] = "models runtime/data"
        may["runtime/checkpoint"] = "models runtime/checkpoint"
        may["runtime/nn"] = "models runtime/device runtime/data runtime/nn"
        may["runtime/optim"] = "models runtime/device runtime/nn runtime/optim"
        may["runtime"] = "models runtime/sched runtime/engine runtime/device runtime/net runtime/data" \
                " runtime/checkpoint runtime/nn runtime/optim runtime"
        may["sim"] = "models runtime/sched runtime/engine calibrate/profile.h sim"
        may["calibrate"] = "models runtime/sched runtime/engine runtime/device runtime/net runtime/data runtime/nn" \
                " runtime/optim calibrate"
        may["plots"] = "models runtime/sched runtime/engine plots"
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
