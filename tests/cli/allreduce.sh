#!/bin/sh
# All-reduces over MPI, of fp16 and bf16 and in order, with two to five ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}" # Open MPI keeps memory to its end
program=${RANVIER_BIN:-build/bin}/../tests/allreduce
status=0
for ranks in 2 3 4 5; do
        mpirun --oversubscribe --bind-to none -n $ranks "$program" || status=1
done
exit $status
