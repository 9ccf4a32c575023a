// The loop of COPY: rows out of libpq into a buffer of whole rows, for
// unloader.sources.postgres.libpq.copying. libpq is not linked: its functions are handed over, so
// that the loop and the rest of a session use the same one.
#include <poll.h>
#include <time.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// Raised with every change of this interface; the number is also in copying.py.
constexpr uint32_t ABI_VERSION = 1;

enum Status : int32_t { FULL = 0, WIDE, DONE, BROKEN, WOKEN, SIGNAL, NO_MEMORY };

// The server sends 8 KiB at a time; see SHORT_NAP_SECONDS in copying.py.
constexpr long SHORT_NAP_NANOSECONDS = 500'000, LONG_NAP_NANOSECONDS = 1'000'000;
constexpr int64_t SHORT_NAP_BYTES = 96 * 1024;

struct Calls {
    int (*get)(void* connection, char** row, int async);
    int (*consume)(void* connection);
    void (*release)(void* row);
    int (*socket)(const void* connection);
};

struct Filled {
    int64_t size;
    int64_t rows;
    char* wide;
    int64_t wide_size;
};

struct Copy {
    Calls calls;
    void* connection;
    int wake;
    bool any;        // something has come: the first answer is waited for without a nap
    char* row;       // a row that did not fit
    int row_size;
    int64_t napped;  // bytes of rows since the last nap

    // Waits until there is something to read, and reads it. DONE stands for "go on".
    Status more() {
        pollfd each[2] = {{calls.socket(connection), POLLIN, 0}, {wake, POLLIN, 0}};
        int ready = poll(each, 2, 0);
        if (ready == 0) {
            if (any) {
                const bool is_short = napped >= SHORT_NAP_BYTES;
                const timespec nap{0, is_short ? SHORT_NAP_NANOSECONDS : LONG_NAP_NANOSECONDS};
                napped = 0;
                if (nanosleep(&nap, nullptr) != 0) return SIGNAL;
            }
            ready = poll(each, 2, -1);
        }
        if (ready < 0) return errno == EINTR ? SIGNAL : errno == ENOMEM ? NO_MEMORY : BROKEN;
        if (each[1].revents != 0) return WOKEN;
        any = true;
        return calls.consume(connection) ? DONE : BROKEN;
    }
};

}  // namespace

UNLOADER_EXPORT uint32_t unloader_copy_abi_version() { return ABI_VERSION; }

UNLOADER_EXPORT Copy* unloader_copy_open(const Calls* calls, void* connection, int32_t wake) {
    return new (std::nothrow) Copy{*calls, connection, wake, false, nullptr, 0, 0};
}

UNLOADER_EXPORT void unloader_copy_close(Copy* copy) {
    if (copy->row != nullptr) copy->calls.release(copy->row);
    delete copy;
}

// Puts rows into `buffer` behind its first `size` bytes while they fit into less than `capacity`.
// A row that does not fit into an empty buffer of the `most` bytes that one may have is handed over
// as it is: its owner releases it.
UNLOADER_EXPORT int32_t unloader_copy_fill(Copy* copy, char* buffer, int64_t size,
                                           int64_t capacity, int64_t most, Filled* filled) {
    *filled = {size, 0, nullptr, 0};
    for (;;) {
        if (copy->row == nullptr) {
            copy->row_size = copy->calls.get(copy->connection, &copy->row, 1);
            if (copy->row_size < 0) return DONE;
            if (copy->row_size == 0) {
                const Status status = copy->more();
                if (status != DONE) return status;
                continue;
            }
            copy->napped += copy->row_size;
        }
        if (filled->size + copy->row_size >= capacity) {
            if (filled->size > 0 || capacity < most) return FULL;
            filled->wide = copy->row;
            filled->wide_size = copy->row_size;
            filled->rows = 1;
            copy->row = nullptr;
            return WIDE;
        }
        std::memcpy(buffer + filled->size, copy->row, static_cast<size_t>(copy->row_size));
        copy->calls.release(copy->row);
        copy->row = nullptr;
        filled->size += copy->row_size;
        filled->rows += 1;
    }
}
