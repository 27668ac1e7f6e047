// Races between ranks and streams, which no tool sees: every output is poisoned before and every input after its
// operation, on a stream of the caller's, while ranks and streams are held up at random.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "core/cuda/captured_graph.hpp"
#include "core/cuda/check.hpp"
#include "engine/cuda/stressed_stream.hpp"
#include "engine/steps.hpp"
#include "support/cuda/stream_work.hpp"
#include "support/seeds.hpp"
#include "support/shuffle_case.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kRanks = 5;
constexpr std::int64_t kHidden = 520;
constexpr std::size_t kArenaBytes = 256 << 20;

int num_steps() { return static_cast<int>(std::max<std::uint64_t>(share_of_cases(1500), 30)); }

/// A rank's engine and all that it is used for. The host waits rarely, so that operations of many kinds stand in line.
class StressedEngine {
 public:
  StressedEngine(World& world, Arena& arena, const EngineOptions& options, const std::vector<ShuffleCase>& cases,
                 Delays& delays)
      : rank_(world.rank().index()), engine_(world, options), stream_(rank_, arena, delays, engine_) {
    for (const ShuffleCase& each : cases) uses_.push_back(make_use(each));
  }

  /// When all engines are made: making one waits for the device.
  void plan_all() {
    for (Use& use : uses_) plan(use);
    (void)uses_.back().plan.read();
  }

  /// When all have planned, and before anything else.
  void capture_all() {
    for (Use& use : uses_) capture(use);
  }

  /// The dice are the same on all ranks.
  void step(Dice& dice) {
    Use& use = uses_[static_cast<std::size_t>(dice.between(0, static_cast<std::int32_t>(uses_.size()) - 1))];
    if (use.options.layout == Layout::padded) return padded(use);
    switch (dice.between(0, 5)) {
      case 0: return plan(use);
      case 1: return replay(use);
      case 2: return dispatch(use);
      case 3: return pull(use, true);
      case 4: return pull(use, false);
      default: return combine_backward(use);
    }
  }

  void check() {
    device::check(cudaStreamSynchronize(engine_.stream()), "wait for the last operation");
    engine_.check();
    stream_.check();
  }

 private:
  /// A case in device memory.
  struct Use {
    std::string name;
    const ExpertMap* map;
    Routing routing;
    PlanOptions options;
    ConstTensor x, scales, expert_out, grad_rows, grad_out;
    ConstTensor rows, row_scales, combined, grad_x, grad_expert_out, grad_weights;
    // Where rows are padded: [local experts, ranks].
    std::vector<std::int32_t> counts;
    std::span<const std::int32_t> counts_on_device;
    Plan plan{};
    // A graph of a plan and a dispatch next to it.
    Tensor graph_x{}, graph_scales{};
    Rows graph_rows{};
    Plan graph_plan{};
    std::optional<device::CapturedGraph> graph{};
  };

  Use make_use(const ShuffleCase& all) {
    const ReferenceGradients& gradients = all.expected.combine_backward[rank_];
    const auto keep = [&](const HostRows& rows) { return stream_.keep(rows.tensor()); };
    const ReferenceRows& rows = all.expected.dispatch[rank_];
    const RankRouting& routing = all.routing.ranks[rank_];
    Use use{.name = all.describe(),
            .map = &all.routing.map,
            .routing = {.experts = stream_.keep(routing.experts),
                        .weights = stream_.keep(routing.weights),
                        .topk = all.routing.topk,
                        .memory = engine_.memory()},
            .options = all.routing.options,
            .x = keep(all.x[rank_]),
            .scales = keep(all.scales[rank_]),
            .expert_out = keep(all.expert_out[rank_]),
            .grad_rows = keep(all.grad_rows[rank_]),
            .grad_out = keep(all.grad_out[rank_]),
            .rows = keep(rows.rows),
            .row_scales = keep(rows.scales),
            .combined = keep(all.expected.combine[rank_]),
            .grad_x = keep(all.expected.dispatch_backward[rank_]),
            .grad_expert_out = keep(gradients.expert_out),
            .grad_weights = borrow(static_cast<const void*>(stream_.keep(gradients.weights).data()), f32,
                                   std::ssize(gradients.weights), 1),
            .counts = rows.source_counts,
            .counts_on_device = stream_.keep(rows.source_counts)};
    if (use.options.layout == Layout::padded) return use;
    use.options.stream = stream_.get();
    use.options.max_rows = 1;
    for (const PlanData& plan : all.expected.plans)
      use.options.max_rows = std::max(use.options.max_rows, plan.num_rows());
    return use;
  }

