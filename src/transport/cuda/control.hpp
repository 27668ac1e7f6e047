// What ranks write into each other's memory to find and to wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::device {

/// What a rank says when it comes to a meeting.
struct alignas(16) Note {
  /// Of the blocks that peers may use until the next meeting, in the rank's own heap.
  std::uint64_t offset;
  std::uint64_t second_offset;
  std::uint64_t tag;  ///< what the rank is about to do; the same on all ranks
};

/// A meeting may be held in two parts, with other work of the stream between them: a rank says that it has come, and
/// later waits for the others. Parts alternate, or else notes would be overwritten before they are read.
enum class MeetingPart : std::uint8_t { whole, saying, waiting };

/// Why a device gave up. Lies in pinned memory, written by the device once, read by the host.
struct FaultRecord {
  enum Cause : std::uint32_t { none, deadline, lost, mismatch, overflow, routing };
  std::uint32_t cause;
  std::int32_t peer;
  std::uint64_t tag;       ///< what this rank was doing
  std::uint64_t expected;  ///< deadline, lost: the peer's meetings; overflow: the bound; mismatch: its second offset
  std::uint64_t seen;      ///< in its place; mismatch: the peer's tag; routing: the entry
};

/// How the host watches over those who wait, in pinned memory. Neither side waits for the other.
struct Vigil {
  std::uint32_t* words;

  [[nodiscard]] static constexpr std::size_t num_words(std::int32_t num_ranks) {
    return 1 + static_cast<std::size_t>(num_ranks);
  }
  /// Set by the device now and then while it waits, cleared by the host.
  [[nodiscard]] constexpr std::uint32_t& waits() const { return words[0]; }
  /// Set by the host: who waits for this rank need not any longer.
  [[nodiscard]] constexpr std::uint32_t& lost(std::int32_t rank) const { return words[1 + rank]; }
};

/// A rank's own progress; only its own kernels touch it, and they run one after the other.
struct Progress {
  std::uint32_t meetings;  ///< that this rank has come to
  std::uint32_t fault;     ///< once set, kernels return at once and signal nothing
  std::uint32_t retired;   ///< blocks of a running kernel that are through; 0 between kernels
};

/// Where things lie in a rank's control block. All ranks have the same shape.
///
/// Two copies of notes and words, by the parity of the meeting: a rank comes to meeting n + 2 only when all have come
/// to n + 1, so all have read what it said at n. One signal needs no copies, as it only grows.
struct ControlShape {
  std::int32_t num_ranks;
  std::int32_t num_words;  ///< that a rank can say besides its note

  [[nodiscard]] constexpr std::size_t signal(std::int32_t source) const { return static_cast<std::size_t>(source) * 4; }
  [[nodiscard]] constexpr std::size_t note(std::uint32_t meeting, std::int32_t source) const {
    return notes_begin() + (copy(meeting) + static_cast<std::size_t>(source)) * sizeof(Note);
  }
  [[nodiscard]] constexpr std::size_t words(std::uint32_t meeting, std::int32_t source) const {
    return words_begin() + (copy(meeting) + static_cast<std::size_t>(source)) * static_cast<std::size_t>(num_words) * 4;
  }
  [[nodiscard]] constexpr std::size_t bytes() const {
    return words_begin() + 2 * static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_words) * 4;
  }

 private:
  [[nodiscard]] constexpr std::size_t copy(std::uint32_t meeting) const {
    return (meeting & 1u) * static_cast<std::size_t>(num_ranks);
  }
  [[nodiscard]] constexpr std::size_t notes_begin() const {
    return (static_cast<std::size_t>(num_ranks) * 4 + sizeof(Note) - 1) / sizeof(Note) * sizeof(Note);
  }
  [[nodiscard]] constexpr std::size_t words_begin() const {
    return notes_begin() + 2 * static_cast<std::size_t>(num_ranks) * sizeof(Note);
  }
};

/// All that a kernel needs to meet the other ranks. Device pointers; arrays are [ranks] unless they say more.
struct Control {
  std::int32_t self;
  ControlShape shape;
  std::byte* const* heaps;   ///< every rank's heap, as this rank addresses it
  std::byte* const* blocks;  ///< every rank's control block; null: nobody says anything to it or waits for it
  std::byte** shown;         ///< [2, ranks]: what each rank showed at the last meeting, its heap plus its offsets
  Progress* progress;
  FaultRecord* fault;  ///< pinned
  Vigil vigil;         ///< pinned
  std::uint64_t deadline_ns;
};

}  // namespace shunt::device
