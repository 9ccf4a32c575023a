#include "numbers.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "digits.h"
#include "separators.h"

// libstdc++ has it from 11 on, libc++ from 14 on, which claims the feature only much later.
#if defined(__cpp_lib_to_chars) || (defined(_GLIBCXX_RELEASE) && _GLIBCXX_RELEASE >= 11) || \
    (defined(_LIBCPP_VERSION) && _LIBCPP_VERSION >= 14000)
#define UNLOADER_FLOATS 1
#endif

namespace unloader {

size_t float_bound(size_t separator_bytes) {
    return 40 + separator_bytes;  // a sign, 17 digits, five zeros or an exponent, a block copied
}

#ifndef UNLOADER_FLOATS

char* write_double(char*, double, const char*, size_t) { return nullptr; }
char* write_float(char*, float, const char*, size_t) { return nullptr; }

#else

namespace {

template <typename Float>
struct Traits;

template <>
struct Traits<double> {
    using Bits = uint64_t;
    static constexpr int MANTISSA_BITS = 52;
    static constexpr uint64_t EXPONENT_MASK = 0x7FF;
    static constexpr int EXPONENT_BIAS = 1075;
    static constexpr int FIXED_DIGITS = 15;  // from 10 to this power on, an exponent
    static constexpr int MOST_DIGITS = 17;
    static constexpr int QUICK_DIGITS = 6;  // behind the point
    static constexpr double QUICK_BELOW = 1e9;
    static double read(const char* text) { return std::strtod(text, nullptr); }
};

template <>
struct Traits<float> {
    using Bits = uint32_t;
    static constexpr int MANTISSA_BITS = 23;
    static constexpr uint32_t EXPONENT_MASK = 0xFF;
    static constexpr int EXPONENT_BIAS = 150;
    static constexpr int FIXED_DIGITS = 6;
    static constexpr int MOST_DIGITS = 9;
    static constexpr int QUICK_DIGITS = 3;
    static constexpr float QUICK_BELOW = 1e3f;
    static float read(const char* text) { return std::strtof(text, nullptr); }
};

// A number as printed in scientific form: digits without zeros at the end, and the power of ten of
// the first.
struct Shortest {
    char text[40];
    const char* digits;
    int count;
    int exponent;
};

// Takes "d.ddde+xx" in found.text, up to `end`.
void take_apart(Shortest& found, const char* end) {
    char* const text = found.text;
    const char* mark = end - 1;
    while (*mark != 'e') mark--;
    int exponent = 0;
    for (const char* at = mark + 2; at < end; at++) exponent = exponent * 10 + (*at - '0');
    found.exponent = mark[1] == '-' ? -exponent : exponent;
    text[1] = text[0];
    found.digits = text + 1;
    found.count = mark > text + 2 ? static_cast<int>(mark - text - 1) : 1;
    while (found.count > 1 && found.digits[found.count - 1] == '0') found.count--;
}

template <typename Float, typename... Precision>
void print(Shortest& found, Float size, Precision... precision) {
    const auto end = std::to_chars(found.text, found.text + sizeof found.text, size,
                                   std::chars_format::scientific, precision...);
    take_apart(found, end.ptr);
}

// A float as mantissa * 2^exponent, where it is not subnormal.
struct Parts {
    uint64_t mantissa;
    int exponent;
};

// Whether the digits stand for the very middle between a float and a neighbour. Where the
// exponent is below 1, such a middle has more digits than a float ever needs.
template <typename Float>
bool on_edge(const Shortest& found, const Parts& parts) {
    const int tens = found.exponent + 1 - found.count;
    if (parts.exponent < 1 || tens < 0) return false;
    uint64_t odd = 0;
    for (int i = 0; i < found.count; i++) {
        odd = odd * 10 + static_cast<uint64_t>(found.digits[i] - '0');
    }
    int twos = tens;
    for (; !(odd & 1); odd >>= 1) twos++;
    for (int i = 0; i < tens; i++) {
        // The odd part of the middle is one or two bits longer than a mantissa.
        if (odd >> (Traits<Float>::MANTISSA_BITS + 3)) return false;
        odd *= 5;
    }
    const uint64_t mantissa = parts.mantissa;
    if (twos == parts.exponent - 1 && (odd == 2 * mantissa + 1 || odd == 2 * mantissa - 1)) {
        return true;
    }
    // The neighbour below a power of two is half as far.
    const bool power_of_two = mantissa == uint64_t{1} << Traits<Float>::MANTISSA_BITS;
    return power_of_two && twos == parts.exponent - 2 && odd == 4 * mantissa - 1;
}

// Finds the shortest text strictly inside the interval, once the shortest lies on its edge.
template <typename Float>
void print_inside(Shortest& found, Float size, const Parts& parts) {
    for (int digits = found.count + 1; digits <= Traits<Float>::MOST_DIGITS; digits++) {
        print(found, size, digits - 1);
        // Without a point it is read the same in every locale.
        char text[40];
        std::memcpy(text, found.digits, static_cast<size_t>(found.count));
        char* const end = text + found.count;
        *end = 'e';
        *write_signed(end + 1, found.exponent + 1 - found.count) = '\0';
        if (Traits<Float>::read(text) == size && !on_edge<Float>(found, parts)) return;
    }
}

char* lay_out(char* out, const Shortest& found, int fixed_digits, const char* separator,
              size_t separator_bytes) {
    const int exponent = found.exponent;
    const char* const digits = found.digits;
    const auto count = static_cast<size_t>(found.count);
    if (exponent < -4 || exponent >= fixed_digits) {
        *out++ = digits[0];
        if (count > 1) {
            out = write_separator(out, separator, separator_bytes);
            std::memcpy(out, digits + 1, count - 1);
            out += count - 1;
        }
        *out++ = 'e';
        *out++ = exponent < 0 ? '-' : '+';
        const auto size = static_cast<uint32_t>(exponent < 0 ? -exponent : exponent);
        const int places = size < 100 ? 2 : 3;
        write_padded(out, size, places);
        return out + places;
    }
    if (exponent < 0) {
        *out++ = '0';
        out = write_separator(out, separator, separator_bytes);
        for (int i = exponent + 1; i < 0; i++) *out++ = '0';
        std::memcpy(out, digits, count);
        return out + count;
    }
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (count <= whole) {
        std::memcpy(out, digits, count);
        std::memset(out + count, '0', whole - count);
        return out + whole;
    }
    std::memcpy(out, digits, whole);
    out = write_separator(out + whole, separator, separator_bytes);
    std::memcpy(out, digits + whole, count - whole);
    return out + (count - whole);
}

// Numbers of few digits, as prices are. No two decimals of at most 15 digits (6 of a float32) round
// to the same float, so one that does is the shortest, and no other is as short. The quotient of
// two exact floats is rounded once. Returns nullptr for other numbers.
template <typename Float>
char* write_quick(char* out, Float size, const char* separator, size_t separator_bytes) {
    using T = Traits<Float>;
    constexpr auto power = static_cast<Float>(POWERS_OF_TEN[T::QUICK_DIGITS]);
    if (!(size < T::QUICK_BELOW) || size < Float(1e-3)) return nullptr;
    auto scaled = static_cast<uint64_t>(size * power + Float(0.5));
    if (static_cast<Float>(scaled) / power != size) return nullptr;
    const uint64_t whole = scaled / POWERS_OF_TEN[T::QUICK_DIGITS];
    const auto behind = static_cast<uint32_t>(scaled - whole * POWERS_OF_TEN[T::QUICK_DIGITS]);
    out = write_digits(out, whole);
    if (!behind) return out;
    out = write_separator(out, separator, separator_bytes);
    const uint64_t numbers =
        eight_numbers(behind * static_cast<uint32_t>(POWERS_OF_TEN[8 - T::QUICK_DIGITS]));
    const uint64_t digits = numbers | EIGHT_ZEROS;
    std::memcpy(out, &digits, 8);
    return out + 8 - __builtin_clzll(numbers) / 8;
}

template <typename Float>
char* write_floating(char* out, Float value, const char* separator, size_t separator_bytes) {
    using T = Traits<Float>;
    typename T::Bits bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (std::isnan(value)) {
        std::memcpy(out, "NaN", 3);
        return out + 3;
    }
    *out = '-';
    out += std::signbit(value);
    const Float size = std::fabs(value);
    if (std::isinf(value)) {
        std::memcpy(out, "Infinity", 8);
        return out + 8;
    }
    if (size < Float(POWERS_OF_TEN[T::FIXED_DIGITS])) {
        const auto whole = static_cast<uint64_t>(size);
        if (static_cast<Float>(whole) == size) return write_digits(out, whole);
    }
    if (char* end = write_quick(out, size, separator, separator_bytes)) return end;

    Shortest found;
    print(found, size);
    constexpr uint64_t HIDDEN = uint64_t{1} << T::MANTISSA_BITS;
    const Parts parts{(bits & (HIDDEN - 1)) | HIDDEN,
                      static_cast<int>((bits >> T::MANTISSA_BITS) & T::EXPONENT_MASK) -
                          T::EXPONENT_BIAS};
    if (!(parts.mantissa & 1) && on_edge<Float>(found, parts)) print_inside(found, size, parts);
    return lay_out(out, found, T::FIXED_DIGITS, separator, separator_bytes);
}

}  // namespace

char* write_double(char* out, double value, const char* separator, size_t separator_bytes) {
    return write_floating(out, value, separator, separator_bytes);
}

char* write_float(char* out, float value, const char* separator, size_t separator_bytes) {
    return write_floating(out, value, separator, separator_bytes);
}

#endif

}  // namespace unloader
