// What a fuzzer runs: an input becomes a dialect and a batch, the library writes it, and the values
// must come back; buffers of any size must give the same bytes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "batch.h"
#include "decoder.h"
#include "dialects.h"
#include "input.h"
#include "records.h"

using unloader::Progress;
using unloader::Records;
using unloader::RecordStyle;
using unloader::Status;

extern "C" {
RecordStyle* unloader_open(const uint8_t* description, size_t size);
void unloader_close(RecordStyle* style);
Records* unloader_begin(const RecordStyle* style, ArrowArray* array, const uint8_t* kinds);
int32_t unloader_fill(Records* records, char* out, size_t room, int64_t most_rows, Progress*);
void unloader_end(Records* records);
}

namespace fuzz {
namespace {

struct Written {
    std::string data;
    int32_t status = 0;
    int64_t rows = 0;
};

constexpr auto FULL = static_cast<int32_t>(Status::FULL);

// Encodes with buffers of `room` bytes, and more only where a record needs it.
Written encode(const RecordStyle* style, Batch& batch, size_t room, int64_t most_rows) {
    ArrowArray array = batch.array();
    Records* records = unloader_begin(style, &array, batch.kinds().data());
    if (!records) fail("a batch is not taken");
    if (array.release) fail("an array that was taken over is still the caller's");
    Written written;
    size_t size = room;
    do {
        // Of its own size, so that a sanitizer sees one byte too many.
        std::unique_ptr<char[]> buffer(new char[size]);
        Progress progress{};
        const int64_t before = written.rows;
        written.status = unloader_fill(records, buffer.get(), size, most_rows, &progress);
        if (progress.bytes > size) fail("more bytes are reported than there is room for");
        written.data.append(buffer.get(), progress.bytes);
        written.rows = progress.rows;
        const bool moved = written.rows > before;
        if (written.rows - before > most_rows) fail("more rows are written than were asked for");
        if (written.status == FULL && !moved && progress.needed <= size) {
            fail("nothing is written into as much room as was asked for");
        }
        if (!moved && progress.bytes) fail("bytes without rows");
        size = written.status == FULL && !moved ? progress.needed : room;
    } while (written.status == FULL);
    unloader_end(records);
    if (batch.outstanding()) fail("an array is not released");
    return written;
}

bool reads_as(std::string text, const Expected& expected, const std::string& separator) {
    if (!expected.number) return text == expected.text;
    const size_t at = text.find(separator);
    if (at != std::string::npos) text.replace(at, separator.size(), ".");
    char* end = nullptr;
    const double found = expected.single ? static_cast<double>(std::strtof(text.c_str(), &end))
                                         : std::strtod(text.c_str(), &end);
    if (text.empty() || *end) return false;
    if (std::isnan(*expected.number)) return text == "NaN";
    return found == *expected.number && std::signbit(found) == std::signbit(*expected.number);
}

void check_values(const Dialect& dialect, const Batch& batch, const Written& written) {
    const auto records = decode(dialect, written.data);
    if (records.size() != static_cast<size_t>(written.rows)) fail("other rows than were counted");
    for (size_t row = 0; row < records.size(); ++row) {
        for (size_t column = 0; column < dialect.columns.size(); ++column) {
            const auto& found = records[row][column];
            const auto& expected = batch.cells()[row][column];
            const auto place = " in row " + std::to_string(row) + ", column " + std::to_string(column);
            if (found.has_value() != expected.has_value()) fail("NULL and a value are mixed up" + place);
            if (found && !reads_as(*found, *expected, dialect.separator)) {
                fail(shown(*found) + " for " + shown(expected->text) + place);
            }
        }
    }
}

// Says on stderr what an input is, to understand one that failed.
void show(const Dialect& dialect, const Batch& batch, const Written& written) {
    std::string text = "delimiter " + shown(dialect.delimiter) + " enclosure " +
                       (dialect.encloses ? shown(dialect.enclosure) : "none") + " escape " +
                       std::to_string(static_cast<int>(dialect.escape)) + " null " +
                       shown(dialect.null_text) + " eol " + shown(dialect.eol) + " encoding " +
                       std::to_string(static_cast<int>(dialect.encoding)) + "\n";
    for (const auto& row : batch.cells()) {
        for (const auto& cell : row) {
            text += cell ? (cell->number ? std::to_string(*cell->number) : shown(cell->text)) : "NULL";
            text += ' ';
        }
        text += '\n';
    }
    text += "status " + std::to_string(written.status) + " " + shown(written.data);
    std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace
}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace fuzz;
    Input input(data, size);
    const auto& all = dialects();
    const Dialect& dialect = all[input.below(all.size())];
    const auto* description = reinterpret_cast<const uint8_t*>(dialect.description.data());
    std::unique_ptr<RecordStyle, decltype(&unloader_close)> style(
        unloader_open(description, dialect.description.size()), unloader_close);
    if (!style) fail("a description is not taken");
    const size_t room = 1 + input.below(600);
    const int64_t most_rows = 1 + static_cast<int64_t>(input.below(9));
    Batch batch(dialect, input);

    const Written whole = encode(style.get(), batch, 1 << 16, INT64_MAX);
    if (whole.status == 0 && whole.rows != static_cast<int64_t>(batch.rows())) fail("rows are missing");
    for (const size_t each : {size_t{1}, room}) {
        const Written other = encode(style.get(), batch, each, most_rows);
        if (other.data != whole.data || other.rows != whole.rows || other.status != whole.status) {
            fail("buffers of " + std::to_string(each) + " bytes change what is written");
        }
    }
    if (std::getenv("UNLOADER_FUZZ_SHOW")) show(dialect, batch, whole);
    check_values(dialect, batch, whole);
    return 0;
}
