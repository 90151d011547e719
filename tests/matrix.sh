#!/bin/sh
# Runs the tests on Debian 13, with its RabbitMQ 4, Redis 8 and Python 3.13, in a folder: `matrix.sh run [PYTEST ARGUMENT…]`.
# `matrix.sh remove` deletes that folder. The first run fetches about 400 MB, later ones reuse them.
# What it mounts is in a mount namespace of its own: nobody else sees it, and it is gone however the run ends.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

MATRIX=${MATRIX:-.matrix}
WORKERS=${WORKERS:-6}
RELEASE=trixie
PACKAGES=rabbitmq-server,redis-server,redis-sentinel,redis-tools,default-jre-headless,python3-venv,ca-certificates
ROOT=$MATRIX/$RELEASE
HALF=$MATRIX/$RELEASE.half
LOG=$MATRIX/debootstrap.log
# What a folder was made of; one that was made of something else is made again.
LISTED=chronicle.packages

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

run() {
    [ "$(id -u)" = 0 ] || fail "The matrix runs in a folder with a Debian of its own, which only root can make and" \
        "enter: sudo make matrix."
    case "$(pwd)/$MATRIX" in
    *[[:space:]]*) fail "debootstrap cannot work in a folder with a space in its name: set MATRIX to another one." ;;
    esac
    git_here ls-files >/dev/null 2>&1 ||
        fail "The matrix copies what git lists: run it in a git checkout, with git installed."
    unshare --mount true 2>/dev/null || fail "Nothing can be mounted here:" \
        "run the matrix on a machine of its own, or in a container that has the capability SYS_ADMIN."
    mkdir -p "$MATRIX"
    lock
    if [ "$(cat "$ROOT/$LISTED" 2>/dev/null)" != "$PACKAGES" ]; then
        sh tests/setup.sh debootstrap
        unshare --mount sh tests/matrix.sh build
    fi
    sh tests/setup.sh kafka
    copy_checkout
    unshare --mount sh tests/matrix.sh enter "$@" 9>&-
}

# A second run would exchange the files beneath the first.
lock() {
    exec 9>"$MATRIX/lock"
    flock -n 9 || fail "Another run uses $MATRIX: wait for it, or set MATRIX to another folder."
}

# It gets its name when it is whole, so that one that is there can be used.
build() {
    discard "$HALF"
    mirror=${MIRROR:-$(mirror_of_apt)}
    [ -n "$mirror" ] ||
        fail "apt knows no Debian mirror here: name one that has $RELEASE with make matrix MIRROR=http://…"
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    if [ -n "${proxy:-}" ]; then
        export http_proxy="$proxy"
    fi
    printf 'Fetching Debian %s into %s …\n' "$RELEASE" "$ROOT" >&2
    if ! debootstrap --variant=minbase --include="$PACKAGES" "$RELEASE" "$HALF" "$mirror" >"$LOG" 2>&1; then
        tail -n 15 "$LOG" >&2
        fail "debootstrap could not make Debian $RELEASE; its last lines are above, all of them in $LOG." \
            "If the mirror of apt does not have $RELEASE, name another one with make matrix MIRROR=http://…"
    fi
    printf '%s' "$PACKAGES" >"$HALF/$LISTED"
    discard "$ROOT"
    mv "$HALF" "$ROOT"
}

mirror_of_apt() {
    asked=$(first_mirror)
    # The names of the mirrors stand in the sources, but what they hold only in the lists that apt fetched.
    [ -n "$asked" ] || apt-get -qq update >/dev/null 2>&1 || true
    printf '%s' "${asked:-$(first_mirror)}"
}

first_mirror() {
    apt-get indextargets --format '$(SITE) $(LABEL)' 'Created-By: Packages' 2>/dev/null |
        awk '$2 == "Debian" { print $1; exit }'
}

# What git knows, as it is now, without what was deleted; the environment that was made inside stays.
copy_checkout() {
    mkdir -p "$ROOT/chronicle"
    find "$ROOT/chronicle" -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
    git_here ls-files -z --deduplicate >"$MATRIX/files"
    tar --create --null --files-from "$MATRIX/files" --ignore-failed-read --file "$MATRIX/checkout.tar"
    tar --extract --no-same-owner --file "$MATRIX/checkout.tar" --directory "$ROOT/chronicle"
    rm -f "$MATRIX/files" "$MATRIX/checkout.tar"
    # Java is inside, Maven is not.
    [ ! -d .kafka ] || cp -R .kafka "$ROOT/chronicle/"
}

enter() {
    mount -t proc proc "$ROOT/proc"
    mount --rbind /dev "$ROOT/dev"
    # How pip reaches its index is the machine's affair; inside it shall reach it in the same way.
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || cp -L "$file" "$ROOT$file"
    done
    chroot "$ROOT" /usr/bin/env -u PIP_FIND_LINKS HOME=/root TMPDIR=/tmp LC_ALL=C.UTF-8 PYTHON=python3 WORKERS="$WORKERS" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -euc '
            cd /chronicle
            sh tests/setup.sh python
            printf "Debian %s, %s, RabbitMQ %s, Redis %s\n" "$(cat /etc/debian_version)" "$(python3 --version)" \
                "$(dpkg-query --show --showformat "\${Version}" rabbitmq-server)" \
                "$(dpkg-query --show --showformat "\${Version}" redis-server)"
            exec sh tests/run.sh "$@"
        ' sh "$@"
}

remove() {
    [ -d "$MATRIX" ] || return 0
    [ -w "$MATRIX" ] || fail "$MATRIX belongs to root, who made it: sudo make clean."
    lock
    discard "$ROOT"
    discard "$HALF"
    rm -f "$LOG" "$MATRIX/files" "$MATRIX/checkout.tar" "$MATRIX/lock"
    rmdir --ignore-fail-on-non-empty "$MATRIX"
}

# Beneath a mount lie files of others: /dev of the machine itself, for one.
discard() {
    [ -d "$1" ] || return 0
    there=$(realpath "$1")
    ! awk '{ print $5 "/" }' /proc/self/mountinfo | grep -qF "$there/" ||
        fail "Something is mounted beneath $there, so it is not deleted: umount it first (findmnt shows what)."
    rm -rf --one-file-system "$there"
}

# Root may read a checkout that belongs to somebody else.
git_here() {
    git -c safe.directory='*' "$@"
}

action=${1:-}
[ $# = 0 ] || shift
case "$action" in
run | build | enter | remove) "$action" "$@" ;;
*) fail "usage: matrix.sh run [PYTEST ARGUMENT…]|remove" ;;
esac
