// A rank's memory as one address range: control structures first, then the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/descriptor.hpp"

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
  static Segment attach(Descriptor file);

  /// The address space that one of `num_ranks` segments should reserve: the machine's memory, or less where
  /// `ulimit -v` or the processor limits it.
  static std::size_t default_bytes(std::int32_t num_ranks);

  [[nodiscard]] std::byte* base() const { return memory_.get(); }
  [[nodiscard]] std::size_t bytes() const { return memory_.get_deleter().bytes; }
  [[nodiscard]] int fd() const { return file_.get(); }

  /// Takes whole pages. Throws Error(system) when the machine has no more memory, instead of a signal later; for
  /// anonymous memory the kernel's overcommit rules decide when that is.
  void commit(std::size_t offset, std::size_t bytes);
  /// Takes whole pages; false where the machine won't have them back (locked memory).
  bool decommit(std::size_t offset, std::size_t bytes);

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* base) const;
  };

  Segment(std::size_t bytes, int protection, int flags, Descriptor file);

  Descriptor file_;  // none: anonymous
  std::unique_ptr<std::byte, Unmap> memory_;
};

}  // namespace shunt
