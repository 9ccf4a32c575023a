#include "values.h"

namespace unloader::oracle {

namespace {

constexpr uint8_t ZERO = 0x80;
constexpr uint8_t POSITIVE = 0x80;
constexpr int POSITIVE_EXPONENT = 193;
constexpr int NEGATIVE_EXPONENT = 62;
constexpr uint8_t NEGATIVE_END = 102;
constexpr size_t MOST_PAIRS = 20;
constexpr int QUICK_PAIRS = 9;  // whose value is below 2^63

// Bytes that are no digits may stand for more than a Wide holds, before that is seen.
__extension__ typedef unsigned __int128 Magnitude;

constexpr int64_t DAY_SECONDS = 86400;
constexpr uint32_t NANOS = 1000000000;
constexpr int64_t POWERS[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, NANOS};

struct Pairs {
    const uint8_t* bytes;
    size_t count;
    bool negative;

    // From 0 to 99; anything else stands for a byte that is no digit.
    uint32_t operator[](size_t index) const {
        const uint32_t byte = bytes[index];
        return negative ? 101 - byte : byte - 1;
    }
};

Magnitude joined(const Pairs& pairs, size_t count, bool& known) {
    uint64_t low = 0;
    size_t index = 0;
    const size_t quick = count < QUICK_PAIRS ? count : QUICK_PAIRS;
    for (; index < quick; index++) {
        const uint32_t pair = pairs[index];
        known &= pair < 100;
        low = low * 100 + pair;
    }
    Magnitude value = low;
    for (; index < count; index++) {
        const uint32_t pair = pairs[index];
        known &= pair < 100;
        value = value * 100 + pair;
    }
    return value;
}

int64_t days_since_1970(int64_t year, int64_t month, int64_t day) {
    // Howard Hinnant's days_from_civil, for years from 1 on.
    year -= month <= 2;
    const int64_t cycle = year / 400;
    const int64_t of_cycle = year - cycle * 400;
    const int64_t march_day = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    const int64_t of_days = of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + march_day;
    return cycle * 146097 + of_days - 719468;
}

bool is_day(int64_t year, uint32_t month, uint32_t day) {
    constexpr uint8_t LAST[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (month < 1 || month > 12 || day < 1) return false;
    if (day <= LAST[month - 1]) return true;
    const bool leap = (year % 100 ? year : year / 100) % 4 == 0;
    return month == 2 && day == 29 && leap;
}

}  // namespace

bool decode_number(const uint8_t* bytes, size_t size, int digits, int scale, Wide& value) {
    if (size == 0) return false;
    const uint8_t first = bytes[0];
    if (size == 1) {
        value = 0;
        return first == ZERO;
    }
    Pairs pairs{bytes + 1, size - 1, (first & POSITIVE) == 0};
    int exponent = first - POSITIVE_EXPONENT;
    if (pairs.negative) {
        exponent = NEGATIVE_EXPONENT - first;
        // All twenty pairs leave no room for the end.
        if (bytes[size - 1] == NEGATIVE_END) {
            pairs.count--;
        } else if (pairs.count < MOST_PAIRS) {
            return false;
        }
    }
    if (pairs.count < 1 || pairs.count > MOST_PAIRS) return false;
    // A NUMBER neither begins nor ends with a pair of zeros.
    if (pairs[0] == 0 || pairs[pairs.count - 1] == 0) return false;

    const bool odd = scale & 1;
    const int shift = exponent - static_cast<int>(pairs.count - 1) + scale / 2;
    int have = (pairs[0] >= 10 ? 2 : 1) + 2 * static_cast<int>(pairs.count - 1);
    bool known = true;
    Magnitude magnitude;
    if (shift >= 0) {
        have += 2 * shift + odd;
        if (have > digits) return false;
        magnitude = joined(pairs, pairs.count, known);
        for (int step = 0; step < shift; step++) magnitude *= 100;
        if (odd) magnitude *= 10;
    } else {
        // Half a pair is behind the last place.
        const uint32_t last = pairs[pairs.count - 1];
        if (shift != -1 || !odd || last % 10 || have - 1 > digits) return false;
        known = last < 100;
        magnitude = joined(pairs, pairs.count - 1, known) * 10 + last / 10;
    }
    if (!known) return false;
    value = static_cast<Wide>(magnitude);
    if (pairs.negative) value = -value;
    return true;
}

bool decode_moment(const uint8_t* bytes, size_t size, int places, int64_t& ticks) {
    if (size != 7 && size != 11) return false;
    const int64_t year = (int64_t{bytes[0]} - 100) * 100 + bytes[1] - 100;
    if (bytes[0] < 100 || bytes[1] < 100 || bytes[1] > 199 || year < 1 || year > 9999) return false;
    if (!is_day(year, bytes[2], bytes[3])) return false;
    const uint32_t hour = bytes[4] - 1u, minute = bytes[5] - 1u, second = bytes[6] - 1u;
    if (hour > 23 || minute > 59 || second > 59) return false;
    uint32_t nanos = 0;
    if (size == 11) {
        nanos = uint32_t{bytes[7]} << 24 | uint32_t{bytes[8]} << 16 | uint32_t{bytes[9]} << 8 | bytes[10];
        if (nanos >= NANOS) return false;
    }
    const auto tick = static_cast<uint32_t>(POWERS[9 - places]);
    if (nanos % tick) return false;
    const int64_t seconds = days_since_1970(year, bytes[2], bytes[3]) * DAY_SECONDS +
                            int64_t{hour} * 3600 + int64_t{minute} * 60 + second;
    // Nanoseconds end in 2262.
    return !__builtin_mul_overflow(seconds, POWERS[places], &ticks) &&
           !__builtin_add_overflow(ticks, int64_t{nanos / tick}, &ticks);
}

bool decode_float(const uint8_t* bytes, size_t size, uint32_t& bits) {
    if (size != 4) return false;
    bits = uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
    bits = bits >> 31 ? bits & 0x7FFFFFFF : ~bits;
    return true;
}

bool decode_double(const uint8_t* bytes, size_t size, uint64_t& bits) {
    if (size != 8) return false;
    bits = 0;
    for (size_t index = 0; index < 8; index++) bits = bits << 8 | bytes[index];
    bits = bits >> 63 ? bits & INT64_MAX : ~bits;
    return true;
}

}  // namespace unloader::oracle
