/* Ends a process just before a chosen system call that changes files, for tests: loaded by LD_PRELOAD.

   kill_at(n)      the n-th such call from now on never happens: SIGKILL comes instead
   fail_at(n, e)   the n-th such call fails with errno e
   has_failed()    whether it has come to that
   KILL_CALL, KILL_PATH in the environment: SIGKILL comes before the first rename, renameat2 or
                   unlink whose path (the new one) has KILL_PATH in it
   SIGNAL_AT_READ  in the environment: this signal comes right before the first read from a terminal
   fail_exchange() renameat2 fails with EINVAL from now on, as on a file system that knows no exchange */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long left, failing;
static int error, no_exchange;

void kill_at(long n) { left = n; }

void fail_at(long n, int e) {
    failing = n;
    error = e;
}

int has_failed(void) { return !failing; }

void fail_exchange(void) { no_exchange = 1; }

static void named(const char *call, const char *path) {
    const char *wanted = getenv("KILL_CALL"), *part = getenv("KILL_PATH");
    if (wanted && part && !strcmp(call, wanted) && strstr(path, part)) kill(getpid(), SIGKILL);
}

/* Return 1 where the call must fail. */
static int meant(void) {
    if (left && --left == 0) kill(getpid(), SIGKILL);
    if (failing && --failing == 0) {
        errno = error;
        return 1;
    }
    return 0;
}

#define CALL(result, name, parameters, arguments) NAMED(result, name, parameters, arguments, "")
#define NAMED(result, name, parameters, arguments, path)                   \
    result name parameters {                                               \
        static result(*next) parameters;                                   \
        if (!next) next = (result(*) parameters)dlsym(RTLD_NEXT, #name);   \
        named(#name, path);                                                \
        if (meant()) return -1;                                            \
        return next arguments;                                             \
    }

NAMED(int, rename, (const char *a, const char *b), (a, b), b)
CALL(int, renameat, (int d, const char *a, int e, const char *b), (d, a, e, b))
NAMED(int, unlink, (const char *a), (a), a)
CALL(int, unlinkat, (int d, const char *a, int f), (d, a, f))
CALL(int, rmdir, (const char *a), (a))
CALL(int, mkdir, (const char *a, mode_t m), (a, m))
CALL(int, mkdirat, (int d, const char *a, mode_t m), (d, a, m))
CALL(int, chmod, (const char *a, mode_t m), (a, m))
CALL(int, fsync, (int d), (d))
CALL(ssize_t, write, (int d, const void *b, size_t n), (d, b, n))

ssize_t read(int d, void *b, size_t n) {
    static ssize_t (*next)(int, void *, size_t);
    static int sent;
    const char *number = getenv("SIGNAL_AT_READ");
    if (!next) next = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    if (number && !sent && isatty(d)) {
        sent = 1;
        kill(getpid(), atoi(number));
    }
    return next(d, b, n);
}

int renameat2(int d, const char *a, int e, const char *b, unsigned int f) {
    static int (*next)(int, const char *, int, const char *, unsigned int);
    if (!next) next = (int (*)(int, const char *, int, const char *, unsigned int))dlsym(RTLD_NEXT, "renameat2");
    named("renameat2", b);
    if (meant()) return -1;
    if (no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return next(d, a, e, b, f);
}
