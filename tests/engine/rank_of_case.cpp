#include "engine/rank_of_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bench/reference/plan.hpp"
#include "engine/elements.hpp"
#include "engine/engine_impl.hpp"
#include "support/dice.hpp"

namespace shunt::test {
namespace {

constexpr std::byte kPoison{0xa5};

void throw_unless(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// A std::function can be copied, and tickets can't.
template <class Result>
std::shared_ptr<Ticket<Result>> share(Ticket<Result> ticket) {
  return std::make_shared<Ticket<Result>>(std::move(ticket));
}

void pause(Dice& dice, std::int32_t most_us) {
  if (most_us > 0 && dice.one_in(2)) std::this_thread::sleep_for(std::chrono::microseconds(dice.between(0, most_us)));
}

Tensor plain(DType dtype, std::int64_t rows, std::int64_t cols, std::byte pattern) {
  Tensor tensor{nullptr, dtype, rows, cols};
  const auto block = std::make_shared<std::vector<std::byte>>(std::max<std::size_t>(tensor.bytes(), 1), pattern);
  tensor.data = block->data();
  tensor.owner = block;
  return tensor;
}

/// Between rows.
bool has_poison_in_gaps(const Tensor& tensor) {
  for (std::int64_t row = 0; row + 1 < tensor.rows; ++row)
    if (std::any_of(tensor.row(row) + tensor.row_bytes(), tensor.row(row + 1),
                    [](auto byte) { return byte != kPoison; }))
      return false;
  return true;
}

}  // namespace

RankOfCase::RankOfCase(World& world, Engine& engine, const ShuffleCase& all, Caller caller)
    : world_(world),
      engine_(engine),
      case_(all),
      caller_(std::move(caller)),
      expected_rows_(all.expected.dispatch[world.rank().index()]),
      expert_out_(all.expert_out[world.rank().index()]),
      plan_options_(all.routing.options) {
  if (all.paths.is_packed && all.routing.options.layout == Layout::padded) {
    plan_options_.packed = true;
    pack(expected_rows_, expert_out_, static_cast<std::size_t>(plan_options_.max_tokens * world.size()));
  }
  plan_options_.stream = caller_.stream;
  if (all.paths.spare_rows && can(Feature::bounds) && all.routing.options.layout != Layout::padded) {
    for (const PlanData& plan : all.expected.plans)
      plan_options_.max_rows = std::max(plan_options_.max_rows, plan.num_rows());
    plan_options_.max_rows = std::max<std::int64_t>(plan_options_.max_rows + *all.paths.spare_rows, 1);
    if (all.paths.has_rows_with_plan) {
      plan_options_.rows = output(expected_rows_.rows, plan_options_.max_rows, {});
      if (has_scales()) plan_options_.row_scales = output(expected_rows_.scales, plan_options_.max_rows, {});
    }
  }
  routing_ = bring_routing();
  plan_ = engine.plan(routing_, all.routing.map, plan_options_);
  check_plan();
}

bool RankOfCase::can(Feature feature) const { return support_of(feature).of(engine_.impl()->kind); }

bool RankOfCase::takes_turns() const {
  return plan_.layout() == Layout::padded && (is_packed() || !can(Feature::padded_gradients));
}

std::vector<Check (RankOfCase::*)()> RankOfCase::operations() const {
  if (takes_turns()) return {&RankOfCase::dispatch, &RankOfCase::combine};
  return {&RankOfCase::dispatch, &RankOfCase::combine, &RankOfCase::dispatch_backward, &RankOfCase::combine_backward};
}

Routing RankOfCase::bring_routing() {
  const RankRouting& given = case_.routing.ranks[rank()];
  wide_experts_.assign(given.experts.begin(), given.experts.end());
  const bool is_wide = case_.paths.has_wide_ids;
  Routing routing{is_wide ? ExpertIds(wide_experts_) : ExpertIds(given.experts), given.weights, case_.routing.topk};
  if (case_.paths.routing == Way::Spot::host || given.experts.empty()) return routing;
  const auto words = [](const void* data, std::size_t count) {
    return borrow(data, f32, 1, static_cast<std::int64_t>(count));
  };
  const auto bring = [&](const ConstTensor& host) {
    const Tensor tensor = engine_.allocate(host.dtype, host.rows, host.cols);
    if (tensor.memory.is_host())
      engine_.copy(host, tensor);  // it is read in the call
    else
      fill(tensor, host);
    return tensor;
  };
  experts_ = bring(words(routing.experts.data(), routing.experts.size_bytes() / sizeof(float)));
  weights_ = bring(words(given.weights.data(), given.weights.size()));
  routing.experts = routing.experts.at(experts_.data);
  if (!given.weights.empty()) routing.weights = {reinterpret_cast<const float*>(weights_.data), given.weights.size()};
  routing.memory = engine_.memory();
  return routing;
}

void RankOfCase::check_plan() const {
  const PlanData& expected = case_.expected.plans[rank()];
  const PlanContents contents = plan_.read();
  throw_unless(!contents.overflowed, "the plan overflowed");
  throw_unless(contents.num_rows == expected.num_rows(),
               fmt::format("{} rows, expected {}", contents.num_rows, expected.num_rows()));
  throw_unless(contents.num_expert_rows == expected.num_expert_rows,
               fmt::format("{} expert rows, expected {}", contents.num_expert_rows, expected.num_expert_rows));
  const bool is_on_device = can(Feature::device_inputs);
  const PlanArrays arrays = is_on_device ? plan_.device() : PlanArrays();
  throw_unless(plan_options_.max_rows == 0 || plan_.num_rows() == plan_options_.max_rows, "another bound");
  const auto check = [&](const std::string& name, const auto& read, const auto& wanted, const auto& on_device,
                         std::int64_t length) {
    throw_unless(read == wanted, name + " differ");
    if (!is_on_device) return;
    throw_unless(std::ssize(on_device) == length, fmt::format("{} {} on the device", on_device.size(), name));
    require_same(name, on_device, read);
  };
  const std::int64_t num_experts = std::ssize(expected.expert_offsets) - 1;
  const bool is_padded = plan_.layout() == Layout::padded, is_unique = plan_.layout() == Layout::token_unique;
  const std::int64_t num_entries = is_unique ? plan_.num_rows() * case_.routing.topk : 0;
  check("expert_offsets", contents.expert_offsets, expected.expert_offsets, arrays.expert_offsets, num_experts + 1);
  check("expert_counts", contents.expert_counts, expected.expert_counts, arrays.expert_counts,
        is_padded ? 0 : num_experts);
  check("unique_of_expert_row", contents.unique_of_expert_row, expected.unique_of_expert_row,
        arrays.unique_of_expert_row, is_unique ? plan_.num_expert_rows() : 0);
  check("expert_rows_of_unique", contents.expert_rows_of_unique, expected.expert_rows_of_unique,
        arrays.expert_rows_of_unique, num_entries);
  check("unique_experts", contents.unique_experts, expected.unique_experts, arrays.unique_experts, num_entries);
  check("unique_weights", contents.unique_weights, expected.unique_weights, arrays.unique_weights, num_entries);
  std::vector<std::int32_t> row_count;
  if (!is_padded) row_count.push_back(static_cast<std::int32_t>(contents.num_rows));
  check("row_count", row_count, row_count, arrays.row_count, std::ssize(row_count));
  if (!can(Feature::counts_on_host) || case_.options.reduction == Reduction::flat) return;  // flat: sorted differently
  PlanData same = expected;
  const PlanData& actual = *plan_.data();
  if (!actual.wiring.is_one_host()) {
    // The reference has no hosts; PlanBetweenMachines compares what follows from them.
    same.out_flows = actual.out_flows;
    same.in_flows = actual.in_flows;
    same.traffic.heaviest_link = actual.traffic.heaviest_link;
    same.traffic.least_heaviest_link = actual.traffic.least_heaviest_link;
  }
  const std::string text = difference(actual, same);
  throw_unless(text.empty(), "the plan differs in " + text);
}

Check RankOfCase::dispatch() {
  const bool brings_scales = case_.x[rank()].dtype() == fp8_e4m3;
  const bool takes_out = !has_rows_with_plan() && (plan_.layout() != Layout::padded || can(Feature::padded_outputs));
  DispatchOptions options{.stream = caller_.stream};
  if (brings_scales) options.scales = input(case_.scales[rank()], case_.paths.x);
  if (takes_out) {
    options.out = output(expected_rows_.rows, plan_.num_rows(), case_.paths.dispatch_out);
    if (has_scales()) options.out_scales = output(expected_rows_.scales, plan_.num_rows(), case_.paths.dispatch_out);
  }
  const ConstTensor x = input(case_.x[rank()], case_.paths.x);
  const Tensor rows_of_call = has_rows_with_plan() ? plan_options_.rows : options.out;
  const Tensor scales_of_call = has_rows_with_plan() ? plan_options_.row_scales : options.out_scales;
  const auto check = [=, this](const Tensor& rows, const Tensor& scales) {
    require_same("rows", rows, expected_rows_.rows, rows_of_call, expected_rows_.defined);
    if (has_scales()) require_same("scales", scales, expected_rows_.scales, scales_of_call, expected_rows_.defined);
  };
  if (caller_.replay && has_rows_with_plan()) {
    caller_.replay(engine_, [&] {
      plan_ = engine_.plan(routing_, case_.routing.map, plan_options_);
      (void)engine_.dispatch(plan_, x, options);
    });
    return [=] { check(rows_of_call, scales_of_call); };
  }
  const auto ticket = share(engine_.dispatch(plan_, x, options));
  return [=, this] {
    const Rows rows = settle(*ticket);
    check(rows.data, rows.scales);
    check_rows(rows);
  };
}

void RankOfCase::check_rows(const Rows& actual) const {
  const ReferenceRows& expected = expected_rows_;
  const Companions companions = engine_.options().companions;
  const bool has_weights = companions.weights && plan_.layout() != Layout::token_unique;
  throw_unless(has_scales() || !actual.scales.data, "scales of rows without");
  throw_unless(actual.plan.hash() == plan_.hash(), "rows of another plan");
  using Origins = std::vector<RowOrigin>;
  require_same("origins", actual.origins, companions.ids ? expected.origins : Origins(), expected.defined);
  require_same("weights", actual.weights, has_weights ? expected.weights : std::vector<float>(), expected.defined);
  require_same("source_counts", actual.source_counts, expected.source_counts);
}

template <class Result>
Result RankOfCase::settle(Ticket<Result>& ticket) const {
  while (caller_.asks && !ticket.done()) std::this_thread::yield();
  return ticket.wait();
}

Check RankOfCase::pull(OpKind kind) {
  const bool is_combine = kind == OpKind::combine;
  const HostRows& expected = (is_combine ? case_.expected.combine : case_.expected.dispatch_backward)[rank()];
  const ConstTensor rows = expert_rows(is_combine ? expert_out_ : case_.grad_rows[rank()], is_combine);
  const CombineOptions options{.out = output(expected, expected.rows(), case_.paths.combine_out),
                               .stream = caller_.stream};
  const auto ticket =
      share(is_combine ? engine_.combine(plan_, rows, options) : engine_.dispatch_backward(plan_, rows, options));
  return [=, this, &expected, out = options.out] { require_same(to_string(kind), settle(*ticket), expected, out); };
}

Check RankOfCase::combine_backward() {
  const ConstTensor grad_out = input(case_.grad_out[rank()], case_.paths.x);
  const ConstTensor rows = expert_rows(expert_out_, false);
  const auto ticket = share(engine_.combine_backward(plan_, grad_out, rows, {.stream = caller_.stream}));
  return [ticket, this] {
    const Gradients gradients = settle(*ticket);
    const ReferenceGradients& expected = case_.expected.combine_backward[rank()];
    require_same("combine_backward rows", gradients.rows, expected.expert_out, {}, expected_rows_.defined);
    const auto& weights = gradients.weights;
    const auto count = static_cast<std::size_t>(weights.rows * weights.cols);
    require_same("combine_backward weights",
                 std::span<const float>(reinterpret_cast<const float*>(weights.data), count), expected.weights);
  };
}

Tensor RankOfCase::make(DType dtype, std::int64_t rows, std::int64_t cols, const Way& way) const {
  if (way.spot == Way::Spot::allocated && !way.is_strided) return engine_.allocate(dtype, rows, cols);
  const std::int64_t stride = way.is_strided ? cols + 3 : cols;
  const std::int64_t shift = way.spot == Way::Spot::shifted ? 1 : 0;
  const std::int64_t count = rows * stride + shift + 1;
  Tensor tensor = way.spot == Way::Spot::host ? plain(dtype, 1, count, kPoison) : engine_.allocate(dtype, 1, count);
  tensor.data += static_cast<std::size_t>(shift) * size_of(dtype);
  tensor.rows = rows;
  tensor.cols = cols;
  if (way.is_strided) tensor.row_stride = stride;
  if (way.is_strided && tensor.memory.is_host()) std::fill_n(tensor.data, tensor.extent_bytes(), kPoison);
  return tensor;
}

// An engine that does not wait for the caller's stream reads nonsense, or has its results overwritten.
void RankOfCase::fill(const Tensor& tensor, const ConstTensor& from) const {
  const bool is_late = caller_.copy_late && tensor.is_contiguous() && tensor.memory == engine_.memory();
  if (!is_late) return engine_.copy(from, tensor);
  engine_.copy(plain(tensor.dtype, tensor.rows, tensor.cols, std::byte{0x5a}), tensor);
  caller_.copy_late(from, tensor);
}

ConstTensor RankOfCase::input(const HostRows& rows, const Way& way, std::int64_t num_rows) const {
  const Tensor tensor = make(rows.dtype(), num_rows, rows.cols(), way);
  fill(first_rows(tensor, rows.rows()), rows.tensor());
  return tensor;
}

ConstTensor RankOfCase::expert_rows(const HostRows& rows, bool in_expert_out) const {
  const Way& way = case_.paths.expert_out;
  if (!in_expert_out || way.spot != Way::Spot::allocated || way.is_strided) return input(rows, way, plan_.num_rows());
  const Tensor tensor = engine_.expert_out(plan_);
  fill(first_rows(tensor, rows.rows()), rows.tensor());
  return tensor;
}

// Not zero at first: padding must be written, not found.
Tensor RankOfCase::output(const HostRows& expected, std::int64_t num_rows, const Way& wanted) const {
  Way way = wanted;
  if (way.spot == Way::Spot::absent) return {};
  if (way.spot == Way::Spot::host && can(Feature::device_inputs)) way.spot = Way::Spot::shifted;
  way.is_strided &= can(Feature::strided_outputs);
  const Tensor tensor = make(expected.dtype(), num_rows, expected.cols(), way);
  fill(tensor, plain(tensor.dtype, tensor.rows, tensor.cols, kPoison));
  return tensor;
}

HostRows RankOfCase::read(const Tensor& tensor, std::int64_t num_rows) const {
  HostRows rows(tensor.dtype, num_rows, tensor.cols);
  engine_.copy(first_rows(tensor, num_rows), rows.tensor());
  return rows;
}

void RankOfCase::require_same(std::string_view name, const Tensor& actual, const HostRows& expected,
                              const Tensor& given, const std::vector<bool>& compared) const {
  throw_unless(!given.data || actual.data == given.data, fmt::format("{} is not in `out`", name));
  throw_unless(actual.rows >= expected.rows(), fmt::format("{} has {} rows", name, actual.rows));
  const bool has_bound = plan_options_.max_rows > 0;
  throw_unless(has_bound || actual.rows == expected.rows(), fmt::format("{} has {} rows", name, actual.rows));
  const std::string text = difference(read(actual, expected.rows()).tensor(), expected, compared);
  throw_unless(text.empty(), fmt::format("{} {}", name, text));
  throw_unless(!given.memory.is_host() || has_poison_in_gaps(given), fmt::format("{} is also between rows", name));
}

template <class T>
void RankOfCase::require_same(std::string_view name, std::span<const T> actual, const std::vector<T>& expected,
                              const std::vector<bool>& compared) const {
  const bool has_bound = plan_options_.max_rows > 0;
  throw_unless(has_bound ? actual.size() >= expected.size() : actual.size() == expected.size(),
               fmt::format("{} has {} entries, expected {}", name, actual.size(), expected.size()));
  const std::vector<T> values = values_of(engine_, actual.first(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (compared.empty() || compared[i])
      throw_unless(std::memcmp(&values[i], &expected[i], sizeof(T)) == 0, fmt::format("{}[{}] differs", name, i));
}

bool can_run(EngineKind kind, const ShuffleCase& all) {
  if (all.routing.options.layout != Layout::padded) return true;
  const bool brings_scales = std::ranges::any_of(all.x, [](const HostRows& x) { return x.dtype() == fp8_e4m3; });
  return support_of(Feature::padded).of(kind) && (!brings_scales || support_of(Feature::padded_scales).of(kind));
}

void run_case(World& world, const Place& place, const ShuffleCase& all, const CaseRun& run,
              const DeviceOptions& device) {
  DeviceOptions limits = device;
  limits.max_tokens = 0;
  for (const PlanData& plan : all.expected.plans) limits.max_tokens = std::max(limits.max_tokens, plan.num_tokens);
  Engine engine(world, place.options(all.options, limits));
  if (!can_run(engine.impl()->kind, all)) return;
  std::mt19937_64 generator(all.seed * 1000 + world.rank().index());
  Dice dice(generator);
  try {
    for (std::uint64_t repeat = 0; repeat < run.repeats; ++repeat) {
      RankOfCase rank(world, engine, all, run.caller);
      std::vector<Check> checks;
      for (const auto issue : rank.operations()) {
        pause(dice, run.most_pause_us);
        checks.push_back((rank.*issue)());
        if (!rank.takes_turns()) continue;
        checks.back()();
        checks.clear();
      }
      for (const std::int32_t i : dice.permutation(static_cast<std::int32_t>(checks.size()))) {
        pause(dice, run.most_pause_us);
        checks[static_cast<std::size_t>(i)]();
      }
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("rank {}: {} (SHUNT_TEST_SEED={}: {})", world.rank().value, error.what(),
                                         all.seed, all.describe()));
  }
}

}  // namespace shunt::test
