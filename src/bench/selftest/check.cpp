#include "bench/selftest/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace shunt::bench::selftest {
namespace {

// Heap of each rank; several ranks share a device.
constexpr std::size_t kHeapBytes = std::size_t{96} << 20;

EngineOptions options_of(const Case& test, const Place& place, std::chrono::milliseconds deadline) {
  EngineOptions options = test.engine;
  options.deadline = deadline;
  options.name = "self-test";
  if (support_of(Feature::companions).of(place.kind)) options.companions = {.ids = true, .weights = true};
  if (place.device)
    options.device = DeviceOptions{.index = *place.device,
                                   .heap_bytes = kHeapBytes,
                                   .max_tokens = kMostTokens,
                                   .max_experts = kMostExperts,
                                   .batch_bytes = std::size_t{64} << 10,
                                   .num_batches = 8};
  return options;
}

/// The first `rows` rows of the tensor, or fewer if it has fewer.
Tensor first_rows(Tensor tensor, std::int64_t rows) {
  tensor.rows = std::min(tensor.rows, rows);
  return tensor;
}

class CaseRunner {
 public:
  CaseRunner(World& world, const Case& test, const Place& place, std::chrono::milliseconds deadline, const Hooks& hooks)
      : rank_(world.rank()),
        case_(test),
        place_(place),
        hooks_(hooks),
        engine_(world, options_of(test, place, deadline)) {}

  void run() {
    plan();
    dispatch();
    combine();
    const bool is_padded = case_.key.layout == Layout::padded;
    if (is_padded && !offers(Feature::padded_gradients)) return;
    if (case_.plan.packed && !offers(Feature::packed_gradients)) return;
    dispatch_backward();
    combine_backward();
  }

  [[nodiscard]] const Outcome& outcome() const { return outcome_; }

 private:
  [[nodiscard]] bool offers(Feature feature) const { return support_of(feature).of(place_.kind); }
  [[nodiscard]] std::size_t self() const { return rank_.index(); }

  void plan() {
    plan_ = engine_.plan(case_.routing(self()), case_.map, case_.plan);
    const PlanData& reference = case_.expected.plans[self()];
    const PlanContents expected = reference.read();
    const PlanContents actual = plan_.read();
    compare("plan: num_rows", actual.num_rows, expected.num_rows);
    compare("plan: num_expert_rows", actual.num_expert_rows, expected.num_expert_rows);
    compare("plan: overflowed", actual.overflowed, false);
    compare_values<std::int32_t>("plan: expert_offsets", actual.expert_offsets, expected.expert_offsets);
    compare_values<std::int32_t>("plan: expert_counts", actual.expert_counts, expected.expert_counts);
    compare_values<std::int32_t>("plan: unique_of_expert_row", actual.unique_of_expert_row,
                                 expected.unique_of_expert_row);
    compare_values<std::int32_t>("plan: expert_rows_of_unique", actual.expert_rows_of_unique,
                                 expected.expert_rows_of_unique);
    compare_values<std::int32_t>("plan: unique_experts", actual.unique_experts, expected.unique_experts);
    compare_values<float>("plan: unique_weights", actual.unique_weights, expected.unique_weights);
    if (offers(Feature::counts_on_host)) compare("plan: num_dropped", plan_.num_dropped(), reference.num_dropped);
  }

  void dispatch() {
    const ReferenceRows& expected = case_.expected.dispatch[self()];
    const HostRows& scales = case_.scales[self()];
    DispatchOptions options;
    if (case_.x[self()].dtype() == fp8_e4m3) options.scales = input(scales, scales.rows());
    const Rows rows = engine_.dispatch(plan_, input(case_.x[self()], case_.x[self()].rows()), options).wait();
    compare_rows("dispatch: rows", rows.data, expected.rows, expected.defined);
    if (case_.key.dtype == fp8_e4m3) compare_rows("dispatch: scales", rows.scales, expected.scales, expected.defined);
    if (offers(Feature::companions)) {
      compare_values<RowOrigin>("dispatch: origins", rows.origins, expected.origins, expected.defined);
      if (case_.key.layout != Layout::token_unique)
        compare_values<float>("dispatch: weights", rows.weights, expected.weights, expected.defined);
    }
    if (case_.key.layout == Layout::padded) source_counts(rows.source_counts, expected.source_counts);
  }

  void source_counts(std::span<const std::int32_t> actual, const std::vector<std::int32_t>& expected) {
    static_assert(sizeof(std::int32_t) == sizeof(float));  // the words are copied as f32
    std::vector<std::int32_t> copy(actual.size());
    const auto count = static_cast<std::int64_t>(actual.size());
    engine_.copy(borrow(static_cast<const void*>(actual.data()), f32, count, 1, engine_.memory()),
                 borrow(copy.data(), f32, count, 1));
    compare_values<std::int32_t>("dispatch: source_counts", copy, expected);
  }

