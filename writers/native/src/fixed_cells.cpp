#include "fixed_cells.h"

#include <cstring>

namespace unloader {

FixedCells::FixedCells(const Column& column, const FixedField& field, const Charset* charset,
                       const std::string& blank)
    : column_(column), field_(field), charset_(charset), blank_(blank) {}

Outcome FixedCells::write(char*& out, int64_t row) {
    std::string_view text;
    const Outcome outcome = take_text(row, text);
    return outcome == Outcome::WRITTEN ? put(out, text) : outcome;
}

Outcome FixedCells::take_text(int64_t row, std::string_view& text) {
    const std::string& null = column_.style().format.null_text;
    const int64_t place = column_.place(row);
    if (place < 0) {
        text = null;
        return Outcome::WRITTEN;
    }
    if (column_.is_text()) {
        text = column_.bytes(place);
    } else {
        made_.resize(column_.bound_at(place));
        char* end = made_.data();
        const Outcome outcome = column_.write(end, place);
        if (outcome != Outcome::WRITTEN) return outcome;
        text = {made_.data(), static_cast<size_t>(end - made_.data())};
    }
    if (field_.padded) {
        while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    }
    if (text == null) return Outcome::REFUSED;
    const bool stripped = !text.empty() && static_cast<unsigned char>(text.back()) <= ' ';
    return field_.free && stripped ? Outcome::REFUSED : Outcome::WRITTEN;
}

Outcome FixedCells::put(char*& out, std::string_view text) {
    if (charset_ && !text.empty()) {
        const size_t most = charset_->bound(text.size());
        if (encoded_.size() < most) encoded_.resize(most);
        const char* end = charset_->write(encoded_.data(), text.data(), text.size());
        if (!end) return Outcome::REFUSED;
        text = {encoded_.data(), static_cast<size_t>(end - encoded_.data())};
    }
    if (text.size() > field_.width) return Outcome::REFUSED;
    const size_t blanks = field_.width - text.size();
    char* const start = field_.right ? out + blanks : out;
    if (!text.empty()) std::memcpy(start, text.data(), text.size());
    fill(field_.right ? out : out + text.size(), blanks);
    out += field_.width;
    return Outcome::WRITTEN;
}

void FixedCells::fill(char* out, size_t bytes) const {
    if (blank_.size() == 1) {
        std::memset(out, blank_[0], bytes);
        return;
    }
    for (size_t done = 0; done + blank_.size() <= bytes; done += blank_.size()) {
        std::memcpy(out + done, blank_.data(), blank_.size());
    }
}

}  // namespace unloader