  /// In memory that may have been handed out again a moment ago.
  Tensor poisoned(DType dtype, std::int64_t rows, std::int64_t cols) {
    const Tensor tensor = engine_.allocate(dtype, rows, cols);
    stream_.fill_with_poison(tensor);
    return tensor;
  }
  /// For what dispatch delivers.
  Rows poisoned_rows(const Use& use) {
    const std::int64_t rows = use.options.max_rows;
    const bool has_scales = use.rows.dtype == fp8_e4m3;
    return {.data = poisoned(use.rows.dtype, rows, use.rows.cols),
            .scales = has_scales ? poisoned(f32, rows, use.row_scales.cols) : Tensor()};
  }
  void poison_rows(const Rows& rows) {
    stream_.fill_with_poison(rows.data);
    stream_.fill_with_poison(rows.scales);
  }
  /// Tokens that are fp8 already bring their scales.
  static ConstTensor scales_for(const Use& use, const Tensor& scales) {
    return use.x.dtype == fp8_e4m3 ? ConstTensor(scales) : ConstTensor();
  }
  /// A copy to work with; with as many rows as the plan has, which may be more.
  Tensor fresh(const ConstTensor& kept, std::int64_t rows) {
    const Tensor tensor = engine_.allocate(kept.dtype, rows, kept.cols);
    stream_.copy(kept, tensor);
    return tensor;
  }

  std::uint32_t begin(const char* operation, const Use& use) {
    return stream_.begin(fmt::format("{} of {}", operation, use.name));
  }
  void expect(std::uint32_t number, const Tensor& actual, const ConstTensor& expected) {
    stream_.expect(number, actual.data, expected.data, expected.bytes());
  }
  void expect(std::uint32_t number, const Rows& actual, const Use& use) {
    expect(number, actual.data, use.rows);
    expect(number, actual.scales, use.row_scales);
  }
  /// Waited for on the stream, by the host, or dropped, which lets the stream wait too.
  template <class Result>
  Result settle(Ticket<Result> ticket) {
    const Result result = ticket.wait_on(stream_.now_and_then() ? engine_.stream() : stream_.get());
    return stream_.now_and_then() ? ticket.wait() : result;
  }

  void plan(Use& use) {
    (void)begin("plan", use);
    use.plan = engine_.plan(use.routing, *use.map, use.options);
  }

  void capture(Use& use) {
    use.graph_x = engine_.allocate(use.x.dtype, use.x.rows, use.x.cols);
    use.graph_scales = engine_.allocate(f32, use.scales.rows, use.scales.cols);
    use.graph_rows = poisoned_rows(use);
    PlanOptions options = use.options;
    options.rows = use.graph_rows.data;
    options.stream = nullptr;
    options.row_scales = use.graph_rows.scales;
    use.graph.emplace(engine_.stream(), [&] {
      use.graph_plan = engine_.plan(use.routing, *use.map, options);
      delay(std::chrono::microseconds(15 * rank_), 1, engine_.stream());
      (void)engine_.dispatch(use.graph_plan, use.graph_x, {.scales = scales_for(use, use.graph_scales)});
    });
  }

  void replay(Use& use) {
    const std::uint32_t number = begin("a graph", use);
    stream_.copy(use.x, use.graph_x);
    stream_.copy(use.scales, use.graph_scales);
    poison_rows(use.graph_rows);
    stream_.engine_waits();
    use.graph->replay();
    stream_.wait_for_engine();
    stream_.fill_with_poison(use.graph_x);
    stream_.fill_with_poison(use.graph_scales);
    expect(number, use.graph_rows, use);
    use.plan = use.graph_plan;
  }

