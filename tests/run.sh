#!/bin/sh
# The suite in an environment of its own: types, lint, format, tests. With --all first, also the long
# tests; without, the last lines say how many were left out. Other arguments go to pytest, such as
# a file, or `-n 0` for all tests in one process, which -s needs.
#
# Every check runs even if an earlier one failed. The exit status is that of the tests if they
# failed, else 1 if another check did. pytest ends last, so that its summary is the last line.
#
# The tests that failed, if they are in at most three files, run again by themselves, three times. A
# test can fail only because the machine stops for a while. A fault of ours that comes now and then
# shows. The run passes if all three turns do, and names the tests: each one is looked into.
#
# PYTHON names the interpreter to make the environment with, UNLOADER_TEST_VENV another place for it.
set -eu

if [ "${1:-}" = --all ]; then
    shift
    export UNLOADER_TEST_ALL=1
    all=1
fi
cd -- "$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)"
[ -z "${all:-}" ] || ./tests/programs.sh
venv=${UNLOADER_TEST_VENV:-$PWD/.venv-test}
base=${PYTHON:-python3}

new=
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "run.sh: $base is no Python 3.11 or newer. Next: set PYTHON to one." >&2
        exit 1
    fi
    "$base" -m venv --clear "$venv"
    new=1
fi
python=$venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check --no-input \
    --root-user-action ignore ${new:+--no-compile} --editable '.[test]'

# As pip leaves an installed package: some thousand processes would each compile it again where
# PYTHONDONTWRITEBYTECODE is set. Of a new environment pip would compile all on one processor, also what
# no test imports. Templates among the packages are no Python, which pip does not mind either.
"$python" -m compileall -q unloader partition_planner writers numa tests/support
if [ -n "$new" ]; then
    packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$python" -m compileall -qq -j 2 -x '/(pip|setuptools|pkg_resources|mypyc|hive_metastore)/' \
        "$packages" >/dev/null || true
fi

"$python" --version
"$python" -m pip list --disable-pip-version-check --format freeze |
    grep -iE '^(duckdb|hypothesis|mypy|oracledb|psycopg-binary|pyarrow|pytest|pytest-timeout|pytest-xdist|ruff|zstandard)==' || true

# Types are checked on one processor while the other compiles the tests' modules with their assertions:
# pytest writes them down, and its processes find them. Where all tests run, they begin meanwhile, and
# what the check says stands among their first dots.
types() {
    said=$("$python" -m mypy --strict 2>&1) && passed=0 || passed=1
    printf '\n%s\n' "$said"
    return "$passed"
}
types &
checking=$!

status=0
"$python" -m ruff check . || status=1
"$python" -m ruff format --check . || status=1
PYTHONDONTWRITEBYTECODE='' "$python" -m pytest --collect-only -qq "$@" >/dev/null 2>&1 || true
typed=0
if [ $# -ne 0 ]; then
    wait "$checking" || typed=1
fi
if [ "$status" -ne 0 ] || [ "$typed" -ne 0 ]; then
    echo 'run.sh: a check above failed; the tests follow' >&2
fi
# Three processes: tests start many of their own, and wait a good deal, so that two leave a processor
# idle. A file's tests stay together and files in their order: the longest come first
# (tests/support/long_tests.py).
failed=.pytest_cache/v/cache/lastfailed
rm -f "$failed"
tests=0
"$python" -m pytest -n 3 --dist loadfile --no-loadscope-reorder "$@" ||
    tests=$?
# The tests of a file can share what failed, such as a virtual machine.
files=$(sed -n 's/^ *"\([^:"]*\).*": true.*/\1/p' "$failed" 2>/dev/null | sort -u | wc -l)
if [ "$tests" -eq 1 ] && [ "$files" -le 3 ]; then
    cp "$failed" "$failed.first"
    for turn in first second third; do
        echo "run.sh: what failed, by itself, the $turn time of three"
        cp "$failed.first" "$failed" # pytest takes out what has passed.
        tests=0
        "$python" -m pytest --last-failed "$@" || { tests=$? && break; }
    done
    if [ "$tests" -eq 0 ]; then
        echo 'run.sh: failed among the others and passed three times by itself:'
        sed -n 's/^ *"\(.*\)": true,\{0,1\}$/  \1/p' "$failed.first"
    fi
fi
if [ $# -eq 0 ]; then
    wait "$checking" || { status=1 && echo 'run.sh: types are wrong, see among the tests' >&2; }
elif [ "$typed" -ne 0 ]; then
    status=1
fi
[ "$tests" -eq 0 ] || status=$tests
exit "$status"
