/* Makes chosen file operations fail, for LD_PRELOAD. See shim.py for what each variable means. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING = 0, SHORT = -1, KILL = -2 }; /* what happens; a positive number is an errno */

static char below[PATH_MAX], operation[32], report[PATH_MAX];
static int action, always;
static long at, count;

static void copy_variable(char *target, size_t size, const char *name) {
    const char *value = getenv(name);
    snprintf(target, size, "%s", value ? value : "");
}

/* Read the environment and begin to count; a forked process calls this, others begin with it. */
__attribute__((constructor)) void fault_configure(void) {
    char word[32];
    copy_variable(operation, sizeof operation, "FAULT_OPERATION");
    copy_variable(report, sizeof report, "FAULT_REPORT");
    copy_variable(word, sizeof word, "FAULT_ACTION");
    action = !strcmp(word, "kill") ? KILL : !strcmp(word, "short") ? SHORT : atoi(word);
    copy_variable(word, sizeof word, "FAULT_ALWAYS");
    always = atoi(word);
    copy_variable(word, sizeof word, "FAULT_AT");
    at = atol(word);
    count = 0;
    copy_variable(below, sizeof below, "FAULT_BELOW");
}

/* Whether the file is `below` or in it; `path` is relative to `directory`, or empty for that. */
static int concerns(int directory, const char *path, char *full) {
    char link[64];
    size_t length = 0;
    if (path[0] != '/') {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        if (directory == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        ssize_t n = readlink(link, full, PATH_MAX - 1);
        if (n <= 0) return 0;
        length = (size_t)n;
        if (path[0]) full[length++] = '/';
    }
    snprintf(full + length, PATH_MAX - length, "%s", path);
    size_t prefix = strlen(below);
    return !strncmp(full, below, prefix) && (full[prefix] == '/' || !full[prefix]);
}

static void note(const char *name, const char *path) { /* one line per fault */
    char line[PATH_MAX + 64];
    int n = snprintf(line, sizeof line, "%d %s %s\n", getpid(), name, path);
    long file = syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0) return;
    syscall(SYS_write, file, line, n);
    syscall(SYS_close, file);
}

static int fault(const char *name, int directory, const char *path) {
    char full[PATH_MAX];
    int before = errno;
    int is_chosen = !strcmp(operation, name) || !strcmp(operation, "*");
    if (!below[0] || !is_chosen || !path || !concerns(directory, path, full)) {
        errno = before;
        return NOTHING;
    }
    errno = before;
    long now = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (at && now != at && !(always && now > at)) return NOTHING;
    if (!at || now == at) note(name, full);
    if (!at) return NOTHING; /* a rehearsal: every operation is reported, none fails */
    if (action == KILL) syscall(SYS_kill, getpid(), SIGKILL);
    if (action == SHORT && now > at) return ENOSPC;
    return action;
}

#define REAL(name, result, ...)                                   \
    static result (*real)(__VA_ARGS__);                           \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)
#define FAIL(name, directory, path)                               \
    int what = fault(name, directory, path);                      \
    if (what > 0) {                                               \
        errno = what;                                             \
        return -1;                                                \
    }

#define MODE(flags)                                               \
    mode_t mode = 0;                                              \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                      \
        va_list more;                                             \
        va_start(more, flags);                                    \
        mode = va_arg(more, mode_t);                              \
        va_end(more);                                             \
    }
#define OPEN(name)                                                \
    int name(const char *path, int flags, ...) {                  \
        REAL(name, int, const char *, int, ...);                  \
        MODE(flags)                                               \
        FAIL("open", AT_FDCWD, path)                              \
        return real(path, flags, mode);                           \
    }
#define OPENAT(name)                                              \
    int name(int directory, const char *path, int flags, ...) {   \
        REAL(name, int, int, const char *, int, ...);             \
        MODE(flags)                                               \
        FAIL("open", directory, path)                             \
        return real(directory, path, flags, mode);                \
    }
#define ON_PATH(name, operation, type)                            \
    int name(const char *path, type more) {                       \
        REAL(name, int, const char *, type);                      \
        FAIL(operation, AT_FDCWD, path)                           \
        return real(path, more);                                  \
    }
#define REMOVE(name)                                              \
    int name(const char *path) {                                  \
        REAL(name, int, const char *);                            \
        FAIL("unlink", AT_FDCWD, path)                            \
        return real(path);                                        \
    }
#define ON_FILE(name, operation)                                  \
    int name(int file) {                                          \
        REAL(name, int, int);                                     \
        FAIL(operation, file, "")                                 \
        return real(file);                                        \
    }
#define TRANSFER(name, operation, pointer, rest, ...)             \
    ssize_t name(int file, pointer data, size_t n rest) {         \
        REAL(name, ssize_t, int, pointer, size_t rest);           \
        FAIL(operation, file, "")                                 \
        if (what == SHORT) n = (n + 1) / 2;                       \
        return real(file, data, n __VA_ARGS__);                   \
    }
#define NONE
#define OFFSET , off_t offset

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
ON_PATH(creat, "open", mode_t)
ON_PATH(creat64, "open", mode_t)
ON_PATH(mkdir, "mkdir", mode_t)
REMOVE(unlink)
REMOVE(rmdir)
ON_FILE(fsync, "fsync")
ON_FILE(fdatasync, "fsync")
TRANSFER(write, "write", const void *, NONE)
TRANSFER(pwrite, "write", const void *, OFFSET, , offset)
TRANSFER(pwrite64, "write", const void *, OFFSET, , offset)
TRANSFER(read, "read", void *, NONE)
TRANSFER(pread, "read", void *, OFFSET, , offset)
TRANSFER(pread64, "read", void *, OFFSET, , offset)

ssize_t writev(int file, const struct iovec *parts, int n) {
    REAL(writev, ssize_t, int, const struct iovec *, int);
    FAIL("write", file, "")
    return real(file, parts, what == SHORT ? (n + 1) / 2 : n);
}

int close(int file) { /* the file is closed in any case, as by Linux */
    REAL(close, int, int);
    int what = fault("close", file, "");
    int result = real(file);
    if (what <= 0) return result;
    errno = what;
    return -1;
}

int unlinkat(int directory, const char *path, int flags) {
    REAL(unlinkat, int, int, const char *, int);
    FAIL("unlink", directory, path)
    return real(directory, path, flags);
}

int rename(const char *from, const char *to) {
    REAL(rename, int, const char *, const char *);
    FAIL("rename", AT_FDCWD, to)
    return real(from, to);
}

int renameat(int directory, const char *from, int other, const char *to) {
    REAL(renameat, int, int, const char *, int, const char *);
    FAIL("rename", other, to)
    return real(directory, from, other, to);
}
