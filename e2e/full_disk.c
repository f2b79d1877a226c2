/* A disk that is full while a file exists: preloaded into a program (LD_PRELOAD), it makes every write to a regular file fail
 * with ENOSPC as long as the file that the variable DISK_FULL_WHILE names is there. Standard streams are left alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_full(int descriptor) {
    const char *path = getenv("DISK_FULL_WHILE");
    struct stat found;
    if (descriptor <= STDERR_FILENO || path == NULL || access(path, F_OK) != 0) return 0;
    if (fstat(descriptor, &found) != 0 || !S_ISREG(found.st_mode)) return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int descriptor, const void *data, size_t bytes) {
    return is_full(descriptor) ? -1 : syscall(SYS_write, descriptor, data, bytes);
}

ssize_t pwrite64(int descriptor, const void *data, size_t bytes, off64_t at) {
    return is_full(descriptor) ? -1 : syscall(SYS_pwrite64, descriptor, data, bytes, at);
}

ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t at) {
    return pwrite64(descriptor, data, bytes, at);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    return is_full(descriptor) ? -1 : syscall(SYS_writev, descriptor, parts, count);
}
