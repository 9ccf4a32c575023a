#include "column.h"

#include <algorithm>
#include <stdexcept>

#include "blocks.h"

namespace unloader {

Column::~Column() {
    for (Page& page : pages) give_block(page.memory);
}

void Column::append(const ArrowArray& array, int64_t first, size_t rows) {
    const int64_t buffers = spec_.source == static_cast<int32_t>(Source::TEXT32) ||
                                    spec_.source == static_cast<int32_t>(Source::TEXT64)
                                ? 3
                                : 2;
    if (array.n_buffers != buffers || (rows && !array.buffers[1])) {
        throw std::invalid_argument("an array has not the buffers of its type");
    }
    const auto* validity = static_cast<const uint8_t*>(array.buffers[0]);
    if (array.null_count == 0) validity = nullptr;
    while (rows) {
        Rows step{array, validity, first, std::min(rows, STEP_ROWS - step_rows_)};
        if (validity) {
            bool all = true;
            for (size_t row = 0; row < step.count && all; ++row) all = step.there(row);
            if (all) step.validity = nullptr;
        }
        if (step.validity && !spec_.nullable) throw Refused("a column without NULL has one");
        const Taken taken = put(step);
        levels_.put(step.validity, first, taken.rows);
        step_rows_ += taken.rows;
        first += static_cast<int64_t>(taken.rows);
        rows -= taken.rows;
        if (step_rows_ == STEP_ROWS || taken.looked_at) look();
    }
}

void Column::finish() {
    if (page_rows()) end_page();
    int64_t entries = 0;
    if (Bytes* const values = end_dictionary(entries)) {
        Page page{};
        page.rows = entries;
        page.kind = PageKind::DICTIONARY;
        page.encoding = Encoding::PLAIN;
        add(std::move(page), *values);
    }
    step_rows_ = 0;
}

void Column::look() {
    step_rows_ = 0;
    const bool given_up = dictionary_size() > DICTIONARY_BYTES;
    if (given_up || size() >= page_bytes_) end_page();
    if (given_up) give_up_dictionary();
}

void Column::end_page() {
    Page page{};
    page.rows = static_cast<int64_t>(levels_.rows());
    page.nulls = static_cast<int64_t>(levels_.nulls());
    page.kind = PageKind::DATA;
    Bytes& values = end_values(page);
    levels_.finish(values, spec_.nullable);
    add(std::move(page), values);
}

void Column::add(Page&& page, Bytes& bytes) {
    bytes.grow(0);
    page.data = bytes.data();
    page.size = bytes.size();
    pages.push_back(std::move(page));
    pages.back().memory = bytes.release();
}

std::unique_ptr<Column> column_of(const ColumnSpec& spec, size_t page_bytes) {
    switch (static_cast<Physical>(spec.physical)) {
        case Physical::BOOLEAN:
            return boolean_column(spec, page_bytes);
        case Physical::INT32:
        case Physical::INT64:
        case Physical::FLOAT:
        case Physical::DOUBLE:
            return number_column(spec, page_bytes);
        case Physical::BYTE_ARRAY:
        case Physical::FIXED:
            return byte_column(spec, page_bytes);
    }
    throw std::invalid_argument("a physical type is unknown");
}

}  // namespace unloader
