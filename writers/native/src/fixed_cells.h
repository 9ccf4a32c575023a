// The fields of a column in records of fixed width: writers.text.fixed_width for one value at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "charsets.h"
#include "columns.h"

namespace unloader {

class FixedCells {
public:
    // `charset` is nullptr for UTF-8; `blank` is a blank in it. All must outlive this.
    FixedCells(const Column& column, const FixedField& field, const Charset* charset,
               const std::string& blank);

    // Writes the field of a row, exactly its width, and moves `out` behind it.
    Outcome write(char*& out, int64_t row);

private:
    Outcome take_text(int64_t row, std::string_view& text);
    Outcome put(char*& out, std::string_view text);
    void fill(char* out, size_t bytes) const;

    const Column& column_;
    const FixedField& field_;
    const Charset* charset_;
    const std::string& blank_;
    std::vector<char> made_;     // a text that is not in memory
    std::vector<char> encoded_;  // the same in the character set
};

}  // namespace unloader
