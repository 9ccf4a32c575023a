// Records of COPY's CSV form as the buffers of Arrow arrays, for unloader.sources.postgres.libpq.
// decoding. Only ordinary values are read: everything else is declined, and the plain parser, which
// knows all the rules and the words of the errors, reads the whole text instead.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "decode.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))

using namespace unloader::postgres;

namespace {

bool is_digit(char byte) { return static_cast<uint8_t>(byte - '0') < 10; }

const char* end_of_bare(const char* at, const char* end) {
#if defined(__SSE2__)
    const __m128i comma = _mm_set1_epi8(','), line = _mm_set1_epi8('\n');
    for (; end - at >= 16; at += 16) {
        const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        const __m128i found = _mm_or_si128(_mm_cmpeq_epi8(text, comma), _mm_cmpeq_epi8(text, line));
        const auto hits = static_cast<uint32_t>(_mm_movemask_epi8(found));
        if (hits != 0) return at + __builtin_ctz(hits);
    }
#endif
    while (at < end && *at != ',' && *at != '\n') at++;
    return at;
}

// Reads the digits of [at, end), all of them; false where one is no digit, or there are none.
template <typename Number>
bool digits(const char* at, const char* end, Number& value) {
    if (at == end) return false;
    for (; at < end; at++) {
        if (!is_digit(*at)) return false;
        value = value * 10 + static_cast<Number>(*at - '0');
    }
    return true;
}

template <typename Integer>
bool integer(const char* at, const char* end, Integer& out) {
    const bool negative = at < end && *at == '-';
    at += negative;
    // Nineteen digits are less than 2^64, so the sum below does not run over.
    if (end - at > 19) return false;
    uint64_t value = 0;
    if (!digits(at, end, value)) return false;
    constexpr auto most = static_cast<uint64_t>(std::numeric_limits<Integer>::max());
    if (negative) {
        if (std::numeric_limits<Integer>::min() == 0 || value > most + 1) return false;
        out = static_cast<Integer>(~value + 1);
        return true;
    }
    if (value > most) return false;
    out = static_cast<Integer>(value);
    return true;
}

template <typename Floating>
bool floating(const char* at, const char* end, Floating& out) {
#if defined(__cpp_lib_to_chars)
    const auto is = [&](const char* word) {
        return static_cast<size_t>(end - at) == std::strlen(word) &&
               std::memcmp(at, word, std::strlen(word)) == 0;
    };
    using Limits = std::numeric_limits<Floating>;
    if (is("NaN")) out = Limits::quiet_NaN();
    else if (is("Infinity")) out = Limits::infinity();
    else if (is("-Infinity")) out = -Limits::infinity();
    else {
        if (at == end || !(is_digit(*at) || *at == '-')) return false;
        const auto [stop, error] = std::from_chars(at, end, out);
        return error == std::errc() && stop == end && std::isfinite(out);
    }
    return true;
#else
    (void)at, (void)end, (void)out;
    return false;
#endif
}

using Wide = unsigned __int128;

// A numeric with a scale is printed with all digits of its scale.
template <typename Number>
bool decimal(const char* at, const char* end, const Column& column, Number limit, Wide& out) {
    const int32_t scale = column.scale;
    const bool negative = at < end && *at == '-';
    at += negative;
    // More digits could run over; a value below one begins with a zero of its own.
    if (end - at > column.precision + (scale > 0) + (scale == column.precision)) return false;
    const char* whole_end = end;
    if (scale > 0) {
        whole_end = end - scale - 1;
        if (whole_end <= at || *whole_end != '.') return false;
    }
    Number value = 0;
    if (!digits(at, whole_end, value)) return false;
    if (scale > 0 && !digits(whole_end + 1, end, value)) return false;
    if (value >= limit) return false;
    out = negative ? ~Wide{value} + 1 : Wide{value};
    return true;
}

int two(const char* at) {
    return is_digit(at[0]) && is_digit(at[1]) ? (at[0] - '0') * 10 + (at[1] - '0') : -1;
}

// Days since 1970-01-01 of "YYYY-MM-DD", by Howard Hinnant's `days_from_civil`.
bool date(const char* at, int64_t& days) {
    const int high = two(at), low = two(at + 2), month = two(at + 5), day = two(at + 8);
    if (high < 0 || low < 0 || at[4] != '-' || at[7] != '-') return false;
    int year = high * 100 + low;
    const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    static constexpr int LENGTHS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (year == 0 || month < 1 || month > 12 || day < 1) return false;
    if (day > LENGTHS[month - 1] + (month == 2 && leap)) return false;
    year -= month <= 2;
    const int of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719468;
    return true;
}

bool timestamp(const char* at, const char* end, const Column& column, int64_t& out) {
    if (column.zoned) {
        if (at == end || *--end != 'Z') return false;
    }
    int64_t days = 0;
    if (end - at < 19 || !date(at, days) || at[10] != ' ') return false;
    const int hour = two(at + 11), minute = two(at + 14), second = two(at + 17);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) return false;
    if (at[13] != ':' || at[16] != ':') return false;
    uint64_t micros = 0;
    if (end - at > 19) {
        const auto count = end - at - 20;
        if (at[19] != '.' || count > 6 || !digits(at + 20, end, micros)) return false;
        for (auto n = count; n < 6; n++) micros *= 10;
    }
    const int64_t seconds = days * 86400 + hour * 3600 + minute * 60 + second;
    out = seconds * 1000000 + static_cast<int64_t>(micros);
    return true;
}

