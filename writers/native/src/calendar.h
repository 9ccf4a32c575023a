// The proleptic Gregorian calendar by integer arithmetic, as writers.text.mask_texts has it.
#pragma once

#include <cstdint>

namespace unloader {

constexpr int64_t DAY_SECONDS = 86400;
constexpr int64_t CYCLE_DAYS = 146097;            // 400 years
constexpr int64_t MARCH_1_YEAR_0 = 719468;        // days from 0000-03-01 to 1970-01-01
constexpr int64_t JANUARY_1_YEAR_1 = 719162;      // days from 0001-01-01 to 1970-01-01
constexpr int64_t UNIX_EPOCH_JULIAN_DAY = 2440588;
constexpr uint32_t JANUARY = 306;                 // its first day, counted from March 1
constexpr uint64_t DAYS_TO_9999 = 3652059;        // from 0001-01-01 to 9999-12-31, both counted

struct YearParts {
    int64_t year;        // astronomical: 0 is 1 BC
    uint32_t march_day;  // of the year that began on March 1, from 0
};

struct MonthDay {
    uint32_t month;  // from 1
    uint32_t day;    // from 1
};

inline int64_t floor_divide(int64_t value, int64_t divisor, int64_t& remainder) {
    int64_t quotient = value / divisor;
    remainder = value - quotient * divisor;
    if (remainder < 0) {
        quotient--;
        remainder += divisor;
    }
    return quotient;
}

// For every day that 64 bits of seconds reach.
inline YearParts year_parts(int64_t days) {
    int64_t of_cycle;
    const int64_t cycle = floor_divide(days + MARCH_1_YEAR_0, CYCLE_DAYS, of_cycle);
    const auto quarters = static_cast<uint32_t>(of_cycle) * 4 + 3;
    const uint32_t century = quarters / static_cast<uint32_t>(CYCLE_DAYS);
    const uint32_t in_century = (quarters % static_cast<uint32_t>(CYCLE_DAYS)) | 3;
    const uint32_t year = in_century / 1461;
    const uint32_t march_day = in_century % 1461 / 4;
    return {cycle * 400 + century * 100 + year + (march_day >= JANUARY), march_day};
}

// The same for days since 0001-01-01 of the years 1 to 9999.
inline YearParts near_year_parts(uint32_t days) {
    const uint32_t quarters = (days + JANUARY) * 4 + 3;
    const uint32_t century = quarters / static_cast<uint32_t>(CYCLE_DAYS);
    const uint32_t in_century = (quarters % static_cast<uint32_t>(CYCLE_DAYS)) | 3;
    // Exact for the days of a century (Neri and Schneider, "Euclidean affine functions").
    const uint64_t product = uint64_t{2939745} * in_century;
    const auto year = static_cast<uint32_t>(product >> 32);
    const uint32_t march_day = static_cast<uint32_t>(product) / 2939745 / 4;
    return {century * 100 + year + (march_day >= JANUARY), march_day};
}

constexpr MonthDay month_day(uint32_t march_day) {
    // The same authors: months of 30.6 days from March on.
    const uint32_t scaled = 2141 * march_day + 197913;
    const uint32_t month = scaled >> 16;
    return {month > 12 ? month - 12 : month, (scaled & 0xFFFF) / 2141 + 1};
}

// Days since January 1.
inline uint32_t year_day(const YearParts& parts) {
    if (parts.march_day >= JANUARY) return parts.march_day - JANUARY;
    const int64_t year = parts.year;
    const bool leap = (year % 100 ? year : year / 100) % 4 == 0;
    return parts.march_day + 59 + leap;
}

// Days since Sunday.
inline uint32_t week_day(int64_t days) {
    int64_t day;
    floor_divide(days + 4, 7, day);
    return static_cast<uint32_t>(day);
}

// Year and week of ISO 8601, the latter as `march_day`: those of the week's Thursday.
inline YearParts iso_week(int64_t days) {
    int64_t since_monday;
    floor_divide(days + 3, 7, since_monday);
    const YearParts thursday = year_parts(days - since_monday + 3);
    return {thursday.year, year_day(thursday) / 7 + 1};
}

}  // namespace unloader
