#include "engine/cuda/device_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/cuda/captured_graph.hpp"

namespace shunt::test {
namespace {

void throw_unless(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

class DeviceRank {
 public:
  DeviceRank(World& world, const DeviceHeap& heap, Arena& arena, const ShuffleCase& all, const DeviceCaseOptions& run)
      : world_(world),
        heap_(heap),
        arena_(arena),
        case_(all),
        run_(run),
        engine_(world, heap, options_of(all, run)),
        shift_(heap.allocate(f32, 1, 1 + 1000 * world.rank().value)) {}

  void plan() {
    const RankRouting& routing = case_.routing.ranks[rank()];
    const auto* experts = put(std::as_bytes(std::span(routing.experts)));
    const auto* weights = routing.weights.empty() ? nullptr : put(std::as_bytes(std::span(routing.weights)));
    DevicePlanOptions options{.layout = case_.routing.options.layout,
                              .alignment = case_.routing.options.alignment,
                              .capacity = case_.routing.options.capacity};
    if (run_.spare_rows) {
      for (const PlanData& plan : case_.expected.plans) options.max_rows = std::max(options.max_rows, plan.num_rows());
      options.max_rows = std::max<std::int64_t>(options.max_rows + *run_.spare_rows, 1);
    }
    const auto make_plan = [&] {
      plan_ = engine_.plan({.experts = reinterpret_cast<const std::int32_t*>(experts),
                            .weights = reinterpret_cast<const float*>(weights),
                            .num_tokens = static_cast<std::int64_t>(routing.experts.size()) / case_.routing.topk,
                            .topk = case_.routing.topk},
                           case_.routing.map, options);
    };
    make_plan();
    if (!run_.rows_with_plan) return;
    const ReferenceRows& expected = case_.expected.dispatch[rank()];
    options.rows = output(expected.rows, options.max_rows, Memory::symmetric);
    if (has_scales()) options.row_scales = output(expected.scales, options.max_rows, Memory::symmetric);
    rows_of_plan_ = {options.rows, options.row_scales};
    x_ = input(case_.x[rank()], case_.paths.x);
    scales_ = input_scales();
    const device::CapturedGraph graph(engine_.stream(), [&] {
      make_plan();
      (void)engine_.dispatch(plan_, x_, {.scales = scales_});
    });
    graph.replay();
    device::check(cudaStreamSynchronize(engine_.stream()), "replay");
  }

  void check_plan() const {
    const PlanData& expected = case_.expected.plans[rank()];
    const DevicePlan::Sizes sizes = plan_.sizes();
    throw_unless(!sizes.overflowed, "the plan overflowed");
    throw_unless(sizes.num_rows == expected.num_rows(),
                 fmt::format("{} rows, expected {}", sizes.num_rows, expected.num_rows()));
    throw_unless(sizes.num_expert_rows == expected.num_expert_rows,
                 fmt::format("{} expert rows, expected {}", sizes.num_expert_rows, expected.num_expert_rows));
    require_same("offsets", plan_.expert_offsets(), expected.expert_offsets);
    require_same("counts", plan_.expert_counts(), expected.expert_counts);
    if (plan_.layout() != Layout::token_unique) return;
    require_same("unique_of_expert_row", plan_.unique_of_expert_row(), expected.unique_of_expert_row);
    require_same("expert_rows_of_unique", plan_.expert_rows_of_unique(), expected.expert_rows_of_unique);
    require_same("unique_experts", plan_.unique_experts(), expected.unique_experts);
    require_same("unique_weights", plan_.unique_weights(), expected.unique_weights);
  }

  void check_dispatch() {
    if (run_.rows_with_plan) {
      require_dispatch(rows_of_plan_, rows_of_plan_);
      for (const Tensor& tensor : {rows_of_plan_.rows, rows_of_plan_.scales})
        poison(tensor.data, tensor.bytes(), engine_.stream());
      return require_dispatch(engine_.dispatch(plan_, x_, {.scales = scales_}).wait(), rows_of_plan_);
    }
    const ReferenceRows& expected = case_.expected.dispatch[rank()];
    const ConstTensor x = input(case_.x[rank()], case_.paths.x);
    DeviceDispatchOptions options{.scales = input_scales()};
    options.out = output(expected.rows, plan_.num_rows(), case_.paths.dispatch_out);
    if (has_scales()) options.out_scales = output(expected.scales, plan_.num_rows(), case_.paths.dispatch_out);
    require_dispatch(engine_.dispatch(plan_, x, options).wait(), {options.out, options.out_scales});
  }

  void check_pull(bool forward) {
    const HostRows& rows = forward ? case_.expert_out[rank()] : case_.grad_rows[rank()];
    const HostRows& expected = forward ? case_.expected.combine[rank()] : case_.expected.dispatch_backward[rank()];
    const ConstTensor given = input(rows, case_.paths.expert_out, plan_.num_rows());
    const Tensor out = output(expected, expected.rows(), case_.paths.combine_out);
    auto ticket =
        forward ? engine_.combine(plan_, given, {.out = out}) : engine_.dispatch_backward(plan_, given, {.out = out});
    require_same(forward ? "combine" : "dispatch_backward", ticket.wait(), expected, out);
  }

  void check_combine_backward() {
    const ConstTensor grad_out = input(case_.grad_out[rank()], case_.paths.x);
    const ConstTensor expert_out = input(case_.expert_out[rank()], case_.paths.expert_out, plan_.num_rows());
    const DeviceGradients gradients = engine_.combine_backward(plan_, grad_out, expert_out).wait();
    const ReferenceGradients& expected = case_.expected.combine_backward[rank()];
    require_same("combine_backward rows", gradients.expert_out, expected.expert_out, {});
    throw_unless(static_cast<std::size_t>(gradients.weights.rows * gradients.weights.cols) == expected.weights.size(),
                 "combine_backward weights have another size");
    require_same("combine_backward weights", reinterpret_cast<const float*>(gradients.weights.data), expected.weights);
  }

 private:
  static DeviceEngineOptions options_of(const ShuffleCase& all, const DeviceCaseOptions& run) {
    std::int64_t max_tokens = 0;
    for (const PlanData& plan : all.expected.plans) max_tokens = std::max(max_tokens, plan.num_tokens);
    return {.hidden = all.options.hidden,
            .dtype = all.options.dtype,
            .expert_dtype = all.options.expert_dtype,
            .result_dtype = all.options.result_dtype,
            .wire_dtype = all.options.wire_dtype,
            .reduction = all.options.reduction,
            .max_tokens = max_tokens,
            .sms = run.sms,
            .deadline = std::chrono::seconds(20)};
  }

  [[nodiscard]] std::size_t rank() const { return world_.rank().index(); }
  [[nodiscard]] bool has_scales() const { return case_.options.dtype == fp8_e4m3; }

  std::byte* put(std::span<const std::byte> bytes) {
    std::byte* const data = arena_.take(bytes.size());
    upload(data, bytes, engine_.stream());
    return data;
  }

  /// With room for more rows than there are, where the plan has a bound.
  Tensor place(DType dtype, std::int64_t rows, std::int64_t cols, Memory memory) {
    if (memory == Memory::symmetric) return heap_.allocate(dtype, rows, cols);
    Tensor tensor{nullptr, dtype, rows, cols, nullptr};
    tensor.data = arena_.take(tensor.bytes(), size_of(dtype));  // aligned to elements, and to no more
    return tensor;
  }

  ConstTensor input(const HostRows& rows, Memory memory, std::int64_t num_rows = -1) {
    const ConstTensor host = rows.tensor();
    const Tensor tensor = place(host.dtype, num_rows < 0 ? host.rows : num_rows, host.cols, memory);
    poison(tensor.data, tensor.bytes(), engine_.stream());
    upload(tensor.data, {host.data, host.bytes()}, engine_.stream());
    return tensor;
  }

  /// Of tokens that are fp8 already.
  ConstTensor input_scales() {
    return case_.x[rank()].dtype() == fp8_e4m3 ? input(case_.scales[rank()], case_.paths.x) : ConstTensor();
  }

  // Not zero at first: padding must be written, not found.
  Tensor output(const HostRows& expected, std::int64_t rows, Memory memory) {
    if (memory == Memory::absent) return {};
    const Tensor tensor = place(expected.dtype(), rows, expected.cols(), memory);
    poison(tensor.data, tensor.bytes(), engine_.stream());
    return tensor;
  }

  void require_dispatch(const DeviceRows& actual, const DeviceRows& given) const {
    const ReferenceRows& expected = case_.expected.dispatch[rank()];
    require_same("dispatch", actual.rows, expected.rows, given.rows);
    if (has_scales()) require_same("scales", actual.scales, expected.scales, given.scales);
  }
  void require_same(const char* name, Tensor actual, const HostRows& expected, const Tensor& given) const {
    throw_unless(!given.data || actual.data == given.data, fmt::format("{} is not in `out`", name));
    throw_unless(actual.rows >= expected.rows(), fmt::format("{} has {} rows", name, actual.rows));
    actual.rows = expected.rows();
    const std::string text = device_difference(actual, expected, engine_.stream());
    throw_unless(text.empty(), fmt::format("{} {}", name, text));
  }

  template <class T, class U>
  void require_same(const char* name, const T* actual, const std::vector<U>& expected) const {
    const auto values = download_as(actual, expected.size(), engine_.stream());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T wanted = static_cast<T>(expected[i]);
      throw_unless(std::memcmp(&values[i], &wanted, sizeof(T)) == 0,
                   fmt::format("{}[{}] is {}, expected {}", name, i, values[i], wanted));
    }
  }

  World& world_;
  const DeviceHeap& heap_;
  Arena& arena_;
  const ShuffleCase& case_;
  const DeviceCaseOptions& run_;
  DeviceEngine engine_;
  Tensor shift_;  // ranks have their rows at different places
  DevicePlan plan_;
  // Of a dispatch next to its plan.
  ConstTensor x_, scales_;
  DeviceRows rows_of_plan_;
};

}  // namespace

bool is_for_devices(const ShuffleCase& all) { return all.routing.options.layout != Layout::padded; }

void run_device_case(World& world, const DeviceHeap& heap, Arena& arena, const ShuffleCase& all,
                     const DeviceCaseOptions& options) {
  try {
    DeviceRank rank(world, heap, arena, all, options);
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      arena.reset();
      rank.plan();
      rank.check_plan();
      rank.check_dispatch();
      rank.check_pull(true);
      rank.check_pull(false);
      rank.check_combine_backward();
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("rank {}: {} (SHUNT_TEST_SEED={}: {})", world.rank().value, error.what(),
                                         all.seed, all.describe()));
  }
}

}  // namespace shunt::test
