#include "columns.h"

#include <cstring>
#include <memory>
#include <utility>

#include "../../../../../writers/native/src/utf8.h"
#include "values.h"

namespace unloader::oracle {

namespace {

constexpr size_t MOST_TEXT = INT32_MAX;
constexpr size_t SLACK = 32;  // may be overwritten behind a text
constexpr int64_t LEAST_VALUES = 64;
constexpr size_t MOST_EXPECTED = 8 * 1024 * 1024;  // room for text before there is any

size_t width_of(Kind kind) {
    switch (kind) {
        case Kind::DECIMAL: return 16;
        case Kind::INT64:
        case Kind::MOMENT:
        case Kind::DOUBLE: return 8;
        default: return 4;
    }
}

// What an array keeps until it is released.
struct Kept {
    Memory memories[3];
    const void* buffers[3];
};

void release(ArrowArray* array) {
    delete static_cast<Kept*>(array->private_data);
    array->release = nullptr;
}

}  // namespace

Column::Column(const Description& description)
    : description_(description), width_(width_of(description.kind)) {}

void Column::reserve(int64_t values) {
    if (values <= room_) return;
    fixed_.grow((static_cast<size_t>(values) + 1) * width_, (static_cast<size_t>(size_) + 1) * width_);
    validity_.grow(static_cast<size_t>(values) / 8 + 1, static_cast<size_t>(size_) / 8 + 1);
    room_ = values;
    if (!is_sized()) return;
    ends()[0] = 0;
    if (size_before_ == 0 || text_size_ != 0) return;
    const auto expected = static_cast<double>(text_before_) * static_cast<double>(values) /
                          static_cast<double>(size_before_) * 1.1;
    room_for_text(expected < MOST_EXPECTED ? static_cast<size_t>(expected) : MOST_EXPECTED);
}

void Column::room_for_one() {
    if (size_ == room_) reserve(room_ ? 2 * room_ : LEAST_VALUES);
}

void Column::room_for_text(size_t size) {
    const size_t wanted = text_size_ + size + SLACK;
    if (wanted > text_.room()) text_.grow(wanted, text_size_);
}

void Column::add_bit(bool valid) {
    uint8_t& byte = validity_.data()[size_ >> 3];
    const auto bit = static_cast<uint8_t>(1u << (size_ & 7));
    // The first of eight clears what was there before.
    const uint8_t before = (size_ & 7) ? byte : 0;
    byte = valid ? before | bit : before;
    size_++;
}

bool Column::add(const uint8_t* bytes, size_t size, size_t readable) {
    room_for_one();
    switch (description_.kind) {
        case Kind::TEXT:
        case Kind::BYTES:
            if (!add_text(bytes, size, readable)) return false;
            break;
        case Kind::WIDE_TEXT:
            if (!add_wide_text(bytes, size)) return false;
            break;
        case Kind::INT32:
        case Kind::INT64:
        case Kind::DECIMAL: {
            Wide value;
            if (!decode_number(bytes, size, description_.digits, description_.places, value)) return false;
            // The lower bytes come first, as Arrow has them on every machine that this is built for.
            std::memcpy(place(), &value, width_);
            break;
        }
        case Kind::MOMENT: {
            int64_t ticks;
            if (!decode_moment(bytes, size, description_.places, ticks)) return false;
            std::memcpy(place(), &ticks, sizeof ticks);
            break;
        }
        case Kind::FLOAT: {
            uint32_t bits;
            if (!decode_float(bytes, size, bits)) return false;
            std::memcpy(place(), &bits, sizeof bits);
            break;
        }
        case Kind::DOUBLE: {
            uint64_t bits;
            if (!decode_double(bytes, size, bits)) return false;
            std::memcpy(place(), &bits, sizeof bits);
            break;
        }
        default: return false;
    }
    add_bit(true);
    return true;
}

bool Column::add_text(const uint8_t* bytes, size_t size, size_t readable) {
    if (text_size_ + size > MOST_TEXT) return false;
    room_for_text(size);
    uint8_t* out = text_.data() + text_size_;
    if (size <= SLACK && readable >= SLACK) {
        std::memcpy(out, bytes, SLACK);  // no call, and what is too much is overwritten by the next one
    } else {
        std::memcpy(out, bytes, size);
    }
    text_size_ += size;
    ends()[size_ + 1] = static_cast<int32_t>(text_size_);
    return true;
}

bool Column::add_wide_text(const uint8_t* bytes, size_t size) {
    // Two bytes become three at most, and four become four.
    const size_t most = size / 2 * 3;
    if (size % 2 || text_size_ + most > MOST_TEXT) return false;
    room_for_text(most);
    uint8_t* out = text_.data() + text_size_;
    for (size_t at = 0; at < size; at += 2) {
        uint32_t character = uint32_t{bytes[at]} << 8 | bytes[at + 1];
        if (character >= 0xD800 && character < 0xE000) {
            if (character >= 0xDC00 || at + 4 > size) return false;
            const uint32_t second = uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
            if (second < 0xDC00 || second >= 0xE000) return false;
            character = 0x10000 + ((character - 0xD800) << 10) + (second - 0xDC00);
            at += 2;
        }
        if (character < 0x80) {
            *out++ = static_cast<uint8_t>(character);
        } else if (character < 0x800) {
            *out++ = static_cast<uint8_t>(0xC0 | character >> 6);
            *out++ = static_cast<uint8_t>(0x80 | (character & 0x3F));
        } else if (character < 0x10000) {
            *out++ = static_cast<uint8_t>(0xE0 | character >> 12);
            *out++ = static_cast<uint8_t>(0x80 | (character >> 6 & 0x3F));
            *out++ = static_cast<uint8_t>(0x80 | (character & 0x3F));
        } else {
            *out++ = static_cast<uint8_t>(0xF0 | character >> 18);
            *out++ = static_cast<uint8_t>(0x80 | (character >> 12 & 0x3F));
            *out++ = static_cast<uint8_t>(0x80 | (character >> 6 & 0x3F));
            *out++ = static_cast<uint8_t>(0x80 | (character & 0x3F));
        }
    }
    text_size_ = static_cast<size_t>(out - text_.data());
    ends()[size_ + 1] = static_cast<int32_t>(text_size_);
    return true;
}

void Column::add_null() {
    room_for_one();
    if (is_sized()) {
        ends()[size_ + 1] = static_cast<int32_t>(text_size_);
    } else {
        std::memset(place(), 0, width_);
    }
    nulls_++;
    add_bit(false);
}

void Column::repeat() {
    if (repeats_before_ == size_) repeats_before_++;
    if (size_ == 0) {
        if (last_null_) return add_null();
        room_for_one();
        if (is_sized()) {
            add_text(last_.data(), last_.size(), last_.size());
        } else {
            std::memcpy(place(), last_.data(), width_);
        }
        return add_bit(true);
    }
    const int64_t before = size_ - 1;
    if (!bit_at(validity_.data(), before)) return add_null();
    room_for_one();
    if (is_sized()) {
        const auto start = static_cast<size_t>(ends()[before]);
        const size_t size = static_cast<size_t>(ends()[before + 1]) - start;
        room_for_text(size);
        add_text(text_.data() + start, size, size);
    } else {
        std::memcpy(place(), place() - width_, width_);
    }
    add_bit(true);
}

bool Column::is_text() const {
    if (description_.kind != Kind::TEXT || text_size_ == 0) return true;
    const uint8_t* next = text_.data();
    const uint8_t* end = next + text_size_;
    uint64_t high = 0;
    for (; end - next >= 8; next += 8) {
        uint64_t block;
        std::memcpy(&block, next, sizeof block);
        high |= block;
    }
    for (; next < end; next++) high |= uint64_t{*next};
    if ((high & UINT64_C(0x8080808080808080)) == 0) return true;
    // Value by value: no character is of two of them.
    const auto* ends = reinterpret_cast<const int32_t*>(fixed_.data());
    for (int64_t index = 0; index < size_; index++) {
        next = text_.data() + ends[index];
        end = text_.data() + ends[index + 1];
        while (next < end) {
            if (next_character(next, end) == NOT_UTF8) return false;
        }
    }
    return true;
}

void Column::keep_last() {
    if (size_ == 0) return;
    const int64_t index = size_ - 1;
    last_null_ = !bit_at(validity_.data(), index);
    if (last_null_) {
        last_.clear();
    } else if (is_sized()) {
        last_.assign(text_.data() + ends()[index], text_.data() + ends()[index + 1]);
    } else {
        last_.assign(place() - width_, place());
    }
}

void Column::clear() {
    keep_last();
    size_ = nulls_ = repeats_before_ = 0;
    text_size_ = 0;
}

void Column::take(ArrowArray* array) {
    keep_last();
    // An array without a value has its buffers all the same.
    reserve(LEAST_VALUES);
    room_for_text(0);
    auto kept = std::make_unique<Kept>();
    *array = ArrowArray{};
    array->length = size_;
    array->null_count = nulls_;
    array->n_buffers = is_sized() ? 3 : 2;
    kept->buffers[0] = nulls_ ? validity_.data() : nullptr;
    kept->buffers[1] = fixed_.data();
    kept->buffers[2] = text_.data();
    text_before_ = text_size_;
    size_before_ = size_;
    kept->memories[0] = std::move(validity_);
    kept->memories[1] = std::move(fixed_);
    kept->memories[2] = std::move(text_);
    array->buffers = kept->buffers;
    array->release = release;
    array->private_data = kept.release();
    size_ = nulls_ = room_ = 0;
    text_size_ = 0;
}

}  // namespace unloader::oracle
