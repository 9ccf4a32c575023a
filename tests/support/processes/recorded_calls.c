/* Records every call that changes files below a directory, in order and with its data, for tests:
   loaded by LD_PRELOAD into a command and its workers.

   RECORD_ROOT   the directory
   RECORD_LOG    the record. A line for each call that succeeded, its parts separated by tabs; that of
                 a write is followed by the bytes written

   create inode path | mkdir inode path | write inode offset length | truncate inode size
   rename from to | exchange one other | link from to | unlink path | rmdir path
   sync inode | unknown call

   One lock over all processes makes the record's order that of the calls. Files are told by their
   inodes, so a rename needs no name in later lines. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static pid_t opened_by;

static const char *root(void) {
    const char *value = getenv("RECORD_ROOT");
    return value ? value : "";
}

static int below(const char *path) {
    size_t length = strlen(root());
    return length && path && strncmp(path, root(), length) == 0 && (path[length] == '/' || !path[length]);
}

/* Return the inode of an open file below the root, 0 of any other. */
static unsigned long meant(int descriptor) {
    char link[64], path[4096];
    struct stat found;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!below(path) || fstat(descriptor, &found)) return 0;
    return (unsigned long)found.st_ino;
}

static unsigned long inode_at(const char *path) {
    struct stat found;
    return lstat(path, &found) ? 0 : (unsigned long)found.st_ino;
}

/* Return the whole path of a name in an open directory; paths of the command are absolute. */
static const char *whole(int directory, const char *path, char *buffer, size_t size) {
    char link[64];
    if (!path || *path == '/' || directory == AT_FDCWD) return path;
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t length = readlink(link, buffer, size - 1);
    if (length < 0) return path;
    snprintf(buffer + length, size - (size_t)length, "/%s", path);
    return buffer;
}

