// The bytes of a routing trace, to be changed by a test.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/trace_format.hpp"
#include "shunt/routing_trace.hpp"
#include "support/trace_tokens.hpp"

namespace shunt::test {

using TraceBytes = std::vector<char>;

inline TraceBytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Makes all checksums right again, as an adversary would, as far as the sizes make sense.
inline void mend_checksums(TraceBytes& bytes) {
  using namespace trace_format;
  Header header;
  if (bytes.size() < sizeof(header)) return;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto all = std::as_writable_bytes(std::span(bytes));
  if (header.index_offset <= bytes.size()) {
    const auto index = all.subspan(header.index_offset);
    const TraceShape shape = {.layers = static_cast<std::int32_t>(header.layers),
                              .experts = static_cast<std::int32_t>(header.experts),
                              .topk = static_cast<std::int32_t>(header.topk),
                              .weights = (header.contents & kWeights) != 0};
    std::uint64_t offset = sizeof(header);
    for (std::uint64_t at = 0; at + sizeof(ChunkEntry) <= index.size(); at += sizeof(ChunkEntry)) {
      ChunkEntry entry;
      std::memcpy(&entry, index.data() + at, sizeof(entry));
      const std::uint64_t size = ChunkLayout(shape, entry).bytes;
      if (offset > bytes.size() || size > bytes.size() - offset) break;
      entry.checksum = checksum(all.subspan(offset, size));
      std::memcpy(index.data() + at, &entry, sizeof(entry));
      offset += size;
    }
    header.index_checksum = checksum(index);
  }
  header.checksum = header_checksum(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
}

/// Reads everything that the file holds; throws as the reader does.
inline void read_all(const std::string& path) {
  const RoutingTrace trace = RoutingTrace::open(path);
  for (std::int32_t layer = 0; layer < trace.shape().layers; ++layer)
    (void)TraceTokens::of_layer(trace.layer(layer), trace.shape(), 3);
}

}  // namespace shunt::test
