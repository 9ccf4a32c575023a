// The loop of COPY: rows out of libpq into a buffer of whole rows, as they come or out of the text
// form into the CSV form, for unloader.sources.postgres.libpq.connection. libpq is not linked: its
// functions are handed over, so that the loop and the rest of a session use the same one.
#include <poll.h>
#include <sys/ioctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "text_form.h"

#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))

using unloader::postgres::Dialect;
using unloader::postgres::TextForm;

namespace {

// Raised with every change of this interface; the number is also in connection.py.
constexpr uint32_t ABI_VERSION = 6;

enum Status : int32_t { FULL = 0, WIDE, DONE, BROKEN, WOKEN, SIGNAL, NO_MEMORY, REFUSED };

// The server sends 8 KiB at a time, and to be woken for each costs more than to read it. So a socket
// that has nothing is left alone until it should have this much: half of what a local socket holds,
// so that the server does not have to wait meanwhile.
constexpr int64_t NAP_BYTES = 96 * 1024;
constexpr int64_t SHORTEST_NAP_NANOSECONDS = 20'000, LONGEST_NAP_NANOSECONDS = 1'000'000;
// See FIRST_LOOK_SECONDS in connection.py.
constexpr int FIRST_LOOK_MILLISECONDS = 10, LAST_LOOK_MILLISECONDS = 1000;

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

enum class Put { DONE, NO_ROOM, REFUSED };

struct Copy {
    Calls calls;
    void* connection;
    int wake;
    bool any;        // something has come: the first answer is waited for without a nap
    char* row;       // a row that did not fit
    int row_size;
    std::unique_ptr<TextForm> form;  // of the rows as they come; none where they stay as they are
    int64_t nap = LONGEST_NAP_NANOSECONDS;
    int look = FIRST_LOOK_MILLISECONDS;  // until libpq reads although the socket has nothing

    // Waits until there may be something to read, and reads it. DONE stands for "go on".
    Status more() {
        pollfd each[2] = {{calls.socket(connection), POLLIN, 0}, {wake, POLLIN, 0}};
        int ready = poll(each, 2, 0);
        if (ready == 0) {
            if (any) {
                const timespec time{0, static_cast<long>(nap)};
                if (nanosleep(&time, nullptr) != 0) return SIGNAL;
                int waiting = 0;
                if (ioctl(each[0].fd, FIONREAD, &waiting) == 0) {
                    nap = std::clamp(nap * NAP_BYTES / std::max(waiting, 1),
                                     SHORTEST_NAP_NANOSECONDS, LONGEST_NAP_NANOSECONDS);
                }
            }
            ready = poll(each, 2, look);
            look = ready == 0 ? std::min(2 * look, LAST_LOOK_MILLISECONDS) : FIRST_LOOK_MILLISECONDS;
        }
        if (ready < 0) return errno == EINTR ? SIGNAL : errno == ENOMEM ? NO_MEMORY : BROKEN;
        if (each[1].revents != 0) return WOKEN;
        any = any || ready > 0;
        if (!calls.consume(connection)) return BROKEN;
        return ready > 0 ? DONE : SIGNAL;  // one that came right before the wait did not end it
    }

    // Puts the row behind the first bytes of a buffer, and lets it go.
    Put put(char* buffer, int64_t& size, int64_t capacity) {
        char* out = buffer + size;
        const auto row_bytes = static_cast<size_t>(row_size);
        if (form != nullptr) {
            if (size + needed(capacity - size) >= capacity) return Put::NO_ROOM;
            char* end = form->put(row, row_bytes, out);
            if (end == nullptr) return Put::REFUSED;
            size = end - buffer;
        } else {
            if (size + row_size >= capacity) return Put::NO_ROOM;
            std::memcpy(out, row, row_bytes);
            size += row_size;
        }
        calls.release(row);
        row = nullptr;
        return Put::DONE;
    }

    // Turns a row that is too long for a buffer into CSV within its own memory, which is made larger
    // for that: nobody has room for such a row once more. DONE stands for "go on".
    Status turn(int64_t& size) {
        const auto row_bytes = static_cast<size_t>(row_size);
        const size_t room = form->tight_room(row, row_bytes);
        // What libpq hands out is of the C library's allocator on all systems but Windows.
        char* grown = static_cast<char*>(std::realloc(row, room));
        if (grown == nullptr) return NO_MEMORY;
        row = grown;
        char* from = grown + room - row_bytes;
        std::memmove(from, grown, row_bytes);
        const char* end = form->put_over(from, row_bytes, grown);
        if (end == nullptr) return REFUSED;
        size = end - grown;
        return DONE;
    }

    // How much room the row takes at most, looked at more closely where the first guess is too much.
    int64_t needed(int64_t room) const {
        const auto bytes = static_cast<size_t>(row_size);
        const auto loose = static_cast<int64_t>(form->loose_room(bytes));
        return loose < room ? loose : static_cast<int64_t>(form->tight_room(row, bytes));
    }
};

}  // namespace

UNLOADER_EXPORT uint32_t unloader_copy_abi_version() { return ABI_VERSION; }

// `dialect` is that of the CSV form, for rows that come in the text form; else a null pointer.
UNLOADER_EXPORT Copy* unloader_copy_open(const Calls* calls, void* connection, int32_t wake,
                                         const Dialect* dialect) {
    try {
        std::unique_ptr<TextForm> form;
        if (dialect != nullptr) form = std::make_unique<TextForm>(*dialect);
        return new Copy{*calls, connection, wake, false, nullptr, 0, std::move(form)};
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

UNLOADER_EXPORT void unloader_copy_close(Copy* copy) {
    if (copy->row != nullptr) copy->calls.release(copy->row);
    delete copy;
}

// Puts rows into `buffer` behind its first `size` bytes while they fit into less than `capacity`.
// A row that does not fit into an empty buffer of the `most` bytes that one may have is handed over
// by itself: its owner releases it. A row that is refused is the one behind those that are counted.
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
        }
        const Put put = copy->put(buffer, filled->size, capacity);
        if (put == Put::REFUSED) return REFUSED;
        if (put == Put::DONE) {
            filled->rows += 1;
            continue;
        }
        if (filled->size > 0 || capacity < most) return FULL;
        int64_t row_bytes = copy->row_size;
        const Status status = copy->form != nullptr ? copy->turn(row_bytes) : DONE;
        if (status != DONE) return status;
        filled->wide = copy->row;
        filled->wide_size = row_bytes;
        filled->rows = 1;
        copy->row = nullptr;
        return WIDE;
    }
}

// Returns the size of one row in the CSV form, -1 where it is refused or there is too little room.
UNLOADER_EXPORT int64_t unloader_copy_convert(const Dialect* dialect, const char* row, int64_t size,
                                              char* out, int64_t capacity) {
    try {
        const TextForm form(*dialect);
        const auto bytes = static_cast<size_t>(size);
        if (form.tight_room(row, bytes) > static_cast<size_t>(capacity)) return -1;
        const char* end = form.put(row, bytes, out);
        return end == nullptr ? -1 : end - out;
    } catch (const std::bad_alloc&) {
        return -1;
    }
}
