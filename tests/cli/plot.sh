#!/bin/sh
# What a user sees of `ranvier compare` and `ranvier plot`: their tables, help and complaints against tests/golden
# (GOLDEN=1 rewrites those), and figures that are whole or not there.
tests=$(cd "$(dirname "$0")/.." && pwd)
plot=${RANVIER_BIN:?the folder of the programs}/ranvier-plot
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$tests"/fixtures/plot/* "$work" && cd "$work" || exit 1
mkdir temporary figures
export TMPDIR="$work/temporary" ARGP_HELP_FMT='' LC_ALL=C

number=0
# Says whether the last command succeeded, as one line of TAP.
check() {
        [ $? -eq 0 ] && verdict=ok || verdict="not ok"
        number=$((number + 1))
        echo "$verdict $number - $1"
}

# Compares standard input with a golden file, or makes it the golden file.
golden() {
        [ -z "$GOLDEN" ] || { tee "$tests/golden/$1" >/dev/null; return; }
        diff -u "$tests/golden/$1" - >difference || { sed 's/^/# /' difference; return 1; }
}

# Shows a command line, what it says and its exit status.
say() {
        echo "\$ ranvier $*"
        "$plot" "$@" 2>&1
        echo "status $?"
        echo
}

pairs="predicted-1.json measured-1.json predicted-2.json measured-2.json predicted-3.json measured-3.json"

echo "1..54"
"$plot" compare predicted-2.json measured-2.json | golden compare-pair.txt
check "one pair is shown quantity by quantity"
"$plot" compare $pairs --csv all.csv | golden compare-all.txt
check "several pairs are shown as a row each, with the median and the worst error"
golden compare-all.csv <all.csv
check "the CSV holds every figure of every pair"
"$plot" compare predicted-offload.json measured-offload.json | golden compare-offload.txt
check "both memories are shown by category, and what is 0 on both sides is not"
{ "$plot" compare --help && "$plot" plot --help; } | golden plot-help.txt
check "help names every figure and what it takes"
{
        say compare $pairs --max-median-error 3.2 --max-worst-error 3.5 | tail -2
        say compare $pairs --max-median-error 3.1 --max-worst-error 3.5 | tail -4
        say compare $pairs --max-median-error 3.2 --max-worst-error 3.0 | tail -4
} | golden compare-limits.txt
check "errors above a limit end with status 1"

# Wrong inputs, each made of a right one.
head -c 400 measured-1.json >truncated.json
sed '/"phases"/,/}/d' measured-1.json >no-phases.json
sed 's/"median": [0-9.]*/"median": "fast"/' measured-1.json >median-is-text.json
sed 's/"median": [0-9.]*/"median": 0.0/' measured-1.json >no-time.json
sed 's/"low": [0-9.]*/"low": 0.02/' predicted-1.json >interval-above.json
sed '/"low"/d' predicted-1.json >interval-half.json
sed 's/"weights": /"weights": -/' measured-1.json >negative-bytes.json
sed '/"messages"/d' measured-1.json >no-messages.json
sed 's/"world": "real"/"world": "dreamt"/' measured-1.json >another-world.json
sed 's/"micro_batch_size": 2/"micro_batch_size": 4/' measured-1.json >another-plan.json
sed 's/"n_layer": 4/"n_layer": 5/' measured-1.json >another-model.json
sed 's/^ "world"/ "profile": {"threads": 1}, "world"/' predicted-1.json >predicted-threads.json
sed 's/^ "world"/ "device": {"kind": "cpu"}, "training": {"threads": 2}, "world"/' measured-1.json >measured-threads.json
sed 's/"n_head": 4/"n_head": 7/' measured-1.json >impossible-model.json
echo '{"hello": 1}' >not-a-report.json
: >empty.json
cp loss.csv loss.svg
ln measured-1.json linked.svg
head -c 5000 trace.json >truncated-trace.json
printf 'step,loss\n0,1\n' >wrong-columns.csv
{ head -1 loss.csv; echo '0,5.1,,0.1,1,1'; echo '1,lots,,0.1,1,1'; } >wrong-number.csv
head -1 loss.csv >no-steps.csv
sed '/"host_by_category"/,/}/s/"master": /"master": -/' measured-offload.json >negative-host.json
sed 's/"host_by_category": {/"host_by_category": 0, "x": {/' measured-offload.json >no-host.json
sed 's/"host_by_category": {/"host_by_category": null, "x": {/' measured-offload.json >unknown-host.json

