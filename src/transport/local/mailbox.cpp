#include "transport/local/mailbox.hpp"

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"

namespace shunt {

// Two pairs of accesses make sure that no sender is forgotten in front of a full mailbox. post() writes posted_, then
// reads polled_; poll() writes polled_, then reads posted_; all four are seq_cst, so either the sender sees the room or
// the receiver sees that there was none.

Post Mailbox::post(std::span<const std::byte> message) {
  SHUNT_CHECK(message.size() <= kMaxMessageBytes);
  const std::uint64_t next = posted_.load(std::memory_order_relaxed);
  // Acquire: partner of the release in poll(), so that the record is free before it is overwritten.
  if (next - polled_.load(std::memory_order_seq_cst) >= kCapacity) return Post::again;
  Record& record = records_[next % kCapacity];
  record.bytes = message.size();
  std::copy(message.begin(), message.end(), record.data.begin());
  // Release: partner of the acquire in poll(); covers the record and every row written before it.
  posted_.store(next + 1, std::memory_order_seq_cst);
  return Post::posted;
}

Mailbox::Poll Mailbox::poll(Message& message) {
  const std::uint64_t next = polled_.load(std::memory_order_relaxed);
  // Acquire: partner of the release in post().
  const std::uint64_t waiting = posted_.load(std::memory_order_acquire) - next;
  if (waiting == 0) return Poll::empty;
  if (waiting > kCapacity) return Poll::damaged;
  const Record& record = records_[next % kCapacity];
  message.bytes = std::min<std::uint64_t>(record.bytes, kMaxMessageBytes);
  std::memcpy(message.data.data(), record.data.data(), message.bytes);
  // Release: partner of the acquire in post(); the record has been read.
  polled_.store(next + 1, std::memory_order_seq_cst);
  const bool was_full = posted_.load(std::memory_order_seq_cst) - next >= kCapacity;
  return was_full ? Poll::message_made_room : Poll::message;
}

}  // namespace shunt
