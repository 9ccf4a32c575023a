// Reads the pages that the library makes back into values, by the Parquet format's own words.
#pragma once

#include <string>
#include <vector>

#include "page.h"
#include "page_batch.h"

namespace fuzz {

// Ends the program: what was written is wrong.
[[noreturn]] void fail(const std::string& sentence);

struct PageBytes {
    std::string bytes;
    size_t rows;  // of a dictionary: entries
    size_t nulls;
    bool is_dictionary;
    unloader::Encoding encoding;
    bool bounded;
    std::string least;
    std::string greatest;

    bool operator==(const PageBytes& other) const;
};

// Returns the entries of a dictionary.
std::vector<std::string> read_dictionary(const unloader::ColumnSpec& spec, const PageBytes& page);

// Returns the values of a page of data, and fails where its bytes are not just those.
std::vector<Stored> read_page(const unloader::ColumnSpec& spec, const PageBytes& page,
                              const std::vector<std::string>& dictionary);

}  // namespace fuzz
