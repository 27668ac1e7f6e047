// What must hold of a chunk's values besides its checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/trace_format.hpp"

namespace shunt {

/// Checks the chunks of one layer, one after the other.
class ChunkChecks {
 public:
  explicit ChunkChecks(const TraceShape& shape) : shape_(shape) {}

  /// What is wrong with the chunk; empty if nothing is.
  [[nodiscard]] std::string fault_of(const trace_format::ChunkEntry& entry, const std::byte* chunk);

 private:
  template <class Code>
  std::string fault_of_experts(const Code* codes, const trace_format::ChunkEntry& entry);

  TraceShape shape_;
  std::vector<std::uint64_t> last_token_;  // by code: 1 + the token, counted over chunks, that named it last
  std::uint64_t num_tokens_ = 0;
};

}  // namespace shunt
