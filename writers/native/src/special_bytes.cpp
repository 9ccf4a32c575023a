#include "special_bytes.h"

namespace unloader {

void SpecialBytes::add_first(const std::string& mark) {
    if (mark.empty()) return;
    const auto byte = static_cast<uint8_t>(mark[0]);
    if (member_[byte]) return;
    member_[byte] = true;
    if (count_ < MOST_NEEDLES) needles_[count_] = byte;
    ++count_;
}

template <int COUNT>
bool SpecialBytes::search(const char* text, size_t size) const {
    // Blocks of a fixed size without a way out: compilers turn them into vector instructions.
    constexpr size_t BLOCK = 64;
    const auto* bytes = reinterpret_cast<const uint8_t*>(text);
    uint8_t needles[COUNT];
    for (int n = 0; n < COUNT; ++n) needles[n] = needles_[n];
    while (size >= BLOCK) {
        uint8_t found = 0;
        for (size_t i = 0; i < BLOCK; ++i) {
            for (int n = 0; n < COUNT; ++n) found |= static_cast<uint8_t>(bytes[i] == needles[n]);
        }
        if (found) return true;
        bytes += BLOCK;
        size -= BLOCK;
    }
    return occur_in_short(reinterpret_cast<const char*>(bytes), size);
}

bool SpecialBytes::occur_in(const char* text, size_t size) const {
    switch (count_) {
        case 0: return false;
        case 1: return search<1>(text, size);
        case 2: return search<2>(text, size);
        case 3: return search<3>(text, size);
        case 4: return search<4>(text, size);
        case 5: return search<5>(text, size);
        case 6: return search<6>(text, size);
        case 7: return search<7>(text, size);
        case 8: return search<8>(text, size);
        default: return occur_in_short(text, size);
    }
}

}  // namespace unloader
