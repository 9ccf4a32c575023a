#include "page_reader.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>

namespace fuzz {
namespace {

using unloader::ColumnSpec;
using unloader::Encoding;
using unloader::Physical;

size_t stored_bytes(const ColumnSpec& spec) {
    switch (static_cast<Physical>(spec.physical)) {
        case Physical::INT32:
        case Physical::FLOAT: return 4;
        case Physical::INT64:
        case Physical::DOUBLE: return 8;
        default: return static_cast<size_t>(spec.width);
    }
}

class Cursor {
public:
    explicit Cursor(const std::string& bytes) : bytes_(bytes) {}

    std::string take(size_t count) {
        if (count > bytes_.size() - at_) fail("a page ends too early");
        at_ += count;
        return bytes_.substr(at_ - count, count);
    }
    uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }
    uint32_t four() {
        const std::string bytes = take(4);
        uint32_t number;
        std::memcpy(&number, bytes.data(), sizeof number);
        return number;
    }
    uint64_t varint() {
        uint64_t number = 0;
        for (unsigned shift = 0; shift < 70; shift += 7) {
            const uint8_t byte = this->byte();
            number |= static_cast<uint64_t>(byte & 0x7F) << shift;
            if (!(byte & 0x80)) return number;
        }
        fail("a number has too many bytes");
    }
    int64_t zigzag() {
        const uint64_t number = varint();
        return static_cast<int64_t>(number >> 1 ^ (~(number & 1) + 1));
    }
    bool at_end() const { return at_ == bytes_.size(); }

private:
    const std::string& bytes_;
    size_t at_ = 0;
};

// Bit by bit, the lowest first.
std::vector<uint64_t> unpacked(const std::string& bytes, size_t count, unsigned width) {
    std::vector<uint64_t> numbers(count);
    for (size_t bit = 0; bit < count * width; ++bit) {
        const uint64_t set = static_cast<uint8_t>(bytes[bit / 8]) >> bit % 8 & 1;
        numbers[bit / width] |= set << bit % width;
    }
    return numbers;
}

std::vector<uint64_t> read_hybrid(Cursor& cursor, size_t count, unsigned width) {
    std::vector<uint64_t> numbers;
    while (numbers.size() < count) {
        const uint64_t header = cursor.varint();
        const auto length = static_cast<size_t>(header >> 1);
        if (!length) fail("a run is empty");
        if (header & 1) {
            const auto some = unpacked(cursor.take(length * width), length * 8, width);
            numbers.insert(numbers.end(), some.begin(), some.end());
            continue;
        }
        if (numbers.size() + length > count) fail("a run is too long");
        const std::string bytes = cursor.take((width + 7) / 8);
        const auto value = unpacked(bytes + std::string(8, '\0'), 1, static_cast<unsigned>(bytes.size() * 8));
        numbers.insert(numbers.end(), length, bytes.empty() ? 0 : value[0]);
    }
    // Groups are of eight, the last one filled up.
    if (numbers.size() >= count + 8) fail("there are too many numbers");
    numbers.resize(count);
    return numbers;
}

std::vector<uint64_t> read_deltas(Cursor& cursor, unsigned bits) {
    const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    const uint64_t block = cursor.varint();
    const uint64_t parts = cursor.varint();
    const uint64_t count = cursor.varint();
    if (block % 128 || !parts || block / parts % 32) fail("blocks have an impossible size");
    uint64_t last = static_cast<uint64_t>(cursor.zigzag()) & mask;
    std::vector<uint64_t> numbers;
    if (count) numbers.push_back(last);
    while (numbers.size() < count) {
        const auto least = static_cast<uint64_t>(cursor.zigzag());
        const std::string widths = cursor.take(parts);
        for (const char each : widths) {
            if (numbers.size() >= count) break;
            const auto width = static_cast<uint8_t>(each);
            if (width > bits) fail("a difference has too many bits");
            const size_t some = block / parts;
            for (const uint64_t more : unpacked(cursor.take(some * width / 8), some, width)) {
                if (numbers.size() >= count) break;
                last = (last + least + more) & mask;
                numbers.push_back(last);
            }
        }
    }
    return numbers;
}

std::string little_endian(uint64_t number, size_t size) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &number, 8);
    return bytes.substr(0, size);
}

