#include "wide_charsets.h"

#include "utf8.h"

namespace unloader {
namespace {

template <bool Big>
inline void put16(char* out, uint32_t unit) {
    out[Big ? 1 : 0] = static_cast<char>(unit & 0xFF);
    out[Big ? 0 : 1] = static_cast<char>(unit >> 8);
}

template <bool Big>
inline void put32(char* out, uint32_t character) {
    put16<Big>(out + (Big ? 2 : 0), character & 0xFFFF);
    put16<Big>(out + (Big ? 0 : 2), character >> 16);
}

template <bool Big>
struct Utf16 {
    static constexpr size_t UNIT = 2;

    static void put_ascii(char* out, uint8_t character) { put16<Big>(out, character); }

    static char* put(char* out, uint32_t character) {
        if (character < 0x10000) {
            put16<Big>(out, character);
            return out + 2;
        }
        const uint32_t rest = character - 0x10000;
        put16<Big>(out, 0xD800 | rest >> 10);
        put16<Big>(out + 2, 0xDC00 | (rest & 0x3FF));
        return out + 4;
    }
};

template <bool Big>
struct Utf32 {
    static constexpr size_t UNIT = 4;

    static void put_ascii(char* out, uint8_t character) { put32<Big>(out, character); }

    static char* put(char* out, uint32_t character) {
        put32<Big>(out, character);
        return out + 4;
    }
};

template <class Form>
class Wide final : public Charset {
public:
    // ASCII grows most: every other character takes at least half its bytes in UTF-8 per unit.
    size_t bound(size_t utf8_bytes) const override { return utf8_bytes * Form::UNIT; }

    char* write(char* out, const char* text, size_t size) const override {
        const auto* next = reinterpret_cast<const uint8_t*>(text);
        const uint8_t* end = next + size;
        while (next < end) {
            while (end - next >= 8 && eight_ascii(next)) {
                for (size_t index = 0; index < 8; ++index) {
                    Form::put_ascii(out + index * Form::UNIT, next[index]);
                }
                out += 8 * Form::UNIT;
                next += 8;
            }
            if (next == end) break;
            const uint32_t character = next_character(next, end);
            if (character == NOT_UTF8) return nullptr;
            out = Form::put(out, character);
        }
        return out;
    }
};

}  // namespace

std::unique_ptr<Charset> make_wide(uint8_t kind) {
    switch (kind) {
        case 1: return std::make_unique<Wide<Utf16<false>>>();
        case 2: return std::make_unique<Wide<Utf16<true>>>();
        case 3: return std::make_unique<Wide<Utf32<false>>>();
        case 4: return std::make_unique<Wide<Utf32<true>>>();
        default: return nullptr;
    }
}

}  // namespace unloader
