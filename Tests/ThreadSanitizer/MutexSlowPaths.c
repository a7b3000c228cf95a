// Annotates Swift's Mutex for the thread sanitizer.
//
// `Synchronization.Mutex` locks and unlocks a free mutex in code that is inlined into the caller and instrumented there.
// A contended mutex calls three functions of libswiftSynchronization.so, which is not instrumented: the sanitizer then
// sees no order between two critical sections and reports every access in the second one as a race. This library is
// loaded before that one, defines functions with the same names, and calls the real ones between the annotations that
// an instrumented lock would make. It suppresses nothing: the sanitizer still reports a race outside of a lock.
//
// The names are those of Swift 6 for Linux (swift/stdlib/public/Synchronization/Mutex/LinuxImpl.swift). The script that
// loads this library checks that the toolchain has them, and that a contended lock is reported only without it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

#define swiftcall __attribute__((swiftcall))
#define lock_self __attribute__((swift_context)) void *lock

void __tsan_acquire(void *address) __attribute__((weak));
void __tsan_release(void *address) __attribute__((weak));

static void acquired(void *lock) {
  if (__tsan_acquire) __tsan_acquire(lock);
}

static void releasing(void *lock) {
  if (__tsan_release) __tsan_release(lock);
}

typedef swiftcall void lock_slow(uint32_t thread, lock_self);
typedef swiftcall bool try_lock_slow(lock_self);
typedef swiftcall void unlock_slow(lock_self);

#define LOCK_SLOW "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define TRY_LOCK_SLOW "$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF"
#define UNLOCK_SLOW "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"

swiftcall void mutex_lock_slow(uint32_t thread, lock_self) __asm__(LOCK_SLOW);
swiftcall bool mutex_try_lock_slow(lock_self) __asm__(TRY_LOCK_SLOW);
swiftcall void mutex_unlock_slow(lock_self) __asm__(UNLOCK_SLOW);

swiftcall void mutex_lock_slow(uint32_t thread, lock_self) {
  static lock_slow *real;
  if (!real) real = (lock_slow *)dlsym(RTLD_NEXT, LOCK_SLOW);
  real(thread, lock);
  acquired(lock);
}

swiftcall bool mutex_try_lock_slow(lock_self) {
  static try_lock_slow *real;
  if (!real) real = (try_lock_slow *)dlsym(RTLD_NEXT, TRY_LOCK_SLOW);
  bool taken = real(lock);
  if (taken) acquired(lock);
  return taken;
}

swiftcall void mutex_unlock_slow(lock_self) {
  static unlock_slow *real;
  if (!real) real = (unlock_slow *)dlsym(RTLD_NEXT, UNLOCK_SLOW);
  releasing(lock);
  real(lock);
}
