#include "context.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
/// Pushes what a function must preserve, stores the stack pointer, takes the other one and pops the same.
extern "C" void cuda_on_cpu_switch(void** from, void* to);
asm(R"(
  .text
  .globl cuda_on_cpu_switch
  .hidden cuda_on_cpu_switch
  .type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size cuda_on_cpu_switch, .-cuda_on_cpu_switch
)");
#endif

namespace cuda_on_cpu {
namespace {

// The last switch on this thread.
[[gnu::tls_model("initial-exec")]] constinit thread_local Context* switched_from = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local Context* switched_to = nullptr;

}  // namespace

Context::~Context() {
#if defined(__SANITIZE_ADDRESS__)
  if (entry_) __asan_unpoison_memory_region(stack_, stack_bytes_);  // of functions that never returned
#endif
#if defined(__SANITIZE_THREAD__)
  if (entry_) __tsan_destroy_fiber(fiber_);
#endif
}

void Context::start(void* stack, std::size_t bytes, void (*entry)()) {
  entry_ = entry;
  stack_ = stack;
  stack_bytes_ = bytes;
#if defined(__SANITIZE_THREAD__)
  fiber_ = __tsan_create_fiber(0);
#endif
#if defined(__x86_64__)
  constexpr std::ptrdiff_t kSaved = 6;  // registers that cuda_on_cpu_switch() pops
  const auto top = (reinterpret_cast<std::uintptr_t>(stack) + bytes) / 16 * 16;
  auto** const words = reinterpret_cast<void**>(top) - 2;  // as a call leaves it: aligned but for the return address
  words[0] = reinterpret_cast<void*>(&Context::enter);
  words[1] = nullptr;
  for (std::ptrdiff_t i = 1; i <= kSaved; ++i) words[-i] = nullptr;
  stack_pointer_ = words - kSaved;
#else
  getcontext(&registers_);
  registers_.uc_stack.ss_sp = stack;
  registers_.uc_stack.ss_size = bytes;
  makecontext(&registers_, &Context::enter, 0);
#endif
}

void Context::enter() {
  Context& self = *switched_to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &switched_from->stack_, &switched_from->stack_bytes_);
#endif
  self.entry_();
}

#if defined(__SANITIZE_THREAD__)
[[gnu::no_sanitize("thread")]]
#endif
void Context::switch_to(Context& from, Context& to) {
  switched_from = &from;
  switched_to = &to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  if (!from.fiber_) from.fiber_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.fiber_, 0);
#endif
#if defined(__x86_64__)
  cuda_on_cpu_switch(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.registers_, &to.registers_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  // The one that switched here, which may be the thread's own stack.
  __sanitizer_finish_switch_fiber(from.fake_stack_, &switched_from->stack_, &switched_from->stack_bytes_);
#endif
}

}  // namespace cuda_on_cpu
