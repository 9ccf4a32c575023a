// Rows of MySQL's text protocol as the buffers of Arrow arrays, for unloader.sources.mysql.rows.
// Source: "Text Resultset Row" and "MySQL Packets" in the MySQL Source Code Documentation.
#include <cstdint>
#include <cstring>

#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int64_t HEADER = 4, CONTINUED = 0xFFFFFF;
constexpr uint8_t IS_NULL = 0xFB, END = 0xFE, ERROR = 0xFF;

// As rows.py has them.
enum Status : int32_t { MORE = 0, ENDED = 1, FAILED = 2, LONG = 3 };

struct Place {
    int64_t end;   // of the last whole row
    int64_t rows;  // up to there
};

struct Column {
    uint8_t* values;
    int32_t* offsets;  // one more than rows
    uint8_t* validity; // bits, all zero at first
    int64_t size;      // of the values
    int64_t nulls;
};

uint64_t little(const uint8_t* at, int bytes) {
    uint64_t value = 0;
    for (int each = 0; each < bytes; each++) value |= static_cast<uint64_t>(at[each]) << (8 * each);
    return value;
}

// Calls `value(column, data, length)` for each value of a row, with null data for NULL; returns
// false if the row has another number of values.
template <typename Use>
bool each_value(const uint8_t* at, const uint8_t* end, int64_t columns, Use&& use) {
    for (int64_t column = 0; column < columns; column++) {
        if (at >= end) return false;
        const uint8_t first = *at++;
        if (first == IS_NULL) {
            use(column, nullptr, 0);
            continue;
        }
        const int bytes = first < IS_NULL ? 0 : first == 0xFC ? 2 : first == 0xFD ? 3 : 8;
        if (end - at < bytes) return false;
        const uint64_t length = bytes ? little(at, bytes) : first;
        at += bytes;
        if (static_cast<uint64_t>(end - at) < length) return false;
        use(column, at, static_cast<int64_t>(length));
        at += length;
    }
    return at == end;
}

template <typename Use>
bool each_row(const uint8_t* data, int64_t end, Use&& use) {
    for (int64_t at = 0; at < end;) {
        const auto length = static_cast<int64_t>(little(data + at, 3));
        at += HEADER;
        if (!use(data + at, data + at + length)) return false;
        at += length;
    }
    return true;
}

}  // namespace

UNLOADER_EXPORT int32_t unloader_rows_abi_version() { return 1; }

// Moves `place` over the whole rows in [place.end, size). ENDED and FAILED: the next packet is whole,
// and ends the result. LONG: the next row is in several packets.
UNLOADER_EXPORT int32_t unloader_rows_scan(const uint8_t* data, int64_t size, Place* place) {
    while (size - place->end >= HEADER) {
        const uint8_t* packet = data + place->end;
        const auto length = static_cast<int64_t>(little(packet, 3));
        if (length == CONTINUED) return LONG;
        if (size - place->end - HEADER < length) return MORE;
        if (length > 0 && packet[HEADER] == ERROR) return FAILED;
        if (length > 0 && length < 9 && packet[HEADER] == END) return ENDED;
        place->end += HEADER + length;
        place->rows++;
    }
    return MORE;
}

// Sets the sizes of the columns' values; returns a number that is not zero if a row is malformed.
UNLOADER_EXPORT int32_t unloader_rows_measure(const uint8_t* data, int64_t end, Column* columns,
                                              int64_t count) {
    const bool whole = each_row(data, end, [&](const uint8_t* at, const uint8_t* last) {
        return each_value(at, last, count, [&](int64_t column, const uint8_t*, int64_t length) {
            columns[column].size += length;
        });
    });
    return whole ? 0 : 1;
}

// Fills the buffers of columns of measured rows.
UNLOADER_EXPORT void unloader_rows_fill(const uint8_t* data, int64_t end, Column* columns,
                                        int64_t count) {
    int64_t row = 0;
    for (int64_t column = 0; column < count; column++) {
        columns[column].offsets[0] = 0;
        columns[column].size = 0;
    }
    each_row(data, end, [&](const uint8_t* at, const uint8_t* last) {
        each_value(at, last, count, [&](int64_t number, const uint8_t* value, int64_t length) {
            Column& column = columns[number];
            if (value == nullptr) {
                column.nulls++;
            } else {
                column.validity[row / 8] |= static_cast<uint8_t>(1 << (row % 8));
                if (length > 0) std::memcpy(column.values + column.size, value, length);
                column.size += length;
            }
            column.offsets[row + 1] = static_cast<int32_t>(column.size);
        });
        row++;
        return true;
    });
}