  void combine() {
    const Tensor expert_out = engine_.expert_out(plan_);
    write(case_.expert_out[self()], expert_out);
    compare_rows("combine", engine_.combine(plan_, expert_out).wait(), case_.expected.combine[self()]);
  }

  void dispatch_backward() {
    const Tensor grad_rows = input(case_.grad_rows[self()], plan_.num_rows());
    compare_rows("dispatch_backward", engine_.dispatch_backward(plan_, grad_rows).wait(),
                 case_.expected.dispatch_backward[self()]);
  }

  void combine_backward() {
    const ReferenceGradients& expected = case_.expected.combine_backward[self()];
    const bool has_weights = case_.key.layout != Layout::token_unique;
    const Tensor grad_out = input(case_.grad_out[self()], case_.grad_out[self()].rows());
    const Tensor expert_out = has_weights ? input(case_.expert_out[self()], plan_.num_rows()) : Tensor();
    const Gradients gradients = engine_.combine_backward(plan_, grad_out, expert_out).wait();
    compare_rows("combine_backward: rows", gradients.rows, expected.expert_out,
                 case_.expected.dispatch[self()].defined);
    if (!has_weights) return;
    HostRows weights(f32, plan_.num_tokens(), case_.topk);
    for (std::int64_t token = 0; token < plan_.num_tokens(); ++token)
      weights.set_floats(
          token, std::span(expected.weights)
                     .subspan(static_cast<std::size_t>(token * case_.topk), static_cast<std::size_t>(case_.topk)));
    compare_rows("combine_backward: weights", gradients.weights, weights);
  }

  /// A tensor of `rows` rows in the engine's memory, beginning with the rows of `from`.
  [[nodiscard]] Tensor input(const HostRows& from, std::int64_t rows) {
    const Tensor to = engine_.allocate(from.dtype(), rows, from.cols());
    write(from, to);
    return to;
  }
  /// Copies the rows that both have: a wrong plan may have fewer rows than the reference, a bounded one has more.
  void write(const HostRows& from, const Tensor& to) {
    const std::int64_t rows = std::min(from.rows(), to.rows);
    ConstTensor source = from.tensor();
    source.rows = rows;
    engine_.copy(source, first_rows(to, rows));
  }

  void compare_rows(std::string_view what, const Tensor& actual, const HostRows& expected,
                    const std::vector<bool>& compared = {}) {
    const bool is_bounded = case_.key.variant == Variant::bounded;
    const Tensor rows = is_bounded ? first_rows(actual, expected.rows()) : actual;
    HostRows copy(rows.dtype, rows.rows, rows.cols);
    engine_.copy(rows, copy.tensor());
    if (hooks_.tamper) hooks_.tamper(what, rank_, copy.tensor());
    record(what, difference(copy.tensor(), expected, compared));
  }
  template <class T>
  void compare_values(std::string_view what, std::span<const T> actual, const std::vector<T>& expected,
                      const std::vector<bool>& compared = {}) {
    if (actual.size() != expected.size())
      return record(what, fmt::format("has {} entries, expected {}", actual.size(), expected.size()));
    for (std::size_t i = 0; i < expected.size(); ++i)
      if ((compared.empty() || compared[i]) && std::memcmp(&actual[i], &expected[i], sizeof(T)) != 0)
        return record(what, fmt::format("[{}] differs", i));
    record(what, "");
  }
  template <class T>
  void compare(std::string_view what, T actual, T expected) {
    record(what, actual == expected ? "" : fmt::format("is {}, expected {}", actual, expected));
  }
  void record(std::string_view what, const std::string& difference) {
    ++outcome_.num_comparisons;
    if (!difference.empty() && outcome_.difference.empty())
      outcome_.difference = fmt::format("rank {}: {}: {}", rank_.value, what, difference);
  }

  RankId rank_;
  const Case& case_;
  const Place& place_;
  const Hooks& hooks_;
  Engine engine_;
  Plan plan_;
  Outcome outcome_;
};

}  // namespace

Outcome check_case(World& world, const Case& test, const Place& place, std::chrono::milliseconds deadline,
                   const Hooks& hooks) {
  CaseRunner rank(world, test, place, deadline, hooks);
  rank.run();
  world.barrier();  // on devices other ranks may still read this rank's rows
  return rank.outcome();
}

}  // namespace shunt::bench::selftest
