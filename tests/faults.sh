#!/bin/sh
# Every fault of tests/support/faults, each with a whole unload, kills at many random moments:
#
#     ./tests/faults.sh --seeds 300
#     ./tests/faults.sh --only 'calls/*'
#
# In the environment that ./tests/run.sh makes. The exit status is 1 if a promise did not hold.
set -eu
cd -- "$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)"
python=${UNLOADER_TEST_VENV:-$PWD/.venv-test}/bin/python
if ! [ -x "$python" ]; then
    echo "faults.sh: there is no $python. Next: run ./tests/run.sh, which makes it." >&2
    exit 1
fi
PYTHONPATH="$PWD:$PWD/tests/support" exec "$python" -m faults "$@"