bool is_utf8(const char* at, const char* end) {
    const auto* byte = reinterpret_cast<const uint8_t*>(at);
    const auto* last = reinterpret_cast<const uint8_t*>(end);
    while (byte < last) {
        uint64_t eight;
        while (last - byte >= 8) {
            std::memcpy(&eight, byte, 8);
            if (eight & 0x8080808080808080) break;
            byte += 8;
        }
        if (byte == last) return true;
        const uint8_t first = *byte++;
        if (first < 0x80) continue;
        const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
        if (first < 0xC2 || first > 0xF4 || last - byte < more) return false;
        // The second byte excludes forms that are too long, surrogates, and what is beyond U+10FFFF.
        const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (*byte < low || *byte > high) return false;
        for (int n = 1; n < more; n++) {
            if (byte[n] < 0x80 || byte[n] > 0xBF) return false;
        }
        byte += more;
    }
    return true;
}

int nibble(char byte) {
    if (is_digit(byte)) return byte - '0';
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

void set_bit(uint8_t* bits, int64_t place) { bits[place >> 3] |= static_cast<uint8_t>(1 << (place & 7)); }

// Calls `one(row, first, last)` for each value that is not NULL; false where it returns false.
template <typename One>
bool each(const char* text, const Place* places, int64_t rows, Column& column, One one) {
    for (int64_t row = 0; row < rows; row++) {
        const Place place = places[row];
        if (place.length == 0) {
            column.nulls++;
            continue;
        }
        // Only text is quoted.
        if (place.length & QUOTED) return false;
        set_bit(column.validity, row);
        const char* first = text + place.start;
        if (!one(row, first, first + place.length)) return false;
    }
    return true;
}

template <typename Value, typename Read>
bool fixed(const char* text, const Place* places, int64_t rows, Column& column, Read read) {
    auto* values = static_cast<Value*>(column.values);
    return each(text, places, rows, column, [&](int64_t row, const char* first, const char* last) {
        return read(first, last, values[row]);
    });
}

// Fills offsets, and bytes by `put(place, first, last, out)`, which moves `out`; false where it does.
template <typename PutValue>
bool each_text(const char* text, const Place* places, int64_t rows, Column& column, PutValue put) {
    char* out = static_cast<char*>(column.values);
    char* const begin = out;
    for (int64_t row = 0; row < rows; row++) {
        column.offsets[row] = static_cast<int32_t>(out - begin);
        const Place place = places[row];
        if (place.length == 0) {
            column.nulls++;
            continue;
        }
        set_bit(column.validity, row);
        const char* first = text + place.start;
        if (!put(place, first, first + (place.length & LENGTH), out)) return false;
    }
    column.offsets[rows] = static_cast<int32_t>(out - begin);
    column.size = out - begin;
    return true;
}

bool strings(const char* text, const Place* places, int64_t rows, Column& column) {
    each_text(text, places, rows, column, [](Place place, const char* at, const char* end, char*& out) {
        if (!(place.length & DOUBLED)) {
            std::memcpy(out, at, static_cast<size_t>(end - at));
            out += end - at;
            return true;
        }
        for (; at < end; at++) {
            *out++ = *at;
            at += *at == '"';
        }
        return true;
    });
    const char* begin = static_cast<const char*>(column.values);
    // All together: a character that two values share would begin in one with too few bytes.
    if (!is_utf8(begin, begin + column.size)) return false;
    for (int64_t row = 1; row < rows; row++) {
        const auto at = column.offsets[row];
        if (at < column.size && (static_cast<uint8_t>(begin[at]) & 0xC0) == 0x80) return false;
    }
    return true;
}

bool binaries(const char* text, const Place* places, int64_t rows, Column& column) {
    return each_text(text, places, rows, column,
                     [](Place place, const char* at, const char* end, char*& out) {
        if ((end - at) % 2 != 0 || (place.length & DOUBLED)) return false;
        for (; at < end; at += 2) {
            const int high = nibble(at[0]), low = nibble(at[1]);
            if (high < 0 || low < 0) return false;
            *out++ = static_cast<char>(high << 4 | low);
        }
        return true;
    });
}

template <typename Number>
bool decimals_below(const char* text, const Place* places, int64_t rows, Column& column,
                    Number limit) {
    return each(text, places, rows, column, [&](int64_t row, const char* at, const char* end) {
        Wide value;
        if (!decimal(at, end, column, limit, value)) return false;
        std::memcpy(static_cast<char*>(column.values) + row * 16, &value, 16);
        return true;
    });
}

bool decimals(const char* text, const Place* places, int64_t rows, Column& column) {
    Wide limit = 1;
    for (int32_t n = 0; n < column.precision; n++) limit *= 10;
    // 18 digits fit into 64 bits.
    if (column.precision > 18) return decimals_below(text, places, rows, column, limit);
    return decimals_below(text, places, rows, column, static_cast<uint64_t>(limit));
}

bool decoded(const char* text, const Place* places, int64_t rows, Column& column) {
    const auto all = [&](auto zero, auto read) {
        return fixed<decltype(zero)>(text, places, rows, column, read);
    };
    switch (column.kind) {
        case BOOL:
            return each(text, places, rows, column, [&](int64_t row, const char* at, const char* end) {
                if (end - at != 1 || (*at != 't' && *at != 'f')) return false;
                if (*at == 't') set_bit(static_cast<uint8_t*>(column.values), row);
                return true;
            });
        case INT16: return all(int16_t{}, integer<int16_t>);
        case INT32: return all(int32_t{}, integer<int32_t>);
        case INT64: return all(int64_t{}, integer<int64_t>);
        case UINT32: return all(uint32_t{}, integer<uint32_t>);
        case FLOAT: return all(float{}, floating<float>);
        case DOUBLE: return all(double{}, floating<double>);
        case DECIMAL: return decimals(text, places, rows, column);
        case DATE:
            return all(int32_t{}, [](const char* at, const char* end, int32_t& out) {
                int64_t days = 0;
                if (end - at != 10 || !date(at, days)) return false;
                out = static_cast<int32_t>(days);
                return true;
            });
        case TIMESTAMP:
            return all(int64_t{}, [&](const char* at, const char* end, int64_t& out) {
                return timestamp(at, end, column, out);
            });
        case STRING: return strings(text, places, rows, column);
        case BINARY: return binaries(text, places, rows, column);
        default: return false;
    }
}

}  // namespace

