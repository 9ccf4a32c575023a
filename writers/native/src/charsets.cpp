#include "charsets.h"

#include <cstring>

#include "utf8.h"
#include "wide_charsets.h"

namespace unloader {
namespace {

constexpr uint8_t UTF8 = 0;
constexpr uint8_t TABLE = 5;

constexpr size_t PAGE = 256;
constexpr size_t CODE_BYTES = 4;
// A code is copied as four bytes, whatever its length.
constexpr size_t SLACK = CODE_BYTES;

constexpr size_t HEADER = 6;
constexpr size_t PAGE_NUMBERS = 256;
constexpr size_t PAGE_BYTES = PAGE * (1 + CODE_BYTES);

class Utf8 final : public Charset {
public:
    size_t bound(size_t utf8_bytes) const override { return utf8_bytes; }

    char* write(char* out, const char* text, size_t size) const override {
        if (size) std::memcpy(out, text, size);
        return out + size;
    }
};

struct Page {
    uint8_t lengths[PAGE];  // of the codes, 0 where there is none
    uint8_t codes[PAGE][CODE_BYTES];
};

// Sets that give each character a code of one to four bytes, whatever stands beside it.
class Table final : public Charset {
public:
    static std::unique_ptr<Charset> make(const uint8_t* description, size_t size);

    size_t bound(size_t utf8_bytes) const override { return utf8_bytes * growth_ + SLACK; }

    char* write(char* out, const char* text, size_t size) const override {
        const auto* next = reinterpret_cast<const uint8_t*>(text);
        const uint8_t* end = next + size;
        while (next < end) {
            if (ascii_) {
                const size_t run = copy_ascii(out, next, end);
                next += run;
                out += run;
                if (next == end) break;
            }
            const uint32_t character = next_character(next, end);
            if (character >= 0x10000) {
                if (character == NOT_UTF8 || !linear_) return nullptr;
                out = write_linear(out, character - 0x10000);
                continue;
            }
            const Page& page = pages_[numbers_[character >> 8]];
            const uint8_t length = page.lengths[character & 0xFF];
            if (length == 0) return nullptr;
            std::memcpy(out, page.codes[character & 0xFF], CODE_BYTES);
            out += length;
        }
        return out;
    }

private:
    // GB 18030 counts characters beyond the first plane in four digits of base 126, 10, 126, 10.
    static char* write_linear(char* out, uint32_t index) {
        out[3] = static_cast<char>(0x30 + index % 10);
        index /= 10;
        out[2] = static_cast<char>(0x81 + index % 126);
        index /= 126;
        out[1] = static_cast<char>(0x30 + index % 10);
        out[0] = static_cast<char>(0x90 + index / 10);
        return out + 4;
    }

    bool ascii_ = false;   // ASCII stays as it is
    bool linear_ = false;  // what `write_linear` does
    size_t growth_ = 1;
    uint16_t numbers_[PAGE_NUMBERS] = {};
    std::unique_ptr<Page[]> pages_;  // the first has no codes
};

std::unique_ptr<Charset> Table::make(const uint8_t* description, size_t size) {
    if (size < HEADER + 2 * PAGE_NUMBERS) return nullptr;
    const size_t count = description[4] | description[5] << 8;
    if (size != HEADER + 2 * PAGE_NUMBERS + count * PAGE_BYTES || count > PAGE_NUMBERS) {
        return nullptr;
    }
    auto table = std::make_unique<Table>();
    table->ascii_ = description[1] != 0;
    table->linear_ = description[2] != 0;
    table->growth_ = description[3];
    if (table->growth_ == 0) return nullptr;
    table->pages_ = std::make_unique<Page[]>(count + 1);
    const uint8_t* next = description + HEADER;
    for (size_t index = 0; index < PAGE_NUMBERS; ++index, next += 2) {
        table->numbers_[index] = static_cast<uint16_t>(next[0] | next[1] << 8);
        if (table->numbers_[index] > count) return nullptr;
    }
    for (size_t index = 1; index <= count; ++index, next += PAGE_BYTES) {
        Page& page = table->pages_[index];
        std::memcpy(page.lengths, next, PAGE);
        std::memcpy(page.codes, next + PAGE, PAGE * CODE_BYTES);
        for (const uint8_t length : page.lengths) {
            if (length > CODE_BYTES) return nullptr;
        }
    }
    return table;
}

}  // namespace

std::unique_ptr<Charset> Charset::make(const uint8_t* description, size_t size) {
    if (size == 0) return nullptr;
    if (description[0] == TABLE) return Table::make(description, size);
    if (size != 1) return nullptr;
    if (description[0] == UTF8) return std::make_unique<Utf8>();
    return make_wide(description[0]);
}

}  // namespace unloader
