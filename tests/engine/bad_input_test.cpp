// Wrong input is refused on the rank that brings it, with its cause, before anything is sent: the call can be repeated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "bench/reference/rows.hpp"
#include "engine/elements.hpp"
#include "engine/place.hpp"
#include "engine/tensor_checks.hpp"
#include "shunt/engine.hpp"
#include "shunt/error.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::int64_t kHidden = 130;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const EngineOptions kF32 = {.hidden = kHidden, .dtype = f32};
const EngineOptions kFp8 = {.hidden = kHidden, .dtype = fp8_e4m3, .expert_dtype = f32};
const EngineOptions kFlat = {.hidden = kHidden, .dtype = f32, .reduction = Reduction::flat};

// This rank's three tokens, which go to both ranks.
struct RankSetting {
  RankSetting(World& own_world, const Place& place, const EngineOptions& options)
      : world(own_world), engine(world, place.options(options)) {}

  Plan make_plan(const PlanOptions& options = {}) { return engine.plan({experts, weights, 2}, map, options); }
  void run() {
    const Rows rows = engine.dispatch(plan, x.tensor()).wait();
    EXPECT_EQ(engine.combine(plan, expert_out.tensor()).wait().rows, 3);
    EXPECT_EQ(engine.dispatch_backward(plan, expert_out.tensor()).wait().rows, 3);
    EXPECT_EQ(engine.combine_backward(plan, grad_out.tensor(), expert_out.tensor()).wait().rows.rows, 6);
  }

  World& world;
  Engine engine;
  ExpertMap map = ExpertMap::contiguous(2, 2);
  std::vector<std::int32_t> experts = {0, 1, 1, 0, 0, 1};
  std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  Plan plan{};
  HostRows x{f32, 3, kHidden};
  HostRows expert_out{f32, 6, kHidden};
  HostRows grad_out{f32, 3, kHidden};
};

using Misuse = std::function<void(RankSetting&)>;

// Spoils the routing or the map of a rank, then plans.
Misuse plan_after(const Misuse& spoil) {
  return [=](RankSetting& rank) {
    spoil(rank);
    (void)rank.make_plan();
  };
}

void expect_refusal(const std::function<void()>& call, const std::string& cause) {
  try {
    call();
    ADD_FAILURE() << "accepted, expected: " << cause;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr(cause)));
  }
}

struct BadCall {
  const char* cause;
  Misuse call;
};

