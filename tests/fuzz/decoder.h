// Reads records back by the rules of their dialect, one character after the other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dialects.h"

namespace fuzz {

using Record = std::vector<std::optional<std::string>>;

// Ends the process where the data are not records of the dialect. Texts are UTF-8.
std::vector<Record> decode(const Dialect& dialect, const std::string& data);

}  // namespace fuzz
