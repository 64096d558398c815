# shellcheck shell=bash
# For scripts that print TAP; to be sourced.
count=0

result() { # SENTENCE, and whether the last command succeeded
        local status=$?
        count=$((count + 1))
        if [ $status -eq 0 ]; then
                echo "ok $count - $1"
        else
                echo "not ok $count - $1"
        fi
        return $status
}

skip() { # SENTENCE, and why it was not looked at
        count=$((count + 1))
        echo "ok $count - $1 # SKIP $2"
}
