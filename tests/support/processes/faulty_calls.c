/* Makes system calls on chosen files fail, for tests: loaded by LD_PRELOAD into a real process.

   FAULT_PATH    part of the path of the files that are meant
   FAULT_CALL    write, fsync, sync_file_range, statvfs, or direct: setting O_DIRECT fails with
                 EINVAL
   FAULT_DO      a number: fail with this errno; short: write about half; zero: write nothing and
                 say so; slow: sleep 50 ms before; interrupted: fail with EINTR every other time;
                 refused: fail with EINVAL as long as the file is written directly; while:FILE:
                 fail with ENOSPC as long as there is such a file; of statvfs: a file that holds
                 the number of bytes that are free
   FAULT_AFTER   so many bytes (write) or calls (else) go well first, in each process; default 0 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long passed;
static int odd;

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static int meant_path(const char *path) {
    const char *part = setting("FAULT_PATH");
    return *part && strstr(path, part) != NULL;
}

static int meant(int descriptor, const char *call) {
    char link[64], path[4096];
    if (strcmp(setting("FAULT_CALL"), call) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return meant_path(path);
}

/* Return 1 where the call must end with `*result` now, and shorten `*size` where it goes on. */
static int faulty(int descriptor, const char *call, size_t *size, ssize_t *result) {
    const char *what = setting("FAULT_DO");
    if (!meant(descriptor, call)) return 0;
    if (passed < atol(setting("FAULT_AFTER"))) {
        passed += *size ? (long)*size : 1;
        return 0;
    }
    if (strcmp(what, "short") == 0) {
        if (*size > 1) *size /= 2;
    } else if (strcmp(what, "slow") == 0) {
        usleep(50000);
    } else if (strcmp(what, "refused") == 0) {
        if (syscall(SYS_fcntl, descriptor, F_GETFL) & O_DIRECT) {
            errno = EINVAL;
            *result = -1;
            return 1;
        }
    } else if (strncmp(what, "while:", 6) == 0) {
        if (access(what + 6, F_OK) == 0) {
            errno = ENOSPC;
            *result = -1;
            return 1;
        }
    } else if (strcmp(what, "zero") == 0) {
        *result = 0;
        return 1;
    } else if (strcmp(what, "interrupted") == 0) {
        odd = !odd;
        if (odd) {
            errno = EINTR;
            *result = -1;
            return 1;
        }
    } else {
        errno = atoi(what);
        *result = -1;
        return 1;
    }
    return 0;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    static ssize_t (*next)(int, const void *, size_t);
    ssize_t result;
    if (!next) next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (faulty(descriptor, "write", &size, &result)) return result;
    return next(descriptor, data, size);
}

ssize_t writev(int descriptor, const struct iovec *pieces, int count) {
    static ssize_t (*next)(int, const struct iovec *, int);
    size_t size = 0, all;
    ssize_t result;
    if (!next) next = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    for (int i = 0; i < count; i++) size += pieces[i].iov_len;
    all = size;
    if (faulty(descriptor, "write", &size, &result)) return result;
    if (size < all) { /* A short one: part of the first piece. */
        if (size > pieces[0].iov_len) size = pieces[0].iov_len;
        return write(descriptor, pieces[0].iov_base, size);
    }
    return next(descriptor, pieces, count);
}

int fsync(int descriptor) {
    static int (*next)(int);
    size_t size = 0;
    ssize_t result;
    if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (faulty(descriptor, "fsync", &size, &result)) return (int)result;
    return next(descriptor);
}

int sync_file_range(int descriptor, off64_t offset, off64_t length, unsigned int flags) {
    static int (*next)(int, off64_t, off64_t, unsigned int);
    size_t size = 0;
    ssize_t result;
    if (!next) next = (int (*)(int, off64_t, off64_t, unsigned int))dlsym(RTLD_NEXT, "sync_file_range");
    if (faulty(descriptor, "sync_file_range", &size, &result)) return (int)result;
    return next(descriptor, offset, length, flags);
}

/* Report as many free bytes as the file says that the variable names. */
static int as_told(const char *path, struct statvfs *status, int result) {
    FILE *told;
    long long free_bytes;
    if (result || strcmp(setting("FAULT_CALL"), "statvfs") || !meant_path(path)) return result;
    told = fopen(setting("FAULT_DO"), "r");
    if (!told) return result;
    if (fscanf(told, "%lld", &free_bytes) == 1) status->f_bavail = free_bytes / status->f_frsize;
    fclose(told);
    return result;
}

int statvfs(const char *path, struct statvfs *status) {
    static int (*next)(const char *, struct statvfs *);
    if (!next) next = (int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs");
    return as_told(path, status, next(path, status));
}

int statvfs64(const char *path, struct statvfs64 *status) {
    static int (*next)(const char *, struct statvfs64 *);
    if (!next) next = (int (*)(const char *, struct statvfs64 *))dlsym(RTLD_NEXT, "statvfs64");
    /* One and the same on 64-bit systems. */
    return as_told(path, (struct statvfs *)status, next(path, status));
}

/* Direct I/O is asked for on an open descriptor, so refusing it means refusing this flag. */
static int refused(int descriptor, int command, long value) {
    return command == F_SETFL && (value & O_DIRECT) && meant(descriptor, "direct");
}

int fcntl64(int descriptor, int command, ...) {
    static int (*next)(int, int, ...);
    va_list rest;
    long value;
    if (!next) next = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
    va_start(rest, command);
    value = va_arg(rest, long);
    va_end(rest);
    if (refused(descriptor, command, value)) {
        errno = EINVAL;
        return -1;
    }
    return next(descriptor, command, value);
}

int fcntl(int descriptor, int command, ...) {
    static int (*next)(int, int, ...);
    va_list rest;
    long value;
    if (!next) next = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl");
    va_start(rest, command);
    value = va_arg(rest, long);
    va_end(rest);
    if (refused(descriptor, command, value)) {
        errno = EINVAL;
        return -1;
    }
    return next(descriptor, command, value);
}
