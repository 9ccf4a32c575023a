/* Makes system calls on chosen files fail, for tests: loaded by LD_PRELOAD into a real process.

   FAULT_PATH    part of the path of the files that are meant; of a rename the new one counts
   FAULT_CALL    write (pwrite too), fsync (fdatasync too), sync_file_range, create (an open that may
                 make a file), rename, mkdir, unlink (rmdir too), statvfs, or direct: setting
                 O_DIRECT fails with EINVAL; any: each of them but statvfs and direct
   FAULT_WHO     parent or worker: only in such a process, by its title, whether it was forked or
                 executed; nothing: in each
   FAULT_DO      a number: fail with this errno; short: write about half; zero: write nothing and
                 say so; slow: sleep 50 ms before; interrupted: fail with EINTR every other time;
                 refused: fail with EINVAL as long as the file is written directly; while:FILE:
                 fail with ENOSPC as long as there is such a file; hold:FILE, of create: wait as
                 long as there is such a file; killed: SIGKILL comes instead of the call, once: as
                 long as there is no FAULT_LOG; noted: the call goes well; both put it on record; of statvfs: a file that holds the number of bytes
                 that are free
   FAULT_AFTER   so many bytes (write) or calls (else, and of any) go well first, in each process;
                 default 0
   FAULT_TIMES   so many calls fail in each process, those after them go well again; default all
   FAULT_LOG     a file that gets a line for each call that failed or is noted: call, errno, inode and time of
                 change in nanoseconds, path */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long passed, failed;
static int odd;

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

/* A fork counts for itself, from nothing on. */
static void forget(void) {
    passed = failed = 0;
    odd = 0;
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, forget); }

/* A worker stays one; but what is none yet may become one: by a fork, and a title that follows. */
static int is_worker(void) {
    static int known;
    char line[4096];
    if (!known) {
        int descriptor = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY);
        ssize_t length = syscall(SYS_read, descriptor, line, sizeof line - 1);
        syscall(SYS_close, descriptor);
        if (length < 0) length = 0;
        known = memmem(line, (size_t)length, "numa.processes.member", 21) != NULL;
    }
    return known;
}

static int is_any(void) { return strcmp(setting("FAULT_CALL"), "any") == 0; }

static int meant_path(const char *path, const char *call) {
    const char *part = setting("FAULT_PATH"), *who = setting("FAULT_WHO");
    if (is_any()) {
        if (strcmp(call, "statvfs") == 0 || strcmp(call, "direct") == 0) return 0;
    } else if (strcmp(setting("FAULT_CALL"), call) != 0) {
        return 0;
    }
    if (!*part || !strstr(path, part)) return 0;
    return !*who || is_worker() == (strcmp(who, "worker") == 0);
}

static int path_of(int descriptor, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static int meant(int descriptor, const char *call) {
    char path[4096];
    return path_of(descriptor, path, sizeof path) && meant_path(path, call);
}

/* Put a failed call on record, by calls that nobody intercepts. */
static void noted(const char *call, int descriptor, const char *path) {
    char line[4400], known[4096];
    struct stat found;
    const char *log = setting("FAULT_LOG");
    int error = errno;
    failed++;
    if (*log) {
        memset(&found, 0, sizeof found);
        if (!path && path_of(descriptor, known, sizeof known)) path = known;
        if (descriptor >= 0) fstat(descriptor, &found);
        /* The number of an inode is given to another file as soon as this one is removed. */
        long long changed = found.st_mtim.tv_sec * 1000000000LL + found.st_mtim.tv_nsec;
        int length = snprintf(line, sizeof line, "%s %d %lu@%lld %s\n", call, error,
                              (unsigned long)found.st_ino, changed, path ? path : "");
        int target = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0666);
        syscall(SYS_write, target, line, (size_t)length);
        syscall(SYS_close, target);
    }
    errno = error;
}