static void begin(void) {
    pthread_mutex_lock(&one);
    if (record < 0 || opened_by != getpid()) {
        const char *log = getenv("RECORD_LOG");
        record = (int)syscall(SYS_openat, AT_FDCWD, log ? log : "/dev/null", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        opened_by = getpid();
    }
    while (flock(record, LOCK_EX) && errno == EINTR); /* A signal ends the wait without the lock. */
}

static void end(void) {
    int error = errno;
    flock(record, LOCK_UN);
    pthread_mutex_unlock(&one);
    errno = error;
}

static void put(const void *data, size_t size) {
    const char *rest = data;
    while (size) {
        ssize_t taken = syscall(SYS_write, record, rest, size);
        if (taken <= 0) abort();
        rest += taken;
        size -= (size_t)taken;
    }
}

static void say(const char *form, ...) {
    char line[8500];
    va_list rest;
    int error = errno;
    va_start(rest, form);
    int length = vsnprintf(line, sizeof line, form, rest);
    va_end(rest);
    put(line, (size_t)length);
    errno = error;
}

#define NEXT(result, name, ...)                                                     \
    static result (*next)(__VA_ARGS__);                                             \
    if (!next) next = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static off64_t place_of(int descriptor) {
    struct stat found;
    if (fcntl(descriptor, F_GETFL) & O_APPEND) return fstat(descriptor, &found) ? 0 : found.st_size;
    return lseek64(descriptor, 0, SEEK_CUR);
}

ssize_t write(int descriptor, const void *data, size_t size) {
    NEXT(ssize_t, "write", int, const void *, size_t);
    unsigned long inode = meant(descriptor);
    if (!inode) return next(descriptor, data, size);
    begin();
    off64_t offset = place_of(descriptor);
    ssize_t done = next(descriptor, data, size);
    if (done > 0) {
        say("write\t%lu\t%lld\t%zd\n", inode, (long long)offset, done);
        put(data, (size_t)done);
    }
    end();
    return done;
}

ssize_t writev(int descriptor, const struct iovec *pieces, int count) {
    NEXT(ssize_t, "writev", int, const struct iovec *, int);
    unsigned long inode = meant(descriptor);
    if (!inode) return next(descriptor, pieces, count);
    begin();
    off64_t offset = place_of(descriptor);
    ssize_t done = next(descriptor, pieces, count), left = done;
    if (done > 0) say("write\t%lu\t%lld\t%zd\n", inode, (long long)offset, done);
    for (int i = 0; i < count && left > 0; i++) {
        size_t part = pieces[i].iov_len < (size_t)left ? pieces[i].iov_len : (size_t)left;
        put(pieces[i].iov_base, part);
        left -= (ssize_t)part;
    }
    end();
    return done;
}

#define WRITING_AT(name, offset_type)                                                       \
    ssize_t name(int descriptor, const void *data, size_t size, offset_type offset) {       \
        NEXT(ssize_t, #name, int, const void *, size_t, offset_type);                       \
        unsigned long inode = meant(descriptor);                                            \
        if (!inode) return next(descriptor, data, size, offset);                            \
        begin();                                                                            \
        ssize_t done = next(descriptor, data, size, offset);                                \
        if (done > 0) {                                                                     \
            say("write\t%lu\t%lld\t%zd\n", inode, (long long)offset, done);                 \
            put(data, (size_t)done);                                                        \
        }                                                                                   \
        end();                                                                              \
        return done;                                                                        \
    }

WRITING_AT(pwrite, off_t)
WRITING_AT(pwrite64, off64_t)

#define TRUNCATING(name, offset_type)                                                \
    int name(int descriptor, offset_type size) {                                     \
        NEXT(int, #name, int, offset_type);                                          \
        unsigned long inode = meant(descriptor);                                     \
        if (!inode) return next(descriptor, size);                                   \
        begin();                                                                     \
        int result = next(descriptor, size);                                         \
        if (!result) say("truncate\t%lu\t%lld\n", inode, (long long)size);           \
        end();                                                                       \
        return result;                                                               \
    }

TRUNCATING(ftruncate, off_t)
TRUNCATING(ftruncate64, off64_t)

#define SYNCING(name)                                      \
    int name(int descriptor) {                             \
        NEXT(int, #name, int);                             \
        unsigned long inode = meant(descriptor);           \
        if (!inode) return next(descriptor);               \
        /* What comes while it syncs is not covered. */    \
        begin();                                           \
        int result = next(descriptor);                     \
        if (!result) say("sync\t%lu\n", inode);            \
        end();                                             \
        return result;                                     \
    }

SYNCING(fsync)
SYNCING(fdatasync)

static void opened(const char *path, unsigned long before, int flags) {
    if (!before) say("create\t%lu\t%s\n", inode_at(path), path);
    else if (flags & O_TRUNC) say("truncate\t%lu\t0\n", before);
}

#define MODE(flags, mode)                                                           \
    va_list rest;                                                                   \
    va_start(rest, flags);                                                          \
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? (mode_t)va_arg(rest, int) : 0;  \
    va_end(rest)

#define OPENING(name, known, parameters, types, arguments)                              \
    int name parameters {                                                               \
        NEXT(int, #name, types);                                                        \
        char place[4096];                                                               \
        MODE(flags, mode);                                                              \
        const char *full = known;                                                       \
        if (!below(full) || !(flags & (O_CREAT | O_TRUNC))) return next arguments;      \
        begin();                                                                        \
        unsigned long before = inode_at(full);                                          \
        int result = next arguments;                                                    \
        if (result >= 0) opened(full, before, flags);                                   \
        end();                                                                          \
        return result;                                                                  \
    }

#define TYPES(...) __VA_ARGS__
#define HERE (whole(AT_FDCWD, path, place, sizeof place))
#define THERE (whole(directory, path, place, sizeof place))

OPENING(open, HERE, (const char *path, int flags, ...), TYPES(const char *, int, ...), (path, flags, mode))
OPENING(open64, HERE, (const char *path, int flags, ...), TYPES(const char *, int, ...), (path, flags, mode))
OPENING(openat, THERE, (int directory, const char *path, int flags, ...), TYPES(int, const char *, int, ...), (directory, path, flags, mode))
OPENING(openat64, THERE, (int directory, const char *path, int flags, ...), TYPES(int, const char *, int, ...), (directory, path, flags, mode))

/* Calls with one path, or an old and a new one; `one` and `other` are the whole ones. */
#define BY_PATH(name, parameters, arguments, first, second, tell)     \
    int name parameters {                                             \
        static int(*next) parameters;                                 \
        char here[4096], there[4096];                                 \
        (void)here, (void)there;                                      \
        if (!next) next = (int(*) parameters)dlsym(RTLD_NEXT, #name); \
        const char *one = first, *other = second;                     \
        if (!below(one) && !below(other)) return next arguments;      \
        begin();                                                      \
        int result = next arguments;                                  \
        if (!result) { tell; }                                        \
        end();                                                        \
        return result;                                                \
    }

#define ONE(d, a) whole(d, a, here, sizeof here)
#define OTHER(d, a) whole(d, a, there, sizeof there)

BY_PATH(mkdir, (const char *a, mode_t m), (a, m), a, NULL, say("mkdir\t%lu\t%s\n", inode_at(one), one))
BY_PATH(mkdirat, (int d, const char *a, mode_t m), (d, a, m), ONE(d, a), NULL, say("mkdir\t%lu\t%s\n", inode_at(one), one))
BY_PATH(rmdir, (const char *a), (a), a, NULL, say("rmdir\t%s\n", one))
BY_PATH(unlink, (const char *a), (a), a, NULL, say("unlink\t%s\n", one))
BY_PATH(unlinkat, (int d, const char *a, int f), (d, a, f), ONE(d, a), NULL, say(f ? "rmdir\t%s\n" : "unlink\t%s\n", one))
BY_PATH(rename, (const char *a, const char *b), (a, b), a, b, say("rename\t%s\t%s\n", one, other))
BY_PATH(renameat, (int d, const char *a, int e, const char *b), (d, a, e, b), ONE(d, a), OTHER(e, b), say("rename\t%s\t%s\n", one, other))
BY_PATH(renameat2, (int d, const char *a, int e, const char *b, unsigned int f), (d, a, e, b, f), ONE(d, a), OTHER(e, b),
        say("%s\t%s\t%s\n", f & 2 ? "exchange" : "rename", one, other))
BY_PATH(link, (const char *a, const char *b), (a, b), a, b, say("link\t%s\t%s\n", one, other))
BY_PATH(symlink, (const char *a, const char *b), (a, b), NULL, b, say("unknown\tsymlink\n"))
BY_PATH(truncate, (const char *a, off_t n), (a, n), a, NULL, say("truncate\t%lu\t%lld\n", inode_at(one), (long long)n))

ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t size, unsigned int flags) {
    NEXT(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned int);
    if (meant(to)) {
        begin();
        say("unknown\tcopy_file_range\n");
        end();
    }
    return next(from, a, to, b, size, flags);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    NEXT(ssize_t, "sendfile", int, int, off_t *, size_t);
    if (meant(to)) {
        begin();
        say("unknown\tsendfile\n");
        end();
    }
    return next(to, from, offset, size);
}
