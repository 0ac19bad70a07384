/* Faults at named moments, preloaded into a command under test and every process it starts.
 *
 * The test shares one page with these processes (FAULT_STATE names its file). The moment is a thing that the command
 * does: it prints a text, writes a text to an output, is about to replace an output or has just done so, opens a file.
 * The first process that comes to it says so in the page and waits until the test has done its part (a signal, a kill,
 * a limit, a fault armed in the page) and lets it go on. So the fault strikes at the moment, however fast the machine.
 *
 * Every fault that really struck is counted in the page: the test knows whether it did.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Kept in step with tests/faults/shared_state.py. */
struct state {
    int32_t reached;      /* process that came to the moment */
    int32_t go;           /* set by the test */
    int32_t error;        /* errno that calls on the outputs fail with from now on; 0: none */
    int32_t left;         /* how many calls still fail; negative: all */
    int32_t fired;        /* calls that were made to fail, or answered wrongly */
    int32_t watched;      /* an errno of the kernel's own (EMFILE, ENOMEM) to count in fired */
    int32_t nth, seen;    /* the moment is the nth such event, from 1 */
    int64_t clock_offset; /* seconds that the wall clock is ahead */
    char moment;          /* p printed, w written, b before replacing, r replaced, o about to open */
    char text[255];
    char outputs[2][1024]; /* folders whose files the fault strikes */
};

static struct state *shared;
static pid_t owner;

static struct state *state(void) {
    if (owner != getpid()) {
        owner = getpid();
        const char *name = getenv("FAULT_STATE");
        shared = NULL;
        if (name != NULL) {
            int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC);
            if (fd >= 0) {
                void *page = (void *)syscall(SYS_mmap, NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                syscall(SYS_close, fd);
                if (page != MAP_FAILED) shared = page;
            }
        }
    }
    return shared;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (real == NULL) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int is_output(struct state *s, const char *path) {
    char absolute[PATH_MAX];
    if (path == NULL) return 0;
    if (path[0] != '/') {
        char folder[PATH_MAX];
        if (getcwd(folder, sizeof folder) == NULL) return 0;
        if (snprintf(absolute, sizeof absolute, "%s/%s", folder, path) >= (int)sizeof absolute) return 0;
        path = absolute;
    }
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(s->outputs[i]);
        if (length && strncmp(path, s->outputs[i], length) == 0) return 1;
    }
    return 0;
}

static int is_output_descriptor(struct state *s, int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_output(s, path);
}

static int ends_with(const char *path, const char *end) {
    size_t a = strlen(path), b = strlen(end);
    return a >= b && strcmp(path + a - b, end) == 0;
}

