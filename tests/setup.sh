#!/bin/sh
# Sets up what `make` needs on a fresh machine: `setup.sh python` makes .venv (or the environment VENV names) of
# the Python that PYTHON names, `setup.sh brokers` finds or installs RabbitMQ and Redis and fetches Kafka,
# `setup.sh kafka` only that, `setup.sh debootstrap` finds or installs that tool. As root on Debian it installs
# what is missing; otherwise it says what to install.
set -eu
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
WHICH_PYTHON='import sys; print(sys.base_prefix, sys.version)'

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

can_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

# A Debian package starts its service when installed, unless this file says no.
install_packages() {
    printf 'Installing %s …\n' "$*" >&2
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        trap 'exit 130' INT TERM
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    log=$(mktemp)
    apt="apt-get -qq -o DPkg::Lock::Timeout=300"
    if ! { DEBIAN_FRONTEND=noninteractive $apt update &&
        DEBIAN_FRONTEND=noninteractive $apt install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        fail "apt-get could not install $*; its last lines are above."
    fi
    rm -f "$log"
}

set_up_python() {
    command -v "$PYTHON" >/dev/null || fail "chronicle needs Python 3.11 or newer; there is no $PYTHON here."
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "chronicle needs Python 3.11 or newer; $PYTHON is $("$PYTHON" --version 2>&1). Try make PYTHON=python3.13."
    if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
        can_install || fail "Python's venv module is missing: install the package python3-venv, then run make again."
        install_packages python3-venv
    fi
    # An environment that was moved, whose Python is gone, or that is of another Python cannot be repaired.
    [ "$("$VENV/bin/python" -c "import pip; $WHICH_PYTHON" 2>/dev/null)" = "$("$PYTHON" -c "$WHICH_PYTHON")" ] ||
        "$PYTHON" -m venv --clear "$VENV"
    pip="$VENV/bin/python -m pip --disable-pip-version-check --quiet"
    $pip install --require-hashes -r requirements.lock
    # The build tools are locked, too; an isolated build would fetch them again, unchecked.
    $pip install --no-deps --no-build-isolation --editable .
}

set_up_brokers() {
    if [ -z "${CHRONICLE_TEST_AMQP_URL:-}" ] && [ ! -x /usr/lib/rabbitmq/bin/rabbitmq-server ]; then
        can_install || fail "The tests need RabbitMQ: install the package rabbitmq-server (it need not run)," \
            "or set CHRONICLE_TEST_AMQP_URL to a broker they may use."
        install_packages rabbitmq-server
    fi
    if ! { command -v redis-server && command -v redis-sentinel && command -v redis-cli; } >/dev/null; then
        can_install || fail "The tests need Redis: install the packages redis-server and redis-sentinel" \
            "(they need not run)."
        install_packages redis-server redis-sentinel
    fi
    set_up_kafka
}

# No package has Kafka, so its jars come by Maven. Without them the tests run against a mock of it, and say so.
set_up_kafka() {
    pom=tests/support/kafka/pom.xml
    jars=.kafka
    if command -v java >/dev/null && cmp -s "$pom" "$jars/pom.xml"; then
        return 0
    fi
    if ! { command -v java && command -v mvn; } >/dev/null; then
        if ! can_install || ! (install_packages default-jre-headless maven); then
            no_kafka "install the packages default-jre-headless and maven"
            return 0
        fi
    fi
    printf 'Fetching Kafka into %s …\n' "$jars" >&2
    # It gets its name when it is whole and starts, so that one that is there can be used.
    half=$jars.half
    log=$(mktemp)
    rm -rf "$half"
    if mvn --quiet --batch-mode --strict-checksums -Dstyle.color=never --file "$pom" dependency:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$(pwd)/$half" >"$log" 2>&1 &&
        java -cp "$half/*" kafka.tools.StorageTool random-uuid >>"$log" 2>&1; then
        cp "$pom" "$half/pom.xml"
        rm -rf "$jars"
        mv "$half" "$jars"
    else
        tail -n 15 "$log" >&2
        rm -rf "$half"
        no_kafka "see above why Maven could not fetch it, or why Java (17 or newer) could not run it"
    fi
    rm -f "$log"
}

no_kafka() {
    printf 'There is no Kafka here, so the tests use a mock of it and skip what that cannot do: %s.\n' "$*" >&2
}

set_up_debootstrap() {
    command -v debootstrap >/dev/null && return 0
    can_install || fail "The matrix needs debootstrap: install the package debootstrap."
    install_packages debootstrap
}

case "${1:-}" in
python) set_up_python ;;
brokers) set_up_brokers ;;
kafka) set_up_kafka ;;
debootstrap) set_up_debootstrap ;;
*) fail "usage: setup.sh python|brokers|kafka|debootstrap" ;;
esac
