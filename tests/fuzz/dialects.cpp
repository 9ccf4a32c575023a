#include "dialects.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace fuzz {
namespace {

class Reader {
public:
    explicit Reader(std::string data) : data_(std::move(data)) {}

    bool more() const { return at_ < data_.size(); }

    uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }

    int32_t number() {
        int32_t value;
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }

    std::string text() { return take(static_cast<size_t>(number())); }

private:
    std::string take(size_t size) {
        if (data_.size() - at_ < size) fail("the table of dialects is cut off");
        at_ += size;
        return data_.substr(at_ - size, size);
    }

    std::string data_;
    size_t at_ = 0;
};

Dialect read_dialect(Reader& reader) {
    Dialect dialect;
    for (auto* text : {&dialect.description, &dialect.delimiter, &dialect.enclosure,
                       &dialect.null_text, &dialect.eol, &dialect.separator, &dialect.true_text,
                       &dialect.false_text}) {
        *text = reader.text();
    }
    dialect.encloses = reader.byte() != 0;
    dialect.escape = static_cast<Escape>(reader.byte());
    dialect.trailing = reader.byte() != 0;
    dialect.digits = reader.byte();
    dialect.binary = reader.byte();
    dialect.encoding = static_cast<Encoding>(reader.byte());
    for (int32_t left = reader.number(); left; --left) {
        ColumnFacts column{};
        column.kind = static_cast<unloader::Kind>(reader.byte());
        column.index = static_cast<unloader::Kind>(reader.byte());
        column.width = reader.number();
        column.scale = reader.number();
        dialect.columns.push_back(column);
    }
    return dialect;
}

}  // namespace

const std::vector<Dialect>& dialects() {
    static const std::vector<Dialect> all = [] {
        const char* path = std::getenv("UNLOADER_FUZZ_DIALECTS");
        std::ifstream file(path ? path : "", std::ios::binary);
        if (!file) fail("UNLOADER_FUZZ_DIALECTS names no file");
        Reader reader({std::istreambuf_iterator<char>(file), {}});
        std::vector<Dialect> found;
        while (reader.more()) found.push_back(read_dialect(reader));
        if (found.empty()) fail("the table of dialects is empty");
        return found;
    }();
    return all;
}

std::string shown(const std::string& text) {
    std::string out = "'";
    for (const char c : text) {
        char code[5];
        const auto byte = static_cast<unsigned char>(c);
        std::snprintf(code, sizeof code, byte < 0x20 || byte > 0x7E ? "\\x%02x" : "%c", byte);
        out += code;
    }
    return out + "'";
}

void fail(const std::string& sentence) {
    std::fprintf(stderr, "FOUND: %s\n", sentence.c_str());
    std::abort();
}

}  // namespace fuzz
