/* Lets the wall clock jump, for tests: loaded by LD_PRELOAD. The monotonic clock goes on as ever.

   CLOCK_JUMPS   seconds that are added, separated by commas; one after the other, round and round
   CLOCK_MS      how long each of them lasts */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    const char *jumps = getenv("CLOCK_JUMPS"), *lasting = getenv("CLOCK_MS");
    struct timespec now;
    long count = 1, place, each = lasting ? atol(lasting) : 0;
    if (!jumps || each <= 0) return 0;
    for (const char *at = jumps; *at; at++) count += *at == ',';
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    place = (now.tv_sec * 1000 + now.tv_nsec / 1000000) / each % count;
    while (place-- > 0) jumps = strchr(jumps, ',') + 1;
    return atol(jumps);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = (int)syscall(SYS_gettimeofday, now, zone);
    if (!result) now->tv_sec += offset();
    return result;
}

time_t time(time_t *stored) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (stored) *stored = now.tv_sec;
    return now.tv_sec;
}
