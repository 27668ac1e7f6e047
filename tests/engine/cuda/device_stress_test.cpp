// Races between ranks, which no tool sees: every output is poisoned before and every input after its operation, while
// ranks are held up at random.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/cuda/check.hpp"
#include "engine/cuda/device_case.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "support/cuda/stream_work.hpp"
#include "support/dice.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kRanks = 5;
constexpr std::size_t kHeapBytes = 32 << 20;
constexpr std::size_t kArenaBytes = 256 << 20;
constexpr std::size_t kPoisonBytes = 8 << 20;
constexpr std::uint32_t kNoneBad = 0xffff'ffffu;

/// A rank's generator of delays, each other than its peers'.
class Delays {
 public:
  explicit Delays(std::size_t rank) : generator_(rank), dice_(generator_) {
    device::check(cudaStreamCreateWithFlags(&crowd_, cudaStreamNonBlocking), "make a stream");
  }
  ~Delays() { (void)cudaStreamDestroy(crowd_); }
  Delays(const Delays&) = delete;
  Delays& operator=(const Delays&) = delete;

  /// The stream goes on later, or finds the device crowded.
  void on(Stream stream) {
    if (dice_.one_in(3)) delay(some_time(), 1, stream);
    if (dice_.one_in(4)) delay(some_time(), static_cast<unsigned>(dice_.between(30, 300)), crowd_);
  }
  void of_host() {
    if (dice_.one_in(6)) std::this_thread::sleep_for(some_time());
  }
  bool host_waits() { return dice_.one_in(4); }

 private:
  std::chrono::microseconds some_time() { return std::chrono::microseconds(dice_.between(1, 80)); }

  std::mt19937_64 generator_;
  Dice dice_;
  cudaStream_t crowd_ = nullptr;
};

/// A rank's engine and all that it is used for. Nothing here waits, so that operations of many kinds stand in line.
class Stressed {
 public:
  Stressed(World& world, Arena& arena, const std::byte* poison, const std::vector<ShuffleCase>& cases, Delays& delays)
      : rank_(world.rank().index()),
        heap_(world, {.bytes = kHeapBytes}),
        engine_(world, heap_, options_of(cases.front().options)),
        poison_(poison),
        first_bad_(reinterpret_cast<std::uint32_t*>(arena.take(sizeof(std::uint32_t)))),
        delays_(delays) {
    upload(reinterpret_cast<std::byte*>(first_bad_), std::as_bytes(std::span(&kNoneBad, 1)), engine_.stream());
    for (const ShuffleCase& each : cases) uses_.push_back(make_use(arena, each));
  }

  /// When all engines are made: making one waits for the device.
  void plan_all() {
    for (std::size_t use = 0; use < uses_.size(); ++use) plan(use);
  }

  /// The dice are the same on all ranks.
  void step(Dice& dice) {
    const auto use = static_cast<std::size_t>(dice.between(0, static_cast<std::int32_t>(uses_.size()) - 1));
    switch (dice.between(0, 4)) {
      case 0: return plan(use);
      case 1: return dispatch(use);
      case 2: return pull(use, true);
      case 3: return pull(use, false);
      default: return combine_backward(use);
    }
  }

  void check() {
    (void)uses_.front().plan.sizes();  // throws what went wrong on the device
    const std::uint32_t bad = download_as(first_bad_, 1, engine_.stream()).front();
    if (bad != kNoneBad) throw std::runtime_error(fmt::format("rank {}: other bits in {}", rank_, log_.at(bad)));
  }

 private:
  /// A case in device memory.
  struct Use {
    const ShuffleCase* all;
    DeviceRouting routing;
    DevicePlanOptions options;
    ConstTensor x, scales, expert_out, grad_rows, grad_out;
    ConstTensor rows, row_scales, combined, grad_x, grad_expert_out, grad_weights;
    DevicePlan plan{};
  };

  static DeviceEngineOptions options_of(const EngineOptions& options) {
    return {.hidden = options.hidden,
            .dtype = options.dtype,
            .max_tokens = 64,
            .max_experts = 256,
            .deadline = std::chrono::seconds(20)};
  }

