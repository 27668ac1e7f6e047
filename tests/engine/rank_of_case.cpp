#include "engine/rank_of_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include "bench/reference/plan.hpp"
#include "support/dice.hpp"

namespace shunt::test {
namespace {

void throw_unless(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void require_same(const char* name, const ConstTensor& actual, const HostRows& expected,
                  const std::vector<bool>& compared = {}) {
  const std::string text = difference(actual, expected, compared);
  throw_unless(text.empty(), fmt::format("{} {}", name, text));
}

template <class T>
void require_same(const char* name, std::span<const T> actual, const std::vector<T>& expected,
                  const std::vector<bool>& compared = {}) {
  throw_unless(actual.size() == expected.size(),
               fmt::format("{} has {} entries, expected {}", name, actual.size(), expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (compared.empty() || compared[i])
      throw_unless(std::memcmp(&actual[i], &expected[i], sizeof(T)) == 0, fmt::format("{}[{}] differs", name, i));
}

void require_same_rows(const Rows& actual, const ReferenceRows& expected, const ShuffleCase& all) {
  require_same("rows", actual.data, expected.rows, expected.defined);
  require_same("scales", actual.scales, expected.scales, expected.defined);
  const bool has_weights = all.options.companions.weights && all.routing.options.layout != Layout::token_unique;
  using Origins = std::vector<RowOrigin>;
  require_same("origins", actual.origins, all.options.companions.ids ? expected.origins : Origins(), expected.defined);
  require_same("weights", actual.weights, has_weights ? expected.weights : std::vector<float>(), expected.defined);
  require_same("source_counts", actual.source_counts, expected.source_counts);
}

// The engine may hand over a tensor of its own only where the caller gave none.
void require_given(const Tensor& actual, const Tensor& given) {
  throw_unless(!given.data || actual.data == given.data, "the result is not in `out`");
}

// std::function wants what can be copied, and tickets can't.
template <class Result>
std::shared_ptr<Ticket<Result>> share(Ticket<Result> ticket) {
  return std::make_shared<Ticket<Result>>(std::move(ticket));
}

void pause(Dice& dice, std::int32_t most_us) {
  if (most_us > 0 && dice.one_in(2)) std::this_thread::sleep_for(std::chrono::microseconds(dice.between(0, most_us)));
}

}  // namespace

RankOfCase::RankOfCase(World& world, Engine& engine, const ShuffleCase& all)
    : world_(world), engine_(engine), case_(all) {
  plan_ = engine.plan(all.routing.routing(world.rank()), all.routing.map, all.routing.options);
  if (all.options.reduction == Reduction::flat) return;  // its targets are sorted differently
  const PlanData& actual = *plan_.data();
  PlanData expected = all.expected.plans[rank()];
  if (!actual.wiring.is_one_host()) {
    // The reference knows no hosts; PlanBetweenHosts compares what follows from them.
    expected.out_flows = actual.out_flows;
    expected.in_flows = actual.in_flows;
    expected.traffic.heaviest_link = actual.traffic.heaviest_link;
    expected.traffic.least_heaviest_link = actual.traffic.least_heaviest_link;
  }
  const std::string text = difference(actual, expected);
  throw_unless(text.empty(), "the plan differs in " + text);
}

Check RankOfCase::dispatch() {
  const HostRows& scales = case_.scales[rank()];
  const ReferenceRows& expected = case_.expected.dispatch[rank()];
  const Tensor out = output(expected.rows, case_.paths.dispatch_out);
  DispatchOptions options{.out = out};
  if (case_.x[rank()].dtype() == fp8_e4m3) options.scales = input(scales, case_.paths.x);
  const auto ticket = share(engine_.dispatch(plan_, input(case_.x[rank()], case_.paths.x), options));
  return [ticket, out, &expected, this] {
    const Rows rows = ticket->wait();
    require_given(rows.data, out);
    require_same_rows(rows, expected, case_);
  };
}

Check RankOfCase::combine() {
  const HostRows& expected = case_.expected.combine[rank()];
  const Tensor out = output(expected, case_.paths.combine_out);
  return pull(engine_.combine(plan_, input(case_.expert_out[rank()], case_.paths.expert_out), {.out = out}), out,
              expected, "combine");
}

Check RankOfCase::dispatch_backward() {
  const HostRows& expected = case_.expected.dispatch_backward[rank()];
  const Tensor out = output(expected, case_.paths.combine_out);
  return pull(engine_.dispatch_backward(plan_, input(case_.grad_rows[rank()], case_.paths.expert_out), {.out = out}),
              out, expected, "dispatch_backward");
}

Check RankOfCase::pull(Ticket<Tensor> issued, const Tensor& out, const HostRows& expected, const char* name) {
  return [ticket = share(std::move(issued)), out, &expected, name] {
    const Tensor result = ticket->wait();
    require_given(result, out);
    require_same(name, result, expected);
  };
}

Check RankOfCase::combine_backward() {
  const auto ticket = share(engine_.combine_backward(plan_, input(case_.grad_out[rank()], case_.paths.x),
                                                     input(case_.expert_out[rank()], case_.paths.expert_out)));
  return [ticket, this] {
    const Gradients gradients = ticket->wait();
    const ReferenceGradients& expected = case_.expected.combine_backward[rank()];
    require_same("combine_backward rows", gradients.rows, expected.expert_out,
                 case_.expected.dispatch[rank()].defined);
    require_same("combine_backward weights", gradients.weights.as<const float>(), expected.weights);
  };
}

ConstTensor RankOfCase::input(const HostRows& rows, Memory memory) {
  const ConstTensor plain = rows.tensor();
  if (memory == Memory::plain) return plain;
  const Tensor copy = world_.allocate(plain.dtype, plain.rows, plain.cols);
  if (plain.bytes() > 0) std::memcpy(copy.data, plain.data, plain.bytes());
  return copy;
}

// Not zero at first: padding must be written, not found.
Tensor RankOfCase::output(const HostRows& expected, Memory memory) {
  if (memory == Memory::absent) return {};
  Tensor out;
  if (memory == Memory::symmetric) {
    out = world_.allocate(expected.dtype(), expected.rows(), expected.cols());
  } else {
    const auto plain = std::make_shared<HostRows>(expected.dtype(), expected.rows(), expected.cols());
    out = plain->tensor();
    out.owner = plain;
  }
  if (out.bytes() > 0) std::memset(out.data, 0xa5, out.bytes());
  return out;
}

void run_case(World& world, const ShuffleCase& all, std::int32_t most_pause_us) {
  std::mt19937_64 generator(all.seed * 1000 + world.rank().index());
  Dice dice(generator);
  try {
    Engine engine(world, all.options);
    RankOfCase rank(world, engine, all);
    std::vector<Check> checks;
    for (const auto issue :
         {&RankOfCase::dispatch, &RankOfCase::combine, &RankOfCase::dispatch_backward, &RankOfCase::combine_backward}) {
      pause(dice, most_pause_us);
      checks.push_back((rank.*issue)());
    }
    for (const std::int32_t i : dice.permutation(static_cast<std::int32_t>(checks.size()))) {
      pause(dice, most_pause_us);
      checks[static_cast<std::size_t>(i)]();
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("rank {}: {} (SHUNT_TEST_SEED={}: {})", world.rank().value, error.what(),
                                         all.seed, all.describe()));
  }
}

}  // namespace shunt::test
