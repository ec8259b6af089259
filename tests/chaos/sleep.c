/* Sleeps without libfaketime, whose clock_nanosleep refuses absolute times of the monotonic clock while that clock is not faked. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request, struct timespec *left) {
    int before = errno;
    int result = syscall(SYS_clock_nanosleep, clock, flags, request, left) == 0 ? 0 : errno;
    errno = before;
    return result;
}
