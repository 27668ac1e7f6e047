// Sleeping on a word that other processes may share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace shunt {

/// Returns when the word is no longer `expected`, when woken, after the limit, or spuriously.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::microseconds limit);

/// Wakes every sleeper.
void futex_wake_all(std::atomic<std::uint32_t>& word);

}  // namespace shunt
