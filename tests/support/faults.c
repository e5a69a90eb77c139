// Faults of the operating system, for processes that preload this (test_faults.py).
//
// One call fails at a time: `call` for a file whose path has `part` in it, from the
// `first` such call on (they count from 1), `count` times, with the number `error`, or
// with the end of the process if that is negative; with `most` it moves at most so many
// bytes instead. All calls of that kind are counted.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
  char call[16];
  char part[256];
  long first, count, most;
  int error;
} chosen;
static atomic_long n_calls, n_faults;
static atomic_bool is_on;

// No other thread may use files meanwhile.
void faults_set(const char* call, const char* part, long first, long count, int error,
                long most) {
  is_on = 0;
  snprintf(chosen.call, sizeof chosen.call, "%s", call);
  snprintf(chosen.part, sizeof chosen.part, "%s", part);
  chosen.first = first;
  chosen.count = count;
  chosen.error = error;
  chosen.most = most;
  n_calls = n_faults = 0;
  is_on = 1;
}

void faults_end(void) { is_on = 0; }
long faults_calls(void) { return n_calls; }
long faults_made(void) { return n_faults; }

static int is_hit(const char* call, const char* path) {
  if (!is_on || strcmp(chosen.call, call) != 0) return 0;
  if (strstr(path, chosen.part) == NULL) return 0;
  const long at = atomic_fetch_add(&n_calls, 1) + 1;
  if (at < chosen.first || at - chosen.first >= chosen.count) return 0;
  atomic_fetch_add(&n_faults, 1);
  return 1;
}

static int is_hit_at(const char* call, int descriptor) {
  if (!is_on || strcmp(chosen.call, call) != 0) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = '\0';
  return is_hit(call, path);
}

static int fail(void) {
  if (chosen.error < 0) kill(getpid(), SIGKILL);
  errno = chosen.error;
  return -1;
}

static size_t least(size_t size) {
  return size < (size_t)chosen.most ? size : (size_t)chosen.most;
}

// The function of the C library that stands behind the one here.
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define DEFINE_PREAD(name)                                                     \
  ssize_t name(int descriptor, void* into, size_t size, off_t offset) {       \
    if (is_hit_at("pread", descriptor)) {                                      \
      if (chosen.most == 0) return fail();                                     \
      size = least(size);                                                      \
    }                                                                          \
    return NEXT(name)(descriptor, into, size, offset);                         \
  }
DEFINE_PREAD(pread)
DEFINE_PREAD(pread64)

ssize_t read(int descriptor, void* into, size_t size) {
  if (is_hit_at("read", descriptor)) {
    if (chosen.most == 0) return fail();
    size = least(size);
  }
  return NEXT(read)(descriptor, into, size);
}

ssize_t write(int descriptor, const void* from, size_t size) {
  if (is_hit_at("write", descriptor)) {
    // What ends in the middle of a write has written something.
    if (chosen.error < 0) NEXT(write)(descriptor, from, size / 3);
    if (chosen.most == 0) return fail();
    size = least(size);
  }
  return NEXT(write)(descriptor, from, size);
}

#define DEFINE_OPEN(name)                                                      \
  int name(const char* path, int flags, ...) {                                 \
    va_list rest;                                                              \
    va_start(rest, flags);                                                     \
    const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;           \
    va_end(rest);                                                              \
    if (is_hit("open", path)) return fail();                                   \
    return NEXT(name)(path, flags, mode);                                      \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

int fstat(int descriptor, struct stat* status) {
  if (is_hit_at("fstat", descriptor)) return fail();
  return NEXT(fstat)(descriptor, status);
}

int fsync(int descriptor) {
  if (is_hit_at("fsync", descriptor)) return fail();
  return NEXT(fsync)(descriptor);
}

void* mmap(void* at, size_t size, int protection, int flags, int descriptor,
           off_t offset) {
  if (descriptor >= 0 && is_hit_at("mmap", descriptor)) {
    fail();
    return MAP_FAILED;
  }
  return NEXT(mmap)(at, size, protection, flags, descriptor, offset);
}

int rename(const char* from, const char* to) {
  if (is_hit("rename", to)) return fail();
  return NEXT(rename)(from, to);
}

int link(const char* from, const char* to) {
  if (is_hit("link", to)) return fail();
  return NEXT(link)(from, to);
}

int unlink(const char* path) {
  if (is_hit("unlink", path)) return fail();
  return NEXT(unlink)(path);
}

int mkdir(const char* path, mode_t mode) {
  if (is_hit("mkdir", path)) return fail();
  return NEXT(mkdir)(path, mode);
}

FILE* fopen(const char* path, const char* mode) {
  if (is_hit("fopen", path)) {
    fail();
    return NULL;
  }
  return NEXT(fopen)(path, mode);
}

// A part of it is written, as where a disk becomes full.
size_t fwrite(const void* from, size_t size, size_t n, FILE* file) {
  if (!is_hit_at("fwrite", fileno(file))) return NEXT(fwrite)(from, size, n, file);
  NEXT(fwrite)(from, size, n / 2, file);
  fflush(file);
  fail();
  return n / 2;
}

int fclose(FILE* file) {
  const int is_failing = is_hit_at("fclose", fileno(file));
  const int result = NEXT(fclose)(file);
  return is_failing ? fail() : result;
}