# The column $1 of the sweep is called $2; or its line $1 is changed by the sed command $2.
rename_column() { sed "1s/\\b$1\\b/$2/" sweep.csv; }
change_line() { sed "$1$2" sweep.csv; }
rename_column best winner >sweep-no-best-column.csv
rename_column gpus gpu >sweep-no-gpus.csv
head -c 900 sweep.csv >sweep-cut.csv
change_line 3 's/^48,/many,/' >sweep-letters.csv
change_line 3 's/,24,2,/,24,0,/' >sweep-zero.csv
change_line 3 's/,no,24/,maybe,24/' >sweep-maybe.csv
change_line 2 's/0$/1/' >sweep-two-best.csv
sed '2,$s/1$/0/' sweep.csv >sweep-none-best.csv
sed 's/^\(48,no,24,2,2,full,no,[^,]*\),[^,]*/\1,fast/' sweep.csv >sweep-speed.csv
sed 's/^\(48,no,24,2,2,full,no,[^,]*\),[^,]*/\1,nan/' sweep.csv >sweep-nan.csv
sed 's/^\(48,no,24,2,2,full,no,[^,]*,[^,]*\),[^,]*/\1,-4/' sweep.csv >sweep-percent.csv
head -1 sweep.csv >sweep-header.csv
change_line 3 "s/^48,/$(printf '%01000d' 0)x,/" >sweep-long.csv
sed '/"kind":"update"/d; /"kind":"reduce scalars"/d' offload.json >no-updates.json
sed '/"kind":"backward"/d' offload.json >no-backward.json
{
        say compare
        say compare predicted-1.json
        say compare predicted-1.json measured-1.json predicted-2.json
        say compare measured-1.json predicted-1.json
        say compare measured-1.json measured-1.json
        say compare predicted-1.json predicted-1.json
        say compare predicted-1.json measured-2.json
        say compare predicted-1.json another-plan.json
        say compare predicted-1.json another-model.json
        say compare predicted-threads.json measured-threads.json
        say compare predicted-1.json impossible-model.json
        say compare predicted-1.json missing.json
        say compare predicted-1.json empty.json
        say compare predicted-1.json truncated.json
        say compare predicted-1.json not-a-report.json
        say compare predicted-1.json no-phases.json
        say compare predicted-1.json no-messages.json
        say compare predicted-1.json median-is-text.json
        say compare predicted-1.json no-time.json
        say compare interval-above.json measured-1.json
        say compare interval-half.json measured-1.json
        say compare predicted-1.json negative-bytes.json
        say compare predicted-1.json another-world.json
        say compare predicted-offload.json negative-host.json
        say compare predicted-offload.json no-host.json
        say compare predicted-1.json measured-1.json --max-worst-error much
        say compare predicted-1.json measured-1.json --max-worst-error
        say compare predicted-1.json measured-1.json --colour
        say compare predicted-1.json measured-1.json --csv nowhere/a.csv
        say compare predicted-1.json measured-1.json --plot a.jpeg
        say compare predicted-1.json measured-1.json --csv measured-1.json
        say compare predicted-1.json measured-1.json predicted-2.json linked.svg --plot linked.svg
        say compare predicted-1.json measured-1.json --csv figures/a.svg --plot ./figures/a.svg
} >compare-errors
golden compare-errors.txt <compare-errors
check "compare refuses wrong input with a sentence"
{
        say plot
        say plot portrait figures/a.png measured-1.json
        say plot memory
        say plot memory figures/a.png
        say plot memory figures/a.pdf measured-1.json
        say plot memory figures measured-1.json
        say plot memory nowhere/a.png measured-1.json
        say plot memory figures/a.png truncated.json
        say plot predicted-measured figures/a.png measured-1.json
        say plot predicted-measured figures/a.png predicted-1.json measured-2.json
        say plot timeline figures/a.png measured-1.json
        say plot timeline figures/a.png truncated-trace.json
        say plot timeline figures/a.png missing.json
        say plot timeline figures/a.png trace.json trace.json
        say plot timeline figures/a.png trace.json --batch 7
        say plot timeline figures/a.png trace.json --batch one
        say plot memory figures/a.png measured-1.json --batch 1
        say plot timeline figures/a.png trace.json --from 1.5
        say plot timeline figures/a.png trace.json --to -3ms
        say plot timeline figures/a.png trace.json --from soon
        say plot timeline figures/a.png trace.json --from 2ms --to 2ms
        say plot timeline figures/a.png trace.json --from 10s
        say plot timeline figures/a.png trace.json --ranks 0,7
        say plot timeline figures/a.png trace.json --ranks first
        say plot optimizer figures/a.png offload.json --to 3ms
        say plot loss figures/a.png wrong-columns.csv
        say plot loss figures/a.png wrong-number.csv
        say plot loss figures/a.png no-steps.csv
        say plot loss figures/a.png missing.csv
        say plot loss figures/a.png measured-1.json loss.csv
        say plot loss figures/a.png loss.csv predicted-1.json
        say plot loss loss.svg loss.csv loss.svg
        say plot optimizer figures/a.png measured-1.json
        say plot optimizer figures/a.png offload.json trace.json
        say plot optimizer figures/a.png offload.json --batch 2
        say plot optimizer figures/a.png offload.json --rank 2
        say plot optimizer figures/a.png offload.json --rank first
        say plot optimizer figures/a.png no-updates.json
        say plot optimizer figures/a.png no-updates.json --rank 1
        say plot optimizer figures/a.png no-backward.json
        say plot timeline figures/a.png trace.json --rank 1
        for sweep in empty.json sweep-header.csv sweep-no-best-column.csv sweep-no-gpus.csv sweep-cut.csv \
                sweep-letters.csv sweep-long.csv sweep-zero.csv sweep-maybe.csv sweep-two-best.csv sweep-none-best.csv \
                sweep-speed.csv sweep-nan.csv sweep-percent.csv loss.csv missing.csv figures; do
                say plot sweep-throughput figures/a.png $sweep
        done
        say plot sweep-memory figures/a.png sweep-cut.csv
        say plot sweep-memory figures/a.png sweep.csv sweep.csv
        say plot memory linked.svg measured-1.json
} >plot-errors
golden plot-errors.txt <plot-errors
check "plot refuses wrong input with a sentence"
! grep -h ^status compare-errors plot-errors | grep -qv '^status 2$'
check "each of them ends with status 2"
cmp -s loss.svg "$tests/fixtures/plot/loss.csv" && cmp -s measured-1.json "$tests/fixtures/plot/measured-1.json"
check "no input is replaced"
[ -z "$(ls -A figures)$(ls -A temporary)" ]
check "and none of them leaves a file"

