#!/bin/sh
# From a fresh clone to figures: a virtual environment in the checkout, unloader with its embedded
# database in it, then `unloader demo`. Arguments go to the demo, for instance: --rows 10M --dir /data
#
# UNLOADER_VENV names another place for the environment. A second call uses the first one's again
# and needs no network.
set -eu

fail() {
    printf 'quickstart: %s\n' "$*" >&2
    exit 1
}

find_python() {
    for name in python3 python3.13 python3.12 python3.11; do
        if "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
            >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    return 1
}

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=${UNLOADER_VENV:-$checkout/.venv}
installed=$venv/unloader-installed

# -nt is not in POSIX; find is.
if [ ! -x "$venv/bin/unloader" ] || [ ! -e "$installed" ] ||
    [ -n "$(find "$checkout/setup.cfg" "$checkout/pyproject.toml" -newer "$installed")" ]; then
    printf 'quickstart: installing unloader into %s\n' "$venv" >&2
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$(find_python) || fail 'no Python 3.11 or newer with the modules venv and ensurepip' \
            'is on the PATH. Next: install one (Debian, Ubuntu: apt-get install python3-venv).'
        log=$("$python" -m venv --clear "$venv" 2>&1) ||
            fail "$python cannot make $venv: $(printf '%s\n' "$log" | tail -n 1)"
    fi
    log=$("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --root-user-action ignore --editable "$checkout[duckdb]" </dev/null 2>&1) || {
        reason=$(printf '%s\n' "$log" | sed -n 's/^ *ERROR: *//p' | tail -n 1)
        fail "pip cannot install unloader: ${reason:-$(printf '%s\n' "$log" | tail -n 1)}." \
            "Next: see that this machine reaches a package index ($venv/bin/pip config list)."
    }
    : >"$installed"
fi

exec "$venv/bin/unloader" demo "$@"
