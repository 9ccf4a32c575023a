// Columns that grow value by value and leave as Arrow arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../../../../writers/native/src/arrow_abi.h"
#include "memory.h"

namespace unloader::oracle {

// What a column's values are on the wire, and become; the numbers are also in decoder.py.
enum class Kind : uint8_t {
    TEXT = 0,       // UTF-8
    WIDE_TEXT = 1,  // UTF-16, the higher byte first
    BYTES = 2,
    INT32 = 3,
    INT64 = 4,
    DECIMAL = 5,  // of 128 bits
    MOMENT = 6,   // a timestamp
    FLOAT = 7,
    DOUBLE = 8,
};

// As decoder.py has it.
struct Description {
    Kind kind;
    uint8_t digits;   // of a number, at most
    uint8_t places;   // behind the point of a number; of a moment's second
    uint8_t unused;
    uint32_t limit;   // bytes of a value, at most
};

class Column {
public:
    explicit Column(const Description& description);

    size_t limit() const { return description_.limit; }
    int64_t size() const { return size_; }

    // Make room for values of which each takes no more than its fixed width.
    void reserve(int64_t values);

    // Add the value of these bytes; false if it is none of the column. From its first byte on
    // `readable` bytes may be read, which makes short text cheaper.
    bool add(const uint8_t* bytes, size_t size, size_t readable);
    void add_null();
    // Add the value before once more, also if that left with an earlier array; there must be one.
    void repeat();

    // How many values at the start of the array are repeats of a value before it.
    int64_t repeats_before() const { return repeats_before_; }

    bool is_moment() const { return description_.kind == Kind::MOMENT; }

    // Whether all text is UTF-8.
    bool is_text() const;

    // Move all values into an array; the column is empty then, and knows its last value still.
    void take(ArrowArray* array);

    // Forget all values but the last one.
    void clear();

private:
    bool is_sized() const { return description_.kind <= Kind::BYTES; }
    bool add_text(const uint8_t* bytes, size_t size, size_t readable);
    bool add_wide_text(const uint8_t* bytes, size_t size);
    void add_bit(bool valid);
    void room_for_one();
    void room_for_text(size_t size);
    void keep_last();
    uint8_t* place() { return fixed_.data() + static_cast<size_t>(size_) * width_; }
    int32_t* ends() { return reinterpret_cast<int32_t*>(fixed_.data()); }

    Description description_;
    size_t width_;
    Memory fixed_;     // values, or where each text ends, with the start of the first in front
    Memory text_;
    Memory validity_;
    size_t text_size_ = 0;
    size_t text_before_ = 0;  // of the array before, and its values: as much a value is to be expected
    int64_t size_before_ = 0;
    int64_t size_ = 0;
    int64_t room_ = 0;  // for values
    int64_t nulls_ = 0;
    int64_t repeats_before_ = 0;
    bool last_null_ = false;
    std::vector<uint8_t> last_;
};

}  // namespace unloader::oracle
