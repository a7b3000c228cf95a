// What the thread sanitizer cannot see of Swift's Mutex, told to it.
//
// `Synchronization.Mutex` takes and gives a free lock in the code of its caller, which the sanitizer has instrumented.
// A contended one goes through three functions of libswiftSynchronization.so, which is shipped without: the sanitizer
// then knows of no order between two critical sections, and calls every access in the second one a race. This library
// is loaded before that one, has functions of the same names, and calls the real ones between the two annotations
// that an instrumented lock would have made. Nothing is suppressed: a race outside a lock is reported as ever.
//
// The names are Swift 6's for Linux (swift/stdlib/public/Synchronization/Mutex/LinuxImpl.swift); the script that loads
// this checks that the toolchain has them, and that a contended lock is clean with it and not without it.

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
