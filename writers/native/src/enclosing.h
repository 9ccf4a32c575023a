// When a value is enclosed or escaped: writers.text.enclosing for one value at a time.
#pragma once

#include <cstddef>
#include <string_view>

#include "description.h"
#include "special_bytes.h"

namespace unloader {

class Enclosing {
public:
    explicit Enclosing(const Format& format);

    // A text without these bytes is written as it is: between two enclosures where it is always
    // enclosed, bare where not, unless `minds` says otherwise.
    const SpecialBytes& special(bool always) const { return always ? inside_ : outside_; }

    // Tells whether a text may not stand bare though it holds nothing special.
    bool minds(std::string_view text) const {
        for (const auto& each : format_.equals) {
            if (text == each) return true;
        }
        return false;
    }

    // Most bytes that a text of so many becomes.
    size_t bound(size_t text_bytes) const { return 2 * text_bytes + most_added_; }

    // Writes the text as it stands between two delimiters and returns its end; nullptr: the format
    // has no way to write it. `out` is not within the text.
    char* write(char* out, std::string_view text, bool always) const;

private:
    char* enclosed(char* out, std::string_view text) const;
    char* escaped(char* out, std::string_view text) const;
    bool needs_enclosing(std::string_view text) const;
    bool may_stand_bare(std::string_view text) const;

    const Format& format_;
    SpecialBytes inside_;
    SpecialBytes outside_;
    size_t most_added_;
};

// Tells whether a reader that goes from left to right finds `mark` behind the text elsewhere than
// at the text's end.
bool runs_into(std::string_view text, std::string_view mark);

}  // namespace unloader
