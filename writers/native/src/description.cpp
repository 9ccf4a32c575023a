#include "description.h"

#include <cstring>

namespace unloader {
namespace {

// Takes little-endian numbers and counted texts off the front; `failed` once there are too few
// bytes.
class Reader {
public:
    Reader(const uint8_t* data, size_t size) : data_(data), rest_(size) {}

    template <typename Number>
    Number number() {
        Number value{};
        if (rest_ < sizeof value) {
            failed = true;
            rest_ = 0;
            return value;
        }
        std::memcpy(&value, data_, sizeof value);
        data_ += sizeof value;
        rest_ -= sizeof value;
        return value;
    }

    bool flag() { return number<uint8_t>() != 0; }

    std::string text() {
        const auto size = number<uint32_t>();
        if (rest_ < size) {
            failed = true;
            rest_ = 0;
            return {};
        }
        std::string text(reinterpret_cast<const char*>(data_), size);
        data_ += size;
        rest_ -= size;
        return text;
    }

    // A counted list; each item takes at least one byte, so a wild count ends soon.
    template <typename Read>
    auto list(Read read) {
        std::vector<decltype(read())> items;
        for (auto left = number<uint32_t>(); left && !failed; --left) items.push_back(read());
        return items;
    }

    bool at_end() const { return rest_ == 0; }

    bool failed = false;

private:
    const uint8_t* data_;
    size_t rest_;
};

Kind kind_of(Reader& reader) {
    const auto number = reader.number<uint8_t>();
    if (number > LAST_KIND) reader.failed = true;
    return static_cast<Kind>(number);
}

ColumnSpec column_of(Reader& reader) {
    ColumnSpec column{};
    column.kind = kind_of(reader);
    column.index = kind_of(reader);
    column.width = reader.number<int32_t>();
    column.scale = reader.number<int32_t>();
    column.always = reader.flag();
    column.leaves = reader.flag();
    column.like_null = reader.flag();
    column.moments = reader.text();
    return column;
}

FixedField field_of(Reader& reader) {
    FixedField field{};
    field.width = reader.number<uint64_t>();
    field.right = reader.flag();
    field.padded = reader.flag();
    field.free = reader.flag();
    return field;
}

}  // namespace

std::unique_ptr<Format> Format::read(const uint8_t* description, size_t size) {
    Reader reader(description, size);
    const auto text = [&] { return reader.text(); };
    const auto pair = [&] {
        Replacement replacement;
        replacement.from = reader.text();
        replacement.to = reader.text();
        return replacement;
    };
    auto format = std::make_unique<Format>();
    format->delimiter = text();
    format->enclosure = text();
    format->null_text = text();
    format->end = text();
    format->decimal_separator = text();
    format->true_text = text();
    format->false_text = text();
    format->binary = static_cast<BinaryForm>(reader.number<uint8_t>());
    format->length_digits = reader.number<uint32_t>();
    format->protection = static_cast<Protection>(reader.number<uint8_t>());
    format->refuse_enclosure = reader.flag();
    format->refused = reader.list(text);
    format->enclosed_for = reader.list(text);
    format->equals = reader.list(text);
    format->forbidden = reader.list(text);
    format->runs = reader.list(text);
    format->enclosure_runs = reader.flag();
    format->inside = reader.list(pair);
    format->bare = reader.list(pair);
    format->protected_null = text();
    format->charset = text();
    format->fixed = reader.list([&] { return field_of(reader); });
    format->columns = reader.list([&] { return column_of(reader); });
    if (reader.failed || !reader.at_end() || format->length_digits > 20) return nullptr;
    if (!format->fixed.empty() && format->fixed.size() != format->columns.size()) return nullptr;
    return format;
}

}  // namespace unloader
