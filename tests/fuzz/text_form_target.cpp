// Hostile rows of COPY's text form: each is refused, or becomes CSV that says the same in as much
// room as was asked for; no byte outside of either is read or written. The same input is also a text
// of records in the CSV form, which is declined, or decoded into buffers of exactly the right size.
//
// An input is: delimiter, quote, the number of columns, eight of which of them are in quotes; the
// size of NULL and its bytes; then the row.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "decode.h"
#include "input.h"
#include "text_form.h"

using unloader::postgres::Dialect;
using unloader::postgres::TextForm;

namespace {

constexpr size_t MOST_COLUMNS = 40, MOST_NULL = 6;

void fail(const char* what) {
    std::fprintf(stderr, "text_form_target: %s\n", what);
    std::abort();
}

// Counts the values of a CSV row by its quotes and delimiters alone.
size_t values_of(const std::string& csv, char delimiter, char quote) {
    bool is_inside = false;
    size_t count = 1;
    for (size_t at = 0; at + 1 < csv.size(); at++) {
        if (csv[at] == quote) {
            is_inside = !is_inside;
        } else if (!is_inside && csv[at] == delimiter) {
            count++;
        } else if (!is_inside && (csv[at] == '\n' || csv[at] == '\r')) {
            fail("a line ends within a row");
        }
    }
    if (is_inside) fail("a quote is not closed");
    return count;
}

// Writes a row over itself, at the end of exactly so much memory.
std::string written_over(const TextForm& form, const std::string& row, size_t room) {
    const std::unique_ptr<char[]> memory(new char[room]);
    char* from = memory.get() + room - row.size();
    std::memcpy(from, row.data(), row.size());
    const char* end = form.put_over(from, row.size(), memory.get());
    return end == nullptr ? std::string() : std::string(memory.get(), static_cast<size_t>(end - memory.get()));
}

// Writes a row into exactly so much memory; empty where it is refused.
std::string written(const TextForm& form, const std::string& row, size_t room) {
    // In memory of their own, so that a sanitizer sees each byte that is not theirs.
    const std::unique_ptr<char[]> from(new char[row.size()]);
    std::memcpy(from.get(), row.data(), row.size());
    const std::unique_ptr<char[]> out(new char[room]);
    const char* end = form.put(from.get(), row.size(), out.get());
    return end == nullptr ? std::string() : std::string(out.get(), static_cast<size_t>(end - out.get()));
}

bool input_is_binary(const uint8_t* data, size_t size) { return size > 0 && (data[size - 1] & 1) != 0; }

// Decodes an input: the number of columns, a kind for each, precision and scale; then the text.
void decode(const uint8_t* data, size_t size) {
    using namespace unloader::postgres;
    static constexpr size_t WIDTHS[] = {1, 2, 4, 8, 4, 4, 8, 16, 4, 8};
    fuzz::Input input(data, size);
    std::vector<Column> columns(input.below(6) + 1, Column{});
    for (Column& each : columns) {
        each.kind = static_cast<int32_t>(input.below(RAW + 1));
        each.precision = static_cast<int32_t>(input.below(38)) + 1;
        each.scale = static_cast<int32_t>(input.below(static_cast<size_t>(each.precision) + 1));
        each.zoned = input.byte() & 1;
    }
    std::vector<char> text;
    while (!input.empty()) text.push_back(static_cast<char>(input.byte()));
    const auto bytes = static_cast<int64_t>(text.size());
    const bool binary = input_is_binary(data, size);
    const int64_t most = binary ? bytes + 1 : unloader_copy_lines(text.data(), bytes);
    std::vector<Place> places(static_cast<size_t>(most) * columns.size());
    const auto count = static_cast<int64_t>(columns.size());
    const int64_t rows =
        (binary ? unloader_copy_index_binary : unloader_copy_index)(
            text.data(), bytes, count, most, places.data(), columns.data());
    if (rows < 0) return;
    if (rows > most) fail("there are more records than line ends");
    for (size_t n = 0; n < columns.size(); n++) {
        Column& column = columns[n];
        const auto all = static_cast<size_t>(rows);
        const bool is_text = column.kind >= STRING;
        std::vector<char> values(is_text ? static_cast<size_t>(column.size) : all * WIDTHS[column.kind]);
        std::vector<int32_t> offsets(all + 1);
        std::vector<uint8_t> validity((all + 7) / 8);
        column.values = values.data();
        column.offsets = offsets.data();
        column.validity = validity.data();
        const Place* mine = places.data() + static_cast<size_t>(most) * n;
        if (unloader_copy_decode(text.data(), mine, rows, &column) != 0) continue;
        if (column.nulls > rows) fail("there are more NULLs than records");
        if (is_text && column.size > static_cast<int64_t>(values.size())) fail("a text grew");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    decode(data, size);
    fuzz::Input input(data, size);
    const char delimiter = static_cast<char>(input.byte() & 0x7F);
    const char quote = static_cast<char>(input.byte() & 0x7F);
    if (delimiter == quote || std::strchr("\n\r", delimiter) || std::strchr("\n\r", quote)) return 0;
    std::vector<uint8_t> forced(input.below(MOST_COLUMNS) + 1);
    const uint8_t pattern = input.byte();
    for (size_t column = 0; column < forced.size(); column++) forced[column] = pattern >> column % 8 & 1;
    std::string null(input.below(MOST_NULL), ' ');
    for (char& each : null) {
        each = static_cast<char>(input.byte() & 0x7F);
        if (each == delimiter || each == quote || each == '\n' || each == '\r') return 0;
    }
    const Dialect dialect{null.data(),
                          forced.data(),
                          static_cast<int64_t>(null.size()),
                          static_cast<int64_t>(forced.size()),
                          delimiter,
                          quote};
    const TextForm form(dialect);
    std::string row;
    while (!input.empty()) row += static_cast<char>(input.byte());
    for (int turn = 0; turn < 2; turn++, row += '\n') {
        if (row.empty()) continue;
        const size_t tight = form.tight_room(row.data(), row.size());
        if (tight > form.loose_room(row.size())) fail("the first guess is the smaller one");
        const std::string csv = written(form, row, tight);
        if (written_over(form, row, tight) != csv) fail("over itself it becomes another row");
        if (csv.empty()) continue;
        if (csv.back() != '\n' || csv.size() + TextForm::SLACK > tight) fail("the row has no end");
        if (values_of(csv, delimiter, quote) != forced.size()) fail("other columns came");
    }
    return 0;
}
