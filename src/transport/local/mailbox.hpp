// A ring of small messages from one rank to one other, in the receiver's memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.hpp"

namespace shunt {

/// Lives in shared memory; all-zero bytes are a valid, empty mailbox. One thread posts, one polls.
class Mailbox {
 public:
  static constexpr std::uint64_t kCapacity = 64;

  /// The posting side.
  Post post(std::span<const std::byte> message);

  enum class Poll {
    empty,
    message,
    message_made_room,  ///< the mailbox was full, and its sender may be waiting
    damaged,            ///< the counters can't be right
  };
  /// The polling side. The sender's words are not trusted: a length that can't be is cut.
  Poll poll(Message& message);

 private:
  struct Record {
    std::uint64_t bytes;
    std::array<std::byte, kMaxMessageBytes> data;
  };

  // Each counter has one writer and a cache line of its own.
  alignas(64) std::atomic<std::uint64_t> posted_;
  alignas(64) std::atomic<std::uint64_t> polled_;
  alignas(64) std::array<Record, kCapacity> records_;
};

}  // namespace shunt
