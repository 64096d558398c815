#!/bin/bash
# Runs test programs and scripts that print TAP, TEST_JOBS (as many as processors) at a time, and behind all others those behind
# --ranks, each on one processor of its own: these start several ranks, which wait for each other most of the time where something else
# computes. Shows each one's count, and every line of those that fail. The last line is "N passed, N failed". A program that dies, or
# prints no test, counts as a failure.
export CMOCKA_MESSAGE_OUTPUT=TAP
# Ranks are on one machine. Open MPI's libraries for network cards each measure the processor's clock for a tenth of a second
# when they are loaded, and some thousand programs are started.
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1}
# Where a rank ends with a status that is not 0, as of each wrong command line, mpirun would wait two seconds for the others.
export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-0}
# hwloc, which every rank and mpirun begin with, would read the registers of each device on the PCI bus, and of an emulated one that
# takes as long as all else that they begin with.
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS:--linux:pci,-pci}
# Nor are its plug-ins for displays and OpenCL loaded, TCP opened, and what ranks say of themselves kept in files that all of them
# map: a third of what an mpirun of two ranks takes to begin and to end.
export HWLOC_PLUGINS_PATH=${HWLOC_PLUGINS_PATH:-/nonexistent} OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader} PMIX_MCA_gds=${PMIX_MCA_gds:-hash}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Runs one, and shows it when it has ended; its counts go to a file of their own.
run() {
        local test=$1 output=$folder/$2.out start status ok bad plan
        start=$(date +%s)
        mkdir "$folder/$2.tmp"
        # Two mpiruns that make Open MPI's folder at one time can fail: each test has a place for it of its own.
        TMPDIR=$folder/$2.tmp timeout "${TEST_TIMEOUT:-3600}" "${@:3}" "$test" >"$output" 2>&1 </dev/null
        status=$?
        ok=$(grep -c '^ok ' "$output")
        bad=$(grep -c '^not ok ' "$output")
        [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
        # The plan says how many there should have been: a test that ends early has failed.
        plan=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$output" | awk '{ sum += $1 } END { print sum + 0 }')
        [ "$plan" -ne $((ok + bad)) ] && bad=$((bad + 1))
        [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && bad=1
        {
                printf '%-28s %4d passed, %d failed   %d s\n' "$(basename "$test")" "$ok" "$bad" "$(($(date +%s) - start))"
                if [ "$bad" -gt 0 ]; then
                        echo "---- $test ended with status $status:"
                        cat "$output"
                        echo "----"
                fi
        } >"$folder/$2.shown"
        cat "$folder/$2.shown"
        echo "$ok $bad" >"$folder/$2.count"
}

# The processors that this may use, one a line.
processors() {
        taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done
}

jobs=${TEST_JOBS:-$(nproc)}
index=0
ranks=
declare -A on # the processor of a process
for test in "$@"; do
        if [ "$test" = --ranks ]; then
                wait
                ranks=yes
                mapfile -t free < <(processors | head -n "$jobs")
                # They share one, and yield it while they wait.
                export OMPI_MCA_mpi_yield_when_idle=1
                continue
        fi
        index=$((index + 1))
        if [ -z "$ranks" ]; then
                run "$test" $index &
                [ "$(jobs -rp | wc -l)" -ge "$jobs" ] && wait -n
                continue
        fi
        if [ ${#free[@]} -eq 0 ]; then
                wait -n -p ended
                free=("${on[$ended]}")
        fi
        run "$test" $index taskset -c "${free[0]}" &
        on[$!]=${free[0]}
        free=("${free[@]:1}")
done
wait
# One that left no count, whatever happened to it, has failed.
read -r passed failed < <(cat "$folder"/*.count | awk -v all=$index '{ ok += $1; bad += $2 } END { print ok + 0, bad + all - NR }')
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
