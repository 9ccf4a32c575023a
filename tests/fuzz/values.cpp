#include "values.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace fuzz {
namespace {

constexpr char32_t ODD[] = {0,      0x7F,   0x80,   0x85,    0xA0,    0xFF,    0x100,   0x2028,
                            0xFEFF, 0xFFFD, 0xFFFE, 0x20AC,  0x65E5,  0x1F600, 0x10FFFF};

void add_character(std::string& text, char32_t c) {
    if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
    if (c < 0x80) {
        text += static_cast<char>(c);
    } else if (c < 0x800) {
        text += static_cast<char>(0xC0 | c >> 6);
        text += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        text += static_cast<char>(0xE0 | c >> 12);
        text += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        text += static_cast<char>(0x80 | (c & 0x3F));
    } else {
        text += static_cast<char>(0xF0 | c >> 18);
        text += static_cast<char>(0x80 | (c >> 12 & 0x3F));
        text += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        text += static_cast<char>(0x80 | (c & 0x3F));
    }
}

void add_piece(std::string& text, const Dialect& dialect, Input& input) {
    const uint8_t choice = input.byte();
    const std::string* marks[] = {&dialect.delimiter, &dialect.enclosure, &dialect.eol,
                                  &dialect.null_text};
    const std::string& mark = *marks[choice & 3];
    switch (choice >> 2 & 7) {
        case 0: text += mark; break;
        case 1:
            // A mark's first or last ASCII byte; a part of another character is no text.
            if (!mark.empty() && !(mark[0] & 0x80)) text += mark[0];
            break;
        case 2:
            if (!mark.empty() && !(mark.back() & 0x80)) text += mark.back();
            break;
        case 3: text += "\\\r\n."[choice & 3]; break;
        case 4: text.append(1 + choice / 8u, 'x'); break;
        case 5: add_character(text, ODD[choice % (sizeof ODD / sizeof *ODD)]); break;
        case 6: add_character(text, input.number<uint32_t>() % 0x110000); break;
        default: text += static_cast<char>('a' + (choice & 3)); break;
    }
}

bool is_leap(int64_t year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

}  // namespace

std::string text_of(const Dialect& dialect, Input& input) {
    std::string text;
    for (size_t pieces = input.below(7); pieces; --pieces) add_piece(text, dialect, input);
    return text;
}

std::string bytes_of(Input& input, size_t most) {
    std::string bytes;
    for (size_t left = input.below(most + 1); left; --left) {
        bytes += static_cast<char>(input.byte());
    }
    return bytes;
}

std::string binary_text(const Dialect& dialect, const std::string& bytes) {
    constexpr char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text = dialect.binary == 0 ? "\\x" : "";
    if (dialect.binary < 2) {
        char digits[3];
        for (const char c : bytes) {
            std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(c) & 0xFF);
            text += digits;
        }
        return text;
    }
    std::string bits;
    for (const char c : bytes) {
        for (int bit = 7; bit >= 0; --bit) bits += static_cast<char>('0' + (c >> bit & 1));
    }
    while (bits.size() % 6) bits += '0';
    for (size_t at = 0; at < bits.size(); at += 6) text += LETTERS[std::stoi(bits.substr(at, 6), nullptr, 2)];
    while (text.size() % 4) text += '=';
    return text;
}

std::string uuid_text(const std::string& bytes) {
    Dialect hex;
    hex.binary = 1;
    std::string text = binary_text(hex, bytes);
    for (const size_t at : {8, 13, 18, 23}) text.insert(at, "-");
    return text;
}

std::string decimal_text(const uint8_t* bytes, int32_t width, int32_t scale,
                         const std::string& separator) {
    __int128 value = bytes[width - 1] & 0x80 ? -1 : 0;
    for (int32_t at = width; at--;) value = value * 256 + bytes[at];
    const bool negative = value < 0;
    std::string digits;
    for (__int128 left = value; left != 0; left /= 10) {
        const int digit = static_cast<int>(left % 10);
        digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    }
    const bool zero = digits.empty();
    while (digits.size() < 1 + static_cast<size_t>(std::max(scale, 0))) digits += '0';
    std::reverse(digits.begin(), digits.end());
    if (scale > 0) digits.insert(digits.size() - static_cast<size_t>(scale), separator);
    if (scale < 0 && !zero) digits.append(static_cast<size_t>(-scale), '0');
    return (negative ? "-" : "") + digits;
}

std::string date_text(int32_t days) {
    // Whole cycles of 400 years first, then year by year and month by month.
    int64_t left = days, year = 1970;
    year += left / 146097 * 400;
    left %= 146097;
    while (left < 0) left += is_leap(--year) ? 366 : 365;
    while (left >= (is_leap(year) ? 366 : 365)) left -= is_leap(year++) ? 366 : 365;
    std::array<int, 12> months = {31, is_leap(year) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    size_t month = 0;
    while (left >= months[month]) left -= months[month++];
    char text[64];
    const int64_t counted = year > 0 ? year : 1 - year;
    std::snprintf(text, sizeof text, "%04lld-%02zu-%02lld%s", static_cast<long long>(counted),
                  month + 1, static_cast<long long>(left + 1), year > 0 ? "" : " BC");
    return text;
}

}  // namespace fuzz
