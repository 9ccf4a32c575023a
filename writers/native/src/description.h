// What the encoder is told of a format and its columns, as writers.native.description packs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace unloader {

// How values lie in memory; the numbers are those of writers.native.description.
enum class Kind : uint8_t {
    NONE = 0,
    BOOLEAN = 1,
    INT8 = 2,
    INT16 = 3,
    INT32 = 4,
    INT64 = 5,
    UINT8 = 6,
    UINT16 = 7,
    UINT32 = 8,
    UINT64 = 9,
    FLOAT32 = 10,
    FLOAT64 = 11,
    DECIMAL = 12,
    MOMENT = 13,
    TEXT32 = 14,
    TEXT64 = 15,
    TEXT_VIEW = 16,
    BINARY32 = 17,
    BINARY64 = 18,
    BINARY_VIEW = 19,
    BINARY_FIXED = 20,
    UUID = 21,
};

constexpr uint8_t LAST_KIND = 21;

enum class BinaryForm : uint8_t { PREFIXED_HEX = 0, HEX = 1, BASE64 = 2 };

// What is done to a text that holds marks.
enum class Protection : uint8_t {
    ENCLOSED = 0,  // where needed, or always
    ESCAPED = 1,   // never enclosed; backslashes
    REFUSED = 2,   // never enclosed nor escaped
};

struct Replacement {
    std::string from;
    std::string to;
};

struct FixedField {
    uint64_t width;  // bytes in the output encoding
    bool right;      // text stands at the right end
    bool padded;     // blanks at a value's end mean nothing
    bool free;       // a value may end in anything, also in what a reader would strip
};

struct ColumnSpec {
    Kind kind;
    Kind index;      // of a dictionary; NONE: there is none
    int32_t width;   // bytes of a decimal or of fixed-size binary
    int32_t scale;   // of a decimal
    bool always;     // enclose every value but NULL
    bool leaves;     // no text of the type holds a character that the format minds
    bool like_null;  // a text of the type may equal one of `equals`
    std::string moments;
};

struct Format {
    std::string delimiter;
    std::string enclosure;
    std::string null_text;
    std::string end;  // of a record: a trailing delimiter, if any, and the end of line
    std::string decimal_separator;
    std::string true_text;
    std::string false_text;
    BinaryForm binary;
    uint32_t length_digits;
    Protection protection;
    bool refuse_enclosure;               // inside an enclosed value
    std::vector<std::string> refused;    // in any value, enclosed or not
    std::vector<std::string> enclosed_for;
    std::vector<std::string> equals;     // texts that may not stand bare
    std::vector<std::string> forbidden;  // in bare values
    std::vector<std::string> runs;       // marks a bare value's end may not run into
    bool enclosure_runs;                 // whether an enclosed value's end may run into its mark
    std::vector<Replacement> inside;     // of an enclosed value
    std::vector<Replacement> bare;
    std::string protected_null;          // empty: there is none
    std::string charset;                 // empty: UTF-8
    std::vector<FixedField> fixed;       // empty: delimited
    std::vector<ColumnSpec> columns;

    // nullptr: malformed.
    static std::unique_ptr<Format> read(const uint8_t* description, size_t size);
};

}  // namespace unloader
