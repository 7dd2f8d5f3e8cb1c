/* A disk that does what a test wants, in front of the system's. Loaded by LD_PRELOAD, told by variables:

   DISK_AT    what is meant: write, fsync, rename (before it is done) or renamed (behind it)
   DISK_OF    part of the path of the file that is meant; of a rename, of the old or of the new path
   DISK_DOES  full: while the file DISK_FLAG is there, a write gets ENOSPC, as from a disk without room
              hold: the first time, half of a write is done, DISK_FLAG is made, and the thread never goes on
   DISK_FLAG  a file                                                                                          */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *name, const char *value) {
    const char *found = getenv(name);
    return found && strcmp(found, value) == 0;
}

static int meant(const char *operation, const char *path) {
    const char *part = getenv("DISK_OF");
    return is("DISK_AT", operation) && part && strstr(path, part);
}

static int meant_file(const char *operation, int file) {
    char link[64], path[PATH_MAX];
    int before = errno;
    if (!is("DISK_AT", operation)) return 0; /* most calls: cheap, and nothing else is touched */
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length <= 0) return 0;
    path[length] = 0;
    return meant(operation, path);
}

static void hold(void) {
    const char *flag = getenv("DISK_FLAG");
    int file = flag ? open(flag, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (file >= 0) close(file);
    for (;;) pause();
}

ssize_t write(int file, const void *bytes, size_t count) {
    ssize_t (*next)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (meant_file("write", file)) {
        const char *flag = getenv("DISK_FLAG");
        if (is("DISK_DOES", "full") && flag && access(flag, F_OK) == 0) {
            errno = ENOSPC;
            return -1;
        }
        if (is("DISK_DOES", "hold")) {
            next(file, bytes, count / 2);
            hold();
        }
    }
    return next(file, bytes, count);
}

int fsync(int file) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (is("DISK_DOES", "hold") && meant_file("fsync", file)) hold();
    return next(file);
}

int rename(const char *from, const char *to) {
    int (*next)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    int holds = is("DISK_DOES", "hold");
    if (holds && (meant("rename", from) || meant("rename", to))) hold();
    int done = next(from, to);
    if (done == 0 && holds && (meant("renamed", from) || meant("renamed", to))) hold();
    return done;
}