/* Return 1 where the call goes on although its time has come; or do not return. */
static int passes(const char *call, int descriptor, const char *path) {
    const char *what = setting("FAULT_DO");
    int is_last = strcmp(what, "killed") == 0;
    if (!is_last && strcmp(what, "noted") != 0) return 0;
    if (is_last && access(setting("FAULT_LOG"), F_OK) == 0) return 1;
    noted(call, descriptor, path);
    if (is_last) kill(getpid(), SIGKILL);
    return 1;
}

/* Return 1 where the n-th call that is meant has come, and not too many have failed. */
static int due(void) {
    const char *times = setting("FAULT_TIMES");
    return !*times || failed < atol(times);
}

/* Return 1 where the call must end with `*result` now, and shorten `*size` where it goes on. */
static int faulty(int descriptor, const char *call, size_t *size, ssize_t *result) {
    const char *what = setting("FAULT_DO");
    if (!meant(descriptor, call)) return 0;
    if (passed < atol(setting("FAULT_AFTER"))) {
        passed += *size && !is_any() ? (long)*size : 1;
        return 0;
    }
    if (!due() || passes(call, descriptor, NULL)) return 0;
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
        noted(call, descriptor, NULL);
        *result = -1;
        return 1;
    }
    return 0;
}

/* The same for a call with a path. */
static int faulty_path(const char *path, const char *call) {
    if (!meant_path(path, call)) return 0;
    if (passed < atol(setting("FAULT_AFTER"))) {
        passed++;
        return 0;
    }
    if (!due() || passes(call, -1, path)) return 0;
    if (strncmp(setting("FAULT_DO"), "hold:", 5) == 0) {
        while (access(setting("FAULT_DO") + 5, F_OK) == 0) usleep(5000);
        return 0;
    }
    errno = atoi(setting("FAULT_DO"));
    noted(call, -1, path);
    return 1;
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

int fdatasync(int descriptor) {
    static int (*next)(int);
    size_t size = 0;
    ssize_t result;
    if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (faulty(descriptor, "fsync", &size, &result)) return (int)result;
    return next(descriptor);
}

static ssize_t written_at(const char *name, int descriptor, const void *data, size_t size, off64_t offset) {
    ssize_t result;
    ssize_t (*next)(int, const void *, size_t, off64_t) =
        (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, name);
    if (faulty(descriptor, "write", &size, &result)) return result;
    return next(descriptor, data, size, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    return written_at("pwrite64", descriptor, data, size, offset);
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    return written_at("pwrite", descriptor, data, size, offset);
}

#define BY_PATH(name, call, path, parameters, arguments)                \
    int name parameters {                                               \
        static int(*next) parameters;                                   \
        if (!next) next = (int(*) parameters)dlsym(RTLD_NEXT, #name);   \
        if (faulty_path(path, call)) return -1;                         \
        return next arguments;                                          \
    }

BY_PATH(rename, "rename", b, (const char *a, const char *b), (a, b))
BY_PATH(renameat, "rename", b, (int d, const char *a, int e, const char *b), (d, a, e, b))
BY_PATH(renameat2, "rename", b, (int d, const char *a, int e, const char *b, unsigned int f), (d, a, e, b, f))
BY_PATH(mkdir, "mkdir", a, (const char *a, mode_t m), (a, m))
BY_PATH(mkdirat, "mkdir", a, (int d, const char *a, mode_t m), (d, a, m))
BY_PATH(unlink, "unlink", a, (const char *a), (a))
BY_PATH(unlinkat, "unlink", a, (int d, const char *a, int f), (d, a, f))
BY_PATH(rmdir, "unlink", a, (const char *a), (a))

/* An open has a mode only where it may make a file; passing one along otherwise does no harm. */
#define OPENING(name)                                                                     \
    int name(const char *path, int flags, ...) {                                          \
        static int (*next)(const char *, int, ...);                                       \
        va_list rest;                                                                     \
        if (!next) next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name);       \
        va_start(rest, flags);                                                            \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? (mode_t)va_arg(rest, int) : 0;    \
        va_end(rest);                                                                     \
        if ((flags & O_CREAT) && faulty_path(path, "create")) return -1;                  \
        return next(path, flags, mode);                                                   \
    }

OPENING(open)
OPENING(open64)

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
    if (result || !meant_path(path, "statvfs")) return result;
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