# A figure is an image of its kind: PNG by its first bytes and width, SVG by its text.
is_png() { [ "$(head -c 8 "$1" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] &&
        [ "$(head -c 20 "$1" | tail -c 4 | od -An -tx1 | tr -d ' \n')" = 000004b0 ]; }
draw() {
        figure=$1
        word=$2
        shift 2
        "$plot" plot "$figure" "figures/$figure.png" "$@" 2>complaints &&
                "$plot" plot "$figure" "figures/$figure.svg" "$@" 2>>complaints &&
                [ ! -s complaints ] && is_png "figures/$figure.png" &&
                head -1 "figures/$figure.svg" | grep -q '<?xml' && tail -2 "figures/$figure.svg" | grep -q '</svg>' &&
                grep -q "$word" "figures/$figure.svg"
        result=$?
        [ $result -eq 0 ] || sed 's/^/# /' complaints
        return $result
}
# Whether a file has each of the texts.
has() {
        file=$1
        shift
        for text; do
                grep -q -e "$text" "$file" || { echo "# $file has no '$text'"; return 1; }
        done
}
draw predicted-measured "3 configurations, median error 3.2 %" $pairs
check "predicted against measured is drawn as PNG and SVG"
draw throughput "demo, axonn, measured" $pairs
check "throughput is drawn as PNG and SVG"
draw memory "activations" $pairs
check "memory is drawn as PNG and SVG"
draw phases "bubble, messages, waits" $pairs
check "phases are drawn as PNG and SVG"
draw timeline "stage 1, replica 0" trace.json
check "a timeline is drawn as PNG and SVG"
draw optimizer "1.60 times the longest lane (collective, 7.200 ms)" offload.json
check "the optimizer phase is drawn as PNG and SVG, the rank where it is longest" # 2 all-reduces of 3.6 ms, phase of 11.5
draw optimizer "11.000 ms from the last backward" offload.json --rank 1
check "or the rank that is asked for"
"$plot" plot optimizer figures/optimizer.svg offload.json &&
        has figures/optimizer.svg "on rank 0 (stage 0, replica 0)" ">5.200 ms busy<" ">45 %<" ">device to host<" ">write back<" ">scalars<"
check "with every lane, how long it was busy, and what is on it" # 8 copies of 0.65 ms each way
# The first fetch of rank 0, from 10.8 to 11.45 ms, now goes from 9 to 11.8: from 9.94, where the phase begins, to 11.45, where
# the next one begins, there are 0.86 ms more to count.
sed '/"kind":"fetch"/s/"pid":0,"tid":10000001,"ts":10800.000,"dur":650.000/"pid":0,"tid":10000001,"ts":9000.000,"dur":2800.000/' offload.json >early.json
"$plot" plot optimizer figures/optimizer.svg early.json && has figures/optimizer.svg "11.500 ms from the last backward" ">6.060 ms busy<"
check "a lane is busy from where the phase begins, and once where two operations overlap"
draw timeline "stage 0, replica 1" offload.json &&
        has figures/timeline.svg ">device to host<" ">scalars<" ">fetch<" ">write back<" ">activations<"
check "a timeline shows both memories' lanes"
# A trace as it is written today says what it is of.
plan='"model":"tiny","machine":"box","plan":{"schedule":"zero-bubble","virtual_stages":2,"zero":1,"recompute":"full","micro_batches":8,"micro_batch_size":2}'
sed "1s/\"pp\":2/\"pp\":2,\"dp\":1,$plan/" trace.json >whole.json
draw timeline "tiny: pp 2 × dp 1, zero-bubble, V 2, ZeRO-1, full recomputation, 8 micro-batches of 2" whole.json &&
        has figures/timeline.svg "batch [0-9]*, simulated on box: [0-9.]* ms, bubble [0-9.]* %"
check "a timeline's title says model, plan and machine, how long the batch is and its bubble"
sed 's/\("kind":"backward".*\)}}/\1,"part":"input"}}/; s/\("kind":"forward".*\)}}/\1,"chunk":1}}/' trace.json >parts.json
draw timeline "backward, inputs" parts.json && has figures/timeline.svg "chunks 0 to 1 from dark to light" && ! grep -q ">backward<" figures/timeline.svg
check "parts of backwards have names of their own, and chunks shades"
"$plot" plot timeline figures/timeline.svg trace.json --from 300us --to 1.2ms --ranks 1 &&
        has figures/timeline.svg "; 1 of 2 ranks" ">stage 1, replica 0<" ">0.3 ms<" ">1.2 ms<" && ! grep -q "stage 0\|>0.2 ms<\|>1.3 ms<" figures/timeline.svg
check "a timeline is cut to a time and to ranks"
# 128 stages with 128 micro-batches each: nobody could tell 33,000 operations apart.
awk 'BEGIN {
        print "{\"otherData\":{\"ranvier\":\"0\",\"world\":\"simulated\",\"pp\":128,\"dp\":1},\"traceEvents\":["
        for (rank = 0; rank < 128; rank++)
                for (m = 0; m < 256; m++)
                        printf "{\"ph\":\"X\",\"pid\":%d,\"tid\":10000000,\"ts\":%d,\"dur\":9000,\"args\":{\"kind\":\"%s\",\"micro_batch\":%d,\"bucket\":-1,\"bytes\":0,\"batch\":0,\"issued\":0.0,\"order\":%d}}%s\n", rank,
                                (rank + m) * 10000, m % 2 ? "backward" : "forward", int(m / 2), m, rank == 127 && m == 255 ? "" : ","
        print "]}" }' >large.json
