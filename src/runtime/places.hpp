// Where the values of a graph are in memory: in buffers that views, such as the parts of a batch, share.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.hpp"
#include "runtime/view.hpp"

namespace shunt::runtime {

using BufferId = Id<struct BufferTag>;

/// Memory of all values that are views of each other or overwrite each other. Its dimensions are those of the largest.
struct Buffer {
  std::vector<graph::DimId> dims;  ///< outermost first
  graph::Element element = graph::Element::f32;
  graph::DimId rows;           ///< the dimension of rows, always the outermost; invalid if it has none
  std::int64_t row_count = 1;  ///< elements; with rows: elements per row
  /// A parameter, state, input or constant: it outlives the step.
  bool is_declared = false;
  std::vector<graph::ValueId> values;  ///< all that lie in it
};

/// The part of a buffer that a value is.
struct Place {
  /// Along one dimension of the buffer: `size` elements from `begin`, which the value knows as `dim`.
  struct Range {
    graph::DimId dim;
    std::int64_t begin = 0, size = 0, stride = 0;
  };
  BufferId buffer;
  std::vector<Range> ranges;  ///< by dimension of the buffer
};

class Places {
 public:
  /// Throws Error(unsupported) if two values that both are computed would lie in the same memory, as when parts of two
  /// values are joined. No pass makes such a graph.
  explicit Places(const graph::Graph& graph);

  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  [[nodiscard]] const Buffer& buffer(BufferId id) const { return buffers_[id.index()]; }
  /// Plans have no place.
  [[nodiscard]] bool has(graph::ValueId value) const { return places_[value.index()].buffer.valid(); }
  [[nodiscard]] const Place& of(graph::ValueId value) const { return places_[value.index()]; }
  /// The value in a buffer at this address with so many rows, which only matters if it has rows.
  [[nodiscard]] View view(graph::ValueId value, std::byte* buffer, std::int64_t num_rows) const;

 private:
  std::vector<Buffer> buffers_;
  std::vector<Place> places_;  // by value
};

}  // namespace shunt::runtime
