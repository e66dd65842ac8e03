/* Preloaded into a process, this records every change to the files below $RECORD_ROOT, and every sync, in $RECORD_LOG.

   A line is: operation, inode, offset, path, second path or data in hexadecimal, separated by tabs. What the process
   writes to its standard output is recorded too, so a reader knows what it had reported when. power_loss.py reads it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static size_t root_length;
static int log_descriptor = -1;


__attribute__((constructor)) static void start(void) {
    root = getenv("RECORD_ROOT");
    const char *path = getenv("RECORD_LOG");
    if (!root || !path) return;
    root_length = strlen(root);
    int descriptor = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    log_descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 500);
    syscall(SYS_close, descriptor);
    unsetenv("LD_PRELOAD"); /* children are not recorded */
}

static void note(const char *operation, ino_t inode, long offset, const char *path, const char *other,
                 const unsigned char *data, size_t length) {
    size_t size = 2 * PATH_MAX + 128 + 2 * length;
    char *line = malloc(size);
    int used = snprintf(line, size, "%s\t%lu\t%ld\t%s\t%s", operation, (unsigned long)inode, offset, path, other);
    for (size_t i = 0; i < length; i++) used += snprintf(line + used, 3, "%02x", data[i]);
    line[used++] = '\n';
    syscall(SYS_write, log_descriptor, line, used);
    free(line);
}

/* Give the absolute path; return whether it is at or below the root. */
static int absolute(int folder, const char *path, char *result) {
    if (log_descriptor < 0 || !path) return 0;
    if (path[0] == '/') {
        snprintf(result, PATH_MAX, "%s", path);
    } else {
        char base[PATH_MAX] = "", link[64];
        if (folder == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return 0;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t length = readlink(link, base, sizeof base - 1);
            if (length < 0) return 0;
            base[length] = 0;
        }
        if (snprintf(result, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    }
    return strncmp(result, root, root_length) == 0;
}

/* Return whether a descriptor is of a file or folder below the root; give its state and path. */
static int followed(int descriptor, struct stat *state, char *path) {
    if (log_descriptor < 0 || fstat(descriptor, state)) return 0;
    if (!S_ISREG(state->st_mode) && !S_ISDIR(state->st_mode)) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, root, root_length) == 0;
}

static int open_and_note(int folder, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    struct stat state;
    int is_followed = absolute(folder, path, full) && (flags & O_ACCMODE) != O_RDONLY;
    pthread_mutex_lock(&lock);
    int existed = is_followed && stat(full, &state) == 0;
    int descriptor = syscall(SYS_openat, folder, path, flags, mode);
    if (is_followed && descriptor >= 0 && fstat(descriptor, &state) == 0) {
        if (!existed) note("create", state.st_ino, 0, full, "", NULL, 0);
        else if (flags & O_TRUNC) note("truncate", state.st_ino, 0, full, "", NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return descriptor;
}

#define MODE_OF(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, mode_t); va_end(a); }

int open(const char *path, int flags, ...) { MODE_OF(flags) return open_and_note(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return open_and_note(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE_OF(flags) return open_and_note(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE_OF(flags) return open_and_note(folder, path, flags | O_LARGEFILE, mode); }

ssize_t write(int descriptor, const void *data, size_t length) {
    char path[PATH_MAX];
    struct stat state;
    if (descriptor == STDOUT_FILENO && log_descriptor >= 0) note("print", 0, 0, "", "", data, length);
    pthread_mutex_lock(&lock);
    int is_followed = followed(descriptor, &state, path);
    long offset = 0;
    if (is_followed) offset = fcntl(descriptor, F_GETFL) & O_APPEND ? state.st_size : lseek(descriptor, 0, SEEK_CUR);
    ssize_t written = syscall(SYS_write, descriptor, data, length);
    if (is_followed && written > 0) note("write", state.st_ino, offset, path, "", data, written);
    pthread_mutex_unlock(&lock);
    return written;
}

static int truncate_and_note(int descriptor, off_t length) {
    char path[PATH_MAX];
    struct stat state;
    int result = syscall(SYS_ftruncate, descriptor, length);
    if (!result && followed(descriptor, &state, path)) note("truncate", state.st_ino, length, path, "", NULL, 0);
    return result;
}
int ftruncate(int descriptor, off_t length) { return truncate_and_note(descriptor, length); }
int ftruncate64(int descriptor, off64_t length) { return truncate_and_note(descriptor, length); }

static int sync_and_note(int descriptor, long number) {
    char path[PATH_MAX];
    struct stat state;
    int result = syscall(number, descriptor);
    if (!result && followed(descriptor, &state, path))
        note(S_ISDIR(state.st_mode) ? "sync-folder" : "sync", state.st_ino, 0, path, "", NULL, 0);
    return result;
}
int fsync(int descriptor) { return sync_and_note(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return sync_and_note(descriptor, SYS_fdatasync); }

static int change_and_note(int result, const char *operation, int folder, const char *path, int other_folder,
                           const char *other) {
    char full[PATH_MAX], full_other[PATH_MAX] = "";
    if (!result && other) absolute(other_folder, other, full_other);
    if (!result && absolute(folder, path, full)) note(operation, 0, 0, full, full_other, NULL, 0);
    return result;
}
int rename(const char *from, const char *to) {
    return change_and_note(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0), "rename", AT_FDCWD, from, AT_FDCWD, to);
}
int renameat(int folder, const char *from, int other, const char *to) {
    return change_and_note(syscall(SYS_renameat2, folder, from, other, to, 0), "rename", folder, from, other, to);
}
int unlink(const char *path) {
    return change_and_note(syscall(SYS_unlinkat, AT_FDCWD, path, 0), "remove", AT_FDCWD, path, 0, NULL);
}
int unlinkat(int folder, const char *path, int flags) {
    return change_and_note(syscall(SYS_unlinkat, folder, path, flags), "remove", folder, path, 0, NULL);
}
int rmdir(const char *path) {
    return change_and_note(syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR), "remove", AT_FDCWD, path, 0, NULL);
}
int mkdir(const char *path, mode_t mode) {
    return change_and_note(syscall(SYS_mkdirat, AT_FDCWD, path, mode), "folder", AT_FDCWD, path, 0, NULL);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    return change_and_note(syscall(SYS_mkdirat, folder, path, mode), "folder", folder, path, 0, NULL);
}
