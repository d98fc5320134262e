// SPDX-License-Identifier: MIT
// A library for LD_PRELOAD that makes the disk fail on purpose: it counts the file operations of a
// process that change anything under one folder, and at operation number N it kills the process,
// interrupts it, or has the disk full from then on. See faults.py.
//
// Operations reach the kernel by system calls of their own, not by the functions that this library
// replaces, so that nothing is counted twice. The path of an open file comes from /proc, which
// knows files that were duplicated or renamed after they were opened. Writes through mmap are not
// seen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

// What a full disk does to an operation: it refuses what needs space; it may refuse to rename or to
// sync, which need a block at times; it never refuses to remove.
enum kind { NEEDS_SPACE, MAY_NEED_SPACE, FREES_SPACE };

static char watched[PATH_MAX]; // empty: nothing is counted
static size_t watched_length;
static long at;       // number of the operation, from 1; 0: none
static int number;    // signal at that operation; 0: the disk is full from there on
static int torn;      // half of a write is done before the signal
static int log_file = -1;
static atomic_long count;

// Begin to count. `log` receives a line for each operation: its name, size and paths.
void faults_arm(const char *folder, long operation, int signal_number, int half, const char *log)
{
    if (!realpath(folder, watched)) {
        perror("faults_arm");
        abort();
    }
    watched_length = strlen(watched);
    at = operation;
    number = signal_number;
    torn = half;
    // A high number, since programs close and reuse low ones.
    int opened = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    log_file = fcntl(opened, F_DUPFD_CLOEXEC, 500);
    syscall(SYS_close, opened);
    if (log_file < 0) {
        perror("faults_arm");
        abort();
    }
    atomic_store(&count, 0);
}

// For a process of its own: FAULTS_FOLDER, FAULTS_AT, FAULTS_SIGNAL and FAULTS_LOG. Processes that
// it starts are not counted.
__attribute__((constructor)) static void arm_by_environment(void)
{
    const char *folder = getenv("FAULTS_FOLDER");
    if (!folder)
        return;
    faults_arm(folder, atol(getenv("FAULTS_AT")), atoi(getenv("FAULTS_SIGNAL")), 0,
        getenv("FAULTS_LOG"));
    unsetenv("FAULTS_FOLDER");
}

// Paths

static int inside(const char *path)
{
    return !strncmp(path, watched, watched_length)
        && (path[watched_length] == '/' || path[watched_length] == 0);
}

