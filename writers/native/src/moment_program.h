// What a mask asks for, read from the bytes that writers.native.description makes of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace unloader {

// Numbers that elements are made of. The first seven are of two digits, and can be pairs.
enum Source : uint8_t {
    CENTURY,          // of the counted year, without thousands of centuries
    YEAR_OF_CENTURY,  // the same
    MONTH,            // from 1, as the day
    DAY,
    HOUR,  // 24 is the end of the last day of a time
    MINUTE,
    SECOND,
    ERA,  // 0 before the year 1, else 1
    YEAR_DAY,  // from 0
    WEEK_DAY,  // 0 is Sunday
    ISO_WEEK,
    ISO_YEAR,
    COUNTED_YEAR,  // of its era, from 1
    JULIAN_DAY,
    DAY_SECOND,
    SOURCES,
};

constexpr uint8_t PAIR_SOURCES = ERA;

enum class OpCode : uint8_t {
    LITERAL,
    PAIR,      // a source's two digits
    TABLE,     // a ready text for each number of a source
    NUMBER,    // a source's digits
    FRACTION,  // so many digits of the second's fraction
    TRIMMED,   // point and fraction without zeros at its end, nothing for a whole second
};

constexpr size_t SLOT_BYTES = 16;

struct Op {
    OpCode code;
    Source source;
    uint8_t digits;  // of FRACTION; of NUMBER those kept, 0 for all
    uint8_t pad;     // of NUMBER: the fewest digits
    std::string text;             // of LITERAL; of TABLE slots of SLOT_BYTES each
    std::vector<uint8_t> lengths;  // of TABLE: of the text in each slot
    uint32_t first;                // of TABLE: the number of the first slot
};

enum class ValueKind : uint8_t { DAYS, TICKS, TIME_OF_DAY };

// What is refused.
enum Check : uint8_t {
    TIME_OF_DAY_REFUSED = 1,
    YEAR_CHECKED = 2,
    ISO_YEAR_CHECKED = 4,
    JULIAN_DAY_CHECKED = 8,
};

struct MomentProgram {
    ValueKind kind;
    uint8_t unit_digits;  // 0, 3, 6 or 9
    uint8_t checks;
    bool wide;
    uint32_t kept;    // ticks of a second's fraction that must divide it; 1: none is refused
    int64_t shift;    // ticks from UTC to local time
    int32_t first_year;
    std::vector<Op> ops;

    bool uses(Source source) const;
};

// Returns false where the bytes are not a program.
bool read_program(const uint8_t* bytes, size_t size, MomentProgram& program);

}  // namespace unloader
