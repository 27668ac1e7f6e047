// The memory of a step on one rank: declared values in a store, the others in one block, planned ahead from their
// lives.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime/lanes.hpp"
#include "runtime/places.hpp"
#include "runtime/store.hpp"
#include "shunt/plan.hpp"
#include "shunt/world.hpp"

namespace shunt::runtime {

struct MemoryOptions {
  /// Rows that are expected for each plan, over those of even routing.
  double headroom = 1.25;
  /// For tests: every step begins with NaNs in the block.
  bool poisons = false;
};

/// The sizes of rows are known when their plan is made. The block has room for some more than usual; a step that needs
/// more takes memory of its own, and the block has grown before the next. All ranks know all ranks' rows, so that all
/// blocks grow in the same step.
class StepMemory {
 public:
  StepMemory(World& world, const graph::Graph& graph, const Places& places, const Lanes& lanes, Store& store,
             const MemoryOptions& options);

  void begin_step();
  /// Grows the block if a plan had more rows than it has room for.
  void end_step();

  // During a step. A lane that writes something here is ordered before each lane that reads it.

  [[nodiscard]] View view(graph::ValueId value) const;
  /// The same memory as a matrix of the last `cols` elements; none if it is not one.
  [[nodiscard]] Tensor matrix(graph::ValueId value, std::int64_t cols) const;
  /// The number of rows of a dimension, from its plan. For the comm lane.
  void set_rows(graph::DimId dim, const Plan& plan);
  /// Gives a value memory that its operation brought. For the comm lane.
  void adopt(graph::ValueId value, Tensor tensor);
  /// Call when a task has ended: frees memory of adopt() after its last use.
  void end_task(const LaneTask& task);

  [[nodiscard]] std::size_t bytes() const { return block_.bytes(); }
  [[nodiscard]] std::int64_t num_growths() const { return num_growths_; }

 private:
  std::byte* own_memory(std::size_t count, float value);
  void find_users();
  void plan_block();
  [[nodiscard]] bool overlap(std::size_t a, std::size_t b) const;
  [[nodiscard]] std::size_t bytes_of(const Buffer& buffer, std::int64_t num_rows) const;
  [[nodiscard]] std::byte* address(BufferId id) const;

  World& world_;
  const graph::Graph& graph_;
  const Places& places_;
  const Lanes& lanes_;
  MemoryOptions options_;

  std::vector<std::vector<float>> lasting_values_;     // constants and outputs
  std::vector<bool> is_brought_;                       // by buffer: its memory comes with adopt()
  std::vector<std::byte*> lasting_;                    // by buffer: memory outside of the block, if it outlives a step
  std::vector<std::vector<const LaneTask*>> users_;    // by buffer
  std::vector<std::vector<BufferId>> compute_, comm_;  // by task: the buffers that it uses
  std::map<graph::DimId, std::int64_t> room_;          // by dimension of rows: what the block has room for
  std::map<graph::DimId, std::int64_t> most_;          // the largest number on any rank, in this step
  std::vector<std::int64_t> num_rows_;                 // by dimension
  Tensor block_;
  std::vector<std::size_t> offsets_;                    // by buffer, in the block
  std::vector<Tensor> own_;                             // by buffer: memory of this step
  std::unique_ptr<std::atomic<std::uint32_t>[]> left_;  // by buffer: uses left, if its memory is its own
  std::int64_t num_growths_ = 0;
};

/// Offsets of buffers in one block: buffers that overlap(a, b) says may be in use together share no bytes.
struct Arrangement {
  std::vector<std::size_t> offsets;  ///< by buffer
  std::size_t bytes = 0;
};
[[nodiscard]] Arrangement arrange(const std::vector<std::size_t>& bytes,
                                  const std::function<bool(std::size_t, std::size_t)>& overlap);

}  // namespace shunt::runtime