  void dispatch(const Use& use) {
    const std::uint32_t number = begin("dispatch", use);
    const Tensor x = fresh(use.x, use.x.rows);
    const Tensor scales = fresh(use.scales, use.scales.rows);
    const bool has_rows = use.plan.data() == use.graph_plan.data();
    if (has_rows) poison_rows(use.graph_rows);
    const Rows out = has_rows ? Rows() : poisoned_rows(use);
    const ConstTensor given = scales_for(use, scales);
    auto ticket = engine_.dispatch(
        use.plan, x, {.scales = given, .out = out.data, .out_scales = out.scales, .stream = stream_.get()});
    const Rows rows = settle(std::move(ticket));
    stream_.fill_with_poison(x);
    stream_.fill_with_poison(scales);
    expect(number, rows, use);
  }

  void pull(const Use& use, bool forward) {
    const std::uint32_t number = begin(forward ? "combine" : "dispatch_backward", use);
    const ConstTensor& expected = forward ? use.combined : use.grad_x;
    const Tensor rows = fresh(forward ? use.expert_out : use.grad_rows, use.plan.num_rows());
    const Tensor out = poisoned(expected.dtype, expected.rows, expected.cols);
    const CombineOptions options{.out = out, .stream = stream_.get()};
    auto ticket =
        forward ? engine_.combine(use.plan, rows, options) : engine_.dispatch_backward(use.plan, rows, options);
    (void)settle(std::move(ticket));
    stream_.fill_with_poison(rows);
    expect(number, out, expected);
  }

  void combine_backward(const Use& use) {
    const std::uint32_t number = begin("combine_backward", use);
    const Tensor grad_out = fresh(use.grad_out, use.grad_out.rows);
    const Tensor expert_out = fresh(use.expert_out, use.plan.num_rows());
    // The engine takes memory for gradients itself: presumably what is poisoned and given back here.
    (void)poisoned(use.grad_expert_out.dtype, use.plan.num_rows(), use.grad_expert_out.cols);
    const Gradients gradients =
        settle(engine_.combine_backward(use.plan, grad_out, expert_out, {.stream = stream_.get()}));
    stream_.fill_with_poison(grad_out);
    stream_.fill_with_poison(expert_out);
    expect(number, gradients.rows, use.grad_expert_out);
    expect(number, gradients.weights, use.grad_weights);
  }

  // Rows and expert_out are this rank's own from the end of dispatch until its combine begins.
  void padded(Use& use) {
    plan(use);
    const std::uint32_t dispatched = begin("dispatch", use);
    const Tensor x = fresh(use.x, use.x.rows);
    auto ticket = engine_.dispatch(use.plan, x, {.stream = stream_.get()});
    if (stream_.now_and_then()) stream_.hold_up();
    const Rows rows = ticket.wait_on(stream_.get());
    stream_.fill_with_poison(x);
    stream_.expect(dispatched, reinterpret_cast<const std::byte*>(rows.source_counts.data()),
                   reinterpret_cast<const std::byte*>(use.counts_on_device.data()), use.counts_on_device.size_bytes());
    for (std::size_t source = 0; source < use.counts.size(); ++source) {
      const std::size_t row_bytes = use.rows.row_bytes();
      const std::size_t begin = source * static_cast<std::size_t>(use.options.max_tokens) * row_bytes;
      stream_.expect(dispatched, rows.data.data + begin, use.rows.data + begin,
                     static_cast<std::size_t>(use.counts[source]) * row_bytes);
    }
    stream_.fill_with_poison(rows.data);
    const Tensor expert_out = engine_.expert_out(use.plan);
    stream_.fill_with_poison(expert_out);
    stream_.hold_up();

    const std::uint32_t combined = begin("combine", use);
    stream_.copy(use.expert_out, expert_out);
    const Tensor out = poisoned(use.combined.dtype, use.combined.rows, use.combined.cols);
    auto summed = engine_.combine(use.plan, expert_out, {.out = out, .stream = stream_.get()});
    if (stream_.now_and_then()) stream_.hold_up();
    (void)summed.wait_on(stream_.get());
    expect(combined, out, use.combined);
    if (stream_.now_and_then()) (void)summed.wait();
  }

