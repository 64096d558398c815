#!/bin/bash
# A small calibration on one and two ranks gives profiles that hold every kernel of the workload, measured; what is
# asked for wrongly is refused in a sentence with status 2, and leaves no file.
set -u
# Open MPI leaks in MPI_Init, a hundred kilobytes of it; under the sanitizers it would drown everything else.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0}
ranvier="$RANVIER_BIN/ranvier"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
count=0
echo "1..48"

report() { # status, sentence
        count=$((count + 1))
        if [ "$1" -eq 0 ]; then echo "ok $count - $2"; else echo "not ok $count - $2"; fi
}

# Checks a profile's kernels against the shapes of one block, embedding, head and optimizer of "tiny" with so many
# layers, in the precisions given (half: 0, 1, both), fused or not, with parts of sequences (cp) or not; and its lines.
cat > "$folder/check.py" <<'PYTHON'
import json, sys
path, ranks, layers = sys.argv[1], [int(r) for r in sys.argv[2].split(",")], int(sys.argv[3])
precisions, fused = [int(h) for h in sys.argv[4].split(",")], sys.argv[5] != "off"
offload, context = "offload" in sys.argv, "cp" in sys.argv
profile = json.load(open(path))
assert profile["kind"] == "profile" and profile["measured"] is True and profile["peak_flops_per_second"] > 1e8
assert [load["ranks"] for load in profile["loads"]] == ranks, "loads"
assert profile.get("fusion") == (None if fused else "off"), "fusion"
assert "cpu" in profile["machine"] and "date" in profile["machine"] and "element_bytes" not in profile
C, V, T, heads, B = 32, 256, 64, 4, 2
N, hs = B * T, C // heads
block = 12 * C * C + 13 * C
whole = V * C + T * C + layers * block + 2 * C
first, last = V * C + T * C + layers // 2 * block, layers // 2 * block + 2 * C + V * C
def product(m, n, k, batch=1, a=False, b=False, add=False, kind="matmul"):
    return (kind, m, n, k, batch, a, b, add)
def other(kind, m, n=0, batch=1, add=False):
    return (kind, m, n, 0, batch, False, False, add)
def in_precision(kernels, half):
    return {(kernel[0] + half * "_half",) + kernel[1:] for kernel in kernels}
def passes_of(N, T):
    separate = [product(N, n, k, b=True) for n, k in ((3 * C, C), (C, C), (4 * C, C), (C, 4 * C))] + [product(N, 4 * C, C)]
    separate += [product(T, T, hs, B * heads, b=True), product(T, hs, T, B * heads), product(T, hs, T, B * heads, a=True)]
    separate += [other("bias", N, 3 * C), other("bias_gelu", N, 4 * C), other("gelu_backward", N, 4 * C), other("bias_residual", N, C),
                 other("softmax", T, T, B * heads), other("softmax_backward", T, T, B * heads)]
    together = [product(N, 3 * C, C, b=True, kind="matmul_bias"), product(N, C, C, b=True, kind="matmul_bias_residual_layernorm"),
                product(N, 4 * C, C, b=True, kind="matmul_bias_gelu"), product(N, C, 4 * C, b=True, kind="matmul_bias_residual"),
                product(N, 4 * C, C, kind="matmul_gelu_backward"), product(T, T, hs, B * heads, kind="attention"),
                product(T, T, hs, B * heads, kind="attention_backward")]
    passes = (together if fused else separate) + [product(N, V, C, b=True)]
    passes += [product(N, k, n) for n, k in ((3 * C, C), (C, C), (4 * C, C), (V, C))]
    passes += [product(n, k, N, a=True, add=True) for n, k in ((3 * C, C), (C, C), (C, 4 * C), (4 * C, C), (V, C))]
    passes += [other("embedding", N, C), other("embedding_backward", N, C, add=True), other("layernorm", N, C),
               other("layernorm_backward", N, C), other("layernorm_backward", N, C, add=True), other("cross_entropy", N, V)]
    passes += [other("bias_backward", N, n, add=True) for n in (C, 3 * C, 4 * C)]
    passes += [other("residual", N, C)]  # of a backward in two parts
    return passes
