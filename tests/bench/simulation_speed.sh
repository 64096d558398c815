#!/bin/bash
# How fast the simulation is: 48 stages x 8 replicas x 256 micro-batches a pipeline, on one core. Prints the
# seconds, the memory and the operations simulated a second. The goal is 3 s and 100 MB.
set -eu
bin=${RANVIER_BIN:-build/bin}
report=$(mktemp)
trap 'rm -f "$report"' EXIT
python3 - "$report" taskset -c 0 "$bin/ranvier-sim" simulate gpt-12b --profile a100-datasheet --platform generic \
        --gpus 384 --pp 48 --dp 8 --micro-batch-size 1 --batch-size 2048 --report "$report" <<'END'
import json, resource, subprocess, sys, time
begin = time.monotonic()
subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
seconds = time.monotonic() - begin
megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
operations = json.load(open(sys.argv[1]))["simulation"]["operations"]
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print("48 x 8 x 256: %.2f s (%.2f s of processor time), %.0f MB, %d operations, %.0f thousand a second"
      % (seconds, used.ru_utime + used.ru_stime, megabytes, operations, operations / seconds / 1e3))
END