std::vector<std::string> read_plain(const ColumnSpec& spec, Cursor& cursor, size_t count) {
    std::vector<std::string> values;
    const auto physical = static_cast<Physical>(spec.physical);
    if (physical == Physical::BOOLEAN) {
        for (const uint64_t bit : unpacked(cursor.take((count + 7) / 8), count, 1)) {
            values.emplace_back(1, static_cast<char>(bit));
        }
        return values;
    }
    for (size_t i = 0; i < count; ++i) {
        const bool is_text = physical == Physical::BYTE_ARRAY;
        values.push_back(cursor.take(is_text ? cursor.four() : stored_bytes(spec)));
    }
    return values;
}

std::vector<std::string> read_split(const ColumnSpec& spec, Cursor& cursor, size_t count) {
    const size_t size = stored_bytes(spec);
    std::vector<std::string> values(count);
    for (size_t byte = 0; byte < size; ++byte) {
        const std::string bytes = cursor.take(count);
        for (size_t i = 0; i < count; ++i) values[i] += bytes[i];
    }
    return values;
}

std::vector<std::string> read_indexes(Cursor& cursor, size_t count,
                                      const std::vector<std::string>& dictionary) {
    std::vector<std::string> values;
    const uint8_t width = cursor.byte();
    if (width > 32) fail("numbers of entries have too many bits");
    for (const uint64_t index : read_hybrid(cursor, count, width)) {
        if (index >= dictionary.size()) fail("a dictionary lacks an entry");
        values.push_back(dictionary[index]);
    }
    return values;
}

std::vector<std::string> read_prefixes(Cursor& cursor) {
    const auto same = read_deltas(cursor, 32);
    const auto sizes = read_deltas(cursor, 32);
    if (same.size() != sizes.size()) fail("lengths and prefixes are of other values");
    std::vector<std::string> values;
    for (size_t i = 0; i < sizes.size(); ++i) {
        const std::string last = values.empty() ? std::string() : values.back();
        if (same[i] > last.size()) fail("a prefix is longer than the value before");
        values.push_back(last.substr(0, same[i]) + cursor.take(sizes[i]));
    }
    return values;
}

std::vector<std::string> read_values(const ColumnSpec& spec, const PageBytes& page, Cursor& cursor,
                                     size_t count, const std::vector<std::string>& dictionary) {
    std::vector<std::string> values;
    switch (page.encoding) {
        case Encoding::PLAIN: return read_plain(spec, cursor, count);
        case Encoding::SPLIT: return read_split(spec, cursor, count);
        case Encoding::DICTIONARY: return read_indexes(cursor, count, dictionary);
        case Encoding::PREFIXES: return read_prefixes(cursor);
        case Encoding::DELTAS: {
            const size_t size = stored_bytes(spec);
            for (const uint64_t number : read_deltas(cursor, static_cast<unsigned>(size * 8))) {
                values.push_back(little_endian(number, size));
            }
            return values;
        }
        default: fail("a page has an encoding that nobody asked for");
    }
}

}  // namespace

void fail(const std::string& sentence) {
    std::fprintf(stderr, "%s\n", sentence.c_str());
    std::abort();
}

bool PageBytes::operator==(const PageBytes& other) const {
    const auto all = [](const PageBytes& page) {
        return std::tie(page.bytes, page.rows, page.nulls, page.is_dictionary, page.encoding,
                        page.bounded, page.least, page.greatest);
    };
    return all(*this) == all(other);
}

std::vector<std::string> read_dictionary(const ColumnSpec& spec, const PageBytes& page) {
    Cursor cursor(page.bytes);
    auto entries = read_plain(spec, cursor, page.rows);
    if (!cursor.at_end()) fail("a dictionary has bytes behind its entries");
    return entries;
}

std::vector<Stored> read_page(const ColumnSpec& spec, const PageBytes& page,
                              const std::vector<std::string>& dictionary) {
    Cursor cursor(page.bytes);
    std::vector<uint64_t> levels(page.rows, 1);
    if (spec.nullable) {
        const std::string encoded = cursor.take(cursor.four());
        Cursor inner(encoded);
        levels = read_hybrid(inner, page.rows, 1);
        if (!inner.at_end()) fail("there are bytes behind the levels");
    }
    size_t count = 0;
    for (const uint64_t level : levels) count += level;
    if (page.rows - count != page.nulls) fail("NULLs are counted wrongly");
    const auto values = read_values(spec, page, cursor, count, dictionary);
    if (values.size() != count) fail("a page has other values than its levels say");
    if (!cursor.at_end()) fail("a page has bytes behind its values");
    std::vector<Stored> rows;
    size_t next = 0;
    for (const uint64_t level : levels) {
        rows.push_back(level ? Stored(values[next++]) : std::nullopt);
    }
    return rows;
}

}  // namespace fuzz
