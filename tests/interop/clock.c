/* A clock that a test sets while a program runs, in front of the system's. Loaded by LD_PRELOAD; the first eight bytes of the file CLOCK_FILE
   say by how many milliseconds the time of day is ahead, at each moment. Clocks that nobody can set go on as they are. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *told;

__attribute__((constructor)) static void look(void) {
    const char *path = getenv("CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *told, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) told = page;
    if (file >= 0) close(file);
}

static struct timespec moved(struct timespec time, int64_t ms) {
    time.tv_sec += ms / 1000;
    time.tv_nsec += ms % 1000 * 1000000;
    if (time.tv_nsec < 0) time.tv_sec--, time.tv_nsec += 1000000000;
    if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
    return time;
}

static int64_t ahead(void) { return told ? *told : 0; }

static int is_of_day(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int clock_gettime(clockid_t clock, struct timespec *time) {
    static __typeof__(&clock_gettime) next;
    if (!next) next = NEXT(clock_gettime);
    int done = next(clock, time);
    if (done == 0 && is_of_day(clock)) *time = moved(*time, ahead());
    return done;
}

int gettimeofday(struct timeval *restrict day, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    day->tv_sec = now.tv_sec;
    day->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *place, int base) {
    if (base != TIME_UTC) return 0;
    clock_gettime(CLOCK_REALTIME, place);
    return base;
}

/* Who waits until a time of day waits longer when the clock is set back meanwhile, and is woken when it is set ahead: a piece at a time, each by
   the system's clock, which was not set. Who waits by a clock that nobody sets names a time since the start of the machine. */
#define PIECE_MS 50
#define UNTIL_A_TIME_OF_DAY(wait, until, over)                                                                      \
    if ((until)->tv_sec < 500000000) return wait(until);                                                            \
    for (;;) {                                                                                                      \
        struct timespec now, piece;                                                                                 \
        clock_gettime(CLOCK_REALTIME, &now);                                                                        \
        int64_t left_ms = ((until)->tv_sec - now.tv_sec) * 1000 + ((until)->tv_nsec - now.tv_nsec) / 1000000;       \
        piece = moved(now, (left_ms < PIECE_MS ? left_ms : PIECE_MS) - ahead());                                    \
        int done = wait(&piece);                                                                                    \
        if (done != (over) || left_ms <= PIECE_MS) return done;                                                     \
    }

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    static __typeof__(&pthread_cond_timedwait) next;
    if (!next) next = NEXT(pthread_cond_timedwait);
#define WAIT(time) next(condition, mutex, time)
    UNTIL_A_TIME_OF_DAY(WAIT, until, ETIMEDOUT)
#undef WAIT
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock, const struct timespec *restrict until) {
    static __typeof__(&pthread_cond_clockwait) next;
    if (!next) next = NEXT(pthread_cond_clockwait);
#define WAIT(time) next(condition, mutex, clock, time)
    UNTIL_A_TIME_OF_DAY(WAIT, until, ETIMEDOUT)
#undef WAIT
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    static __typeof__(&cnd_timedwait) next;
    if (!next) next = NEXT(cnd_timedwait);
#define WAIT(time) next(condition, mutex, time)
    UNTIL_A_TIME_OF_DAY(WAIT, until, thrd_timedout)
#undef WAIT
}