draw timeline "32 of 128 ranks; height: share of each 34.* ms" large.json && has figures/timeline.svg ">stage 127, replica 0<" ">3 s<"
check "a large timeline shows some ranks, and the share of the time"
"$plot" plot timeline figures/timeline.svg large.json --from 1.2s --to 1.3s --ranks 3,4,5,6,100 &&
        has figures/timeline.svg ">stage 100, replica 0<" ">10<" ">60<" && ! grep -q "share of each" figures/timeline.svg
check "and its operations, with their micro-batches, in a part of it"
draw phases ">bubble, messages, waits<" measured-2.json && ! grep -q ">shards together<" figures/phases.svg
check "the legend of the phases has what occurs"
"$plot" plot throughput figures/throughput.svg measured-1.json && ! grep -q "scaled perfectly" figures/throughput.svg
check "and that of the throughput what is drawn"
"$plot" plot predicted-measured figures/predicted-measured.svg predicted-1.json measured-1.json && has figures/predicted-measured.svg "interval of nine batches in ten"
check "the interval of a prediction is drawn"
sed '1s/{/{"capacity": {"device_bytes": 1000000},/' measured-1.json >limited.json
sed '1s/{/{"capacity": {"device_bytes": 1000000000},/' measured-1.json >roomy.json
draw memory ">what a device has<" limited.json && "$plot" plot memory figures/roomy.svg roomy.json && ! grep -q "what a device has" figures/roomy.svg
check "so is what a device has of memory, unless the bars would vanish beside it"
draw memory "263.69 KiB host" predicted-offload.json measured-1.json && grep -q ">buckets<" figures/memory.svg
check "host memory is drawn beside device memory, a report without it too"
"$plot" plot memory figures/memory.svg unknown-host.json && ! grep -q host figures/memory.svg
check "or one that does not know it"
draw memory "826.19 KiB" measured-1.json && ! grep -q "host\|>buckets<" figures/memory.svg
check "and nothing of it where there is none"

