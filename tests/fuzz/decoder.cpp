#include "decoder.h"

namespace fuzz {
namespace {

std::string utf8_of(char32_t c) {
    if (c < 0x80) return {static_cast<char>(c)};
    std::string text;
    if (c < 0x800) {
        text = {static_cast<char>(0xC0 | c >> 6)};
    } else if (c < 0x10000) {
        text = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F))};
    } else {
        text = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
                static_cast<char>(0x80 | (c >> 6 & 0x3F))};
    }
    return text + static_cast<char>(0x80 | (c & 0x3F));
}

std::string to_utf8(Encoding encoding, const std::string& data) {
    if (encoding == Encoding::UTF8) return data;
    const size_t unit = encoding == Encoding::LATIN1 ? 1 : 2;
    if (data.size() % unit) fail("half a character is written");
    std::vector<char32_t> units;
    for (size_t at = 0; at < data.size(); at += unit) {
        units.push_back(static_cast<uint8_t>(data[at]));
        if (unit == 2) units.back() |= char32_t{static_cast<uint8_t>(data[at + 1])} << 8;
    }
    std::string text;
    for (size_t at = 0; at < units.size(); ++at) {
        char32_t c = units[at];
        if (unit == 2 && c >= 0xD800 && c < 0xE000) {
            if (c >= 0xDC00 || ++at == units.size() || units[at] < 0xDC00 || units[at] > 0xDFFF) {
                fail("half a surrogate pair is written");
            }
            c = 0x10000 + ((c - 0xD800) << 10) + (units[at] - 0xDC00);
        }
        text += utf8_of(c);
    }
    return text;
}

class Reader {
public:
    Reader(const Dialect& dialect, std::string text) : dialect_(dialect), text_(std::move(text)) {}

    bool at_end() const { return at_ == text_.size(); }

    Record record() {
        Record found;
        const size_t count = dialect_.columns.size();
        for (size_t field = 0; field < count; ++field) {
            found.push_back(this->field());
            if (field + 1 < count || dialect_.trailing) expect(dialect_.delimiter);
        }
        expect(dialect_.eol);
        return found;
    }

private:
    bool looking_at(const std::string& mark) const {
        return !mark.empty() && text_.compare(at_, mark.size(), mark) == 0;
    }

    void expect(const std::string& mark) {
        if (!looking_at(mark)) {
            fail("at byte " + std::to_string(at_) + " of " + shown(text_) + " is no " + shown(mark));
        }
        at_ += mark.size();
    }

    char next() {
        if (at_end()) fail("a value has no end");
        return text_[at_++];
    }

    char character() {
        char c = next();
        if (c != '\\' || dialect_.escape != Escape::BACKSLASH) return c;
        c = next();
        return c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
    }

    std::optional<std::string> field() {
        if (dialect_.encloses && looking_at(dialect_.enclosure)) return enclosed();
        const size_t start = at_;
        std::string value;
        while (!looking_at(dialect_.delimiter) && !looking_at(dialect_.eol)) value += character();
        if (text_.compare(start, at_ - start, dialect_.null_text) == 0) return std::nullopt;
        return value;
    }

    std::string enclosed() {
        at_ += dialect_.enclosure.size();
        std::string value;
        for (;;) {
            if (!looking_at(dialect_.enclosure)) {
                value += character();
                continue;
            }
            at_ += dialect_.enclosure.size();
            if (dialect_.escape != Escape::DOUBLE || !looking_at(dialect_.enclosure)) return value;
            at_ += dialect_.enclosure.size();
            value += dialect_.enclosure;
        }
    }

    const Dialect& dialect_;
    std::string text_;
    size_t at_ = 0;
};

}  // namespace

std::vector<Record> decode(const Dialect& dialect, const std::string& data) {
    std::vector<Record> found;
    if (!dialect.digits) {
        Reader reader(dialect, to_utf8(dialect.encoding, data));
        while (!reader.at_end()) found.push_back(reader.record());
        return found;
    }
    const size_t prefix = dialect.digits * (dialect.encoding == Encoding::UTF16_LE ? 2u : 1u);
    for (size_t at = 0; at < data.size();) {
        const std::string digits = to_utf8(dialect.encoding, data.substr(at, prefix));
        if (digits.size() != dialect.digits) fail("a record length is cut off");
        const size_t length = std::stoull(digits);
        at += prefix;
        if (length > data.size() - at) fail("a record is shorter than its length says");
        Reader reader(dialect, to_utf8(dialect.encoding, data.substr(at, length)));
        found.push_back(reader.record());
        if (!reader.at_end()) fail("a record is longer than its length says");
        at += length;
    }
    return found;
}

}  // namespace fuzz
