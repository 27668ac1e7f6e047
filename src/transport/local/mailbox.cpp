#include "transport/local/mailbox.hpp"

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"

namespace shunt {

Post Mailbox::post(std::span<const std::byte> message) {
  SHUNT_CHECK(message.size() <= kMaxMessageBytes);
  const std::uint64_t next = posted_.load(std::memory_order_relaxed);
  // Acquire: partner of the release in poll(), so that the record is free before it is overwritten.
  if (next - polled_.load(std::memory_order_acquire) >= kCapacity) return Post::again;
  Record& record = records_[next % kCapacity];
  record.bytes = message.size();
  std::copy(message.begin(), message.end(), record.data.begin());
  // Release: partner of the acquire in poll(); covers the record and every row written before it.
  posted_.store(next + 1, std::memory_order_release);
  return Post::posted;
}

bool Mailbox::poll(Message& message) {
  const std::uint64_t next = polled_.load(std::memory_order_relaxed);
  // Acquire: partner of the release in post().
  if (posted_.load(std::memory_order_acquire) == next) return false;
  const Record& record = records_[next % kCapacity];
  message.bytes = std::min<std::uint64_t>(record.bytes, kMaxMessageBytes);
  std::memcpy(message.data.data(), record.data.data(), message.bytes);
  // Release: partner of the acquire in post(); the record has been read.
  polled_.store(next + 1, std::memory_order_release);
  return true;
}

}  // namespace shunt
