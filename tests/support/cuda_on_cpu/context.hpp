// Where a fiber goes on, and how to switch to another one. The C library's swapcontext() makes a system call each time,
// and tests switch hundreds of millions of times. Every switch is reported to sanitizers.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>

namespace cuda_on_cpu {

class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  /// `entry` never returns. Without a start, a context is that of the thread that switches away from it.
  void start(void* stack, std::size_t bytes, void (*entry)());

  /// Returns when somebody switches back to `from`, on the same thread.
  static void switch_to(Context& from, Context& to);

 private:
  static void enter();

#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t registers_{};
#endif
  void (*entry_)() = nullptr;
  // For sanitizers.
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* fiber_ = nullptr;
};

}  // namespace cuda_on_cpu
