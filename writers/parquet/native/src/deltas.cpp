#include "deltas.h"

#include <algorithm>
#include <type_traits>

#include "../../../native/src/arrow_abi.h"
#include "packing.h"

namespace unloader {

template <typename Number>
void Deltas<Number>::put(const void* values, size_t count) {
    if (!count) return;
    size_t at = 0;
    if (!count_) {
        first_ = last_ = value_at<Number>(values, 0);
        at = 1;
    }
    count_ += count;
    while (at < count) {
        const size_t taken = std::min(BLOCK - held_, count - at);
        Number* const out = deltas_ + held_;
        const char* const from = static_cast<const char*>(values) + at * sizeof(Number);
        out[0] = value_at<Number>(from, 0) - last_;
        for (size_t i = 1; i < taken; ++i) {
            const auto place = static_cast<int64_t>(i);
            out[i] = value_at<Number>(from, place) - value_at<Number>(from, place - 1);
        }
        last_ = value_at<Number>(from, static_cast<int64_t>(taken) - 1);
        held_ += taken;
        at += taken;
        if (held_ == BLOCK) end_block();
    }
}

template <typename Number>
void Deltas<Number>::end_block() {
    using Signed = std::make_signed_t<Number>;
    constexpr size_t PARTS = BLOCK / PACKED;
    auto least = static_cast<Signed>(deltas_[0]);
    for (size_t i = 1; i < held_; ++i) least = std::min(least, static_cast<Signed>(deltas_[i]));
    for (size_t i = 0; i < held_; ++i) deltas_[i] -= static_cast<Number>(least);
    std::fill(deltas_ + held_, deltas_ + BLOCK, 0);

    char* const block = bytes_.grow(10 + PARTS + BLOCK * sizeof(Number));
    char* const widths = put_varint(block, zigzag(least));
    char* out = widths + PARTS;
    for (size_t part = 0; part < PARTS; ++part) {
        const Number* const values = deltas_ + part * PACKED;
        Number any = 0;
        for (size_t i = 0; i < PACKED; ++i) any |= values[i];
        const unsigned width = bits_of(any);
        widths[part] = static_cast<char>(width);
        // Parts without values have no bytes.
        if (part * PACKED >= held_) continue;
        pack(values, width, out);
        out += size_t{4} * width;
    }
    bytes_.end_at(out);
    held_ = 0;
}

template <typename Number>
Bytes& Deltas<Number>::finish() {
    if (held_) end_block();
    char header[HEADER];
    char* end = put_varint(header, BLOCK);
    end = put_varint(end, BLOCK / PACKED);
    end = put_varint(end, count_);
    end = put_varint(end, zigzag(static_cast<std::make_signed_t<Number>>(first_)));
    const auto size = static_cast<size_t>(end - header);
    std::memcpy(bytes_.prepend(size), header, size);
    first_ = last_ = 0;
    count_ = 0;
    return bytes_;
}

template class Deltas<uint32_t>;
template class Deltas<uint64_t>;

}  // namespace unloader
