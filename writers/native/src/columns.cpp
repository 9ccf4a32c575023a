#include "columns.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "binary_texts.h"

namespace unloader {
namespace {

// A view of a short value holds its bytes; one of a longer value says where they are.
struct View {
    int32_t size;
    union {
        char bytes[12];
        struct {
            char prefix[4];
            int32_t buffer;
            int32_t offset;
        } far;
    };
};

size_t fixed_bound(const ColumnStyle& style) {
    const auto& format = style.format;
    switch (style.spec.kind) {
        case Kind::BOOLEAN: return std::max(format.true_text.size(), format.false_text.size());
        case Kind::FLOAT32:
        case Kind::FLOAT64: return float_bound(format.decimal_separator.size());
        case Kind::DECIMAL: return decimal_bound(style.decimal);
        case Kind::MOMENT: return style.moments->bound();
        case Kind::UUID: return UUID_TEXT_BYTES;
        case Kind::BINARY_FIXED:
            return binary_bound(format.binary, static_cast<size_t>(style.spec.width));
        default: return style.spec.kind < Kind::FLOAT32 ? INTEGER_BOUND : 0;
    }
}

const void* buffer_of(const ArrowArray& array, int64_t index) {
    if (index >= array.n_buffers) throw std::invalid_argument("an array lacks a buffer");
    return array.buffers[index];
}

int64_t index_at(Kind kind, const void* values, int64_t at) {
    switch (kind) {
        case Kind::INT8: return value_at<int8_t>(values, at);
        case Kind::INT16: return value_at<int16_t>(values, at);
        case Kind::INT32: return value_at<int32_t>(values, at);
        case Kind::UINT8: return value_at<uint8_t>(values, at);
        case Kind::UINT16: return value_at<uint16_t>(values, at);
        case Kind::UINT32: return value_at<uint32_t>(values, at);
        default: return value_at<int64_t>(values, at);
    }
}

char* put(char* out, const std::string& text) {
    std::memcpy(out, text.data(), text.size());
    return out + text.size();
}

}  // namespace

ColumnStyle::ColumnStyle(const ColumnSpec& column, const Format& all) : spec(column), format(all) {
    if (spec.kind == Kind::MOMENT) {
        moments = Moments::make(reinterpret_cast<const uint8_t*>(spec.moments.data()),
                                spec.moments.size());
        if (!moments) throw std::invalid_argument("the program of a mask is malformed");
    }
    decimal = {spec.width, spec.scale, format.decimal_separator.data(),
               format.decimal_separator.size()};
    text_bound = fixed_bound(*this);
}

Column::Column(const ColumnStyle& style, Kind kind, const ArrowArray& array, int64_t first)
    : Column(style, kind, array, first + array.offset, false) {
    // A column that was made text by the plain encoder is no dictionary any more.
    if (style.spec.index == Kind::NONE || kind != style.spec.kind) return;
    if (!array.dictionary) throw std::invalid_argument("a dictionary is missing");
    const ArrowArray& values = *array.dictionary;
    dictionary_.reset(new Column(style, kind, values, values.offset, true));
    values_ = buffer_of(array, 1);
    data_ = limit_ = nullptr;
}

Column::Column(const ColumnStyle& style, Kind kind, const ArrowArray& array, int64_t first,
               bool inner)
    : style_(&style), kind_(kind), first_(first) {
    if (array.null_count != 0 && array.n_buffers > 0) {
        validity_ = static_cast<const uint8_t*>(array.buffers[0]);
    }
    if (inner || style.spec.index == Kind::NONE || kind != style.spec.kind) take_buffers(array);
}

void Column::take_buffers(const ArrowArray& array) {
    if (kind_ == Kind::NONE) return;
    values_ = buffer_of(array, 1);
    switch (kind_) {
        case Kind::TEXT32:
        case Kind::TEXT64:
        case Kind::BINARY32:
        case Kind::BINARY64: take_texts(array); break;
        case Kind::TEXT_VIEW:
        case Kind::BINARY_VIEW: variadic_ = array.buffers + 2; break;
        default: break;
    }
}

void Column::take_texts(const ArrowArray& array) {
    data_ = static_cast<const char*>(buffer_of(array, 2));
    limit_ = data_;
    // An array without rows may have no offsets.
    if (!values_ || !data_) return;
    const int64_t end = array.offset + array.length;
    const bool wide = kind_ == Kind::TEXT64 || kind_ == Kind::BINARY64;
    limit_ += wide ? value_at<int64_t>(values_, end) : value_at<int32_t>(values_, end);
}

int64_t Column::dictionary_place(int64_t at) const {
    const int64_t place = dictionary_->first_ + index_at(style_->spec.index, values_, at);
    if (kind_ == Kind::NONE) return -1;
    const auto* valid = dictionary_->validity_;
    return valid && !bit_at(valid, place) ? -1 : place;
}

std::string_view Column::own_bytes(int64_t place) const {
    switch (kind_) {
        case Kind::TEXT32:
        case Kind::BINARY32: return text_at<int32_t>(place);
        case Kind::TEXT64:
        case Kind::BINARY64: return text_at<int64_t>(place);
        case Kind::TEXT_VIEW:
        case Kind::BINARY_VIEW: {
            const auto view = value_at<View>(values_, place);
            const auto size = static_cast<size_t>(view.size);
            if (size <= sizeof view.bytes) {
                const auto at = place * static_cast<int64_t>(sizeof view);
                return {static_cast<const char*>(values_) + at + sizeof view.size, size};
            }
            return {static_cast<const char*>(variadic_[view.far.buffer]) + view.far.offset, size};
        }
        default: {
            const auto size = static_cast<size_t>(style_->spec.width);
            return {static_cast<const char*>(values_) + place * style_->spec.width, size};
        }
    }
}

std::string_view Column::span(int64_t row, int64_t count) const {
    const int64_t at = first_ + row;
    const bool wide = kind_ == Kind::TEXT64;
    const auto first = wide ? text_at<int64_t>(at) : text_at<int32_t>(at);
    const auto last = wide ? text_at<int64_t>(at + count - 1) : text_at<int32_t>(at + count - 1);
    return {first.data(), static_cast<size_t>(last.data() + last.size() - first.data())};
}

size_t Column::bound_at(int64_t place) const {
    if (kind_ == Kind::NONE) return 0;
    if (!has_bytes() || kind_ == Kind::UUID) return style_->text_bound;
    const size_t size = bytes(place).size();
    return is_text() ? size : binary_bound(style_->format.binary, size);
}

size_t Column::bound(int64_t row, int64_t count) const {
    if (!has_bytes()) return static_cast<size_t>(count) * style_->text_bound;
    if (is_contiguous()) return span(row, count).size();
    size_t total = 0;
    for (int64_t i = row; i < row + count; ++i) {
        const int64_t at = place(i);
        if (at >= 0) total += bound_at(at);
    }
    return total;
}

Outcome Column::write(char*& out, int64_t place) const {
    const Column& from = dictionary_ ? *dictionary_ : *this;
    const auto& format = style_->format;
    const auto& separator = format.decimal_separator;
    char* end = out;
    switch (kind_) {
        case Kind::NONE: break;
        case Kind::BOOLEAN: {
            const auto* bits = static_cast<const uint8_t*>(from.values_);
            end = put(out, bit_at(bits, place) ? format.true_text : format.false_text);
            break;
        }
        case Kind::INT8: end = write_signed(out, from.number_at<int8_t>(place)); break;
        case Kind::INT16: end = write_signed(out, from.number_at<int16_t>(place)); break;
        case Kind::INT32: end = write_signed(out, from.number_at<int32_t>(place)); break;
        case Kind::INT64: end = write_signed(out, from.number_at<int64_t>(place)); break;
        case Kind::UINT8: end = write_unsigned(out, from.number_at<uint8_t>(place)); break;
        case Kind::UINT16: end = write_unsigned(out, from.number_at<uint16_t>(place)); break;
        case Kind::UINT32: end = write_unsigned(out, from.number_at<uint32_t>(place)); break;
        case Kind::UINT64: end = write_unsigned(out, from.number_at<uint64_t>(place)); break;
        case Kind::FLOAT32:
            end = write_float(out, from.number_at<float>(place), separator.data(),
                              separator.size());
            if (!end) return Outcome::UNDECIDED;
            break;
        case Kind::FLOAT64:
            end = write_double(out, from.number_at<double>(place), separator.data(),
                               separator.size());
            if (!end) return Outcome::UNDECIDED;
            break;
        case Kind::DECIMAL:
            end = write_decimal(out, from.decimal_at(place), style_->decimal);
            break;
        case Kind::MOMENT:
            end = style_->moments->write(out, style_->moments->wide()
                                                  ? from.number_at<int64_t>(place)
                                                  : from.number_at<int32_t>(place));
            if (!end) return Outcome::REFUSED;
            break;
        case Kind::UUID: end = write_uuid(out, bytes(place)); break;
        default: {
            const auto value = bytes(place);
            if (!is_text()) {
                end = write_binary(out, value, format.binary);
            } else {
                std::copy(value.begin(), value.end(), out);
                end = out + value.size();
            }
        }
    }
    out = end;
    return Outcome::WRITTEN;
}

}  // namespace unloader
