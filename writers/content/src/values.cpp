#include "values.h"

#include <cstring>

namespace unloader {

namespace {

constexpr int64_t DAY = 86400;

char* digits_of(char* out, unsigned __int128 value, int least) {
    char reversed[48];
    int count = 0;
    while (value || count < least) {
        reversed[count++] = static_cast<char>('0' + static_cast<int>(value % 10));
        value /= 10;
    }
    while (count) *out++ = reversed[--count];
    return out;
}

char* small_digits(char* out, uint64_t value, int least) {
    char reversed[24];
    int count = 0;
    while (value || count < least) {
        reversed[count++] = static_cast<char>('0' + value % 10);
        value /= 10;
    }
    while (count) *out++ = reversed[--count];
    return out;
}

int64_t floored(int64_t value, int64_t divisor, int64_t& rest) {
    int64_t quotient = value / divisor;
    rest = value % divisor;
    if (rest < 0) {
        rest += divisor;
        quotient--;
    }
    return quotient;
}

// Takes away zeros at the end, and the point if nothing is left behind it.
char* trimmed(char* end) {
    while (end[-1] == '0') end--;
    return end[-1] == '.' ? end - 1 : end;
}

// Writes the date and returns whether its year is before 1. By Hinnant's civil_from_days.
char* civil(char* out, int64_t days, bool& before) {
    int64_t of_era;
    const int64_t era = floored(days + 719468, 146097, of_era);
    const int64_t year_of_era =
        (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t shifted = (5 * of_year + 2) / 153;
    const int64_t day = of_year - (153 * shifted + 2) / 5 + 1;
    const int64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
    const int64_t year = year_of_era + era * 400 + (month <= 2);
    before = year < 1;
    out = small_digits(out, static_cast<uint64_t>(before ? 1 - year : year), 4);
    *out++ = '-';
    out = small_digits(out, static_cast<uint64_t>(month), 2);
    *out++ = '-';
    return small_digits(out, static_cast<uint64_t>(day), 2);
}

char* marked(char* out, bool before) {
    if (!before) return out;
    std::memcpy(out, " BC", 3);
    return out + 3;
}

char* clock(char* out, int64_t seconds, int64_t fraction, int digits) {
    out = small_digits(out, static_cast<uint64_t>(seconds / 3600), 2);
    *out++ = ':';
    out = small_digits(out, static_cast<uint64_t>(seconds / 60 % 60), 2);
    *out++ = ':';
    out = small_digits(out, static_cast<uint64_t>(seconds % 60), 2);
    if (!fraction) return out;
    *out++ = '.';
    return trimmed(small_digits(out, static_cast<uint64_t>(fraction), digits));
}

int64_t per_second(int digits) {
    return digits == 0 ? 1 : digits == 3 ? 1000 : digits == 6 ? 1000000 : 1000000000;
}

}  // namespace

char* integer_text(char* out, int64_t value) {
    if (value < 0) *out++ = '-';
    const auto unsigned_value = static_cast<uint64_t>(value);
    return small_digits(out, value < 0 ? 0 - unsigned_value : unsigned_value, 1);
}

char* natural_text(char* out, uint64_t value) { return small_digits(out, value, 1); }

char* decimal_text(char* out, __int128 value, int scale) {
    if (value < 0) *out++ = '-';
    const auto positive = value < 0 ? 0 - static_cast<unsigned __int128>(value)
                                    : static_cast<unsigned __int128>(value);
    const bool small = positive <= UINT64_MAX && scale < 20;
    const int least = scale + 1;
    char* end = small ? small_digits(out, static_cast<uint64_t>(positive), least)
                      : digits_of(out, positive, least);
    if (scale <= 0) return end;
    std::memmove(end - scale + 1, end - scale, static_cast<size_t>(scale));
    end[-scale] = '.';
    return trimmed(end + 1);
}

char* float_text(char* out, uint64_t bits, int bytes) {
    const bool is_nan = bytes == 4 ? (bits & 0x7fffffff) > 0x7f800000
                                   : (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    if (is_nan) {
        std::memcpy(out, "NaN", 3);
        return out + 3;
    }
    for (int at = 2 * bytes - 1; at >= 0; at--) *out++ = "0123456789abcdef"[bits >> 4 * at & 15];
    return out;
}

char* date_text(char* out, int64_t days) {
    bool before;
    out = civil(out, days, before);
    return marked(out, before);
}

char* timestamp_text(char* out, int64_t ticks, int digits, bool utc) {
    int64_t fraction, of_day;
    const int64_t seconds = floored(ticks, per_second(digits), fraction);
    const int64_t days = floored(seconds, DAY, of_day);
    bool before;
    out = civil(out, days, before);
    *out++ = ' ';
    out = clock(out, of_day, fraction, digits);
    if (utc) {
        std::memcpy(out, "+00:00", 6);
        out += 6;
    }
    return marked(out, before);
}

char* time_text(char* out, int64_t ticks, int digits) {
    int64_t fraction;
    const int64_t seconds = floored(ticks, per_second(digits), fraction);
    return clock(out, seconds, fraction, digits);
}

char* number_text(char* out, const char* text, size_t size) {
    size_t at = 0;
    const bool negative = size && text[0] == '-';
    if (size && (text[0] == '-' || text[0] == '+')) at = 1;
    size_t point = size, digits = 0;
    for (size_t each = at; each < size; each++) {
        if (text[each] >= '0' && text[each] <= '9') {
            digits++;
        } else if (text[each] == '.' && point == size) {
            point = each;
        } else {
            digits = 0;
            break;
        }
    }
    if (!digits) {
        std::memcpy(out, text, size);
        return out + size;
    }
    while (at < point && text[at] == '0') at++;
    size_t last = size;
    while (last > point && (text[last - 1] == '0' || text[last - 1] == '.')) {
        last--;
        if (last == point) break;
    }
    if (at == point && last <= point) {
        *out = '0';
        return out + 1;
    }
    if (negative) *out++ = '-';
    if (at == point) *out++ = '0';
    std::memcpy(out, text + at, last - at);
    return out + (last - at);
}

}  // namespace unloader
