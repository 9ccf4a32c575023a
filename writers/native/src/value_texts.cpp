// Whole columns of texts, each value's in a slot of its own: the way in for callers that have no
// encoder around them, the tests of this library among them.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "moments.h"
#include "numbers.h"

#if defined(__GNUC__)
#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define UNLOADER_EXPORT extern "C"
#endif

namespace {

using unloader::Moments;

template <typename Number>
Number number_at(const uint8_t* values, size_t index) {
    Number number;
    std::memcpy(&number, values + index * sizeof number, sizeof number);
    return number;
}

// Calls write(slot, index) for every value; returns whether each had a text.
template <typename Write>
int32_t fill_slots(size_t count, char* out, size_t stride, uint32_t* lengths, Write write) {
    bool all = true;
    for (size_t i = 0; i < count; i++, out += stride) {
        const char* end = write(out, i);
        lengths[i] = end ? static_cast<uint32_t>(end - out) : Moments::REFUSED;
        all = all && end;
    }
    return all;
}

}  // namespace

// Bytes of a slot that holds any text of a program, 0 if the program is malformed.
UNLOADER_EXPORT size_t unloader_moments_bound(const uint8_t* program, size_t size) {
    const auto moments = Moments::make(program, size);
    return moments ? moments->bound() : 0;
}

// 1: every value has its text; 0: some were refused, whose length is 0xFFFFFFFF; -1: malformed.
UNLOADER_EXPORT int32_t unloader_format_moments(const uint8_t* program, size_t size,
                                                const uint8_t* values, size_t count, char* out,
                                                size_t stride, uint32_t* lengths) {
    const auto moments = Moments::make(program, size);
    if (!moments || stride < moments->bound()) return -1;
    return moments->write_all(out, stride, values, count, lengths);
}

UNLOADER_EXPORT size_t unloader_decimal_bound(int32_t bytes, int32_t scale,
                                              size_t separator_bytes) {
    return unloader::decimal_bound({bytes, scale, nullptr, separator_bytes});
}

UNLOADER_EXPORT int32_t unloader_format_decimals(const uint8_t* values, size_t count,
                                                 int32_t bytes, int32_t scale,
                                                 const char* separator, char* out, size_t stride,
                                                 uint32_t* lengths) {
    const unloader::DecimalStyle style{bytes, scale, separator, std::strlen(separator)};
    return fill_slots(count, out, stride, lengths, [&](char* slot, size_t i) {
        return unloader::write_decimal(slot, values + i * static_cast<size_t>(bytes), style);
    });
}

UNLOADER_EXPORT size_t unloader_float_bound(size_t separator_bytes) {
    return unloader::float_bound(separator_bytes);
}

// Of 4 or 8 bytes each. 0: the library cannot write floats.
UNLOADER_EXPORT int32_t unloader_format_floats(const uint8_t* values, size_t count, int32_t bytes,
                                               const char* separator, char* out, size_t stride,
                                               uint32_t* lengths) {
    const size_t size = std::strlen(separator);
    return fill_slots(count, out, stride, lengths, [&](char* slot, size_t i) {
        return bytes == 4
                   ? unloader::write_float(slot, number_at<float>(values, i), separator, size)
                   : unloader::write_double(slot, number_at<double>(values, i), separator, size);
    });
}

// Of 8 bytes each.
UNLOADER_EXPORT int32_t unloader_format_integers(const uint8_t* values, size_t count,
                                                 int32_t is_signed, char* out, size_t stride,
                                                 uint32_t* lengths) {
    return fill_slots(count, out, stride, lengths, [&](char* slot, size_t i) {
        return is_signed ? unloader::write_signed(slot, number_at<int64_t>(values, i))
                         : unloader::write_unsigned(slot, number_at<uint64_t>(values, i));
    });
}