// Returns the number of line ends, which is at least that of the records.
UNLOADER_EXPORT int64_t unloader_copy_lines(const char* text, int64_t size) {
    int64_t found = 0;
    const char* at = text;
    const char* const end = text + size;
#if defined(__SSE2__)
    const __m128i line = _mm_set1_epi8('\n'), zero = _mm_setzero_si128();
    while (end - at >= 16) {
        // A byte counts to 255 at most.
        const char* const last = at + std::min<int64_t>(255, (end - at) / 16) * 16;
        __m128i bytes = zero;
        for (; at < last; at += 16) {
            const __m128i text_bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
            bytes = _mm_sub_epi8(bytes, _mm_cmpeq_epi8(text_bytes, line));
        }
        const __m128i sums = _mm_sad_epu8(bytes, zero);
        found += _mm_extract_epi16(sums, 0) + _mm_extract_epi16(sums, 4);
    }
#endif
    return found + std::count(at, end, '\n');
}

// Finds the values of all records: those of column c at `places[c * most]` and behind. Counts the
// bytes of each column's text. Returns the number of records, -1 where one has another number of
// values, or the text does not end with a record.
UNLOADER_EXPORT int64_t unloader_copy_index(const char* text, int64_t size, int64_t columns,
                                            int64_t most, Place* places, Column* described) {
    const char* at = text;
    const char* const end = text + size;
    if (size >= static_cast<int64_t>(LENGTH)) return -1;
    int64_t row = 0;
    while (at < end) {
        if (row == most) return -1;
        for (int64_t column = 0; column < columns; column++) {
            uint32_t marks = 0;
            const char* first = at;
            const char* last = nullptr;
            if (at < end && *at == '"') {
                marks = QUOTED;
                first = ++at;
                for (;;) {
                    last = static_cast<const char*>(std::memchr(at, '"', static_cast<size_t>(end - at)));
                    if (last == nullptr) return -1;
                    at = last + 1;
                    if (at == end || *at != '"') break;
                    marks |= DOUBLED;
                    at++;
                }
            } else {
                last = at = end_of_bare(at, end);
            }
            const char wanted = column + 1 == columns ? '\n' : ',';
            if (at == end || *at != wanted) return -1;
            at++;
            const auto length = static_cast<uint32_t>(last - first);
            places[column * most + row] = {static_cast<uint32_t>(first - text), length | marks};
            described[column].size += length;
        }
        row++;
    }
    return row;
}

// Fills the buffers of one column; returns 0, or 1 where a value is not an ordinary one.
UNLOADER_EXPORT int32_t unloader_copy_decode(const char* text, const Place* places, int64_t rows,
                                             Column* column) {
    return decoded(text, places, rows, *column) ? 0 : 1;
}
