// Records of COPY's CSV form as the buffers of Arrow arrays; see decode.cpp.
#pragma once

#include <cstdint>

namespace unloader::postgres {

// As decoding.py has them.
enum Kind : int32_t {
    BOOL = 0, INT16, INT32, INT64, UINT32, FLOAT, DOUBLE, DECIMAL, DATE, TIMESTAMP, STRING, BINARY,
    RAW  // bytes as they are, in binary rows
};

struct Column {
    int32_t kind;
    int32_t precision;  // of a decimal
    int32_t scale;
    int32_t zoned;      // a timestamp ends in Z
    void* values;       // STRING and BINARY: the bytes; BOOL: bits, all zero at first
    int32_t* offsets;   // of STRING and BINARY, one more than rows
    uint8_t* validity;  // bits, all set at first
    int64_t size;       // of the text; then of the values of a STRING or BINARY
    int64_t nulls;
};

// Where a value is: its first byte and its length, both without quotes, and two marks.
struct Place {
    uint32_t start;
    uint32_t length;
};

constexpr uint32_t QUOTED = 1u << 31, DOUBLED = 1u << 30, LENGTH = DOUBLED - 1;

}  // namespace unloader::postgres

extern "C" {
int64_t unloader_copy_lines(const char* text, int64_t size);
int64_t unloader_copy_index(const char* text, int64_t size, int64_t columns, int64_t most,
                            unloader::postgres::Place* places, unloader::postgres::Column* described);
int64_t unloader_copy_index_binary(const char* data, int64_t size, int64_t columns, int64_t most,
                                   unloader::postgres::Place* places,
                                   unloader::postgres::Column* described);
int32_t unloader_copy_decode(const char* text, const unloader::postgres::Place* places, int64_t rows,
                             unloader::postgres::Column* column);
}
