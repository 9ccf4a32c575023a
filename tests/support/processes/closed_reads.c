/* Records every descriptor that is closed while another thread reads it: loaded by LD_PRELOAD.

   A number that is closed is given to the next file that is opened. A read that began before then
   takes bytes of that file.

   READS_PATH    part of the path of the files that are meant
   READS_MS      milliseconds that every read of them waits before it begins, except in the main thread
   READS_LOG     a file that gets a line for each such descriptor: its path */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { DESCRIPTORS = 4096 };
static int readers[DESCRIPTORS];

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

/* The path of a descriptor that is meant, or nothing. */
static int is_meant(int descriptor, char *path, size_t size) {
    char link[64];
    if (descriptor < 0 || descriptor >= DESCRIPTORS || !*setting("READS_PATH")) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, setting("READS_PATH")) != NULL;
}

static int begin(int descriptor) {
    char path[4096];
    if (!is_meant(descriptor, path, sizeof path)) return 0;
    __atomic_add_fetch(&readers[descriptor], 1, __ATOMIC_SEQ_CST);
    if (syscall(SYS_gettid) != getpid()) usleep((useconds_t)atoi(setting("READS_MS")) * 1000);
    return 1;
}

static void end(int descriptor, int counted) {
    if (counted) __atomic_sub_fetch(&readers[descriptor], 1, __ATOMIC_SEQ_CST);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t read(int descriptor, void *data, size_t size) {
    int counted = begin(descriptor);
    ssize_t done = NEXT(read)(descriptor, data, size);
    end(descriptor, counted);
    return done;
}

ssize_t pread(int descriptor, void *data, size_t size, off_t offset) {
    int counted = begin(descriptor);
    ssize_t done = NEXT(pread)(descriptor, data, size, offset);
    end(descriptor, counted);
    return done;
}

ssize_t pread64(int descriptor, void *data, size_t size, off64_t offset) {
    int counted = begin(descriptor);
    ssize_t done = NEXT(pread64)(descriptor, data, size, offset);
    end(descriptor, counted);
    return done;
}

int close(int descriptor) {
    char path[4096];
    if (is_meant(descriptor, path, sizeof path - 1) &&
        __atomic_load_n(&readers[descriptor], __ATOMIC_SEQ_CST) > 0) {
        int log = (int)syscall(SYS_openat, AT_FDCWD, setting("READS_LOG"),
                               O_WRONLY | O_APPEND | O_CREAT, 0644);
        strcat(path, "\n");
        if (log >= 0) {
            ssize_t written = syscall(SYS_write, log, path, strlen(path));
            (void)written;
            syscall(SYS_close, log);
        }
    }
    return NEXT(close)(descriptor);
}
