#include "transport/local/bell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace shunt {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Neither call uses FUTEX_PRIVATE_FLAG: the word may lie in memory shared between processes.

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::microseconds limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec timeout = {static_cast<time_t>(seconds.count()), static_cast<long>((limit - seconds).count() * 1000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// ring() and sleep() are the two halves of Dekker's pattern: each writes its word, then reads the other's. All four
// accesses are seq_cst, so at least one side sees the other: either the sleeper finds rings_ changed, or the ringer
// finds sleepers_ raised and makes the system call.

void Bell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake_all(rings_);
}

void Bell::sleep(std::uint32_t seen, std::chrono::microseconds limit, std::chrono::microseconds spin) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::min(spin, limit)) {
    if (observe() != seen) return;
    relax();
  }
  if (limit <= spin) return;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (rings_.load(std::memory_order_seq_cst) == seen) futex_wait(rings_, seen, limit - spin);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace shunt
