/* trace OUTPUT COMMAND...: runs a command and writes down, in the order in which they happened, those of its system calls
 * that make something durable or tell somebody. It needs nothing but a C compiler and the kernel's ptrace.
 *
 *     E TID NAME PATH TARGET DATA    a call begins: what it is about, where a name is given, the first bytes that it writes
 *     X TID NAME RESULT              it has returned
 *
 * Fields are separated by tabs, DATA is hexadecimal, absent fields are `-`. The order is true: a thread stands still while
 * its call is written down, so what happened because of it is written down later. SIGTERM goes on to the command, which
 * dies with this program; its exit status is returned.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DATA_BYTES = 16, PATH_BYTES = 4096, THREADS_MAX = 4096 };

/* How a call's arguments say what it is about. */
enum shape { FD, FD_BUFFER, FD_VECTOR, FD_MESSAGE, PATH, AT_PATH, TWO_PATHS, TWO_AT_PATHS };

struct call {
    long number;
    const char *name;
    enum shape shape;
};

static const struct call CALLS[] = {
    {SYS_fsync, "fsync", FD},
    {SYS_fdatasync, "fdatasync", FD},
    {SYS_ftruncate, "ftruncate", FD},
    {SYS_write, "write", FD_BUFFER},
    {SYS_pwrite64, "pwrite", FD_BUFFER},
    {SYS_sendto, "sendto", FD_BUFFER},
    {SYS_writev, "writev", FD_VECTOR},
    {SYS_pwritev, "pwritev", FD_VECTOR},
    {SYS_sendmsg, "sendmsg", FD_MESSAGE},
    {SYS_openat, "openat", AT_PATH},
    {SYS_mkdirat, "mkdir", AT_PATH},
    {SYS_renameat2, "rename", TWO_AT_PATHS},
    {SYS_linkat, "link", TWO_AT_PATHS},
#ifdef SYS_mkdir
    {SYS_mkdir, "mkdir", PATH},
#endif
#ifdef SYS_rename
    {SYS_rename, "rename", TWO_PATHS},
#endif
#ifdef SYS_renameat
    {SYS_renameat, "rename", TWO_AT_PATHS},
#endif
#ifdef SYS_link
    {SYS_link, "link", TWO_PATHS},
#endif
};

/* A thread of the command: seen yet, and the call that it is in. */
struct thread {
    pid_t id;
    const struct call *call;
};

static struct thread threads[THREADS_MAX];
static pid_t command;

static void fail(const char *what) {
    fprintf(stderr, "trace: %s: %s\n", what, strerror(errno));
    exit(125);
}

static void forward(int number) { kill(command, number); }

/* The slot of a thread; *is_new where it had none. */
static struct thread *thread_of(pid_t id, int *is_new) {
    struct thread *free_slot = NULL;
    for (int i = 0; i < THREADS_MAX; i++) {
        if (threads[i].id == id) return *is_new = 0, &threads[i];
        if (threads[i].id == 0 && free_slot == NULL) free_slot = &threads[i];
    }
    if (free_slot == NULL) errno = ENOSPC, fail("more threads than expected");
    *is_new = 1;
    free_slot->id = id;
    free_slot->call = NULL;
    return free_slot;
}

static size_t peek(pid_t id, uint64_t address, void *to, size_t bytes) {
    struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)address, bytes};
    ssize_t got = process_vm_readv(id, &local, 1, &remote, 1, 0);
    return got < 0 ? 0 : (size_t)got;
}

/* A path of the command, byte by byte up to a page's end, since what follows it may not be mapped. */
static void peek_path(pid_t id, uint64_t address, char *path) {
    size_t length = 0;
    while (length + 256 < PATH_BYTES) {
        size_t chunk = 256 - (address + length) % 256;
        size_t got = peek(id, address + length, path + length, chunk);
        char *end = memchr(path + length, 0, got);
        if (end != NULL) return;
        if (got < chunk) break;
        length += got;
    }
    path[length] = 0;
}

static void path_of_descriptor(pid_t id, int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", id, descriptor);
    ssize_t length = readlink(link, path, PATH_BYTES - 1);
    path[length < 0 ? 0 : length] = 0;
}