  template <class T>
  const T* put(Arena& arena, const std::vector<T>& values) {
    return arena.put(values, engine_.stream());
  }
  ConstTensor put(Arena& arena, const HostRows& rows) {
    ConstTensor tensor = rows.tensor();
    std::byte* const place = arena.take(tensor.bytes());
    upload(place, {tensor.data, tensor.bytes()}, engine_.stream());
    tensor.data = place;
    return tensor;
  }

  Use make_use(Arena& arena, const ShuffleCase& all) {
    const RankRouting& routing = all.routing.ranks[rank_];
    const ReferenceGradients& gradients = all.expected.combine_backward[rank_];
    Use use{.all = &all,
            .routing = {.experts = put(arena, routing.experts),
                        .weights = routing.weights.empty() ? nullptr : put(arena, routing.weights),
                        .num_tokens = all.x[rank_].rows(),
                        .topk = all.routing.topk},
            .options = {.layout = all.routing.options.layout,
                        .alignment = all.routing.options.alignment,
                        .capacity = all.routing.options.capacity,
                        .max_rows = 1},
            .x = put(arena, all.x[rank_]),
            .scales = put(arena, all.scales[rank_]),
            .expert_out = put(arena, all.expert_out[rank_]),
            .grad_rows = put(arena, all.grad_rows[rank_]),
            .grad_out = put(arena, all.grad_out[rank_]),
            .rows = put(arena, all.expected.dispatch[rank_].rows),
            .row_scales = put(arena, all.expected.dispatch[rank_].scales),
            .combined = put(arena, all.expected.combine[rank_]),
            .grad_x = put(arena, all.expected.dispatch_backward[rank_]),
            .grad_expert_out = put(arena, gradients.expert_out),
            .grad_weights =
                borrow(static_cast<const void*>(put(arena, gradients.weights)), f32, std::ssize(gradients.weights), 1)};
    for (const PlanData& plan : all.expected.plans)
      use.options.max_rows = std::max(use.options.max_rows, plan.num_rows());
    return use;
  }

  void fill_with_poison(const Tensor& tensor) {
    if (tensor.bytes() > kPoisonBytes) throw std::runtime_error("there is too little poison");
    device::launch(device::CopyBytes{poison_, tensor.data, tensor.bytes()}, engine_.stream());
  }
  /// In memory that may have been handed out again a moment ago.
  Tensor poisoned(DType dtype, std::int64_t rows, std::int64_t cols) {
    const Tensor tensor = heap_.allocate(dtype, rows, cols);
    fill_with_poison(tensor);
    return tensor;
  }
  /// A copy to work with; with as many rows as the plan has, which may be more.
  Tensor fresh(const ConstTensor& kept, std::int64_t rows) {
    const Tensor tensor = heap_.allocate(kept.dtype, rows, kept.cols);
    device::launch(device::CopyBytes{kept.data, tensor.data, kept.bytes()}, engine_.stream());
    return tensor;
  }

  std::uint32_t begin(const char* operation, const Use& use) {
    delays_.of_host();
    delays_.on(engine_.stream());
    log_.push_back(fmt::format("operation {}, {} of {}", log_.size(), operation, use.all->describe()));
    return static_cast<std::uint32_t>(log_.size() - 1);
  }
  void expect(std::uint32_t number, const Tensor& actual, const ConstTensor& expected) {
    compare_later(actual.data, expected.data, expected.bytes(), number, first_bad_, engine_.stream());
  }
  template <class Result>
  void end(DeviceTicket<Result>& ticket) {
    if (delays_.host_waits()) (void)ticket.wait();
  }

  void plan(std::size_t i) {
    Use& use = uses_[i];
    (void)begin("plan", use);
    use.plan = engine_.plan(use.routing, use.all->routing.map, use.options);
  }

