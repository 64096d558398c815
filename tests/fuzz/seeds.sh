# shellcheck shell=bash
# What the two scripts of this folder share: where the seeds of a target are.

# Lists the files of a target's corpus: those in tests/fuzz/corpus, and its seeds of the third column of tests/fuzz/targets.
# With a folder, copies of all lie there then.
seeds() {
        local name=$1 patterns=$2 to=$3 number=0 seed file
        mkdir -p "$to"
        for file in tests/fuzz/corpus/"$name"/*; do
                [ ! -f "$file" ] || cp "$file" "$to/"
        done
        for seed in $patterns; do
                number=$((number + 1))
                parts "$seed" >"$to/seed-$number"
        done
}

# Several files with & between become the parts of one, with a line %% between them.
parts() {
        local file before=
        for file in ${1//&/ }; do
                [ -z "$before" ] || printf '\n%%%%\n'
                cat "$file"
                before=yes
        done
}
