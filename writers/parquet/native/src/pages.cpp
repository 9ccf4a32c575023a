// The library's interface: plain C, for writers.parquet.native.pages. Nothing is thrown out of
// here.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "blocks.h"
#include "column.h"

#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))

using unloader::Column;
using unloader::ColumnSpec;
using unloader::Page;
using unloader::PageOut;

namespace {

// Raised with every change of this interface; the number is also in writers.parquet.native.pages.
constexpr uint32_t ABI_VERSION = 1;

constexpr int32_t DONE = 0;
constexpr int32_t REFUSED = 1;  // a value; the column is told
constexpr int32_t MALFORMED = 2;
constexpr int32_t NO_MEMORY = -1;

struct Group {
    std::vector<std::unique_ptr<Column>> columns;
    Page taken{};  // the one whose bounds Python reads
};

}  // namespace

UNLOADER_EXPORT uint32_t unloader_pages_abi_version() { return ABI_VERSION; }

// Returns what the other functions take, or nullptr if the specs make no sense.
UNLOADER_EXPORT Group* unloader_pages_open(const ColumnSpec* specs, size_t count,
                                           uint64_t page_bytes) {
    try {
        auto group = std::make_unique<Group>();
        for (size_t i = 0; i < count; ++i) {
            group->columns.push_back(unloader::column_of(specs[i], page_bytes));
        }
        return group.release();
    } catch (const std::exception&) {
        return nullptr;
    }
}

UNLOADER_EXPORT void unloader_pages_close(Group* group) { delete group; }

// Encodes all rows of a batch, and lets it go. After anything but DONE the group is of no use.
UNLOADER_EXPORT int32_t unloader_pages_append(Group* group, ArrowArray* batch, int64_t* column) {
    int32_t status = DONE;
    *column = -1;
    try {
        const size_t count = group->columns.size();
        if (batch->n_children != static_cast<int64_t>(count)) {
            throw std::invalid_argument("a batch has other columns");
        }
        for (size_t i = 0; i < count; ++i) {
            *column = static_cast<int64_t>(i);
            const ArrowArray& array = *batch->children[i];
            if (array.length < batch->offset + batch->length) {
                throw std::invalid_argument("a column is too short");
            }
            group->columns[i]->append(array, array.offset + batch->offset,
                                      static_cast<size_t>(batch->length));
        }
    } catch (const unloader::Refused&) {
        status = REFUSED;
    } catch (const std::bad_alloc&) {
        status = NO_MEMORY;
    } catch (const std::exception&) {
        status = MALFORMED;
    }
    if (batch->release) batch->release(batch);
    return status;
}

// Ends a row group; the next rows begin another one.
UNLOADER_EXPORT int32_t unloader_pages_finish(Group* group) {
    try {
        for (auto& column : group->columns) column->finish();
        return DONE;
    } catch (const std::exception&) {
        return NO_MEMORY;
    }
}

// Hands over a page that is ready, of any column; its memory is the caller's, its bounds may be read
// until the next call. Returns 0 where there is none.
UNLOADER_EXPORT int32_t unloader_pages_take(Group* group, PageOut* out) {
    for (size_t i = 0; i < group->columns.size(); ++i) {
        auto& pages = group->columns[i]->pages;
        if (pages.empty()) continue;
        group->taken = std::move(pages.front());
        pages.pop_front();
        const Page& page = group->taken;
        *out = {page.memory,
                page.data,
                page.size,
                page.rows,
                page.nulls,
                static_cast<int32_t>(i),
                static_cast<int32_t>(page.kind),
                static_cast<int32_t>(page.encoding),
                page.bounded,
                page.least.data(),
                page.greatest.data(),
                page.least.size(),
                page.greatest.size()};
        return 1;
    }
    return 0;
}

UNLOADER_EXPORT void unloader_pages_free(char* memory) { unloader::give_block(memory); }
