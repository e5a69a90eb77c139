// Recorder: the calls that change files below a folder -> a trace (power_cut.py).
//
// A program that has this library preloaded calls recorder_start. From then on, each
// record is a header and two byte strings, in the order in which the calls took effect:
//
//     call (1 byte) | inode (8) | offset or size (8) | length (4) | length (4) | ... | ...
//
// Writes are shortened to `most` bytes, so that a trace has many of them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The function of the C library that stands behind the one here.
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char folder[PATH_MAX];
static size_t most;
static FILE* trace;

static int is_recorded(const char* path) {
  const size_t n = strlen(folder);
  return trace != NULL && strncmp(path, folder, n) == 0 && strchr("/", path[n]) != NULL;
}

static int is_recorded_at(int descriptor) {
  if (trace == NULL) return 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = '\0';
  return is_recorded(path);
}

static void record(char call, uint64_t inode, uint64_t number, const char* path,
                   const void* data, size_t n_bytes) {
  const uint32_t lengths[2] = {(uint32_t)strlen(path), (uint32_t)n_bytes};
  const size_t n_written =
      NEXT(fwrite)(&call, 1, 1, trace) + NEXT(fwrite)(&inode, 8, 1, trace) +
      NEXT(fwrite)(&number, 8, 1, trace) + NEXT(fwrite)(lengths, 8, 1, trace) +
      NEXT(fwrite)(path, 1, lengths[0], trace) + NEXT(fwrite)(data, 1, n_bytes, trace);
  if (n_written != 4 + lengths[0] + n_bytes) abort();
}

static struct stat status_of(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) abort();
  return status;
}

void recorder_start(const char* below, const char* into, size_t most_per_write) {
  snprintf(folder, sizeof folder, "%s", below);
  most = most_per_write;
  trace = NEXT(fopen)(into, "wb");
}

void recorder_mark(void) { record('.', 0, 0, "", "", 0); }

void recorder_stop(void) {
  NEXT(fclose)(trace);
  trace = NULL;
}

static void record_open(const char* path, int descriptor, int existed, int flags) {
  const uint64_t inode = status_of(descriptor).st_ino;
  if (!existed) record('c', inode, 0, path, "", 0);
  if (existed && (flags & O_TRUNC)) record('t', inode, 0, "", "", 0);
}

#define DEFINE_OPEN(name)                                                      \
  int name(const char* path, int flags, ...) {                                 \
    va_list rest;                                                              \
    va_start(rest, flags);                                                     \
    const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;           \
    va_end(rest);                                                              \
    if (!is_recorded(path) || (flags & (O_CREAT | O_TRUNC)) == 0) {            \
      return NEXT(name)(path, flags, mode);                                    \
    }                                                                          \
    pthread_mutex_lock(&lock);                                                 \
    const int existed = access(path, F_OK) == 0;                               \
    const int descriptor = NEXT(name)(path, flags, mode);                      \
    if (descriptor >= 0) record_open(path, descriptor, existed, flags);        \
    pthread_mutex_unlock(&lock);                                               \
    return descriptor;                                                         \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_FOPEN(name)                                                     \
  FILE* name(const char* path, const char* mode) {                             \
    if (!is_recorded(path) || mode[0] != 'w') return NEXT(name)(path, mode);   \
    pthread_mutex_lock(&lock);                                                 \
    const int existed = access(path, F_OK) == 0;                               \
    FILE* file = NEXT(name)(path, mode);                                       \
    if (file != NULL) record_open(path, fileno(file), existed, O_TRUNC);       \
    pthread_mutex_unlock(&lock);                                               \
    return file;                                                               \
  }
DEFINE_FOPEN(fopen)
DEFINE_FOPEN(fopen64)

static void record_write(int descriptor, const void* from, ssize_t n) {
  const off_t end = lseek(descriptor, 0, SEEK_CUR);
  if (n > 0) {
    record('w', status_of(descriptor).st_ino, (uint64_t)(end - n), "", from, (size_t)n);
  }
}

ssize_t write(int descriptor, const void* from, size_t size) {
  if (!is_recorded_at(descriptor)) return NEXT(write)(descriptor, from, size);
  pthread_mutex_lock(&lock);
  const ssize_t n = NEXT(write)(descriptor, from, size < most ? size : most);
  record_write(descriptor, from, n);
  pthread_mutex_unlock(&lock);
  return n;
}

// The C library writes it by a call that cannot be seen here, so it is flushed at once.
size_t fwrite(const void* from, size_t size, size_t count, FILE* file) {
  if (!is_recorded_at(fileno(file))) return NEXT(fwrite)(from, size, count, file);
  pthread_mutex_lock(&lock);
  const size_t n = NEXT(fwrite)(from, size, count, file);
  fflush(file);
  record_write(fileno(file), from, (ssize_t)(n * size));
  pthread_mutex_unlock(&lock);
  return n;
}

#define DEFINE_TRUNCATE(name)                                                  \
  int name(int descriptor, off_t size) {                                       \
    pthread_mutex_lock(&lock);                                                 \
    const int result = NEXT(name)(descriptor, size);                           \
    if (result == 0 && is_recorded_at(descriptor)) {                           \
      record('t', status_of(descriptor).st_ino, (uint64_t)size, "", "", 0);    \
    }                                                                          \
    pthread_mutex_unlock(&lock);                                               \
    return result;                                                             \
  }
DEFINE_TRUNCATE(ftruncate)
DEFINE_TRUNCATE(ftruncate64)

#define DEFINE_SYNC(name)                                                      \
  int name(int descriptor) {                                                   \
    pthread_mutex_lock(&lock);                                                 \
    const int result = NEXT(name)(descriptor);                                 \
    if (result == 0 && is_recorded_at(descriptor)) {                           \
      record('s', status_of(descriptor).st_ino, 0, "", "", 0);                 \
    }                                                                          \
    pthread_mutex_unlock(&lock);                                               \
    return result;                                                             \
  }
DEFINE_SYNC(fsync)
DEFINE_SYNC(fdatasync)

#define DEFINE_OF_TWO(name, call)                                              \
  int name(const char* from, const char* to) {                                 \
    pthread_mutex_lock(&lock);                                                 \
    const int result = NEXT(name)(from, to);                                   \
    if (result == 0 && is_recorded(to)) record(call, 0, 0, from, to, strlen(to)); \
    pthread_mutex_unlock(&lock);                                               \
    return result;                                                             \
  }
DEFINE_OF_TWO(rename, 'r')
DEFINE_OF_TWO(link, 'l')

// What os.link calls since Python 3.14.
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  pthread_mutex_lock(&lock);
  const int result = NEXT(linkat)(from_folder, from, to_folder, to, flags);
  if (result == 0 && is_recorded(to)) record('l', 0, 0, from, to, strlen(to));
  pthread_mutex_unlock(&lock);
  return result;
}

int unlink(const char* path) {
  pthread_mutex_lock(&lock);
  const int result = NEXT(unlink)(path);
  if (result == 0 && is_recorded(path)) record('u', 0, 0, path, "", 0);
  pthread_mutex_unlock(&lock);
  return result;
}

int mkdir(const char* path, mode_t mode) {
  pthread_mutex_lock(&lock);
  const int result = NEXT(mkdir)(path, mode);
  struct stat status;
  if (result == 0 && is_recorded(path) && stat(path, &status) == 0) {
    record('d', status.st_ino, 0, path, "", 0);
  }
  pthread_mutex_unlock(&lock);
  return result;
}
