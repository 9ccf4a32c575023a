#!/bin/sh
# Fuzz native code under AddressSanitizer and UBSan: run.sh [seconds] [seed] [copy|encoder|fetch|pages]
#
# encoder, the default, is the native text encoder; fetch the decoder of Oracle's responses; pages
# the encoder of Parquet pages; copy what makes CSV of COPY's text form, and what decodes COPY's CSV.
#
# With clang++ by libFuzzer, else with g++ by driver.cpp. PYTHON names an interpreter with the test
# requirements, CXX another compiler, UNLOADER_FUZZ_DIR where to build and to keep the corpus
# (default: a directory that is removed at the end), UNLOADER_FUZZ_OBJECTS where the library's
# objects are that a g++ has compiled for this already, as lib-*.o. An input that was found to fail
# stays as `running` or crash-*.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
what=${3:-encoder}
seconds=${1:-20}
seed=${2:-1}
python=${PYTHON:-python3}
if [ -n "${UNLOADER_FUZZ_DIR:-}" ]; then
    build=$UNLOADER_FUZZ_DIR
    mkdir -p "$build"
else
    build=$(mktemp -d)
    trap 'status=$?; [ $status -ne 0 ] && echo "run.sh: the failing input is in $build/corpus" >&2 || rm -rf "$build"' EXIT
fi
compiler=${CXX:-$(command -v clang++ || command -v g++)}
flags="-std=c++17 -O1 -g1 -Wall -Wextra -fno-omit-frame-pointer -fsanitize=address,undefined"
case $what in
copy)
    sources=$here/../../unloader/sources/postgres/libpq/src
    target=$here/text_form_target.cpp
    mkdir -p "$build/corpus"
    printf ',"\003\001\000ab\t\\N\t\\\\.\t\\x41' > "$build/corpus/row" &
    printf '\002\012\0\0\0\010\0\0\0\007\004\002\0a,2024-02-29,1.25\n"x""y",,\n' > "$build/corpus/records" &
    ;;
encoder)
    sources=$here/../../writers/native/src
    target="$here/batch.cpp $here/values.cpp $here/decoder.cpp $here/dialects.cpp $here/encoder_target.cpp"
    UNLOADER_FUZZ_DIALECTS=$build/dialects
    export UNLOADER_FUZZ_DIALECTS
    "$python" "$here/dialect_table.py" "$build/dialects" "$build/corpus" &
    ;;
fetch)
    sources=$here/../../unloader/sources/oracle/native/src
    target=$here/fetch_target.cpp
    "$python" "$here/fetch_corpus.py" "$build/corpus" &
    ;;
pages)
    sources=$here/../../writers/parquet/native/src
    target="$here/page_batch.cpp $here/page_reader.cpp $here/pages_target.cpp"
    # Its inputs are choices, one a byte: none is needed to begin with.
    mkdir -p "$build/corpus" &
    ;;
*)
    echo "run.sh: there is nothing to fuzz by the name $what. Next: give copy, encoder, fetch or pages" >&2
    exit 2
    ;;
esac
table=$!
flags="$flags -fno-sanitize-recover=all -I$sources -I$here"

case $("$compiler" --version) in
*clang*)
    # shellcheck disable=SC2086
    "$compiler" $flags -fsanitize=fuzzer "$sources"/*.cpp $target -o "$build/fuzz"
    wait "$table"
    cd "$build/corpus"
    "$build/fuzz" -max_total_time="$seconds" -seed="$seed" -max_len=4096 -print_final_stats=1 .
    ;;
*)
    rm -f "$build"/*.o
    objects=${UNLOADER_FUZZ_OBJECTS:-$build}
    {
        for source in $target "$here/driver.cpp"; do
            echo "$source -o $build/target-$(basename "$source").o"
        done
        # Only the library's code guides the search.
        [ -n "${UNLOADER_FUZZ_OBJECTS:-}" ] || for source in "$sources"/*.cpp; do
            echo "-fsanitize-coverage=trace-pc $source -o $build/lib-$(basename "$source").o"
        done
    } | xargs -P 2 -I{} sh -c "$compiler $flags -c {}"
    # shellcheck disable=SC2086
    "$compiler" $flags "$objects"/lib-*.o "$build"/target-*.o -o "$build/fuzz"
    wait "$table"
    "$build/fuzz" "$build/corpus" "$seconds" "$seed"
    ;;
esac
