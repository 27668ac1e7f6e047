// A rank's memory as one address range: control structures first, then the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace shunt {

/// Reserves address space for as much as the machine could ever hold; pages exist only where commit() asked for them.
/// So a segment never moves or grows, peers map it once, and an offset means the same forever.
class Segment {
 public:
  /// Anonymous memory for ranks of one process.
  static Segment anonymous(std::size_t bytes);
  /// Memory without a name in the file system that other processes can map through fd().
  static Segment shareable(std::size_t bytes, const std::string& name);
  /// A peer's segment, from the descriptor it sent; takes the descriptor.
  static Segment attach(int fd);

  /// The address space that one of `num_ranks` segments should reserve: the machine's memory, or less where
  /// `ulimit -v` or the processor limits it.
  static std::size_t default_bytes(std::int32_t num_ranks);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] int fd() const { return fd_; }

  /// Takes whole pages. Throws Error(system) when the machine has no more memory, instead of a signal later; for
  /// anonymous memory the kernel's overcommit rules decide when that is.
  void commit(std::size_t offset, std::size_t bytes);
  /// Takes whole pages; false where the machine won't have them back (locked memory).
  bool decommit(std::size_t offset, std::size_t bytes);

 private:
  Segment(std::byte* base, std::size_t bytes, int fd) : base_(base), bytes_(bytes), fd_(fd) {}

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  int fd_ = -1;  // −1: anonymous
};

}  // namespace shunt