static int path_of_file(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

// The path without links; the file itself need not exist, and a link in its name is not followed.
static int path_of_name(int folder, const char *name, char *path)
{
    char whole[2 * PATH_MAX], parent[PATH_MAX];
    if (!name)
        return 0;
    if (name[0] == '/')
        snprintf(whole, sizeof whole, "%s", name);
    else {
        if (folder == AT_FDCWD ? !getcwd(parent, sizeof parent) : !path_of_file(folder, parent))
            return 0;
        snprintf(whole, sizeof whole, "%s/%s", parent, name);
    }
    size_t length = strlen(whole);
    while (length > 1 && whole[length - 1] == '/')
        whole[--length] = 0;
    char *last = strrchr(whole, '/');
    *last = 0;
    if (!realpath(last == whole ? "/" : whole, parent))
        return 0;
    return snprintf(path, PATH_MAX, "%s/%s", parent, last + 1) < PATH_MAX;
}

// The fault

static long note(const char *name, size_t size, const char *path, const char *other)
{
    char line[2 * PATH_MAX + 64];
    long n = atomic_fetch_add(&count, 1) + 1;
    int length = snprintf(line, sizeof line, "%s\t%zu\t%s\t%s\n", name, size,
        path + watched_length, other && inside(other) ? other + watched_length : "");
    syscall(SYS_write, log_file, line, (size_t)length);
    return n;
}

static void end(void)
{
    kill(getpid(), number);
    if (number == SIGKILL) // It may reach another thread first.
        for (;;)
            pause();
}

// Counts an operation on a path inside the folder. Nonzero: it is to fail, and errno says why.
static int fails(const char *name, enum kind kind, const char *path, const char *other)
{
    if (!inside(path) && !(other && inside(other)))
        return 0;
    if (!inside(path))
        path = watched;
    long n = note(name, 0, path, other);
    if (!at || n < at)
        return 0;
    if (!number) {
        errno = ENOSPC;
        return kind == NEEDS_SPACE || (n == at && kind == MAY_NEED_SPACE);
    }
    if (n == at)
        end();
    return 0;
}

static int fails_by_name(const char *name, enum kind kind, int folder, const char *file)
{
    char path[PATH_MAX];
    return watched[0] && path_of_name(folder, file, path) && fails(name, kind, path, NULL);
}

static int fails_by_file(const char *name, enum kind kind, int file)
{
    char path[PATH_MAX];
    return watched[0] && path_of_file(file, path) && fails(name, kind, path, NULL);
}

static int fails_by_names(const char *name, enum kind kind, int folder, const char *file,
    int other_folder, const char *other)
{
    char path[PATH_MAX], to[PATH_MAX];
    return watched[0] && path_of_name(folder, file, path) && path_of_name(other_folder, other, to)
        && fails(name, kind, path, to);
}

// Writes: of a torn one, the first half is done.

static int write_fails(const char *name, int file, const void *bytes, size_t size, off_t position)
{
    char path[PATH_MAX];
    if (!watched[0] || !path_of_file(file, path) || !inside(path))
        return 0;
    long n = note(name, size, path, NULL);
    if (!at || n < at)
        return 0;
    if (!number) {
        errno = ENOSPC;
        return 1;
    }
    if (n > at)
        return 0;
    if (torn && position < 0)
        syscall(SYS_write, file, bytes, size / 2);
    else if (torn)
        syscall(SYS_pwrite64, file, bytes, size / 2, position);
    end();
    return 0;
}

ssize_t write(int file, const void *bytes, size_t size)
{
    if (write_fails("write", file, bytes, size, -1))
        return -1;
    return syscall(SYS_write, file, bytes, size);
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t position)
{
    if (write_fails("pwrite", file, bytes, size, position))
        return -1;
    return syscall(SYS_pwrite64, file, bytes, size, position);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t position)
{
    return pwrite64(file, bytes, size, position);
}

ssize_t writev(int file, const struct iovec *parts, int number_of_parts)
{
    if (fails_by_file("writev", NEEDS_SPACE, file))
        return -1;
    return syscall(SYS_writev, file, parts, number_of_parts);
}

ssize_t sendfile64(int to, int from, off64_t *position, size_t size)
{
    if (fails_by_file("sendfile", NEEDS_SPACE, to))
        return -1;
    return syscall(SYS_sendfile, to, from, position, size);
}

ssize_t sendfile(int to, int from, off_t *position, size_t size)
{
    return sendfile64(to, from, position, size);
}

ssize_t copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t size, unsigned flags)
{
    if (fails_by_file("copy_file_range", NEEDS_SPACE, to))
        return -1;
    return syscall(SYS_copy_file_range, from, in, to, out, size, flags);
}

// Streams of C write inside the C library, where this library sees nothing.

size_t fwrite(const void *bytes, size_t size, size_t items, FILE *stream)
{
    static size_t (*next)(const void *, size_t, size_t, FILE *);
    if (!next)
        next = dlsym(RTLD_NEXT, "fwrite");
    if (watched[0] && write_fails("fwrite", fileno(stream), bytes, size * items, -1))
        return 0;
    return next(bytes, size, items, stream);
}

int fclose(FILE *stream)
{
    static int (*next)(FILE *);
    if (!next)
        next = dlsym(RTLD_NEXT, "fclose");
    if (watched[0] && (fcntl(fileno(stream), F_GETFL) & O_ACCMODE) != O_RDONLY)
        fails_by_file("fclose", FREES_SPACE, fileno(stream)); // What it wrote has been refused.
    return next(stream);
}

static FILE *open_stream(const char *symbol, const char *name, const char *mode)
{
    FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, symbol);
    if (strpbrk(mode, "wa+")) {
        int there = !access(name, F_OK);
        if (fails_by_name("fopen", there ? FREES_SPACE : NEEDS_SPACE, AT_FDCWD, name))
            return NULL;
    }
    return next(name, mode);
}

FILE *fopen(const char *name, const char *mode)
{
    return open_stream("fopen", name, mode);
}

FILE *fopen64(const char *name, const char *mode)
{
    return open_stream("fopen64", name, mode);
}

// Files that are opened to be written, truncated, synced

static int open_at(int folder, const char *name, int flags, mode_t mode)
{
    if (watched[0] && ((flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC))) {
        int new = (flags & O_CREAT) && faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW);
        int unnamed = (flags & O_TMPFILE) == O_TMPFILE;
        if (fails_by_name(new ? "create" : "open", new || unnamed ? NEEDS_SPACE : FREES_SPACE,
                folder, name))
            return -1;
    }
    return syscall(SYS_openat, folder, name, flags, mode);
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *name, int flags, ...)
{
    MODE(flags)
    return open_at(AT_FDCWD, name, flags, mode);
}

int open64(const char *name, int flags, ...)
{
    MODE(flags)
    return open_at(AT_FDCWD, name, flags, mode);
}

