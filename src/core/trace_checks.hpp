// Checks of a chunk's values, besides its checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/trace_format.hpp"

namespace shunt {

/// Checks the chunks of one layer in order.
class ChunkChecks {
 public:
  explicit ChunkChecks(const TraceShape& shape) : shape_(shape) {}

  /// Describes the fault of the chunk; empty if there is none.
  [[nodiscard]] std::string fault_of(const trace_format::ChunkEntry& entry, const std::byte* chunk);

 private:
  template <class Code>
  std::string fault_of_experts(const Code* codes, const trace_format::ChunkEntry& entry);

  TraceShape shape_;
  std::vector<std::uint64_t> last_token_;  // by code: 1 + index, over all chunks, of the last token that named it
  std::uint64_t num_tokens_ = 0;
};

}  // namespace shunt
