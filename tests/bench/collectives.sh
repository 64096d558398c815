#!/bin/sh
# All-reduces: closed forms beside SimGrid on the presets; this machine's MPI beside a profile of it, which is
# measured first (PROFILE=FILE takes one that there is). For an idle machine.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$1"
if [ -z "${PROFILE:-}" ]; then
        PROFILE=$(mktemp)
        trap 'rm -f "$PROFILE"' EXIT
        "$RANVIER_BIN/ranvier" calibrate --ranks 2 --quick --out "$PROFILE" >/dev/null
fi
mpirun -n 2 --bind-to core "$2" "$PROFILE"
