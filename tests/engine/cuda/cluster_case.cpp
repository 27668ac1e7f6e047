#include "engine/cuda/cluster_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "engine/cuda/cluster/engine_impl.hpp"
#include "support/dice.hpp"

namespace shunt::test {
namespace {

using Check = std::function<void()>;

void throw_unless(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

class ClusterRank {
 public:
  ClusterRank(World& world, const ClusterDevice& device, const ShuffleCase& all)
      : world_(world), device_(device), case_(all) {
    const Engine host(world, all.options);
    lane_ = device.make_lane(host, all.seed * 1000 + rank());
    engine_.emplace(std::make_shared<DeviceClusterEngine::Impl>(host, lane_, device.join_nccl(*lane_)));
    const RankRouting& routing = all.routing.ranks[rank()];
    const auto* experts = put(std::as_bytes(std::span(routing.experts)));
    const auto* weights = routing.weights.empty() ? nullptr : put(std::as_bytes(std::span(routing.weights)));
    plan_ = engine_->plan({.experts = reinterpret_cast<const std::int32_t*>(experts),
                           .weights = reinterpret_cast<const float*>(weights),
                           .num_tokens = static_cast<std::int64_t>(routing.experts.size()) / all.routing.topk,
                           .topk = all.routing.topk},
                          all.routing.map, all.routing.options, device.stream);
  }

  void check_plan() {
    const PlanData& expected = case_.expected.plans[rank()];
    require_same("offsets", plan_.expert_offsets(), expected.expert_offsets);
    require_same("counts", plan_.expert_counts(), expected.expert_counts);
    require_same("unique_of_expert_row", plan_.unique_of_expert_row(), expected.unique_of_expert_row);
    require_same("expert_rows_of_unique", plan_.expert_rows_of_unique(), expected.expert_rows_of_unique);
    require_same("unique_experts", plan_.unique_experts(), expected.unique_experts);
    require_same("unique_weights", plan_.unique_weights(), expected.unique_weights);
  }

  Check dispatch() {
    const ReferenceRows& expected = case_.expected.dispatch[rank()];
    const bool has_scales = case_.options.dtype == fp8_e4m3;
    const bool brings_scales = case_.x[rank()].dtype() == fp8_e4m3;
    const Tensor out = output(expected.rows, case_.paths.dispatch_out);
    const Tensor out_scales = has_scales ? output(expected.scales, case_.paths.dispatch_out) : Tensor{};
    auto ticket =
        engine_->dispatch(plan_, input(case_.x[rank()], case_.paths.x),
                          {.stream = device_.stream,
                           .scales = brings_scales ? input(case_.scales[rank()], case_.paths.x) : ConstTensor{},
                           .out = out,
                           .out_scales = out_scales});
    return [=, this, &expected]() mutable {
      const DeviceRows rows = ticket.wait();
      require_same("dispatch", rows.rows, expected.rows, out);
      if (has_scales) require_same("dispatch scales", rows.scales, expected.scales, out_scales);
    };
  }

  Check combine() {
    const HostRows& expected = case_.expected.combine[rank()];
    const Tensor out = output(expected, case_.paths.combine_out);
    auto ticket = engine_->combine(plan_, input(case_.expert_out[rank()], case_.paths.expert_out),
                                   {.stream = device_.stream, .out = out});
    return [=, this, &expected]() mutable { require_same("combine", ticket.wait(), expected, out); };
  }

  Check dispatch_backward() {
    const HostRows& expected = case_.expected.dispatch_backward[rank()];
    const Tensor out = output(expected, case_.paths.combine_out);
    auto ticket = engine_->dispatch_backward(plan_, input(case_.grad_rows[rank()], case_.paths.expert_out),
                                             {.stream = device_.stream, .out = out});
    return [=, this, &expected]() mutable { require_same("dispatch_backward", ticket.wait(), expected, out); };
  }

  Check combine_backward() {
    auto ticket = engine_->combine_backward(plan_, input(case_.grad_out[rank()], case_.paths.x),
                                            input(case_.expert_out[rank()], case_.paths.expert_out), device_.stream);
    return [=, this]() mutable {
      const DeviceGradients gradients = ticket.wait();
      const ReferenceGradients& expected = case_.expected.combine_backward[rank()];
      require_same("combine_backward rows", gradients.expert_out, expected.expert_out, {});
      throw_unless(static_cast<std::size_t>(gradients.weights.rows * gradients.weights.cols) == expected.weights.size(),
                   "combine_backward weights have another size");
      require_same("combine_backward weights", reinterpret_cast<const float*>(gradients.weights.data),
                   expected.weights);
    };
  }

 private:
  [[nodiscard]] std::size_t rank() const { return world_.rank().index(); }

  const std::byte* put(std::span<const std::byte> bytes) {
    std::byte* const data = device_.take_plain(bytes.size());
    write(data, bytes);
    return data;
  }

  // Who does not wait for the stream finds nonsense, or has its results overwritten.
  void write(std::byte* to, std::span<const std::byte> bytes) {
    if (!device_.stream) return lane_->upload(to, bytes);
    lane_->upload(to, std::vector(bytes.size(), std::byte{0x5a}));
    device_.write_late(*lane_, to, bytes);
  }

  Tensor place(const HostRows& like, Memory memory) {
    Tensor tensor{nullptr, like.dtype(), like.rows(), like.cols(), nullptr};
    if (memory == Memory::symmetric) {
      const auto block = lane_->allocate(tensor.bytes());
      tensor.data = block.get();
      tensor.owner = block;
    } else {
      // Aligned to elements, and to no more.
      tensor.data = device_.take_plain(tensor.bytes() + size_of(tensor.dtype)) + size_of(tensor.dtype);
    }
    return tensor;
  }

  ConstTensor input(const HostRows& rows, Memory memory) {
    const Tensor tensor = place(rows, memory);
    write(tensor.data, {rows.tensor().data, tensor.bytes()});
    return tensor;
  }

  // Not zero at first: padding must be written, not found.
  Tensor output(const HostRows& expected, Memory memory) {
    if (memory == Memory::absent) return {};
    const Tensor tensor = place(expected, memory);
    write(tensor.data, std::vector(tensor.bytes(), std::byte{0xa5}));
    return tensor;
  }

  void require_same(const char* name, const Tensor& actual, const HostRows& expected, const Tensor& given) {
    throw_unless(!given.data || actual.data == given.data, fmt::format("{} is not in `out`", name));
    HostRows rows(actual.dtype, actual.rows, actual.cols);
    lane_->download({rows.tensor().data, actual.bytes()}, actual.data);
    const std::string text = difference(rows.tensor(), expected);
    throw_unless(text.empty(), fmt::format("{} {}", name, text));
  }

  template <class T, class U>
  void require_same(const char* name, const T* actual, const std::vector<U>& expected) {
    std::vector<T> values(expected.size());
    lane_->download(std::as_writable_bytes(std::span(values)), reinterpret_cast<const std::byte*>(actual));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T wanted = static_cast<T>(expected[i]);
      throw_unless(std::memcmp(&values[i], &wanted, sizeof(T)) == 0,
                   fmt::format("{}[{}] is {}, expected {}", name, i, values[i], wanted));
    }
  }

  World& world_;
  const ClusterDevice& device_;
  const ShuffleCase& case_;
  std::shared_ptr<device::Lane> lane_;
  std::optional<DeviceClusterEngine> engine_;
  DeviceClusterPlan plan_;
};

}  // namespace

bool is_for_clusters(const ShuffleCase& all) {
  return all.routing.options.layout != Layout::padded && !all.options.companions.ids && !all.options.companions.weights;
}

std::vector<ShuffleCase> cluster_cases(const Topology& topology, std::size_t count) {
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < count; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology); is_for_clusters(drawn))
      cases.push_back(std::move(drawn));
  return cases;
}

void run_cluster_case(World& world, const ClusterDevice& device, const ShuffleCase& all) {
  std::mt19937_64 generator(all.seed * 1000 + world.rank().index());
  Dice dice(generator);
  try {
    ClusterRank rank(world, device, all);
    rank.check_plan();
    std::vector<Check> checks;
    for (const auto issue : {&ClusterRank::dispatch, &ClusterRank::combine, &ClusterRank::dispatch_backward,
                             &ClusterRank::combine_backward})
      checks.push_back((rank.*issue)());
    for (const std::int32_t i : dice.permutation(static_cast<std::int32_t>(checks.size())))
      checks[static_cast<std::size_t>(i)]();
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("rank {}: {} (SHUNT_TEST_SEED={}: {})", world.rank().value, error.what(),
                                         all.seed, all.describe()));
  }
}

}  // namespace shunt::test