class BadInput : public AtPlace {
 protected:
  // Rank 1 makes each bad call after a plan; then both ranks go on with that plan, and with the next.
  void expect_refused(const EngineOptions& options, const std::vector<BadCall>& bad_calls) const {
    place().run(2, [&](World& world) {
      RankSetting rank(world, place(), options);
      for (const auto& [cause, call] : bad_calls) {
        rank.plan = rank.make_plan();
        RankSetting spoilt = rank;
        if (world.rank() == RankId(1)) expect_refusal([&, &call = call] { call(spoilt); }, cause);
        rank.run();
      }
      (void)rank.make_plan();
      world.barrier();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(At, BadInput, kThreadPlaces, kNameOfPlace);

ConstTensor without_data(ConstTensor tensor) {
  tensor.data = nullptr;
  return tensor;
}

void dispatch(RankSetting& rank, const ConstTensor& x, const DispatchOptions& options = {}) {
  (void)rank.engine.dispatch(rank.plan, x, options).wait();
}
void combine(RankSetting& rank, const ConstTensor& rows, const CombineOptions& options = {}) {
  (void)rank.engine.combine(rank.plan, rows, options).wait();
}
void combine_backward(RankSetting& rank, const ConstTensor& grad_out, const ConstTensor& expert_out) {
  (void)rank.engine.combine_backward(rank.plan, grad_out, expert_out).wait();
}

// Calls with these tensors; empty ones are not given.
Misuse dispatch_of(HostRows x, HostRows scales = {}, HostRows out = {}, HostRows out_scales = {}) {
  return [=](RankSetting& r) mutable {
    dispatch(r, x.tensor(), {.scales = scales.tensor(), .out = out.tensor(), .out_scales = out_scales.tensor()});
  };
}
Misuse combine_of(HostRows rows, HostRows out = {}) {
  return [=](RankSetting& r) mutable { combine(r, rows.tensor(), {.out = out.tensor()}); };
}

const HostRows kX(f32, 3, kHidden), kFp8X(fp8_e4m3, 3, kHidden), kExpertOut(f32, 6, kHidden);

TEST_P(BadInput, OfDispatchIsRefused) {
  expect_refused(kF32, {{"dispatch: x is bf16, expected f32", dispatch_of({bf16, 3, kHidden})},
                        {"dispatch: x is fp8_e4m3, expected f32", dispatch_of(kFp8X)},
                        {"dispatch: x is [2, 130], expected [3, 130]", dispatch_of({f32, 2, kHidden})},
                        {"dispatch: x is [3, 129], expected [3, 130]", dispatch_of({f32, 3, 129})},
                        {"dispatch: x has no data", [](auto& r) { dispatch(r, without_data(r.x.tensor())); }},
                        {"dispatch: scales given, but x is f32", dispatch_of(kX, {f32, 3, 2})},
                        {"dispatch: out_scales given, but rows are f32", dispatch_of(kX, {}, {}, {f32, 6, 2})},
                        {"dispatch: out is bf16, expected f32", dispatch_of(kX, {}, {bf16, 6, kHidden})},
                        {"dispatch: out is [5, 130], expected [6, 130]", dispatch_of(kX, {}, {f32, 5, kHidden})},
                        {"dispatch: out has no data",
                         [](auto& r) {
                           dispatch(r, r.x.tensor(), {.out = {nullptr, f32, 6, kHidden, nullptr}});
                         }},
                        {"overlaps", [](auto& r) {
                           const Tensor block = r.engine.expert_out(r.plan);
                           dispatch(r, first_rows(block, 3), {.out = block});
                         }}});
}

TEST_P(BadInput, OfDispatchOfFp8IsRefused) {
  expect_refused(kFp8, {{"dispatch: fp8 x needs f32 scales [3, 2]", dispatch_of(kFp8X)},
                        {"dispatch: fp8 x needs f32 scales [3, 2], got f32 [3, 1]", dispatch_of(kFp8X, {f32, 3, 1})},
                        {"dispatch: fp8 x needs f32 scales [3, 2], got f32 [2, 2]", dispatch_of(kFp8X, {f32, 2, 2})},
                        {"dispatch: fp8 x needs f32 scales [3, 2], got bf16 [3, 2]", dispatch_of(kFp8X, {bf16, 3, 2})},
                        {"dispatch: out_scales is [6, 1], expected [6, 2]", dispatch_of(kX, {}, {}, {f32, 6, 1})},
                        {"dispatch: scales given, but x is f32", dispatch_of(kX, {f32, 3, 2})}});
}

TEST_P(BadInput, OfCombineIsRefused) {
  expect_refused(kF32,
                 {{"combine: expert_out is f16, expected f32", combine_of({f16, 6, kHidden})},
                  {"combine: expert_out is [7, 130], expected [6, 130]", combine_of({f32, 7, kHidden})},
                  {"combine: expert_out has no data", [](auto& r) { combine(r, without_data(r.expert_out.tensor())); }},
                  {"combine: out is [3, 131], expected [3, 130]", combine_of(kExpertOut, {f32, 3, 131})},
                  {"combine: out is f16, expected f32", combine_of(kExpertOut, {f16, 3, kHidden})},
                  {"combine: out has no data",
                   [](auto& r) {
                     combine(r, r.expert_out.tensor(), {.out = {nullptr, f32, 3, kHidden, nullptr}});
                   }},
                  {"overlaps", [](auto& r) {
                     const Tensor block = r.engine.expert_out(r.plan);
                     combine(r, block, {.out = first_rows(block, 3)});
                   }}});
}

TEST_P(BadInput, OfBackwardOperationsIsRefused) {
  expect_refused(kF32,
                 {{"dispatch_backward: grad_rows is [3, 130], expected [6, 130]",
                   [](auto& r) { (void)r.engine.dispatch_backward(r.plan, r.x.tensor()); }},
                  {"combine_backward: grad_out is [6, 130], expected [3, 130]",
                   [](auto& r) { combine_backward(r, r.expert_out.tensor(), r.expert_out.tensor()); }},
                  {"combine_backward: grad_out is bf16, expected f32",
                   [](auto& r) { combine_backward(r, HostRows(bf16, 3, kHidden).tensor(), r.expert_out.tensor()); }},
                  {"combine_backward: expert_out is [3, 130], expected [6, 130]",
                   [](auto& r) { combine_backward(r, r.grad_out.tensor(), r.x.tensor()); }},
                  {"combine_backward: expert_out has no data",
                   [](auto& r) { combine_backward(r, r.grad_out.tensor(), without_data(r.expert_out.tensor())); }}});
}

TEST_P(BadInput, OfPlanIsRefused) {
  expect_refused(kF32,
                 {{"5 weights for 6 experts", plan_after([](auto& r) { r.weights.pop_back(); })},
                  {"the expert map is for 3 ranks", plan_after([](auto& r) { r.map = ExpertMap::contiguous(3, 3); })},
                  {"alignment is 0", [](auto& r) { (void)r.make_plan({.alignment = 0}); }},
                  {"capacity is 0", [](auto& r) { (void)r.make_plan({.capacity = 0}); }}});
  if (!support_of(Feature::padded).of(kind(2))) return;
  expect_refused(kF32, {{"max_tokens is 2, expected at least 3",
                         [](auto& r) { (void)r.make_plan({.layout = Layout::padded, .max_tokens = 2}); }}});
}

// Devices of one node check on the device, so it is a fault there: DeviceFault.
TEST_P(BadInput, OfARoutingsEntriesIsRefused) {
  if (kind(2) == EngineKind::node) GTEST_SKIP() << "checked on the device";
  expect_refused(kF32,
                 {{"token 1: expert 2 is out of range", plan_after([](auto& r) { r.experts[2] = 2; })},
                  {"token 0: expert -2 is out of range", plan_after([](auto& r) { r.experts[1] = -2; })},
                  {"token 2: expert 1 is named twice", plan_after([](auto& r) { r.experts[4] = 1; })},
                  {"token 2: the weight of expert 1 is nan", plan_after([](auto& r) { r.weights[5] = kNan; })},
                  {"token 0: the weight of expert 0 is -inf", plan_after([](auto& r) { r.weights[0] = -kInfinity; })}});
}

TEST_P(BadInput, FlatSumsOfUniqueRowsAreRefused) {
  expect_refused(kFlat, {{"token_unique", [](auto& r) { (void)r.make_plan({.layout = Layout::token_unique}); }}});
}

TEST_P(BadInput, WeightsOfDroppedEntriesMayBeAnything) {
  place().run(2, [&](World& world) {
    RankSetting rank(world, place(), kF32);
    rank.experts[3] = -1;
    rank.weights[3] = kNan;
    rank.plan = rank.make_plan();
    const Tensor expert_out = rank.engine.expert_out(rank.plan);
    fill(rank.engine, expert_out, 1.0f);
    const auto sums = floats_of(rank.engine, rank.engine.combine(rank.plan, expert_out).wait());
    EXPECT_THAT(std::span(sums).first(kHidden), Each(1.0f + 2.0f));
    EXPECT_THAT(std::span(sums).subspan(kHidden, kHidden), Each(3.0f));
  });
}

TEST_P(BadInput, OfAnEngineIsRefused) {
  std::vector<std::pair<EngineOptions, std::string>> refused = {
      {{.hidden = 0}, "hidden is 0, expected 1 to"},
      {{.hidden = -4}, "hidden is -4"},
      {{.hidden = 4, .expert_dtype = fp8_e4m3}, "expert_dtype is fp8_e4m3"},
      {{.hidden = 4, .result_dtype = fp8_e4m3}, "result_dtype is fp8_e4m3"},
      {{.hidden = 4, .wire_dtype = fp8_e4m3}, "wire_dtype is fp8_e4m3"},
      {{.hidden = 4, .dtype = DType(9)}, "dtype 9 does not exist"},
      {{.hidden = 4, .reduction = Reduction(9)}, "reduction 9 does not exist"},
      {{.hidden = 4, .dtype = bf16, .rank_dtype = f16}, "rank_dtype is f16, expected f32 or"}};
  for (auto& [options, cause] : refused) options = place().options(options);
  const auto refuse_device = [&](const auto& spoil, const std::string& cause) {
    DeviceOptions device = small_device();
    spoil(device);
    if (place().is_device) refused.emplace_back(EngineOptions{.hidden = 4, .device = device}, cause);
  };
  refuse_device([](auto& device) { device.max_tokens = -1; }, "device.max_tokens is -1");
  refuse_device([](auto& device) { device.max_experts = 0; }, "device.max_experts is 0");
  refuse_device([](auto& device) { device.num_batches = 0; }, "device.num_batches is 0");
  refuse_device([](auto& device) { device.sms = -1; }, "device.sms is -1");
  refuse_device([](auto& device) { device.index = 1000; }, "device.index is 1000, but this machine has");
  place().run(2, [&](World& world) {
    for (const auto& [options, cause] : refused)
      if (world.rank() == RankId(1))
        expect_refusal([&, &options = options] { const Engine engine(world, options); }, cause);
    for (const auto deadline : {std::chrono::milliseconds(0), std::chrono::milliseconds(-1)})
      require_error([&] { const Engine engine(world, place().options({.hidden = 4, .deadline = deadline})); },
                    ErrorCode::invalid_argument, "deadline");
    RankSetting rank(world, place(), kF32);  // an engine that was refused does not count in the order of engines
    rank.plan = rank.make_plan();
    rank.run();
  });
}

TEST_P(BadInput, PlansOfOthersAreRefused) {
  place().run(2, [&](World& world) {
    World other_world = world.split(0);
    RankSetting rank(world, place(), kF32);
    RankSetting other_engine(world, place(), kF32);
    RankSetting elsewhere(other_world, place(), kF32);
    for (RankSetting* each : {&rank, &other_engine, &elsewhere}) each->plan = each->make_plan();
    if (world.rank() == RankId(1)) {
      for (const Plan* foreign : {&other_engine.plan, &elsewhere.plan})
        expect_refusal([&] { (void)rank.engine.dispatch(*foreign, rank.x.tensor()); },
                       "dispatch: the plan was made by another engine");
      expect_refusal([&] { (void)rank.engine.dispatch({}, rank.x.tensor()); }, "dispatch: the plan is empty");
      expect_refusal([&] { (void)rank.engine.expert_out({}); }, "expert_out: the plan is empty");
      expect_refusal([&] { (void)rank.engine.combine({}, rank.expert_out.tensor()); }, "combine: the plan is empty");
    }
    for (RankSetting* each : {&rank, &other_engine, &elsewhere}) each->run();
  });
}

TEST(TensorChecks, AcceptMisalignedElementsOnHostsOnly) {
  alignas(16) std::array<std::byte, 2048> memory{};
  const auto misaligned = [&](std::int64_t cols) { return borrow(memory.data() + 2, f32, 3, cols); };
  const ConstTensor x = borrow(static_cast<const void*>(memory.data()), fp8_e4m3, 3, kHidden);
  for (const EngineKind kind : {EngineKind::host, EngineKind::node}) {
    const TensorChecks checks{fp8_e4m3, kHidden};
    const Call combine{RankId(1), kind, "combine", ""}, dispatch{RankId(1), kind, "dispatch", ""};
    const std::vector<std::pair<std::string, std::function<void()>>> calls = {
        {"combine: out is not aligned to its elements",
         [&] { checks.tensor(combine, "out", misaligned(kHidden), f32, 3, kHidden); }},
        {"needs f32 scales [3, 2], got misaligned f32 [3, 2]",
         [&] { checks.dispatch_input(dispatch, 3, x, misaligned(2)); }}};
    for (const auto& [cause, call] : calls) kind == EngineKind::host ? call() : expect_refusal(call, cause);
  }
}

TEST(TensorChecks, RefuseStridesThatLeaveTheAddressSpace) {
  std::array<float, 2 * kHidden> memory{};
  ConstTensor x = borrow(static_cast<const void*>(memory.data()), f32, 2, kHidden);
  x.row_stride = std::numeric_limits<std::int64_t>::max();
  const Call dispatch{RankId(1), EngineKind::host, "dispatch", ""};
  expect_refusal([&] { TensorChecks::tensor(dispatch, "x", x, f32, 2, kHidden); },
                 "x has a row stride of 9223372036854775807 elements");
}

TEST(World, RefusesShapesThatCantBe) {
  World::spawn(1, [](World& world) {
    constexpr std::int64_t kHuge = std::int64_t{1} << 40;
    require_error([&] { (void)world.allocate(f32, kHuge, kHuge); }, ErrorCode::invalid_argument, "");
    require_error([&] { (void)world.allocate(f32, -1, 1); }, ErrorCode::invalid_argument, "-1");
  });
}

}  // namespace
}  // namespace shunt::test
