#!/bin/sh
# The main job on the embedded queue, in a folder that is thrown away: run by `make demo`.
set -eu
exec 2>&1  # in order, also through a pipe
demo=$(cd "$(dirname "$0")/demo" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# What is set for other work, such as a CHRONICLE_URL, is not meant for this folder.
for name in $(env | sed -n -e 's/^\(CHRONICLE_[A-Z0-9_]*\)=.*/\1/p' -e 's/^\(PROCA_[A-Z0-9_]*\)=.*/\1/p'); do
    unset "$name"
done

show() {
    printf '\n\033[1m$ chronicle %s\033[0m\n' "$*"
    chronicle "$@"
}

run() {
    show consume --queue "$1" --syncer "$2" --app-dir "$demo" --until-empty --log-format pretty --no-live
}

echo "Four supporters signed. One of them left no e-mail address, and the syncer is not ready for that."
show publish --queue demo "$demo/messages.jsonl"
run demo my_crm:sync

printf '\nThree were acknowledged. The one that failed was tried twice and waits in the dead letters:\n'
show dlq list --queue demo

printf '\nThe syncer is fixed, and the dead letter is brought back:\n'
show dlq redrive --queue demo
run demo my_crm:sync_fixed

printf '\nNothing was lost. The syncer is docs/demo/my_crm.py; the next step is README.md.\n'
