// What a fuzzer runs: an input becomes columns and batches, the library makes pages of them, and the
// values must come back; batches cut in other places must give the same pages.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "bounds.h"
#include "input.h"
#include "page_batch.h"
#include "page_reader.h"

using unloader::ColumnSpec;
using unloader::Encoding;
using unloader::PageKind;
using unloader::PageOut;
using unloader::Physical;

struct Group;

extern "C" {
Group* unloader_pages_open(const ColumnSpec* specs, size_t count, uint64_t page_bytes);
void unloader_pages_close(Group* group);
int32_t unloader_pages_append(Group* group, ArrowArray* batch, int64_t* column);
int32_t unloader_pages_finish(Group* group);
int32_t unloader_pages_take(Group* group, PageOut* out);
void unloader_pages_free(char* memory);
}

namespace fuzz {
namespace {

constexpr int32_t DONE = 0;
constexpr int32_t REFUSED = 1;
constexpr int32_t MALFORMED = 2;

using Opened = std::unique_ptr<Group, decltype(&unloader_pages_close)>;
using Pages = std::vector<std::vector<PageBytes>>;  // by column
using Batches = std::vector<std::unique_ptr<PageBatch>>;

void take(Group* group, Pages& pages) {
    PageOut out;
    while (unloader_pages_take(group, &out)) {
        pages.at(static_cast<size_t>(out.column))
            .push_back({std::string(out.data, out.size), static_cast<size_t>(out.rows),
                        static_cast<size_t>(out.nulls),
                        out.kind == static_cast<int32_t>(PageKind::DICTIONARY),
                        static_cast<Encoding>(out.encoding), out.bounded != 0,
                        std::string(out.least, out.least_size),
                        std::string(out.greatest, out.greatest_size)});
        unloader_pages_free(out.memory);
    }
}

// Encodes batches into a row group, at most so many rows at once; returns no pages if it is refused.
std::optional<Pages> encode(Group* group, const Batches& batches, size_t most_rows) {
    Pages pages(batches[0]->values().size());
    for (const auto& batch : batches) {
        for (size_t first = 0; first < batch->rows(); first += most_rows) {
            const size_t rows = std::min(most_rows, batch->rows() - first);
            ArrowArray array = batch->array(first, rows);
            int64_t column = -1;
            const int32_t status = unloader_pages_append(group, &array, &column);
            if (batch->outstanding()) fail("an array is not released");
            if (status == REFUSED) {
                // Cut into pieces, a later column may be refused in an earlier one.
                if (!batch->refused()) fail("values are refused that fit");
                if (most_rows >= batch->rows() && *batch->refused() != static_cast<size_t>(column)) {
                    fail("another column is refused");
                }
                return {};
            }
            if (status != DONE) fail("a batch is not taken");
            take(group, pages);
        }
        if (batch->refused()) fail("a value is taken that does not fit");
    }
    if (unloader_pages_finish(group) != DONE) fail("a row group does not end");
    take(group, pages);
    return pages;
}

// Both in the order of the column's type.
bool is_less(const ColumnSpec& spec, const std::string& one, const std::string& other) {
    const auto number = [](const std::string& bytes, auto value) {
        std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    };
    switch (static_cast<Physical>(spec.physical)) {
        case Physical::INT32:
            if (spec.is_signed) return number(one, int32_t{}) < number(other, int32_t{});
            return number(one, uint32_t{}) < number(other, uint32_t{});
        case Physical::INT64:
            if (spec.is_signed) return number(one, int64_t{}) < number(other, int64_t{});
            return number(one, uint64_t{}) < number(other, uint64_t{});
        case Physical::FLOAT: return number(one, float{}) < number(other, float{});
        case Physical::DOUBLE: return number(one, double{}) < number(other, double{});
        default: break;
    }
    if (spec.is_signed && (one[0] ^ other[0]) & 0x80) return one[0] & 0x80;
    return one < other;
}

bool is_nan(const ColumnSpec& spec, const std::string& bytes) {
    const auto physical = static_cast<Physical>(spec.physical);
    float single = 0;
    double wide = 0;
    if (physical == Physical::FLOAT) std::memcpy(&single, bytes.data(), sizeof single);
    if (physical == Physical::DOUBLE) std::memcpy(&wide, bytes.data(), sizeof wide);
    return std::isnan(single) || std::isnan(wide);
}

// Zeros of a float are equal, and a bound is the one that lies outwards.
std::string outwards(const ColumnSpec& spec, std::string bytes, bool least) {
    const auto physical = static_cast<Physical>(spec.physical);
    if (physical != Physical::FLOAT && physical != Physical::DOUBLE) return bytes;
    const std::string zero(bytes.size(), '\0');
    if (is_less(spec, bytes, zero) || is_less(spec, zero, bytes)) return bytes;
    bytes = zero;
    if (least) bytes.back() = static_cast<char>(0x80);
    return bytes;
}

// A page with NaN has no bounds; values are cut to `KEPT_OF_A_VALUE` bytes.
void check_bounds(const ColumnSpec& spec, const PageBytes& page, const std::vector<Stored>& values) {
    const std::string* least = nullptr;
    const std::string* greatest = nullptr;
    bool nan = false;
    for (const Stored& value : values) {
        if (!value) continue;
        nan |= is_nan(spec, *value);
        if (!least || is_less(spec, *value, *least)) least = &*value;
        if (!greatest || is_less(spec, *greatest, *value)) greatest = &*value;
    }
    if (page.bounded != (spec.bounds && least && !nan)) fail("bounds are there of nothing, or missing");
    if (!page.bounded) return;
    const auto kept = [](const std::string& value) {
        return value.substr(0, unloader::KEPT_OF_A_VALUE);
    };
    if (page.least != kept(outwards(spec, *least, true))) fail("the least value is another");
    if (page.greatest != kept(outwards(spec, *greatest, false))) fail("the greatest value is another");
}

void check_column(const ColumnSpec& spec, const std::vector<PageBytes>& pages,
                  const std::vector<Stored>& expected) {
    std::vector<std::string> dictionary;
    for (size_t i = 0; i < pages.size(); ++i) {
        if (!pages[i].is_dictionary) continue;
        if (i + 1 < pages.size()) fail("a dictionary is not the last page");
        dictionary = read_dictionary(spec, pages[i]);
        auto sorted = dictionary;
        std::sort(sorted.begin(), sorted.end());
        if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
            fail("a dictionary has an entry twice");
        }
    }
    std::vector<Stored> found;
    for (const PageBytes& page : pages) {
        if (page.is_dictionary) continue;
        if (!page.rows) fail("a page has no rows");
        const auto values = read_page(spec, page, dictionary);
        check_bounds(spec, page, values);
        found.insert(found.end(), values.begin(), values.end());
    }
    if (found != expected) fail("other values come back");
}

// What is no batch of these columns is told, not read.
void check_malformed(Group* group, PageBatch& batch, size_t how) {
    ArrowArray array = batch.array(0, batch.rows());
    ArrowArray& last = *array.children[array.n_children - 1];
    if (how == 0) --array.n_children;
    if (how == 1) --last.n_buffers;
    if (how == 2) last.length = array.offset + array.length - 1;
    int64_t column = -1;
    const int32_t status = unloader_pages_append(group, &array, &column);
    if (batch.outstanding()) fail("an array that is malformed is not released");
    // A column in front of it may be refused before.
    if (status != MALFORMED && !(status == REFUSED && batch.refused())) {
        fail("a malformed batch is taken");
    }
}

Opened opened(const std::vector<ColumnSpec>& specs, size_t page_bytes) {
    Opened group(unloader_pages_open(specs.data(), specs.size(), page_bytes), unloader_pages_close);
    if (!group) fail("columns are not taken");
    return group;
}

}  // namespace
}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace fuzz;
    Input input(data, size);
    const size_t page_bytes = input.byte() & 1 ? 1 + input.below(200) : 1 + input.below(60000);
    const size_t most_rows = 1 + input.below(1100);
    const bool bounds = input.byte() & 1;
    std::vector<ColumnSpec> specs(1 + input.below(3));
    for (ColumnSpec& spec : specs) spec = column_spec(input, bounds);

    const Opened whole = opened(specs, page_bytes);
    const Opened cut = opened(specs, page_bytes);
    for (size_t groups = 1 + input.below(2); groups; --groups) {
        Batches batches;
        for (size_t left = 1 + input.below(2); left; --left) {
            batches.push_back(std::make_unique<PageBatch>(specs, input));
        }
        const auto pages = encode(whole.get(), batches, SIZE_MAX);
        const auto others = encode(cut.get(), batches, most_rows);
        if (pages != others) fail("where batches are cut makes a difference");
        if (!pages) return 0;
        for (size_t i = 0; i < specs.size(); ++i) {
            std::vector<Stored> expected;
            for (const auto& batch : batches) {
                expected.insert(expected.end(), batch->values()[i].begin(), batch->values()[i].end());
            }
            check_column(specs[i], (*pages)[i], expected);
        }
    }
    PageBatch odd(specs, input);
    if (odd.rows()) check_malformed(whole.get(), odd, input.below(3));
    return 0;
}