passes = passes_of(N, T)
if context:  # two ranks that have half of each sequence
    passes += passes_of(N // 2, T // 2)
    passes += [product(T // 2, T // 2, hs, B * heads, kind=kind) for kind in ("context_attention", "context_attention_backward")]
    passes += [product(N // 2, 2 * C, 3 * C, kind=kind) for kind in ("last_columns", "set_last_columns")] + [other("residual", N // 2, 2 * C)]
optimizer = [other("squared_norm", m) for m in (whole, first, last - V * C)]
updates = (whole, first - V * C, last - V * C, V * C)  # the embedding that two stages share is updated apart
optimizer += [other("adamw", m) for m in updates] + [other("clear", m) for m in (whole, first, last)]
mixed = [other("overflow", m) for m in (whole, first, last)] + [other("unscale", m) for m in updates]
wanted = {product(1024, 1024, 1024)}
for half in precisions:
    wanted |= in_precision(passes + optimizer + half * mixed, half)
for load in profile["loads"]:
    points = {}
    for kind, entry in load["kernels"].items():
        model = entry["model"]
        assert model["points"] == len(entry["points"]), kind
        assert model.get("flops_per_second", 1) > 0 and model.get("bytes_per_second", 1) > 0, kind
        if model["points"] > 1:
            assert model["left_out_worst_error"] >= model["left_out_median_error"] > 0 and model["error"] > 0, kind
        for p in entry["points"]:
            key = (kind, p["m"], p["n"], p["k"], p["batch"], p["transpose_a"], p["transpose_b"], p["accumulate"])
            assert key not in points, "twice"
            assert 0 < p["p10"] <= p["seconds"] <= p["p90"] and p["samples"] >= 1, (key, p)
            points[key] = p["seconds"]
    missing, extra = wanted - set(points), set(points) - wanted
    assert not missing, missing
    widths = {key[3] for key in extra if key[0].startswith("matmul") and key[6] and key[4] == 1}  # of models half, one and a half times and twice as wide
    assert {C // 2, 3 * C // 2, 2 * C} <= widths <= {w * n for w in (C // 2, C, 3 * C // 2, 2 * C) for n in (1, 4)}, widths
    assert load["op_overhead_seconds"] > 0
    lines, several = load["lines"], load["ranks"] > 1
    names = {"copy", "copy_back"} | (several and {"message", "allreduce"} or set())
    names |= several and 1 in precisions and {"allreduce_half"} or set()
    names |= offload and {"fetch", "offloaded_update", "write_back"} or set()
    names |= load is profile["loads"][0] and {"snapshot", "file", "file_work"} or set()
    assert set(lines) == names, set(lines) ^ names
    for name, line in lines.items():
        assert line["fit"]["points"] == len(line["points"]) >= 2, name
        assert line["fit"]["left_out_worst_error"] >= line["fit"]["left_out_median_error"] > 0 < line["fit"]["error"], name
        sizes = [p["bytes"] for p in line["points"]]
        assert sizes == sorted(set(sizes)) and all(p["seconds"] > 0 for p in line["points"]), name
    def sizes_of(name):
        return {p["bytes"] for p in lines[name]["points"]}
    for half in precisions if several else ():
        line = ("allreduce", "allreduce_half")[half]
        element = (4, 2)[half]
        assert {element * m for m in updates} <= sizes_of(line), (line, sizes_of(line))
    if several:
        assert {8, 64} <= sizes_of("allreduce")
    for name in ("fetch", "offloaded_update", "write_back") if offload else ():
        thirds = {12 * -(-m // 3) for m in (whole, first, last)}
        assert thirds <= sizes_of(name) and sum(size < min(thirds) for size in sizes_of(name)) >= 2, sizes_of(name)
link = profile["host_link_bytes_per_second"]
if offload:
    # Nothing is carried faster than the link allows. (A fetch or write back is timed from when the end of the one before
    # it was noticed, which on a busy machine may be late by any time.)
    for load in profile["loads"]:
        for name in ("copy", "copy_back"):
            for p in load["lines"][name]["points"]:
                assert p["seconds"] > p["bytes"] / link * (1 - 1e-9), (name, p)
assert link == (2e8 if offload else 0)
PYTHON

for ranks in 1 2; do
        loads=$([ $ranks -eq 1 ] && echo 1 || echo 1,2)
        fusion=$([ $ranks -eq 1 ] && echo off || echo auto)
        context=$([ $ranks -eq 1 ] || echo 1,2)
        "$ranvier" calibrate --ranks $ranks --quick --seconds 1 --model tiny --micro-batch-size 2 --fusion "$fusion" --cp "${context:-1}" \
                --out "$folder/p$ranks.json" > "$folder/out" 2> "$folder/err"
        report $? "a quick calibration of tiny on $ranks rank(s), --fusion $fusion, succeeds"
        python3 "$folder/check.py" "$folder/p$ranks.json" $loads 4 0 "$fusion" ${context:+cp} 2> "$folder/why"
        status=$?
        report $status "its profile has every kernel of the workload as measured points, and others of models beside it"
        [ $status -eq 0 ] || sed 's/^/# /' "$folder/why"
        grep -q "profile written to $folder/p$ranks.json" "$folder/out" && grep -q "adamw" "$folder/out"
        report $? "it ends with a table and says where the profile is"
        python3 -c 'import json, sys
said = [line[9:].rstrip() for line in open(sys.argv[2]) if line.startswith("WARNING: ")]
sys.exit(said != json.load(open(sys.argv[1])).get("warnings", []))' "$folder/p$ranks.json" "$folder/out"
        report $? "what it warns of, if anything, the profile keeps"
        [ $ranks -eq 1 ] || "$ranvier" simulate tiny --gpus 2 --pp 2 --schedule zero-bubble --micro-batch-size 2 --batch-size 8 \
                --profile "$folder/p$ranks.json" --platform local > "$folder/out" 2> "$folder/err"
        status=$?
        report $status "and every plan can be priced from it, with --schedule zero-bubble too"
        [ $status -eq 0 ] || sed 's/^/# /' "$folder/err"
        [ $ranks -eq 1 ] || { "$ranvier" simulate tiny --gpus 2 --cp 2 --micro-batch-size 2 --batch-size 8 --profile "$folder/p$ranks.json" \
                --platform local > "$folder/out" 2> "$folder/err" && grep -qE '^kernels +([0-9]+) of \1 shapes measured' "$folder/out"; }
        status=$?
        report $status "and all kernels of one with --cp, attention to other ranks' keys too, are measured"
        [ $status -eq 0 ] || sed 's/^/# /' "$folder/out" "$folder/err"
done

# Both precisions and an offloaded optimizer, of a model of two layers, with copies over a slow link.
cat > "$folder/two.json" <<'JSON'
{"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 64}
JSON
"$ranvier" calibrate --ranks 2 --quick --seconds 1 --model "$folder/two.json" --micro-batch-size 2 --precision mixed,fp32 --offload \
        --host-link 200MB/s --out "$folder/mixed.json" > "$folder/out" 2> "$folder/err"
status=$?
report $status "so does one in both precisions, with an offloaded optimizer, over a slow link"
[ $status -eq 0 ] || sed 's/^/# /' "$folder/err"
python3 "$folder/check.py" "$folder/mixed.json" 1,2 2 0,1 auto offload 2> "$folder/why"
status=$?
report $status "its profile has both precisions, and the lines of the offloaded phase at no more than the link's rate"
[ $status -eq 0 ] || sed 's/^/# /' "$folder/why"
"$ranvier" calibrate --quick --seconds 1 --model "$folder/two.json" --micro-batch-size 1 --pp 1 --out "$folder/one.json" --json \
        > "$folder/printed" 2> "$folder/err" && cmp -s "$folder/printed" "$folder/one.json"
report $? "--json prints the profile, and nothing else"
grep -q "copies paced to a link of 0.2 GB/s" "$folder/out" && grep -q "clear_half" "$folder/out" &&
        grep -q "offloaded_update" "$folder/out"
report $? "and its table says so"

# What is wrong is found before mpirun starts ranks, which would add lines of its own.
refuse() { # sentence of the test, what the message must say, arguments
        local sentence=$1 wanted=$2
        shift 2
        timeout 1800 "$ranvier" calibrate "$@" > "$folder/out" 2> "$folder/err"
        local status=$?
        [ $status -eq 2 ] && [ "$(wc -l < "$folder/err")" -eq 1 ] && grep -q "^ranvier calibrate: " "$folder/err" &&
                grep -qF -e "$wanted" "$folder/err" && [ ! -s "$folder/out" ] && [ ! -e "$folder/x.json" ]
        status=$?
        report $status "$sentence"
        [ $status -eq 0 ] || sed 's/^/# /' "$folder/err"
}
refuse "without --out it is refused" "--out is missing" --quick
refuse "for two ranks the same error is said in one line" "--out is missing" --ranks 2 --quick
refuse "a number of ranks in words is refused" "--ranks: 'two' is not a whole number" --ranks two --out "$folder/x.json"
refuse "no ranks are refused" "--ranks: '0' is not a whole number" --ranks=0 --out "$folder/x.json"
refuse "an unknown option is refused" "--fast" --fast --out "$folder/x.json"
refuse "a list with a word in it is refused" "--micro-batch-size: 'two'" --micro-batch-size 1,two --out "$folder/x.json"
refuse "an empty element of a list is refused" "--pp: '1,,2' is not a list of numbers such as 1,2,4" --pp 1,,2 --out "$folder/x.json"
refuse "a model that does not exist is refused" "no-such-model" --model no-such-model --out "$folder/x.json"
refuse "a sequence longer than the model's is refused" "--seq-len 65" --model tiny --seq-len 65 --out "$folder/x.json"
refuse "more stages than layers are refused" "--pp 5" --model tiny --pp 5 --out "$folder/x.json"
refuse "parts that do not divide a sequence are refused" "--cp 3 takes each sequence in 6 pieces, which do not divide 64 tokens" \
        --model tiny --cp 1,3 --out "$folder/x.json"
refuse "so are parts of sequences whose kernels are not there" "--cp 2 with --fusion off is not built" --model tiny --cp 2 --fusion off \
        --out "$folder/x.json"
refuse "a device that there is not is refused" "--device: 'tpu' is not known, the nearest is cpu; there are cpu and cuda" --device tpu --out "$folder/x.json"
refuse "neither is a link paced that is a GPU's own" "--host-link paces the copies of --device cpu" --device cuda \
        --host-link 2GB/s --out "$folder/x.json"
refuse "nor half a fusion" "--fusion: 'half' is not known; there are auto, on and off" --fusion half --out "$folder/x.json"
refuse "a place that cannot be written is refused before anything is measured" "no/such/folder" --ranks 2 \
        --model tiny --out "$folder/no/such/folder/x.json"
refuse "a model too large to be measured is refused before there are ranks" "TiB to be measured with 2 blocks" --ranks 2 \
        --model gpt-100b --micro-batch-size 4096 --out "$folder/x.json"
refuse "a precision that there is not is refused" "--precision: 'fp8' is none of fp32, mixed and bf16" --precision fp32,fp8 \
        --out "$folder/x.json"
refuse "offloading without mixed precision is refused" "--offload needs mixed or bf16 in --precision" --offload \
        --out "$folder/x.json"
refuse "a link without a rate is refused" "--host-link: '2GB' is not a rate such as 10GB/s" --host-link 2GB \
        --out "$folder/x.json"
echo '{"n_layer": 10000, "n_embd": 2048, "n_head": 4, "vocab_size": 256, "n_positions": 32}' > "$folder/deep.json"
refuse "an offloaded optimizer too large to be measured is refused before there are ranks" \
        "a smaller --bucket-params needs less" --model "tiny,$folder/deep.json" --micro-batch-size 1 --precision mixed \
        --offload --bucket-params 400000000000 --out "$folder/x.json"
echo '{"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 32}' > "$folder/my.json"
cp "$folder/my.json" "$folder/my-kept.json"
refuse "a profile that would replace the model is refused" "--model and --out are the same file" \
        --model "tiny,$folder/my.json" --out "$folder/./my.json"
cmp -s "$folder/my.json" "$folder/my-kept.json"
report $? "and the model is as it was"

# Ranks that find different things, as on different hosts: all must end, and the first rank says why.
family="--quick --micro-batch-size 2 --out $folder/x.json"
# shellcheck disable=SC2086 # words are options
timeout 1800 mpirun --allow-run-as-root --oversubscribe -n 1 "$ranvier" calibrate --model tiny $family : \
        -n 1 "$ranvier" calibrate --model only-elsewhere $family > "$folder/out" 2> "$folder/err"
[ $? -eq 2 ] && [ "$(grep -c '^ranvier calibrate: .*only-elsewhere' "$folder/err")" -eq 1 ] && [ ! -e "$folder/x.json" ]
report $? "what only the second rank finds wrong ends all ranks in one sentence"

# How the ranks are started, with an mpirun that prints what it is given.
mkdir "$folder/bin"
# shellcheck disable=SC2016 # for that one to expand
printf '#!/bin/sh\necho mpirun "$@"\n[ -z "$RANVIER_CALIBRATE_WAITING" ] || echo "waiting $RANVIER_CALIBRATE_WAITING"\n' > "$folder/bin/mpirun"
chmod +x "$folder/bin/mpirun"
starts() { # sentence of the test, pattern of what is run, arguments
        local sentence=$1 wanted=$2
        shift 2
        env -u OMPI_COMM_WORLD_SIZE PATH="$folder/bin:$PATH" "$ranvier" calibrate "$@" > "$folder/out" 2>&1
        grep -qE -- "$wanted" "$folder/out" && [ "$(wc -l < "$folder/out")" -eq 1 ]
        status=$?
        report $status "$sentence"
        [ $status -eq 0 ] || sed 's/^/# /' "$folder/out"
}
rank='(--allow-run-as-root )?--bind-to core .*/ranvier-calibrate'
starts "one rank is started, bound to a core" "^mpirun -n 1 $rank --quick --out $folder/x.json\$" \
        --quick --out "$folder/x.json"
starts "the ranks may be written with an equals sign" "^mpirun -n 1 $rank --ranks=1 --out $folder/x.json\$" \
        --ranks=1 --out "$folder/x.json"
many=$(($(nproc --all) + 1))
env -u OMPI_COMM_WORLD_SIZE PATH="$folder/bin:$PATH" "$ranvier" calibrate --ranks $many --model tiny --out "$folder/x.json" \
        > "$folder/out" 2> "$folder/err"
grep -qE -- "^mpirun -n $((many - 1)) .*/ranvier-calibrate --ranks $many --model tiny" "$folder/out" &&
        grep -q "^ranvier calibrate: $many ranks would share the processors: $((many - 1)) are measured" "$folder/err"
status=$?
report $status "of ranks that would share processors as many are started as there are, and that is said"
[ $status -eq 0 ] || sed 's/^/# /' "$folder/out" "$folder/err"
grep -qE '^waiting [0-9]\.[0-9]+$' "$folder/out"
report $? "and are told what one takes that waits, which was measured before"
for threads in 1 2; do
        env -u OMPI_COMM_WORLD_SIZE PATH="$folder/bin:$PATH" "$ranvier" calibrate --threads $threads --model tiny --out "$folder/x.json" \
                > "$folder/out$threads" 2> "$folder/err"
done
grep -q -- '--bind-to core' "$folder/out1" && grep -q -- '--bind-to none' "$folder/out2"
status=$?
report $status "a rank of one thread is bound to a core, and one of several threads to none"
[ $status -eq 0 ] || sed 's/^/# /' "$folder/out1" "$folder/out2" "$folder/err"
env -u OMPI_COMM_WORLD_SIZE PATH="$folder/bin:$PATH" "$ranvier" calibrate --help > "$folder/out" 2>&1 &&
        grep -q -- '--out=PROFILE .*(required)' "$folder/out" && grep -q '^  ranvier calibrate --ranks 2' "$folder/out" &&
        ! grep -q '^mpirun' "$folder/out"
report $? "--help needs no ranks, says what is required and shows an example"
env -u OMPI_COMM_WORLD_SIZE PATH="$folder/none" "$ranvier" calibrate --version > "$folder/out" 2>&1 && grep -q '0.1.0' "$folder/out"
report $? "nor does --version"
env -u OMPI_COMM_WORLD_SIZE PATH="$folder/none" "$ranvier" calibrate --out "$folder/x.json" 2> "$folder/err"
[ $? -eq 1 ] && grep -q "^ranvier calibrate: mpirun, which starts the ranks, cannot be started" "$folder/err"
report $? "without an mpirun there is a sentence and status 1"
