// Columns of a batch: where their values lie, and the text of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "arrow_abi.h"
#include "description.h"
#include "moments.h"
#include "numbers.h"

namespace unloader {

// What is the same for a column in every batch.
class ColumnStyle {
public:
    // `spec` and `format` must outlive this. Throws std::invalid_argument where they make no sense.
    ColumnStyle(const ColumnSpec& spec, const Format& format);

    const ColumnSpec& spec;
    const Format& format;
    std::unique_ptr<Moments> moments;
    DecimalStyle decimal{};
    size_t text_bound;  // most bytes of a text that is not copied; 0: it depends on the value
};

// What became of writing the text of a value.
enum class Outcome : uint8_t {
    WRITTEN,
    REFUSED,    // only the plain encoder knows why
    UNDECIDED,  // this library cannot write it, but the plain encoder may
};

// The values of one column in one batch. It points into the batch.
class Column {
public:
    // Throws std::invalid_argument if the array has not the buffers of its kind.
    Column(const ColumnStyle& style, Kind kind, const ArrowArray& array, int64_t first);

    Kind kind() const { return kind_; }
    const ColumnStyle& style() const { return *style_; }
    bool may_be_null() const { return dictionary_ || validity_ || kind_ == Kind::NONE; }

    // The index of a row's value in the value buffers; -1 for NULL.
    int64_t place(int64_t row) const {
        const int64_t at = first_ + row;
        if (validity_ && !bit_at(validity_, at)) return -1;
        return dictionary_ ? dictionary_place(at) : kind_ == Kind::NONE ? -1 : at;
    }

    // The place of the first row, where none is NULL and there is no dictionary.
    int64_t first() const { return first_; }

    // Whether values are bytes in memory, UTF-8 or binary.
    bool has_bytes() const { return kind_ >= Kind::TEXT32; }
    // Whether these bytes are the text.
    bool is_text() const { return kind_ >= Kind::TEXT32 && kind_ <= Kind::TEXT_VIEW; }
    // Whether all texts lie behind one another in the order of the rows.
    bool is_contiguous() const {
        return (kind_ == Kind::TEXT32 || kind_ == Kind::TEXT64) && !dictionary_;
    }

    std::string_view bytes(int64_t place) const {
        return dictionary_ ? dictionary_->own_bytes(place) : own_bytes(place);
    }
    template <typename Offset>
    std::string_view text_at(int64_t place) const {
        const auto start = value_at<Offset>(values_, place);
        return {data_ + start, static_cast<size_t>(value_at<Offset>(values_, place + 1) - start)};
    }
    template <typename Number>
    Number number_at(int64_t place) const {
        return value_at<Number>(values_, place);
    }
    const uint8_t* decimal_at(int64_t place) const {
        return static_cast<const uint8_t*>(values_) + place * style_->decimal.bytes;
    }

    // Dates or times from a row on, as Arrow has them.
    const uint8_t* moments_at(int64_t row) const {
        const int64_t bytes = style_->moments->wide() ? 8 : 4;
        return static_cast<const uint8_t*>(values_) + (first_ + row) * bytes;
    }

    // The end of the memory that is known to belong to texts behind one another; nullptr: they do
    // not lie so.
    const char* limit() const { return dictionary_ ? dictionary_->limit_ : limit_; }

    // Bytes of contiguous texts of these rows, those under a null among them.
    std::string_view span(int64_t row, int64_t count) const;

    // Most bytes of the texts of these rows together.
    size_t bound(int64_t row, int64_t count) const;

    // Most bytes of the text of one value.
    size_t bound_at(int64_t place) const;

    // Writes the text of a value that is not NULL and moves `out` behind it.
    Outcome write(char*& out, int64_t place) const;

private:
    Column(const ColumnStyle& style, Kind kind, const ArrowArray& array, int64_t first, bool inner);
    int64_t dictionary_place(int64_t at) const;
    std::string_view own_bytes(int64_t place) const;
    void take_buffers(const ArrowArray& array);
    void take_texts(const ArrowArray& array);

    const ColumnStyle* style_;
    Kind kind_;
    int64_t first_;
    const uint8_t* validity_ = nullptr;
    const void* values_ = nullptr;  // offsets of texts, views, or the values themselves
    const char* data_ = nullptr;
    const char* limit_ = nullptr;
    const void* const* variadic_ = nullptr;
    std::unique_ptr<Column> dictionary_;
};

}  // namespace unloader