static void reach(struct state *s) {
    int saved = errno, nobody = 0;
    if (__atomic_add_fetch(&s->seen, 1, __ATOMIC_SEQ_CST) == s->nth &&
        __atomic_compare_exchange_n(&s->reached, &nobody, getpid(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        struct timespec pause = {0, 1000000};
        while (!__atomic_load_n(&s->go, __ATOMIC_SEQ_CST)) nanosleep(&pause, NULL);
    }
    errno = saved;
}

static int strikes(struct state *s) {
    if (s == NULL || s->error == 0) return 0;
    if (s->left >= 0 && __atomic_fetch_sub(&s->left, 1, __ATOMIC_SEQ_CST) <= 0) {
        s->left = 0;
        return 0;
    }
    __atomic_add_fetch(&s->fired, 1, __ATOMIC_SEQ_CST);
    errno = s->error;
    return 1;
}

static void watch(struct state *s, int failed) {
    if (s != NULL && failed && s->watched && errno == s->watched) __atomic_add_fetch(&s->fired, 1, __ATOMIC_SEQ_CST);
}

/* A file system that has become read-only takes what is written to files that were open. */
static int refuses_writes(struct state *s) { return s->error && s->error != EROFS; }

static void written(struct state *s, int fd, const void *buffer, size_t size) {
    if (s->reached || s->text[0] == 0) return;
    if (s->moment == 'p' && (fd == 1 || fd == 2)) {
        if (memmem(buffer, size, s->text, strlen(s->text))) reach(s);
    } else if (s->moment == 'w' && fd > 2) {
        if (memmem(buffer, size, s->text, strlen(s->text)) && is_output_descriptor(s, fd)) reach(s);
    }
}

ssize_t write(int fd, const void *buffer, size_t size) {
    REAL(write);
    struct state *s = state();
    if (s == NULL) return real(fd, buffer, size);
    if (fd > 2 && refuses_writes(s) && is_output_descriptor(s, fd) && strikes(s)) return -1;
    ssize_t done = real(fd, buffer, size);
    if (done > 0) written(s, fd, buffer, (size_t)done);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    struct state *s = state();
    if (s != NULL && fd > 2 && refuses_writes(s) && is_output_descriptor(s, fd) && strikes(s)) return -1;
    ssize_t done = real(fd, parts, count);
    if (s != NULL && done > 0)
        for (int i = 0; i < count; i++) written(s, fd, parts[i].iov_base, parts[i].iov_len);
    return done;
}

#define SYNCHRONISING(name) \
    int name(int fd) { \
        REAL(name); \
        struct state *s = state(); \
        if (s != NULL && refuses_writes(s) && is_output_descriptor(s, fd) && strikes(s)) return -1; \
        return real(fd); \
    }
SYNCHRONISING(fsync)
SYNCHRONISING(fdatasync)

static int opening(struct state *s, const char *path, int flags) {
    if (s == NULL || path == NULL) return 0;
    if (s->moment == 'o' && !s->reached && s->text[0] && ends_with(path, s->text)) reach(s);
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    return writes && s->error && is_output(s, path) && strikes(s);
}

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = va_arg(more, mode_t); \
        va_end(more); \
        struct state *s = state(); \
        if (opening(s, path, flags)) return -1; \
        int fd = real(path, flags, mode); \
        watch(s, fd < 0); \
        return fd; \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = va_arg(more, mode_t); \
        va_end(more); \
        struct state *s = state(); \
        if (opening(s, path, flags)) return -1; \
        int fd = real(folder, path, flags, mode); \
        watch(s, fd < 0); \
        return fd; \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

int pipe2(int ends[2], int flags) {
    REAL(pipe2);
    int done = real(ends, flags);
    watch(state(), done < 0);
    return done;
}

int socketpair(int domain, int type, int protocol, int ends[2]) {
    REAL(socketpair);
    int done = real(domain, type, protocol, ends);
    watch(state(), done < 0);
    return done;
}

int rename(const char *from, const char *to) {
    REAL(rename);
    struct state *s = state();
    if (s == NULL) return real(from, to);
    int is_moment = s->text[0] && !s->reached && ends_with(to, s->text);
    if (is_moment && s->moment == 'b') reach(s);
    if (s->error && is_output(s, to) && strikes(s)) return -1;
    int done = real(from, to);
    if (is_moment && done == 0 && s->moment == 'r') reach(s);
    return done;
}

#define LINKING(name) \
    int name(const char *from, const char *to) { \
        REAL(name); \
        struct state *s = state(); \
        if (s != NULL && s->error && is_output(s, to) && strikes(s)) return -1; \
        return real(from, to); \
    }
LINKING(link)
LINKING(symlink)

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    struct state *s = state();
    struct stat there;
    /* Of a folder that is there the kernel says so first. */
    if (s != NULL && s->error && is_output(s, path) && stat(path, &there) != 0 && strikes(s)) return -1;
    return real(path, mode);
}

#define MAPPING(name) \
    void *name(void *address, size_t length, int protection, int flags, int fd, off_t offset) { \
        void *done = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset); \
        if (done == MAP_FAILED) watch(state(), 1); \
        return done; \
    }
MAPPING(mmap)
MAPPING(mmap64)

int posix_memalign(void **memory, size_t alignment, size_t size) {
    REAL(posix_memalign);
    int failed = real(memory, alignment, size);
    struct state *s = shared;
    if (failed && s != NULL && s->watched == ENOMEM) __atomic_add_fetch(&s->fired, 1, __ATOMIC_SEQ_CST);
    return failed;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int done = real(clock, now);
    struct state *s = shared;
    if (s != NULL && clock == CLOCK_REALTIME && s->clock_offset) {
        now->tv_sec += s->clock_offset;
        __atomic_add_fetch(&s->fired, 1, __ATOMIC_SEQ_CST);
    }
    return done;
}
