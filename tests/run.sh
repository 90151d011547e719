#!/bin/sh
# Runs the tests in WORKERS processes, and after them, with little else running, those that compare times.
# Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."

NOTHING_SELECTED=5

# What is compiled once, every command that a test starts and every process of pytest would compile anew.
unset PYTHONDONTWRITEBYTECODE
.venv/bin/python -m compileall -q src cli syncers
.venv/bin/pytest --collect-only -q "$@" >/dev/null || true

run() {
    workers=$1
    which=$2
    shift 2
    # In the order of the files: the many short ones come last, so that all workers end at about the same time.
    .venv/bin/pytest -n "$workers" --no-loadscope-reorder -m "not soak and $which" "$@" || [ $? = $NOTHING_SELECTED ]
}

run "${WORKERS:-6}" "not timed" "$@"
run 2 timed "$@"
