#include "runtime/step_memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "core/fail.hpp"
#include "plan/plan_data.hpp"

namespace shunt::runtime {
namespace {

using graph::DimId;
using graph::Op;
using graph::OpKind;
using graph::ValueId;

constexpr std::size_t kElementBytes = 4;

}  // namespace

StepMemory::StepMemory(World& world, const graph::Graph& graph, const Places& places, const Lanes& lanes, Store& store,
                       const MemoryOptions& options)
    : world_(world),
      graph_(graph),
      places_(places),
      lanes_(lanes),
      options_(options),
      is_brought_(places.buffers().size()),
      lasting_(places.buffers().size()),
      num_rows_(graph.dims.dims().size()),
      own_(places.buffers().size()),
      left_(std::make_unique<std::atomic<std::uint32_t>[]>(places.buffers().size())) {
  for (const Op& op : graph.ops()) {
    if (op.kind == OpKind::combine_dx) is_brought_[places.of(op.results[0]).buffer.index()] = true;
    if (op.kind == OpKind::plan) {
      const DimId rows = op.attributes.dims("rows")[0];
      const double even = std::ceil(static_cast<double>(graph.dims.count(graph.type(op.operands[0]).dims)));
      room_[rows] = static_cast<std::int64_t>(even * options.headroom);
    }
    const bool is_declared = op.kind == OpKind::input || op.kind == OpKind::param || op.kind == OpKind::state;
    if (!is_declared && op.kind != OpKind::constant) continue;
    const ValueId value = op.results[0];
    const auto count = static_cast<std::size_t>(graph.dims.count(graph.type(value).dims));
    std::byte*& memory = lasting_[places_.of(value).buffer.index()];
    if (memory) fail(ErrorCode::unsupported, "%{} shares memory with another declared value", graph.value(value).name);
    memory = is_declared ? store.memory(graph.value(value).name, count)
                         : own_memory(count, static_cast<float>(op.attributes.real("value")));
  }
  for (const ValueId output : graph.outputs) {
    const BufferId id = places_.of(output).buffer;
    const Buffer& buffer = places_.buffer(id);
    if (buffer.rows.valid())
      fail(ErrorCode::unsupported, "%{} has rows, so it can't be returned", graph.value(output).name);
    if (!lasting_[id.index()]) lasting_[id.index()] = own_memory(static_cast<std::size_t>(buffer.row_count), 0);
  }
  find_users();
  plan_block();
}

std::byte* StepMemory::own_memory(std::size_t count, float value) {
  return reinterpret_cast<std::byte*>(lasting_values_.emplace_back(count, value).data());
}

void StepMemory::find_users() {
  users_.resize(places_.buffers().size());
  compute_.resize(lanes_.compute().size());
  comm_.resize(lanes_.comm().size());
  for (std::size_t i = 0; i < graph_.ops().size(); ++i) {
    const LaneTask* const task = lanes_.task(graph::OpId(i));
    if (!task) continue;
    std::set<BufferId> used;
    const Op& op = graph_.op(task->op);
    for (const auto& values : {op.operands, op.results})
      for (const ValueId value : values)
        if (places_.has(value)) used.insert(places_.of(value).buffer);
    for (const BufferId id : used) users_[id.index()].push_back(task);
    (task->lane == graph::Lane::compute ? compute_ : comm_)[task->index].assign(used.begin(), used.end());
  }
}

bool StepMemory::overlap(std::size_t a, std::size_t b) const {
  const auto all_before = [&](std::size_t first, std::size_t second) {
    return std::ranges::all_of(users_[first], [&](const LaneTask* end) {
      return std::ranges::all_of(users_[second],
                                 [&](const LaneTask* begin) { return lanes_.ends_before(*end, *begin); });
    });
  };
  return !all_before(a, b) && !all_before(b, a);
}

std::size_t StepMemory::bytes_of(const Buffer& buffer, std::int64_t num_rows) const {
  return static_cast<std::size_t>(buffer.row_count * (buffer.rows.valid() ? num_rows : 1)) * kElementBytes;
}

void StepMemory::plan_block() {
  std::vector<std::size_t> bytes(places_.buffers().size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const Buffer& buffer = places_.buffers()[i];
    if (!lasting_[i] && !is_brought_[i] && !users_[i].empty())  // nothing uses a view without readers
      bytes[i] = bytes_of(buffer, buffer.rows.valid() ? room_.at(buffer.rows) : 1);
  }
  Arrangement arrangement = arrange(bytes, [&](std::size_t a, std::size_t b) { return overlap(a, b); });
  offsets_ = std::move(arrangement.offsets);
  block_ = {};  // freed first
  const auto elements = static_cast<std::int64_t>((arrangement.bytes + kElementBytes - 1) / kElementBytes);
  block_ = world_.allocate(f32, 1, elements);
}

void StepMemory::begin_step() {
  if (options_.poisons) std::memset(block_.data, 0xff, block_.bytes());
  most_.clear();
}

void StepMemory::end_step() {
  std::ranges::fill(own_, Tensor());
  bool grows = false;
  for (const auto& [dim, rows] : most_) {
    std::int64_t& room = room_.at(dim);
    if (rows <= room) continue;
    room = static_cast<std::int64_t>(static_cast<double>(rows) * options_.headroom);
    grows = true;
  }
  if (!grows) return;
  ++num_growths_;
  plan_block();
}

std::byte* StepMemory::address(BufferId id) const {
  if (std::byte* const declared = lasting_[id.index()]) return declared;
  if (std::byte* const own = own_[id.index()].data) return own;
  return block_.data + offsets_[id.index()];
}

View StepMemory::view(ValueId value) const {
  if (!places_.has(value)) return {};
  const BufferId id = places_.of(value).buffer;
  const DimId rows = places_.buffer(id).rows;
  return places_.view(value, address(id), rows.valid() ? num_rows_[rows.index()] : 1);
}

Tensor StepMemory::matrix(ValueId value, std::int64_t cols) const {
  const View view = this->view(value);
  std::int64_t contiguous = 1;
  for (std::size_t i = view.axes.size(); i-- > 0; contiguous *= view.axes[i].size)
    if (view.axes[i].size != 1 && view.axes[i].stride != contiguous)
      fail(ErrorCode::unsupported, "%{} has gaps, so it can't be sent", graph_.value(value).name);
  const BufferId id = places_.of(value).buffer;
  const Tensor& own = own_[id.index()];
  return {view.data, f32, cols == 0 ? 0 : view.count() / cols, cols, own.data ? own.owner : block_.owner};
}

void StepMemory::set_rows(DimId dim, const Plan& plan) {
  num_rows_[dim.index()] = plan.num_rows();
  std::int64_t& most = most_[dim];
  most = std::ranges::max(plan.data()->rows_of_rank);
  if (plan.num_rows() <= room_.at(dim)) return;
  for (std::size_t i = 0; i < own_.size(); ++i)
    if (const Buffer& buffer = places_.buffers()[i]; buffer.rows == dim && !is_brought_[i])
      own_[i] = world_.allocate(f32, plan.num_rows(), buffer.row_count);
}

void StepMemory::adopt(ValueId value, Tensor tensor) {
  const std::size_t buffer = places_.of(value).buffer.index();
  own_[buffer] = std::move(tensor);
  left_[buffer] = static_cast<std::uint32_t>(users_[buffer].size());
}

void StepMemory::end_task(const LaneTask& task) {
  for (const BufferId id : (task.lane == graph::Lane::compute ? compute_ : comm_)[task.index])
    // Release and acquire: the thread that frees the memory comes after the other's accesses.
    if (left_[id.index()] > 0 && left_[id.index()].fetch_sub(1, std::memory_order_acq_rel) == 1) own_[id.index()] = {};
}

// The largest first, each at the lowest offset that is free during its life.
Arrangement arrange(const std::vector<std::size_t>& bytes,
                    const std::function<bool(std::size_t, std::size_t)>& overlap) {
  constexpr std::size_t kLine = 64;
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t buffer) { return bytes[buffer]; });
  Arrangement made{std::vector<std::size_t>(bytes.size()), 0};
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t buffer : order) {
    if (bytes[buffer] == 0) break;
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      if (made.offsets[other] >= offset + bytes[buffer]) break;
      const std::size_t end = (made.offsets[other] + bytes[other] + kLine - 1) / kLine * kLine;
      if (end > offset && overlap(buffer, other)) offset = end;
    }
    made.offsets[buffer] = offset;
    made.bytes = std::max(made.bytes, offset + bytes[buffer]);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, [&](std::size_t other) { return made.offsets[other]; }),
                  buffer);
  }
  return made;
}

}  // namespace shunt::runtime
