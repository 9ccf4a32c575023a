// Memory for pages that is used again. A page of its own each time would be new to the process each
// time, as the C library gives such large pieces back to the system: every 4 KiB of it is then a
// page fault, and they took a fifth to a half of the time of a whole writer.
#pragma once

#include <cstddef>

namespace unloader {

// Returns memory for `count` bytes or more and tells for how many. Throws std::bad_alloc.
char* take_block(size_t count, size_t& capacity);

// Takes it back, in any thread; nullptr is nothing.
void give_block(char* memory);

}  // namespace unloader
