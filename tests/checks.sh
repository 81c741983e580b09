# For the end-to-end tests in shell: a scratch directory, a state directory of its own, and checks that are counted.
# Sourced with the repository as the working directory; prints one line `ok ...` or `not ok ...` a check.
# shellcheck shell=sh

: "${CAPSTAN_BIN:?names the capstan program to test}"
PYTHON=${PYTHON:-python3}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# Not /tmp, which may be a tmpfs without room for volumes and without extended attributes.
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/capstan-test.XXXXXX")
trap 'chmod -R u+rwx "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
export CAPSTAN_STATE="$scratch/state" CAPSTAN_KEY_FILE="$scratch/key"
unset CAPSTAN_PASSPHRASE
number=0
failed=0

capstan() { "$CAPSTAN_BIN" "$@"; }

# check NAME COMMAND...: passes when the command succeeds; shows what it printed when it does not.
check() {
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"$scratch/output" 2>&1; then
        echo "ok $number - $name"
    else
        code=$?
        failed=$((failed + 1))
        echo "not ok $number - $name"
        echo "# $* gave $code"
        head -n 40 "$scratch/output" | cut -c 1-300 | sed 's/^/# /'
    fi
}

# exits CODE COMMAND...: succeeds when the command ends with that code.
exits() {
    expected=$1
    shift
    code=0
    "$@" || code=$?
    [ "$code" -eq "$expected" ] || {
        echo "exit code $code, not $expected"
        return 1
    }
}

# prints WORDS COMMAND...: succeeds when the command's output holds the words.
prints() {
    words=$1
    shift
    "$@" >"$scratch/printed" 2>&1 || true
    grep -qF -- "$words" "$scratch/printed" || {
        cat "$scratch/printed"
        echo "nothing says: $words"
        return 1
    }
}

# nothing COMMAND...: succeeds when the command succeeds and prints nothing.
nothing() {
    "$@" >"$scratch/printed" && [ ! -s "$scratch/printed" ] || {
        cat "$scratch/printed"
        return 1
    }
}

# A new, empty state directory.
begin() {
    rm -rf "$CAPSTAN_STATE"
    capstan --quiet init "$@"
}

# The last line of a test.
finish() {
    echo "1..$number"
    [ "$failed" -eq 0 ]
}