  std::size_t rank_;
  Engine engine_;
  StressedStream stream_;
  std::vector<Use> uses_;
};

EngineOptions options_of(DType dtype) { return kDeviceThreads.options({.hidden = kHidden, .dtype = dtype}); }

/// Two of each layout, and one whose plan exchanges counts twice.
std::vector<ShuffleCase> draw_cases(const Topology& topology, DType dtype) {
  std::vector<ShuffleCase> cases;
  const auto wants = [&](const ShuffleCase& drawn) {
    const PlanOptions& plan = drawn.routing.options;
    if (cases.size() < 4 && cases.size() % 2 == 0) return plan.layout == Layout::expert_major;
    const bool has_capacity = plan.capacity != PlanOptions::kUnlimited;
    return plan.layout == Layout::token_unique && has_capacity == (cases.size() == 4);
  };
  for (std::uint64_t seed = 0; cases.size() < 5; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology, EngineOptions{.hidden = kHidden, .dtype = dtype},
                                                CaseLimits{.tokens = 40});
        wants(drawn))
      cases.push_back(std::move(drawn));
  return cases;
}

TEST(DeviceStress, EnginesOfRanksHeldUpAtRandomSeeNoPoison) {
  SHUNT_NEEDS(kDeviceThreads);
  const Topology topology = Topology::single_node(kRanks);
  const std::vector<ShuffleCase> plain = draw_cases(topology, bf16);
  const std::vector<ShuffleCase> quantised = draw_cases(topology, fp8_e4m3);
  const auto run = [&](World& world) {
    Arena arena(kArenaBytes);
    Delays delays(world.rank().index());
    world.barrier();
    StressedEngine first(world, arena, options_of(bf16), plain, delays);
    World again = world.split(0);  // with memory of its own: what one engine's caller lets go of is not the other's
    StressedEngine second(again, arena, options_of(fp8_e4m3), quantised, delays);
    world.barrier();
    first.plan_all();
    second.plan_all();
    world.barrier();
    first.capture_all();
    second.capture_all();
    world.barrier();
    std::mt19937_64 generator(1);
    Dice dice(generator);
    for (int step = num_steps(); step > 0; --step) (dice.one_in(2) ? first : second).step(dice);
    first.check();
    second.check();
    world.barrier();
  };
  ASSERT_NO_THROW(kDeviceThreads.run(kRanks, run));
}

TEST(DeviceStress, PaddedRowsOfRanksHeldUpAtRandomHoldNoPoison) {
  SHUNT_NEEDS(kDeviceThreads);
  const StepShape shape{.map = ExpertMap::contiguous(11, kRanks), .hidden = kHidden, .dtype = bf16};
  std::vector<ShuffleCase> steps;
  for (const std::vector<std::int64_t>& num_tokens :
       {std::vector<std::int64_t>{16, 3, 0, 11, 16}, {1, 1, 1, 1, 1}, {16, 16, 16, 16, 16}, {0, 7, 2, 0, 13}})
    steps.push_back(draw_step(steps.size(), shape, num_tokens));
  ASSERT_NO_THROW(kDeviceThreads.run(kRanks, [&](World& world) {
    Arena arena(kArenaBytes);
    Delays delays(world.rank().index());
    StressedEngine padded(world, arena, options_of(bf16), steps, delays);
    padded.plan_all();  // ranks agree on their memory
    world.barrier();
    std::mt19937_64 generator(1);
    Dice dice(generator);
    for (int step = num_steps(); step > 0; --step) padded.step(dice);
    padded.check();
    world.barrier();
  }));
}

}  // namespace
}  // namespace shunt::test