  void dispatch(std::size_t i) {
    const Use& use = uses_[i];
    const std::uint32_t number = begin("dispatch", use);
    const Tensor x = fresh(use.x, use.x.rows);
    const Tensor scales = fresh(use.scales, use.scales.rows);
    const Tensor out = poisoned(use.rows.dtype, use.plan.num_rows(), use.rows.cols);
    const bool has_scales = use.rows.dtype == fp8_e4m3;
    const Tensor out_scales = has_scales ? poisoned(f32, use.plan.num_rows(), use.row_scales.cols) : Tensor();
    const ConstTensor given = x.dtype == fp8_e4m3 ? ConstTensor(scales) : ConstTensor();
    auto ticket = engine_.dispatch(use.plan, x, {.scales = given, .out = out, .out_scales = out_scales});
    const DeviceRows rows = ticket.wait_on(engine_.stream());
    fill_with_poison(x);
    expect(number, rows.rows, use.rows);
    expect(number, rows.scales, use.row_scales);
    end(ticket);
  }

  void pull(std::size_t i, bool forward) {
    const Use& use = uses_[i];
    const std::uint32_t number = begin(forward ? "combine" : "dispatch_backward", use);
    const ConstTensor& expected = forward ? use.combined : use.grad_x;
    const Tensor rows = fresh(forward ? use.expert_out : use.grad_rows, use.plan.num_rows());
    const Tensor out = poisoned(expected.dtype, expected.rows, expected.cols);
    auto ticket = forward ? engine_.combine(use.plan, rows, {.out = out})
                          : engine_.dispatch_backward(use.plan, rows, {.out = out});
    fill_with_poison(rows);
    expect(number, out, expected);
    end(ticket);
  }

  void combine_backward(std::size_t i) {
    const Use& use = uses_[i];
    const std::uint32_t number = begin("combine_backward", use);
    const Tensor grad_out = fresh(use.grad_out, use.grad_out.rows);
    const Tensor expert_out = fresh(use.expert_out, use.plan.num_rows());
    // The engine takes memory for gradients itself: presumably what is poisoned and given back here.
    (void)poisoned(use.grad_expert_out.dtype, use.plan.num_rows(), use.grad_expert_out.cols);
    auto ticket = engine_.combine_backward(use.plan, grad_out, expert_out);
    const DeviceGradients gradients = ticket.wait_on(engine_.stream());
    fill_with_poison(grad_out);
    fill_with_poison(expert_out);
    expect(number, gradients.expert_out, use.grad_expert_out);
    expect(number, gradients.weights, use.grad_weights);
    end(ticket);
  }

  std::size_t rank_;
  DeviceHeap heap_;
  DeviceEngine engine_;
  const std::byte* poison_;
  std::uint32_t* first_bad_;
  Delays& delays_;
  std::vector<Use> uses_;
  std::vector<std::string> log_;
};

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
    if (ShuffleCase drawn = random_shuffle_case(seed, topology, {.hidden = 520, .dtype = dtype}, {.tokens = 40});
        wants(drawn))
      cases.push_back(std::move(drawn));
  return cases;
}

TEST(DeviceStress, RanksHeldUpAtRandomSeeNoPoison) {
  SHUNT_NEEDS_DEVICE();
  const Topology topology = Topology::single_node(kRanks);
  const std::vector<ShuffleCase> plain = draw_cases(topology, bf16);
  const std::vector<ShuffleCase> quantised = draw_cases(topology, fp8_e4m3);
  const auto run = [&](World& world) {
    preload_stream_work();
    Arena arena(kArenaBytes);
    Delays delays(world.rank().index());
    std::byte* const poison_bytes = arena.take(kPoisonBytes);
    poison(poison_bytes, kPoisonBytes, nullptr);
    world.barrier();
    Stressed first(world, arena, poison_bytes, plain, delays);
    Stressed second(world, arena, poison_bytes, quantised, delays);
    world.barrier();
    first.plan_all();
    second.plan_all();
    std::mt19937_64 generator(1);
    Dice dice(generator);
    for (int step = 0; step < 1500; ++step) (dice.one_in(2) ? first : second).step(dice);
    first.check();
    second.check();
    world.barrier();
  };
  ASSERT_NO_THROW(World::spawn(kRanks, run, {.topology = topology}));
}

}  // namespace
}  // namespace shunt::test
