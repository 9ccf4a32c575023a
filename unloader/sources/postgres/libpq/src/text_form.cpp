// The rules of both forms are those of CopyAttributeOutText and CopyAttributeOutCSV in PostgreSQL's
// copyto.c, up to version 13 in copy.c, and are the same in all versions from 10 to 18.
#include "text_form.h"

#include <algorithm>
#include <cstring>

namespace unloader::postgres {

namespace {

constexpr char TAB = '\t', ESCAPE = '\\';

size_t index_of(char byte) { return static_cast<uint8_t>(byte); }

int octal(char byte) { return byte >= '0' && byte <= '7' ? byte - '0' : -1; }

int hex(char byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    const char lower = static_cast<char>(byte | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Reads up to `most` digits; leaves `at` behind them.
char number(const char*& at, const char* end, int most, int bits, int (*digit)(char)) {
    int value = 0;
    for (int one; most-- > 0 && at < end && (one = digit(*at)) >= 0; at++) {
        value = (value << bits | one) & 0xFF;
    }
    return static_cast<char>(value);
}

// Counts bits: the compiler has an instruction for it only where it is told of the processor.
size_t count_of(uint64_t bits) {
    bits -= bits >> 1 & 0x5555555555555555;
    bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333);
    return ((bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0F) * 0x0101010101010101 >> 56;
}

// Reads what is behind a backslash; false where nothing is, or a line ends.
bool unescape(const char*& at, const char* end, char& byte) {
    if (at == end || *at == '\n' || *at == '\r') return false;
    if (octal(*at) >= 0) {
        byte = number(at, end, 3, 3, octal);
        return true;
    }
    const char letter = *at++;
    switch (letter) {
        case 'b': byte = '\b'; break;
        case 'f': byte = '\f'; break;
        case 'n': byte = '\n'; break;
        case 'r': byte = '\r'; break;
        case 't': byte = '\t'; break;
        case 'v': byte = '\v'; break;
        case 'x':
            byte = at < end && hex(*at) >= 0 ? number(at, end, 2, 4, hex) : letter;
            break;
        default: byte = letter;
    }
    return true;
}

}  // namespace

TextForm::TextForm(const Dialect& dialect)
    : null_(dialect.null, static_cast<size_t>(dialect.null_size)),
      forced_(dialect.forced, dialect.forced + dialect.columns),
      own_((null_.size() + 2) * forced_.size() + 2),
      delimiter_(dialect.delimiter),
      quote_(dialect.quote),
      blocks_({ESCAPE, '\n', '\r', dialect.delimiter, dialect.quote}) {
    for (const char byte : {'\n', '\r', delimiter_, quote_}) {
        is_stop_[index_of(byte)] = is_quoted_[index_of(byte)] = true;
    }
    is_stop_[index_of(ESCAPE)] = is_stop_[index_of(TAB)] = true;
    // A text with a backslash is never sent as it is: it equals NULL only where it is looked at.
    const bool is_hidden = null_.empty() || null_.find(ESCAPE) != std::string::npos;
    looks_at_all_ = !is_hidden || std::find(forced_.begin(), forced_.end(), true) != forced_.end();
}

size_t TextForm::tight_room(const char* row, size_t size) const {
    // A quote that is sent as an escape takes two bytes at least, as it will when it is doubled.
    return size + static_cast<size_t>(std::count(row, row + size, quote_)) + own_ + SLACK;
}

char* TextForm::put(const char* row, size_t size, char* out) const {
    if (size == 0 || row[size - 1] != '\n') return nullptr;
    const char* end = row + size - 1;
    out = looks_at_all_ ? put_each(row, end, out) : put_plain(row, end, out);
    if (out != nullptr) *out++ = '\n';
    return out;
}

// Each value is read but once and in order, and less is written at any time than what has been read
// and the room in front of it.
char* TextForm::put_over(const char* row, size_t size, char* out) const {
    if (size == 0 || row[size - 1] != '\n') return nullptr;
    out = put_each(row, row + size - 1, out);
    if (out != nullptr) *out++ = '\n';
    return out;
}

// Most values are their own CSV: text is copied, and only the others are looked at one by one.
char* TextForm::put_plain(const char* at, const char* end, char* out) const {
    const bool quotes_empty = null_.empty();
    const char* value = at;   // where the value under way begins
    char* value_out = out;
    size_t column = 0;
    uint64_t before = 1;      // whether a value begins here
    while (at < end) {
        const size_t size = std::min(BLOCK, static_cast<size_t>(end - at));
        auto [tabs, others] = blocks_.copy(at, size, out, delimiter_);
        // A tab right behind another one ends an empty value.
        if (quotes_empty) others |= tabs & (tabs << 1 | before);
        const uint64_t first = others & (~others + 1);
        if (first != 0) tabs &= first - 1;
        if (tabs != 0) {
            const size_t next = BLOCK - static_cast<size_t>(__builtin_clzll(tabs));
            column += count_of(tabs);
            value = at + next;
            value_out = out + next;
        }
        if (first == 0) {
            before = tabs >> (size - 1);
            at += size;
            out += size;
            continue;
        }
        at = value;
        out = put_value(at, end, column, value_out);
        if (out == nullptr) return nullptr;
        if (at == end) return column + 1 == forced_.size() ? out : nullptr;
        *out++ = delimiter_;
        value = ++at;
        value_out = out;
        column++;
        before = 1;
    }
    if (column + 1 != forced_.size()) return nullptr;
    return value == end ? put_value(value, end, column, value_out) : out;
}

char* TextForm::put_each(const char* at, const char* end, char* out) const {
    for (size_t column = 0;; column++) {
        out = put_value(at, end, column, out);
        if (out == nullptr) return nullptr;
        if (at == end) return column + 1 == forced_.size() ? out : nullptr;
        *out++ = delimiter_;
        at++;
    }
}

// Leaves `at` on the tab behind the value, or at the end. The room is that for as many values as
// there are columns: no more are written.
char* TextForm::put_value(const char*& at, const char* end, size_t column, char* out) const {
    if (column >= forced_.size()) return nullptr;
    const ptrdiff_t left = end - at;
    if (left >= 2 && at[0] == ESCAPE && at[1] == 'N' && (left == 2 || at[2] == TAB)) {
        at += 2;
        std::memcpy(out, null_.data(), null_.size());
        return out + null_.size();
    }
    char* text = out + 1;
    bool is_quoted = forced_[column];
    char* text_end = put_text(at, end, text, is_quoted);
    if (text_end == nullptr) return nullptr;
    const size_t size = static_cast<size_t>(text_end - text);
    if (is_quoted || must_quote(text, size)) {
        *out = *text_end = quote_;
        return text_end + 1;
    }
    std::memmove(out, text, size);
    return out + size;
}

// Writes a value as it is between quotes.
char* TextForm::put_text(const char*& at, const char* end, char* out, bool& is_quoted) const {
    for (;;) {
        const char* stop = skip(at, end);
        const size_t size = static_cast<size_t>(stop - at);
        std::memmove(out, at, size);
        out += size;
        at = stop;
        if (at == end || *at == TAB) return out;
        char byte = *at++;
        if (byte == ESCAPE) {
            if (!unescape(at, end, byte)) return nullptr;
        } else if (byte == '\n' || byte == '\r') {
            return nullptr;
        }
        is_quoted |= is_quoted_[index_of(byte)];
        if (byte == quote_) *out++ = byte;
        *out++ = byte;
    }
}

// Tells of a value without any byte that wants quotes whether it would read as something else.
bool TextForm::must_quote(const char* text, size_t size) const {
    if (size == null_.size() && std::memcmp(text, null_.data(), size) == 0) return true;
    return forced_.size() == 1 && size == 2 && text[0] == '\\' && text[1] == '.';
}

const char* TextForm::skip(const char* at, const char* end) const {
    at = blocks_.skip(at, end);
    while (at < end && !is_stop_[index_of(*at)]) at++;
    return at;
}

}  // namespace unloader::postgres
