#!/bin/sh
# Cost of looking after messages with one rank, and with two ranks each on a core of its own. The goal is below 2 %.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for ranks in 1 2; do
        mpirun -n $ranks --bind-to core "$1"
done
