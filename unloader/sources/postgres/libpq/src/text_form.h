// A row of COPY's text form into the bytes of its CSV form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "blocks.h"

namespace unloader::postgres {

// How the caller describes a dialect; as text_form.py has it.
struct Dialect {
    const char* null;
    const uint8_t* forced;  // one a column: 1 where every value but NULL is quoted
    int64_t null_size;
    int64_t columns;  // at least one
    char delimiter;
    char quote;
};

class TextForm {
public:
    // Behind what is written so many bytes may be overwritten.
    static constexpr size_t SLACK = BLOCK;

    explicit TextForm(const Dialect& dialect);

    // Returns how much room a row takes at most, quickly.
    size_t loose_room(size_t size) const { return 2 * size + own_ + SLACK; }

    // The same, nearer to what it takes.
    size_t tight_room(const char* row, size_t size) const;

    // Writes a row, for which there is as much room, and returns its end; a null pointer where the
    // text is not such a row. Each escape that PostgreSQL documents is understood.
    char* put(const char* row, size_t size, char* out) const;

    // The same for a row at the end of the room that it takes, which it is written over.
    char* put_over(const char* row, size_t size, char* out) const;

private:
    char* put_plain(const char* at, const char* end, char* out) const;
    char* put_each(const char* at, const char* end, char* out) const;
    char* put_value(const char*& at, const char* end, size_t column, char* out) const;
    char* put_text(const char*& at, const char* end, char* out, bool& is_quoted) const;
    bool must_quote(const char* text, size_t size) const;
    const char* skip(const char* at, const char* end) const;

    std::string null_;
    std::vector<bool> forced_;
    size_t own_;  // room for quotes and NULLs
    char delimiter_;
    char quote_;
    bool is_stop_[256] = {};    // what a run of plain text ends before
    bool is_quoted_[256] = {};  // what puts a value in quotes
    bool looks_at_all_;         // any value may need quotes, whatever is in it
    Blocks blocks_;
};

}  // namespace unloader::postgres