found=0
# The gain of offloading at each number of GPUs, from the CSV.
gains() {
        awk -F, '$19 == 1 { best[$1, $2] = $9; gpus[$1] } END { for (g in gpus)
                if (best[g, "no"] && best[g, "yes"]) printf "%+.1f %%\n", 100 * (best[g, "yes"] / best[g, "no"] - 1) }' "$1"
}
draw sweep-throughput "6 × 64, b 2 r" sweep.csv && gains sweep.csv >expected && [ "$(wc -l <expected)" = 4 ] &&
        while read -r gain; do has figures/sweep-throughput.svg ">$gain<" && found=$((found + 1)); done <expected; [ "$found" = 4 ]
check "a sweep's throughput is drawn, with the gain of offloading at every number of GPUs"
grep -q "1 slower, below the frame" figures/sweep-throughput.svg && grep -q "Share of the peak" figures/sweep-throughput.svg
check "with what is not drawn, and the percent of peak"
awk -F, -v OFS=, 'NR > 1 { $10 = "" } NR == 1 || $19 == 1' sweep.csv >bare.csv
draw sweep-throughput "+14.5 %" bare.csv && ! grep -q "Share of the peak\|other plans" figures/sweep-throughput.svg
check "without other plans and percent of peak, which are not always known"
{ head -1 sweep.csv; grep '^48,no' sweep.csv; grep '^96,yes' sweep.csv; } >unpaired.csv
draw sweep-throughput "6 × 16, b 2 r" unpaired.csv && ! grep -q "the gain of offloading" figures/sweep-throughput.svg &&
        draw sweep-memory ">no plan<" unpaired.csv
check "and where there is a best plan with or without offloading only"
grep '^gpus\|^96,yes' sweep.csv >single.csv
draw sweep-throughput "best plan with offloading" single.csv && draw sweep-memory "best plan with offloading" single.csv &&
        ! grep -q "best plan without" figures/sweep-memory.svg
check "a sweep of one number of GPUs is drawn"
{ cut -d, -f4,19,1-3,5- sweep.csv | sed 's/$/\r/'; } >windows.csv
draw sweep-memory "600.48 GiB in all" windows.csv
check "a sweep's memory is drawn, the largest GPU's and that of all"
{ sed '1s/$/,tp,virtual_stages,zero,schedule,cp,model,machine,batch_size,seq_len,device_memory_bytes/;2,$s/$/,2,1,1,1f1b,4,gpt-12b,summit,1536,512,17179869184/' sweep.csv; } >told.csv
draw sweep-throughput "Throughput by number of GPUs: gpt-12b, batch 1,536 × 512 tokens, summit, 1f1b" told.csv &&
        has figures/sweep-throughput.svg "24 × 2 × 2, b 2 r" "ZeRO-1, cp 4" "stages × replicas × shards"
