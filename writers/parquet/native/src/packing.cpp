#include "packing.h"

#include <algorithm>

namespace unloader {

namespace {

constexpr size_t GROUP = 8;

template <typename Number>
void put_groups(Bytes& out, const Number* values, size_t count, unsigned width) {
    const size_t groups = (count + GROUP - 1) / GROUP;
    char header[10];
    out.append(header, static_cast<size_t>(put_varint(header, groups << 1 | 1) - header));
    uint32_t few[PACKED];
    for (size_t at = 0; at < count; at += PACKED) {
        const size_t taken = std::min(PACKED, count - at);
        std::copy(values + at, values + at + taken, few);
        std::fill(few + taken, few + PACKED, 0);
        char* const room = out.grow(size_t{4} * width);
        pack(few, width, room);
        out.end_at(room + (taken + GROUP - 1) / GROUP * width);
    }
}

void put_run(Bytes& out, uint32_t value, size_t count, unsigned width) {
    char run[16];
    char* end = put_varint(run, count << 1);
    for (unsigned bits = 0; bits < width; bits += 8) *end++ = static_cast<char>(value >> bits);
    out.append(run, static_cast<size_t>(end - run));
}

}  // namespace

template <typename Number>
void put_hybrid(Bytes& out, const Number* values, size_t count, unsigned width) {
    size_t written = 0;
    size_t at = 0;
    while (at < count) {
        const Number value = values[at];
        size_t end = at + 1;
        while (end < count && values[end] == value) ++end;
        // Groups before a run must be whole, so they may take the first values of the run.
        const size_t whole = std::min((at - written + GROUP - 1) / GROUP * GROUP + written, end);
        if (end - whole >= GROUP) {
            if (whole > written) put_groups(out, values + written, whole - written, width);
            put_run(out, value, end - whole, width);
            written = end;
        }
        at = end;
    }
    if (written < count) put_groups(out, values + written, count - written, width);
}

template void put_hybrid<uint8_t>(Bytes&, const uint8_t*, size_t, unsigned);
template void put_hybrid<uint32_t>(Bytes&, const uint32_t*, size_t, unsigned);

}  // namespace unloader
