// Oracle's values as the wire carries them, decoded exactly or refused; docs/oracle-fetch.md tells
// what each looks like.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unloader::oracle {

__extension__ typedef __int128 Wide;

// Decodes a NUMBER into an integer of `scale` decimal places. Returns false for anything that is
// not canonical, has more than `digits` digits, or digits behind those places.
bool decode_number(const uint8_t* bytes, size_t size, int digits, int scale, Wide& value);

// Decodes a DATE (7 bytes) or TIMESTAMP (7 or 11) into ticks since 1970 of 10^-places seconds.
// Returns false for anything outside the years 1 to 9999 of the Gregorian calendar, and for a
// fraction that the ticks do not hold.
bool decode_moment(const uint8_t* bytes, size_t size, int places, int64_t& ticks);

// Decode a BINARY_FLOAT and a BINARY_DOUBLE into the bits of an IEEE number.
bool decode_float(const uint8_t* bytes, size_t size, uint32_t& bits);
bool decode_double(const uint8_t* bytes, size_t size, uint64_t& bits);

}  // namespace unloader::oracle
