// Hostile responses to fetches: read in pieces of any size they come to the same, and no byte of
// them leads anywhere but to rows or to a refusal.
//
// An input is: the number of columns; kind, digits, places and limit of each; rows asked for; the
// size of a piece; then what the server sends.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "response.h"

using unloader::oracle::Description;
using unloader::oracle::Kind;
using unloader::oracle::Progress;
using unloader::oracle::Refusal;
using unloader::oracle::Response;

namespace {

constexpr size_t MOST_COLUMNS = 20;
constexpr uint8_t KINDS = 9;

void fail(const char* what) {
    std::fprintf(stderr, "fetch_target: %s\n", what);
    std::abort();
}

struct Outcome {
    Refusal refusal;
    Progress progress;
    std::vector<uint8_t> passed;
    std::string cells;
};

bool is_sized(Kind kind) { return kind <= Kind::BYTES; }

size_t width(Kind kind) {
    if (kind == Kind::DECIMAL) return 16;
    return kind == Kind::INT32 || kind == Kind::FLOAT ? 4 : 8;
}

// Adds every cell of an array, reading all that it says it has.
void read_cells(const ArrowArray& array, Kind kind, std::string& cells) {
    const auto* bits = static_cast<const uint8_t*>(array.buffers[0]);
    const auto* values = static_cast<const uint8_t*>(array.buffers[1]);
    int64_t nulls = 0;
    for (int64_t row = 0; row < array.length; row++) {
        if (bits != nullptr && !unloader::bit_at(bits, row)) {
            nulls++;
            cells += "-";
            continue;
        }
        cells += "+";
        if (is_sized(kind)) {
            const auto* ends = reinterpret_cast<const int32_t*>(values);
            if (ends[row + 1] < ends[row]) fail("a text ends before it begins");
            cells.append(static_cast<const char*>(array.buffers[2]) + ends[row],
                         static_cast<size_t>(ends[row + 1] - ends[row]));
        } else {
            cells.append(reinterpret_cast<const char*>(values) + static_cast<size_t>(row) * width(kind),
                         width(kind));
        }
    }
    if (nulls != array.null_count) fail("NULLs are counted wrongly");
}

Outcome decoded(const std::vector<Description>& columns, int64_t asked, const uint8_t* bytes,
                size_t size, size_t piece) {
    Response response(columns.data(), columns.size());
    Outcome outcome{};
    // Twice, so that the second may lean on the last row of the first.
    for (int turn = 0; turn < 2; turn++) {
        response.begin(asked);
        for (size_t at = 0; at < size && outcome.refusal == Refusal::NONE; at += piece) {
            outcome.refusal = response.feed(bytes + at, piece < size - at ? piece : size - at);
        }
        if (outcome.refusal == Refusal::NONE) outcome.refusal = response.finish();
        outcome.progress = response.progress();
        if (outcome.progress.rows > asked) fail("more rows than were asked for");
        if (outcome.refusal != Refusal::NONE) return outcome;
        outcome.passed.insert(outcome.passed.end(), response.output().begin(), response.output().end());
        std::vector<ArrowArray> arrays(columns.size());
        response.take(arrays.data());
        for (size_t index = 0; index < columns.size(); index++) {
            if (arrays[index].length != outcome.progress.rows) fail("an array has other rows");
            read_cells(arrays[index], columns[index].kind, outcome.cells);
            arrays[index].release(&arrays[index]);
        }
    }
    return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 1) return 0;
    const size_t count = data[0] % MOST_COLUMNS + 1;
    if (size < 3 + 4 * count) return 0;
    std::vector<Description> columns(count);
    for (size_t index = 0; index < count; index++) {
        const uint8_t* one = data + 1 + 4 * index;
        Description& column = columns[index];
        column.kind = static_cast<Kind>(one[0] % KINDS);
        column.digits = static_cast<uint8_t>(one[1] % 38 + 1);
        column.places = column.kind == Kind::MOMENT ? static_cast<uint8_t>(one[2] % 4 * 3)
                                                    : static_cast<uint8_t>(one[2] % (column.digits + 1));
        if (column.kind == Kind::INT32) column.digits = static_cast<uint8_t>(one[1] % 9 + 1);
        if (column.kind == Kind::INT64) column.digits = static_cast<uint8_t>(one[1] % 18 + 1);
        column.limit = one[3] * 8u + 1;
    }
    const uint8_t* rest = data + 3 + 4 * count;
    const size_t left = size - 3 - 4 * count;
    const int64_t asked = data[1 + 4 * count];
    const size_t piece = data[2 + 4 * count] + 1u;
    const Outcome whole = decoded(columns, asked, rest, left, left + 1);
    const Outcome cut = decoded(columns, asked, rest, left, piece);
    if (whole.refusal != cut.refusal) fail("pieces make a difference to what is refused");
    if (whole.refusal == Refusal::NONE && (whole.cells != cut.cells || whole.passed != cut.passed)) {
        fail("pieces make a difference");
    }
    return 0;
}
