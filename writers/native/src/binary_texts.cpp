#include "binary_texts.h"

#include <cstdint>

namespace unloader {
namespace {

constexpr char HEX[] = "0123456789abcdef";
constexpr char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char* write_hex(char* out, std::string_view value) {
    for (const char c : value) {
        const auto byte = static_cast<uint8_t>(c);
        *out++ = HEX[byte >> 4];
        *out++ = HEX[byte & 15];
    }
    return out;
}

char* write_base64(char* out, std::string_view value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(value.data());
    size_t left = value.size();
    for (; left >= 3; left -= 3, bytes += 3) {
        const uint32_t three = uint32_t{bytes[0]} << 16 | uint32_t{bytes[1]} << 8 | bytes[2];
        *out++ = BASE64[three >> 18];
        *out++ = BASE64[three >> 12 & 63];
        *out++ = BASE64[three >> 6 & 63];
        *out++ = BASE64[three & 63];
    }
    if (!left) return out;
    const uint32_t rest = uint32_t{bytes[0]} << 16 | (left == 2 ? uint32_t{bytes[1]} << 8 : 0);
    *out++ = BASE64[rest >> 18];
    *out++ = BASE64[rest >> 12 & 63];
    *out++ = left == 2 ? BASE64[rest >> 6 & 63] : '=';
    *out++ = '=';
    return out;
}

}  // namespace

size_t binary_bound(BinaryForm form, size_t bytes) {
    if (form == BinaryForm::BASE64) return (bytes + 2) / 3 * 4;
    return 2 * bytes + (form == BinaryForm::PREFIXED_HEX ? 2 : 0);
}

char* write_binary(char* out, std::string_view value, BinaryForm form) {
    if (form == BinaryForm::BASE64) return write_base64(out, value);
    if (form == BinaryForm::PREFIXED_HEX) {
        *out++ = '\\';
        *out++ = 'x';
    }
    return write_hex(out, value);
}

char* write_uuid(char* out, std::string_view value) {
    constexpr size_t PARTS[] = {4, 2, 2, 2, 6};
    size_t at = 0;
    for (const size_t size : PARTS) {
        if (at) *out++ = '-';
        out = write_hex(out, value.substr(at, size));
        at += size;
    }
    return out;
}

}  // namespace unloader
