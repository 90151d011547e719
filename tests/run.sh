#!/bin/sh
# Runs the tests in WORKERS processes, and after them, with little else running, those that compare times.
# Arguments go to pytest.
#
# Many of them play with time: they kill, freeze and starve brokers, while as many tests as WORKERS share the
# machine. A few that fail in this crowd are tried alone, three times and with the same luck; each must pass every
# time, and is named at the end, because it has a race to be found. What they left in .failed-tests stays there.
set -eu
cd "$(dirname "$0")/.."

NOTHING_SELECTED=5
FAILED=.pytest_cache/v/cache/lastfailed
A_FEW=5
alone=""

: "${CHRONICLE_TEST_SEED:=$(.venv/bin/python -c 'import random; print(random.SystemRandom().randrange(10**6))')}"
export CHRONICLE_TEST_SEED

.venv/bin/python -m compileall -q src cli syncers
PYTHONPATH=tests .venv/bin/python -m support.kafka_archive || true # it only saves time
.venv/bin/pytest --collect-only -q "$@" >/dev/null || true

run() {
    workers=$1
    which=$2
    shift 2
    rm -f "$FAILED"
    status=0
    # In the order of the files: the many short ones come last, so that all workers end at about the same time.
    .venv/bin/pytest -n "$workers" --no-loadscope-reorder -m "not soak and $which" "$@" || status=$?
    case $status in
    0 | $NOTHING_SELECTED) ;;
    1) again "$which" "$@" ;;
    *) exit "$status" ;;
    esac
}

again() {
    which=$1
    shift
    [ -s "$FAILED" ] && [ "$(names | wc -l)" -le $A_FEW ] || exit 1
    kept=$(mktemp)
    cp "$FAILED" "$kept"
    alone="$alone$(names)
"
    for time in first second third; do
        cp "$kept" "$FAILED"
        printf '\nAlone, for the %s time:\n%s\n' "$time" "$(names)"
        .venv/bin/pytest --last-failed -m "not soak and $which" "$@" || exit 1
    done
    rm -f "$kept"
}

names() {
    .venv/bin/python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$FAILED"
}

run "${WORKERS:-6}" "not timed" "$@"
run 2 timed "$@"
if [ -n "$alone" ]; then
    printf '\nThese failed among the others and passed alone, three times:\n%s' "$alone"
fi