int openat(int folder, const char *name, int flags, ...)
{
    MODE(flags)
    return open_at(folder, name, flags, mode);
}

int openat64(int folder, const char *name, int flags, ...)
{
    MODE(flags)
    return open_at(folder, name, flags, mode);
}

int creat(const char *name, mode_t mode)
{
    return open_at(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int creat64(const char *name, mode_t mode)
{
    return creat(name, mode);
}

int ftruncate64(int file, off64_t size)
{
    struct stat64 about;
    int grows = !fstat64(file, &about) && size > about.st_size;
    if (fails_by_file("ftruncate", grows ? NEEDS_SPACE : FREES_SPACE, file))
        return -1;
    return syscall(SYS_ftruncate, file, size);
}

int ftruncate(int file, off_t size)
{
    return ftruncate64(file, size);
}

int truncate64(const char *name, off64_t size)
{
    if (fails_by_name("truncate", FREES_SPACE, AT_FDCWD, name))
        return -1;
    return syscall(SYS_truncate, name, size);
}

int truncate(const char *name, off_t size)
{
    return truncate64(name, size);
}

int fallocate64(int file, int mode, off64_t position, off64_t size)
{
    if (fails_by_file("fallocate", NEEDS_SPACE, file))
        return -1;
    return syscall(SYS_fallocate, file, mode, position, size);
}

int fallocate(int file, int mode, off_t position, off_t size)
{
    return fallocate64(file, mode, position, size);
}

int posix_fallocate64(int file, off64_t position, off64_t size)
{
    return fallocate64(file, 0, position, size) ? errno : 0;
}

int posix_fallocate(int file, off_t position, off_t size)
{
    return posix_fallocate64(file, position, size);
}

int fsync(int file)
{
    if (fails_by_file("fsync", MAY_NEED_SPACE, file))
        return -1;
    return syscall(SYS_fsync, file);
}

int fdatasync(int file)
{
    if (fails_by_file("fdatasync", MAY_NEED_SPACE, file))
        return -1;
    return syscall(SYS_fdatasync, file);
}

// Names

int renameat2(int folder, const char *name, int other_folder, const char *other, unsigned flags)
{
    if (fails_by_names("rename", MAY_NEED_SPACE, folder, name, other_folder, other))
        return -1;
    return syscall(SYS_renameat2, folder, name, other_folder, other, flags);
}

int renameat(int folder, const char *name, int other_folder, const char *other)
{
    return renameat2(folder, name, other_folder, other, 0);
}

int rename(const char *name, const char *other)
{
    return renameat2(AT_FDCWD, name, AT_FDCWD, other, 0);
}

int linkat(int folder, const char *name, int other_folder, const char *other, int flags)
{
    if (fails_by_names("link", NEEDS_SPACE, folder, name, other_folder, other))
        return -1;
    return syscall(SYS_linkat, folder, name, other_folder, other, flags);
}

int link(const char *name, const char *other)
{
    return linkat(AT_FDCWD, name, AT_FDCWD, other, 0);
}

int symlinkat(const char *target, int folder, const char *name)
{
    if (fails_by_name("symlink", NEEDS_SPACE, folder, name))
        return -1;
    return syscall(SYS_symlinkat, target, folder, name);
}

int symlink(const char *target, const char *name)
{
    return symlinkat(target, AT_FDCWD, name);
}

int unlinkat(int folder, const char *name, int flags)
{
    if (fails_by_name(flags & AT_REMOVEDIR ? "rmdir" : "unlink", FREES_SPACE, folder, name))
        return -1;
    return syscall(SYS_unlinkat, folder, name, flags);
}

int unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}

int rmdir(const char *name)
{
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

int mkdirat(int folder, const char *name, mode_t mode)
{
    int there = !faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW);
    if (!there && fails_by_name("mkdir", NEEDS_SPACE, folder, name))
        return -1;
    return syscall(SYS_mkdirat, folder, name, mode);
}

int mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}

int fchmod(int file, mode_t mode)
{
    if (fails_by_file("chmod", FREES_SPACE, file))
        return -1;
    return syscall(SYS_fchmod, file, mode);
}

int fchmodat(int folder, const char *name, mode_t mode, int flags)
{
    if (fails_by_name("chmod", FREES_SPACE, folder, name))
        return -1;
    if (flags) { // The system call takes none.
        errno = ENOTSUP;
        return -1;
    }
    return syscall(SYS_fchmodat, folder, name, mode);
}

int chmod(const char *name, mode_t mode)
{
    return fchmodat(AT_FDCWD, name, mode, 0);
}
