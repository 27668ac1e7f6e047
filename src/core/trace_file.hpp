// A mapped routing trace: locates its chunks and verifies them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/trace_format.hpp"
#include "shunt/routing_trace.hpp"

namespace shunt {

class TraceFile {
 public:
  struct Chunk {
    trace_format::ChunkEntry entry;
    std::int64_t first_token;  ///< within its layer
    const std::byte* data;     ///< aligned to 8 bytes
  };

  /// Throws as RoutingTrace::open().
  explicit TraceFile(const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const TraceShape& shape() const { return shape_; }

  /// Throws as RoutingTrace::layer(), its only caller.
  void verify(std::int32_t layer) const;

  [[nodiscard]] const std::vector<Chunk>& chunks(std::int32_t layer) const { return at(layer).chunks; }
  [[nodiscard]] std::int64_t num_tokens(std::int32_t layer) const { return at(layer).tokens; }
  [[nodiscard]] std::int64_t num_scored_tokens(std::int32_t layer) const { return at(layer).scored; }

  /// Lets the system drop the pages of these bytes; they are read again on the next access.
  static void release(const std::byte* begin, std::size_t bytes);

 private:
  struct Layer {
    std::vector<Chunk> chunks;
    std::int64_t tokens = 0;
    std::int64_t scored = 0;
    mutable std::mutex verifying;
    mutable std::atomic<bool> is_verified = false;
  };

  [[nodiscard]] const Layer& at(std::int32_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  void map_file();
  trace_format::Header read_header();
  void read_index(const trace_format::Header& header);
  void add_chunk(const trace_format::ChunkEntry& entry, std::uint64_t number, std::uint64_t offset);

  std::string path_;
  TraceShape shape_;
  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace shunt
