#include "quick_moments.h"

namespace unloader {

bool QuickLayout::add_pair(Source source) {
    if (trimmed || place_count == MOST_PLACES || width + 2 > MOST_BYTES) return false;
    has_dates = has_dates || source < HOUR;
    has_times = has_times || source >= HOUR;
    places[place_count++] = {static_cast<uint8_t>(width), static_cast<uint8_t>(2 * source)};
    width += 2;
    return true;
}

// Makes one copy of those that follow each other on both sides.
void QuickLayout::join_places() {
    Place joined[MOST_PLACES]{};
    uint32_t end = 0;
    for (const uint32_t pairs : {4u, 2u, 1u}) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < place_count;) {
            if (has_run(i, pairs)) {
                joined[end++] = places[i];
                i += pairs;
            } else {
                places[kept++] = places[i++];
            }
        }
        place_count = kept;
        if (pairs == 4) fours_at = end;
        if (pairs == 2) twos_at = end;
    }
    place_count = end;
    std::memcpy(places, joined, sizeof joined);
}

// Whether so many pairs from number `first` on follow each other on both sides.
bool QuickLayout::has_run(uint32_t first, uint32_t pairs) const {
    if (first + pairs > place_count) return false;
    for (uint32_t i = 1; i < pairs; i++) {
        const Place place = places[first + i], before = places[first + i - 1];
        if (place.at != before.at + 2 || place.from != before.from + 2) return false;
    }
    return true;
}

bool QuickLayout::add(const Op& op) {
    const char* constant = op.text.data();
    size_t bytes = op.text.size();
    switch (op.code) {
        case OpCode::LITERAL:
            break;
        case OpCode::TABLE:
            // The era of the years 1 to 9999.
            if (op.source != ERA) return false;
            constant += SLOT_BYTES;
            bytes = op.lengths[1];
            break;
        case OpCode::PAIR:
            return add_pair(op.source);
        case OpCode::NUMBER:
            // Years of four digits.
            if (op.source != COUNTED_YEAR || op.digits || op.pad != 4) return false;
            return add_pair(CENTURY) && add_pair(YEAR_OF_CENTURY);
        case OpCode::FRACTION:
            if (!op.digits) return true;
            if (trimmed || fraction_digits || width + op.digits > MOST_BYTES) return false;
            fraction_at = static_cast<uint8_t>(width);
            fraction_digits = op.digits;
            std::memset(text + width, '0', op.digits);
            width += op.digits;
            return true;
        case OpCode::TRIMMED:
            if (trimmed) return false;
            trimmed = true;
            return true;
    }
    uint32_t& length = trimmed ? behind_bytes : width;
    if (length + bytes > MOST_BYTES) return false;
    std::memcpy((trimmed ? behind : text) + length, constant, bytes);
    length += static_cast<uint32_t>(bytes);
    return true;
}

bool QuickLayout::make(const MomentProgram& program) {
    if (program.checks & (ISO_YEAR_CHECKED | JULIAN_DAY_CHECKED)) return false;
    std::memset(text, 0, sizeof text);
    std::memset(behind, 0, sizeof behind);
    for (const Op& op : program.ops) {
        if (!add(op)) return false;
    }
    join_places();
    return true;
}

}  // namespace unloader