check "with all that makes a plan, and what the plans are of, where the file says so"
draw sweep-memory ">what a GPU has<" told.csv && has figures/sweep-memory.svg "24 × 2 × 2, b 2 r" "ZeRO-1, cp 4" "gpt-12b"
check "and what a GPU has of memory"
sed '1s/{/{"first_validation_loss": 20.5,/' measured-1.json >begun.json
"$plot" plot loss figures/loss.svg loss.csv begun.json && has figures/loss.svg "> *20<" && "$plot" plot loss figures/loss.svg loss.csv && ! grep -q "> *20<" figures/loss.svg
check "the validation before training is drawn from the report"
draw loss "loss, validation" loss.csv
check "the loss is drawn as PNG and SVG"
"$plot" compare predicted-1.json measured-1.json --plot figures/compare.svg >/dev/null && grep -q "1 configuration," figures/compare.svg
check "compare draws a single pair too"
sed 's/"name": "tiny"/"name": "it'"'"'s _my_ \\"model\\" $(x)"/' measured-1.json >strange.json
"$plot" plot memory figures/strange.svg strange.json && grep -q "it's _my_ .*model.* \$(x)" figures/strange.svg
check "a model's name is shown as it is, whatever is in it"

# gnuplot that is missing, or fails half-way.
cp figures/memory.png before.png
mkdir bin
PATH=$work/bin "$plot" plot memory figures/memory.png measured-1.json 2>complaint
[ $? -eq 1 ] && [ "$(cat complaint)" = "ranvier plot: gnuplot was not found; figures need it (Debian: gnuplot-nox)" ]
check "without gnuplot there is a sentence and status 1"
printf '#!/bin/sh\necho half >"$(echo "$3" | /bin/sed "s/.*out=.\\([^'"'"']*\\).*/\\1/")"\nexit 1\n' >bin/gnuplot
chmod +x bin/gnuplot
PATH=$work/bin "$plot" plot memory figures/memory.png measured-1.json 2>complaint
[ $? -eq 1 ] && grep -q "gnuplot failed on .*memory.gp for figures/memory.png" complaint && cmp -s before.png figures/memory.png
check "a gnuplot that fails half-way leaves the old figure as it was"

# A disk that is full: gnuplot does not tell. The memory figure needs 60 KiB, its data and settings less than 4 KiB.
ln -s /dev/full figures/full.png
said=$("$plot" plot memory figures/full.png measured-1.json 2>&1)
[ $? -eq 1 ] && [ "$said" = "ranvier plot: figures/full.png: could not be written: No space left on device" ]
check "a figure on a disk that is full is a failure, which says so"
said=$(trap '' XFSZ && ulimit -f 8 && "$plot" plot memory figures/memory.png measured-1.json 2>&1)
[ $? -eq 1 ] && [ "$said" = "ranvier plot: figures/memory.png: could not be written: File too large" ] &&
        cmp -s before.png figures/memory.png
check "and one that can be written in part only leaves the old figure as it was"
newline=$(printf 'figures/new\nline.svg')
"$plot" plot memory "$newline" measured-1.json && grep -q '</svg>' "$newline"
check "a figure's name may have a newline"
sed 's/"name": "tiny"/"name": "'"'"'begin `echo x` @end (12)"/' measured-1.json >strange.json
"$plot" plot memory figures/strange.svg strange.json 2>complaint && [ ! -s complaint ] && grep -q "'begin \`echo x\` @end (12)" figures/strange.svg
check "a model's name may begin with a quote"
printf '#!/bin/sh\nls -A temporary figures >seen\nexec %s "$@"\n' "$(command -v gnuplot)" >bin/gnuplot
ls -A temporary figures >before
PATH=$work/bin:$PATH "$plot" plot memory figures/memory.svg measured-1.json
cmp -s before seen
check "while gnuplot draws there is no file that an interrupt could leave"
[ -z "$(ls temporary)" ] && [ -z "$(find figures -type f ! -name '*.png' ! -name '*.svg')" ]
check "no temporary file is left"
said=$("$plot" compare predicted-1.json measured-1.json 2>&1 >/dev/full)
[ $? -eq 1 ] && [ "$said" = "ranvier compare: standard output could not be written: No space left on device" ]
check "a comparison that cannot be printed is a failure"
