// The library's interface: plain C, for writers.content.sums. Nothing is thrown out of here.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include "../../native/src/arrow_abi.h"
#include "md5.h"
#include "values.h"

#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))

namespace unloader {

namespace {

// The number is also in writers.content.sums.
constexpr uint32_t ABI_VERSION = 2;

// What the values of an array are; the same numbers are in writers.content.sums.
enum class Form : int32_t {
    BYTES,        // text or bytes as they are; `width` of an offset
    NUMBER_TEXT,  // text of a number; `width` of an offset
    HEX_TEXT,     // text of bytes in hexadecimal digits, `digits` characters in front of them
    INTEGER,      // `width` bytes
    NATURAL,
    DECIMAL,  // of 128 bits, `digits` behind the point
    FLOAT,    // `width` bytes
    BOOLEAN,
    DATE,       // days in 32 bits
    TIMESTAMP,  // ticks in 64 bits with so many `digits`; UTC and INFINITE count
    TIME,       // ticks in `width` bytes with so many `digits`
};

constexpr int32_t UTC = 1;
constexpr int32_t INFINITE = 2;  // the ends of the range are infinity

struct Spec {
    int32_t form;
    int32_t width;
    int32_t digits;
    int32_t flags;
};

struct Result {
    uint64_t sum;
    int64_t nulls;
};

enum Status : int32_t { DONE = 0, NO_MEMORY = -1, MISFIT = -2 };

template <typename Each>
void for_each_value(const ArrowArray& array, Result& result, Each each) {
    const auto* valid = array.null_count
        ? static_cast<const uint8_t*>(array.buffers[0]) : nullptr;
    for (int64_t row = array.offset; row < array.offset + array.length; row++) {
        if (valid && !bit_at(valid, row)) {
            result.nulls++;
        } else {
            each(row);
        }
    }
}

int64_t signed_at(const void* values, int64_t row, int width) {
    switch (width) {
        case 1: return value_at<int8_t>(values, row);
        case 2: return value_at<int16_t>(values, row);
        case 4: return value_at<int32_t>(values, row);
        default: return value_at<int64_t>(values, row);
    }
}

uint64_t unsigned_at(const void* values, int64_t row, int width) {
    switch (width) {
        case 1: return value_at<uint8_t>(values, row);
        case 2: return value_at<uint16_t>(values, row);
        case 4: return value_at<uint32_t>(values, row);
        default: return value_at<uint64_t>(values, row);
    }
}

char* infinite_text(char* out, bool negative) {
    const char* text = negative ? "-infinity" : "infinity";
    std::memcpy(out, text, std::strlen(text));
    return out + std::strlen(text);
}

int digit_of(char text) {
    if (text >= '0' && text <= '9') return text - '0';
    const char lower = static_cast<char>(text | 32);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Returns false where a text is not what it should be.
bool add_hex(Md5Sum& sum, std::string& held, const char* text, size_t size, size_t prefix) {
    if (size < prefix || (size - prefix) % 2) return false;
    held.resize((size - prefix) / 2);
    for (size_t at = 0; at < held.size(); at++) {
        const int high = digit_of(text[prefix + 2 * at]), low = digit_of(text[prefix + 2 * at + 1]);
        if (high < 0 || low < 0) return false;
        held[at] = static_cast<char>(high << 4 | low);
    }
    sum.add(held.data(), held.size());
    return true;
}

template <typename Offset>
Status add_texts(const Spec& spec, const ArrowArray& array, Md5Sum& sum, Result& result) {
    const void* offsets = array.buffers[1];
    const auto* data = static_cast<const char*>(array.buffers[2]);
    const auto form = static_cast<Form>(spec.form);
    std::string held;
    bool fits = true;
    for_each_value(array, result, [&](int64_t row) {
        const auto start = value_at<Offset>(offsets, row);
        const auto size = static_cast<size_t>(value_at<Offset>(offsets, row + 1) - start);
        const char* text = data + start;
        if (form == Form::BYTES) {
            sum.add(text, size);
        } else if (form == Form::HEX_TEXT) {
            fits = add_hex(sum, held, text, size, static_cast<size_t>(spec.digits)) && fits;
        } else {
            if (held.size() < size + 1) held.resize(size + 1);
            const char* end = number_text(&held[0], text, size);
            sum.add(held.data(), static_cast<size_t>(end - held.data()));
        }
    });
    return fits ? DONE : MISFIT;
}

char* value_text(char* out, const Spec& spec, const void* values, int64_t row) {
    switch (static_cast<Form>(spec.form)) {
        case Form::INTEGER: return integer_text(out, signed_at(values, row, spec.width));
        case Form::NATURAL: return natural_text(out, unsigned_at(values, row, spec.width));
        case Form::DECIMAL: return decimal_text(out, value_at<__int128>(values, row), spec.digits);
        case Form::FLOAT: return float_text(out, unsigned_at(values, row, spec.width), spec.width);
        case Form::TIME: return time_text(out, signed_at(values, row, spec.width), spec.digits);
        case Form::DATE: {
            const auto days = value_at<int32_t>(values, row);
            const bool ends = days == INT32_MAX || days == -INT32_MAX;
            if (ends && spec.flags & INFINITE) return infinite_text(out, days < 0);
            return date_text(out, days);
        }
        case Form::TIMESTAMP: {
            const auto ticks = value_at<int64_t>(values, row);
            const bool ends = ticks == INT64_MAX || ticks == -INT64_MAX;
            if (ends && spec.flags & INFINITE) return infinite_text(out, ticks < 0);
            return timestamp_text(out, ticks, spec.digits, spec.flags & UTC);
        }
        default: {
            const bool value = bit_at(static_cast<const uint8_t*>(values), row);
            std::memcpy(out, value ? "true" : "false", 5);
            return out + (value ? 4 : 5);
        }
    }
}

Status add_up(const Spec& spec, const ArrowArray& array, Result& result) {
    Md5Sum sum;
    Status status = DONE;
    if (static_cast<Form>(spec.form) <= Form::HEX_TEXT) {
        if (array.n_buffers != 3) return MISFIT;
        status = spec.width == 4 ? add_texts<int32_t>(spec, array, sum, result)
                                 : add_texts<int64_t>(spec, array, sum, result);
    } else {
        if (array.n_buffers != 2) return MISFIT;
        for_each_value(array, result, [&](int64_t row) {
            char text[LONGEST_VALUE];
            const char* end = value_text(text, spec, array.buffers[1], row);
            sum.add(text, static_cast<size_t>(end - text));
        });
    }
    result.sum = sum.finish();
    return status;
}

}  // namespace

}  // namespace unloader

UNLOADER_EXPORT uint32_t unloader_sums_abi_version() { return unloader::ABI_VERSION; }

// Takes the array over and lets it go; returns 0, or a number below it where nothing was computed.
UNLOADER_EXPORT int32_t unloader_sums_column(const unloader::Spec* spec, ArrowArray* array,
                                            unloader::Result* result) {
    *result = {0, 0};
    int32_t status;
    try {
        status = unloader::add_up(*spec, *array, *result);
    } catch (const std::exception&) {
        status = unloader::NO_MEMORY;
    }
    if (array->release) array->release(array);
    return status;
}