/* The first bytes that a call hands over, as they lie in memory. */
static size_t peek_data(pid_t id, enum shape shape, const uint64_t *args, unsigned char *data) {
    struct iovec first = {(void *)(uintptr_t)args[1], args[2]};
    struct msghdr message;
    if (shape == FD_VECTOR && peek(id, args[1], &first, sizeof first) < sizeof first) return 0;
    if (shape == FD_MESSAGE) {
        if (peek(id, args[1], &message, sizeof message) < sizeof message) return 0;
        if (peek(id, (uintptr_t)message.msg_iov, &first, sizeof first) < sizeof first) return 0;
    }
    size_t bytes = first.iov_len < DATA_BYTES ? first.iov_len : DATA_BYTES;
    return peek(id, (uintptr_t)first.iov_base, data, bytes);
}

static void print_enter(FILE *output, pid_t id, const struct call *call, const uint64_t *args) {
    char path[PATH_BYTES] = "", target[PATH_BYTES] = "";
    unsigned char data[DATA_BYTES];
    size_t bytes = 0;
    switch (call->shape) {
    case FD: path_of_descriptor(id, args[0], path); break;
    case FD_BUFFER:
    case FD_VECTOR:
    case FD_MESSAGE:
        path_of_descriptor(id, args[0], path);
        bytes = peek_data(id, call->shape, args, data);
        break;
    case PATH: peek_path(id, args[0], path); break;
    case AT_PATH: peek_path(id, args[1], path); break;
    case TWO_PATHS: peek_path(id, args[0], path), peek_path(id, args[1], target); break;
    case TWO_AT_PATHS: peek_path(id, args[1], path), peek_path(id, args[3], target); break;
    }
    fprintf(output, "E\t%d\t%s\t%s\t%s\t", id, call->name, *path ? path : "-", *target ? target : "-");
    for (size_t i = 0; i < bytes; i++) fprintf(output, "%02x", data[i]);
    if (call->number == SYS_openat) fprintf(output, "%s", args[2] & O_DIRECT ? "01" : "00");
    fprintf(output, "%s\n", bytes || call->number == SYS_openat ? "" : "-");
    fflush(output);
}

/* A thread stopped at the beginning or the end of a call. */
static void note(FILE *output, struct thread *thread) {
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread->id, sizeof info, &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        thread->call = NULL;
        for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++)
            if ((uint64_t)CALLS[i].number == info.entry.nr) thread->call = &CALLS[i];
        if (thread->call != NULL) print_enter(output, thread->id, thread->call, (const uint64_t *)info.entry.args);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && thread->call != NULL) {
        fprintf(output, "X\t%d\t%s\t%lld\n", thread->id, thread->call->name, (long long)info.exit.rval);
        fflush(output);
        thread->call = NULL;
    }
}

/* Follows every thread of the command until its first process is gone; returns its exit status. */
static int follow(FILE *output) {
    for (;;) {
        int status, is_new;
        pid_t id = waitpid(-1, &status, __WALL);
        if (id < 0 && errno == EINTR) continue;
        if (id < 0) fail("waitpid");
        struct thread *thread = thread_of(id, &is_new);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            thread->id = 0;
            if (id == command) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int number = WSTOPSIG(status), deliver = 0;
        if (number == (SIGTRAP | 0x80)) note(output, thread);
        else if (number == SIGTRAP) deliver = 0; /* the news of a clone or an exec */
        else if (number == SIGSTOP && is_new) deliver = 0; /* how a new thread begins */
        else deliver = number;
        ptrace(PTRACE_SYSCALL, id, 0, deliver);
    }
}

int main(int count, char **arguments) {
    if (count < 3) return fprintf(stderr, "usage: trace OUTPUT COMMAND...\n"), 125;
    FILE *output = fopen(arguments[1], "we");
    if (output == NULL) fail(arguments[1]);
    command = fork();
    if (command < 0) fail("fork");
    if (command == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0) fail("this machine does not allow ptrace");
        raise(SIGSTOP);
        execv(arguments[2], arguments + 2);
        fail(arguments[2]);
    }
    struct sigaction action = {.sa_handler = forward};
    sigaction(SIGTERM, &action, NULL);
    int status;
    if (waitpid(command, &status, 0) < 0 || !WIFSTOPPED(status)) return fail("the command did not start"), 125;
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                   PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, command, 0, options) < 0) fail("PTRACE_SETOPTIONS");
    int is_new;
    thread_of(command, &is_new);
    ptrace(PTRACE_SYSCALL, command, 0, 0);
    return follow(output);
}
