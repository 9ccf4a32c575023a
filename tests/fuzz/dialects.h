// The dialects and schemas that inputs choose from: what dialect_table.py packed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "description.h"

namespace fuzz {

enum class Escape : uint8_t { DOUBLE = 0, BACKSLASH = 1, NONE = 2 };
enum class Encoding : uint8_t { UTF8 = 0, LATIN1 = 1, UTF16_LE = 2 };

struct ColumnFacts {
    unloader::Kind kind;   // as the encoder is told of it
    unloader::Kind index;  // of a dictionary; NONE: there is none
    int32_t width;
    int32_t scale;
};

// A dialect as a user would describe it, and what the encoder is given for it.
struct Dialect {
    std::string description;
    std::string delimiter, enclosure, null_text, eol, separator, true_text, false_text;
    bool encloses;
    Escape escape;
    bool trailing;
    uint8_t digits;
    uint8_t binary;  // prefixed-hex, hex, base64
    Encoding encoding;
    std::vector<ColumnFacts> columns;
};

// Reads the file that the environment variable UNLOADER_FUZZ_DIALECTS names, at the first call.
const std::vector<Dialect>& dialects();

// A text between quotes, with codes for what does not print.
std::string shown(const std::string& text);

// Ends the process with a sentence, as a sanitizer does.
[[noreturn]] void fail(const std::string& sentence);

}  // namespace fuzz
