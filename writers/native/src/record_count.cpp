// How many records of delimited text end in some bytes: line ends that no enclosure holds.

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__GNUC__)
#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define UNLOADER_EXPORT extern "C"
#endif

// An enclosure that stands for itself is doubled, so it opens and closes at once. *inside says
// whether the bytes begin within an enclosure, and afterwards whether they end within one.
UNLOADER_EXPORT int64_t unloader_count_records(const char* data, size_t size, char enclosure,
                                               uint8_t* inside) {
    const char* at = data;
    const char* const end = data + size;
    bool enclosed = *inside != 0;
    int64_t records = 0;
    while (at < end) {
        const void* found = std::memchr(at, enclosure, static_cast<size_t>(end - at));
        const char* const mark = found ? static_cast<const char*>(found) : end;
        if (!enclosed) records += std::count(at, mark, '\n');
        if (mark == end) break;
        enclosed = !enclosed;
        at = mark + 1;
    }
    *inside = enclosed ? 1 : 0;
    return records;
}
