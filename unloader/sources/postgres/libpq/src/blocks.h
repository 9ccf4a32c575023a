// 64 bytes at once: which of them are tabs, and which want a closer look.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace unloader::postgres {

constexpr size_t BLOCK = 64;

// One bit a byte, the lowest for the first.
struct Marks {
    uint64_t tabs;
    uint64_t others;
};

// A tab counts as nothing else, though it be among the other bytes.
#if defined(__SSE2__)
class Blocks {
public:
    // Looks for tabs and these.
    explicit Blocks(const char (&bytes)[5]) {
        for (size_t n = 0; n < 5; n++) bytes_[n] = _mm_set1_epi8(bytes[n]);
    }

    // Copies up to a block with `in_place` for each tab, and tells what it has. Behind the bytes
    // that are copied as many as make a block may be overwritten.
    Marks copy(const char* from, size_t size, char* out, char in_place) const {
        Marks marks{0, 0};
        if (size == BLOCK) {
            for (size_t at = 0; at < BLOCK; at += STEP) step(from + at, at, out, in_place, marks);
        } else {
            copy_last(from, size, out, in_place, marks);
        }
        marks.others &= ~marks.tabs;
        return marks;
    }

    // Returns the first tab or other byte, or a place with fewer bytes than a step behind it.
    const char* skip(const char* at, const char* end) const {
        const __m128i tab = _mm_set1_epi8('\t');
        for (; end - at >= static_cast<ptrdiff_t>(STEP); at += STEP) {
            const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
            const uint64_t hits = bits(_mm_or_si128(_mm_cmpeq_epi8(text, tab), found(text)));
            if (hits != 0) return at + __builtin_ctzll(hits);
        }
        return at;
    }

private:
    static constexpr size_t STEP = 16;

    void copy_last(const char* from, size_t size, char* out, char in_place, Marks& marks) const {
        size_t at = 0;
        for (; at + STEP <= size; at += STEP) step(from + at, at, out, in_place, marks);
        if (at == size) return;
        char rest[STEP] = {};
        std::memcpy(rest, from + at, size - at);
        step(rest, at, out, in_place, marks);
        const uint64_t all = (uint64_t{1} << size) - 1;
        marks.tabs &= all;
        marks.others &= all;
    }

    void step(const char* from, size_t at, char* out, char in_place, Marks& marks) const {
        const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        const __m128i tabs = _mm_cmpeq_epi8(text, _mm_set1_epi8('\t'));
        const __m128i others = _mm_and_si128(tabs, _mm_set1_epi8(in_place));
        const __m128i mixed = _mm_or_si128(others, _mm_andnot_si128(tabs, text));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + at), mixed);
        marks.tabs |= bits(tabs) << at;
        marks.others |= bits(found(text)) << at;
    }

    static uint64_t bits(__m128i mask) { return static_cast<uint32_t>(_mm_movemask_epi8(mask)); }

    __m128i found(__m128i text) const {
        __m128i any = _mm_cmpeq_epi8(text, bytes_[0]);
        for (size_t n = 1; n < 5; n++) any = _mm_or_si128(any, _mm_cmpeq_epi8(text, bytes_[n]));
        return any;
    }

    __m128i bytes_[5];
};
#else
class Blocks {
public:
    explicit Blocks(const char (&bytes)[5]) {
        for (const char byte : bytes) others_[static_cast<uint8_t>(byte)] = true;
        others_['\t'] = false;
    }

    Marks copy(const char* from, size_t size, char* out, char in_place) const {
        Marks marks{0, 0};
        for (size_t at = 0; at < size; at++) {
            const bool is_tab = from[at] == '\t';
            out[at] = is_tab ? in_place : from[at];
            marks.tabs |= uint64_t{is_tab} << at;
            marks.others |= uint64_t{others_[static_cast<uint8_t>(from[at])]} << at;
        }
        return marks;
    }

    const char* skip(const char* at, const char*) const { return at; }

private:
    bool others_[256] = {};
};
#endif

}  // namespace unloader::postgres
