// What Python is told of a column, and what it gets back: pages, not yet compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace unloader {

// How the values of a column lie in Arrow; the same numbers are in writers.parquet.native.pages.
enum class Source : int32_t {
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    DECIMAL,  // of 128 bits
    TEXT32,   // text or bytes, with offsets of 32 bits
    TEXT64,
    FIXED,  // bytes of one length
};

// These two have the numbers of the Parquet format.
enum class Physical : int32_t {
    BOOLEAN = 0,
    INT32 = 1,
    INT64 = 2,
    FLOAT = 4,
    DOUBLE = 5,
    BYTE_ARRAY = 6,
    FIXED = 7,
};
enum class Encoding : int32_t {
    PLAIN = 0,
    RLE = 3,
    DELTAS = 5,
    PREFIXES = 7,
    DICTIONARY = 8,
    SPLIT = 9,
};

struct ColumnSpec {
    int32_t source;
    int32_t physical;
    int32_t encoding;
    int32_t width;      // bytes of a value of fixed length
    int32_t nullable;   // 1: it has definition levels
    int32_t is_signed;  // 0: numbers are compared without a sign
    int32_t bounds;     // 1: the least and the greatest value of each page are told
    int32_t factor;     // numbers are multiplied with it
};

enum class PageKind : int32_t { DATA = 0, DICTIONARY = 2 };

struct Page {
    char* memory;      // a block
    const char* data;  // in it
    uint64_t size;
    int64_t rows;  // of a dictionary: entries
    int64_t nulls;
    PageKind kind;
    Encoding encoding;
    bool bounded;
    std::string least;
    std::string greatest;
};

// A page as it is handed over; the same structure is in writers.parquet.native.pages.
struct PageOut {
    char* memory;
    const char* data;
    uint64_t size;
    int64_t rows;
    int64_t nulls;
    int32_t column;
    int32_t kind;
    int32_t encoding;
    int32_t bounded;
    const char* least;
    const char* greatest;
    uint64_t least_size;
    uint64_t greatest_size;
};

// A value that cannot be written, in the column that is being read.
class Refused : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace unloader
