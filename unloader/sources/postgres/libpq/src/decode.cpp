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

// Eight bytes of text as a number whose lowest byte is the first.
uint64_t eight(const char* at) {
    uint64_t bytes;
    std::memcpy(&bytes, at, sizeof bytes);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bytes = __builtin_bswap64(bytes);
#endif
    return bytes;
}

constexpr uint64_t each_byte(uint8_t byte) { return byte * UINT64_C(0x0101010101010101); }

bool are_digits(uint64_t bytes) {
    // 0x30 to 0x39: the upper half is 3, and remains so when six is added.
    const uint64_t upper = each_byte(0xF0);
    return ((bytes & upper) | ((bytes + each_byte(6)) & upper) >> 4) == each_byte(0x33);
}

// Four numbers of two digits each, the first in the lowest 16 bits.
uint64_t pairs(uint64_t bytes) {
    bytes -= each_byte('0');
    return (bytes * 10 + (bytes >> 8)) & UINT64_C(0x00FF00FF00FF00FF);
}

int lane(uint64_t lanes, int number) { return static_cast<int>(lanes >> 16 * number & 0xFFFF); }

uint32_t number_of(uint64_t bytes) {
    uint64_t lanes = pairs(bytes);
    lanes = (lanes * 100 + (lanes >> 16)) & UINT64_C(0x0000FFFF0000FFFF);
    return static_cast<uint32_t>(lanes * 10000 + (lanes >> 32));
}

constexpr uint32_t POWERS[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};

// Reads the digits of [at, end), all of them; false where one is no digit, or there are none. Eight
// together take three multiplications.
template <typename Number>
bool digits(const char* at, const char* end, Number& value) {
    if (end - at < 8) {
        if (at == end) return false;
        for (; at < end; at++) {
            if (!is_digit(*at)) return false;
            value = value * 10 + static_cast<Number>(*at - '0');
        }
        return true;
    }
    for (; end - at >= 8; at += 8) {
        const uint64_t bytes = eight(at);
        if (!are_digits(bytes)) return false;
        value = value * 100000000 + number_of(bytes);
    }
    if (const auto rest = end - at; rest > 0) {
        // The last eight bytes, with zeros for those that were read.
        const uint64_t read = ~UINT64_C(0) >> 8 * rest;
        const uint64_t bytes = (eight(end - 8) & ~read) | (each_byte('0') & read);
        if (!are_digits(bytes)) return false;
        value = value * POWERS[rest] + number_of(bytes);
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

// Days since 1970-01-01 of "YYYY-MM-DD", by Howard Hinnant's `days_from_civil`.
bool date(const char* at, int64_t& days) {
    const uint64_t month_text = eight(at), day_text = eight(at + 2);
    const uint64_t bytes = (month_text & 0xFFFFFFFF) | (month_text >> 40 & 0xFFFF) << 32 |
                           (day_text & UINT64_C(0xFFFF) << 48);
    if (!are_digits(bytes) || at[4] != '-' || at[7] != '-') return false;
    const uint64_t lanes = pairs(bytes);
    int year = lane(lanes, 0) * 100 + lane(lanes, 1);
    const int month = lane(lanes, 2), day = lane(lanes, 3);
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
    const uint64_t text = eight(at + 11);
    const uint64_t bytes = (text & 0xFFFF) | (text >> 24 & 0xFFFF) << 16 | text >> 48 << 32 |
                           (each_byte('0') & UINT64_C(0xFFFF) << 48);
    if (!are_digits(bytes) || at[13] != ':' || at[16] != ':') return false;
    const uint64_t lanes = pairs(bytes);
    const int hour = lane(lanes, 0), minute = lane(lanes, 1), second = lane(lanes, 2);
    if (hour > 23 || minute > 59 || second > 59) return false;
    uint64_t micros = 0;
    if (end - at > 19) {
        const auto count = end - at - 20;
        if (at[19] != '.' || count > 6 || !digits(at + 20, end, micros)) return false;
        micros *= POWERS[6 - count];
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

// All bits of the validity are set at first.
void set_null(Column& column, int64_t row) {
    column.nulls++;
    column.validity[row >> 3] &= static_cast<uint8_t>(~(1 << (row & 7)));
}

// memcpy for a length that is mostly small, and not known to the compiler.
void copy(char* out, const char* from, size_t size) {
    if (size - 8 <= 8) {
        uint64_t first, last;
        std::memcpy(&first, from, 8);
        std::memcpy(&last, from + size - 8, 8);
        std::memcpy(out, &first, 8);
        std::memcpy(out + size - 8, &last, 8);
    } else {
        std::memcpy(out, from, size);
    }
}

// Calls `one(row, first, last)` for each value that is not NULL; false where it returns false.
template <typename One>
bool each(const char* text, const Place* places, int64_t rows, Column& column, One one) {
    for (int64_t row = 0; row < rows; row++) {
        const Place place = places[row];
        if (place.length == 0) {
            set_null(column, row);
            continue;
        }
        // Only text is quoted.
        if (place.length & QUOTED) return false;
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
            set_null(column, row);
            continue;
        }
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
            copy(out, at, static_cast<size_t>(end - at));
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

bool raw(const char* text, const Place* places, int64_t rows, Column& column) {
    return each_text(text, places, rows, column, [](Place, const char* at, const char* end, char*& out) {
        std::memcpy(out, at, static_cast<size_t>(end - at));
        out += end - at;
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
        case RAW: return raw(text, places, rows, column);
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

// Does the same for rows of COPY's binary form, perhaps after its header or before its end. A value
// that is not NULL has no quotes; an empty one is marked as if it had.
UNLOADER_EXPORT int64_t unloader_copy_index_binary(const char* data, int64_t size, int64_t columns,
                                                   int64_t most, Place* places, Column* described) {
    static constexpr char SIGNATURE[] = "PGCOPY\n\377\r\n";
    const char* at = data;
    const char* const end = data + size;
    if (size >= static_cast<int64_t>(LENGTH)) return -1;
    const auto number = [&](int bytes) {
        uint32_t value = 0;
        for (int n = 0; n < bytes; n++) value = value << 8 | static_cast<uint8_t>(*at++);
        return value;
    };
    if (size >= 19 && std::memcmp(data, SIGNATURE, sizeof SIGNATURE) == 0) {
        at += 15;
        const uint32_t more = number(4);
        if (end - at < static_cast<int64_t>(more)) return -1;
        at += more;
    }
    int64_t row = 0;
    while (at < end) {
        if (end - at < 2) return -1;
        const uint32_t count = number(2);
        if (count == 0xFFFF && at == end) return row;
        if (count != static_cast<uint64_t>(columns) || row == most) return -1;
        for (int64_t column = 0; column < columns; column++) {
            if (end - at < 4) return -1;
            const uint32_t length = number(4);
            const bool is_null = length == 0xFFFFFFFF;
            if (!is_null && end - at < static_cast<int64_t>(length)) return -1;
            Place& place = places[column * most + row];
            place = {static_cast<uint32_t>(at - data), is_null ? 0 : length == 0 ? QUOTED : length};
            if (is_null) continue;
            described[column].size += length;
            at += length;
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
