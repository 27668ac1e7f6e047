#include "engine/small_shuffle.hpp"

#include <stdexcept>

#include "plan/plan_data.hpp"

namespace shunt::test {
namespace {

EngineOptions options_of(const Place& place, std::chrono::milliseconds deadline, const std::string& name,
                         Stream stream) {
  DeviceOptions device = small_device(SmallShuffle::kTokens, SmallShuffle::kHeapBytes);
  device.stream = stream;
  return place.options({.hidden = SmallShuffle::kHidden, .dtype = f32, .deadline = deadline, .name = name}, device);
}

}  // namespace

std::vector<Tensor> take_all_memory(const Engine& engine) {
  std::vector<Tensor> all;
  for (std::int64_t bytes = 4 << 20; bytes >= 256; bytes /= 2) {
    try {
      while (true) all.push_back(engine.allocate(fp8_e4m3, 1, bytes));
    } catch (const Error&) {  // NOLINT: until there is no room
    }
  }
  return all;
}

void come_late(World& world, const Engine& lender, bool is_late, const std::function<void()>& give_up,
               const std::function<void()>& come) {
  std::vector<Tensor> others;
  if (!is_late) {
    give_up();
    others = take_all_memory(lender);
    for (const Tensor& block : others) poison(lender, block);
  }
  world.barrier();
  if (is_late) come();
  world.barrier();
  for (const Tensor& block : others)
    require(all_are(bytes_of(lender, block), std::byte{0xa5}), "nothing was written here");
}

SmallShuffle::SmallShuffle(World& world, const Place& place, std::chrono::milliseconds deadline,
                           const std::string& name, Stream stream)
    : map_(ExpertMap::contiguous(2 * world.size(), world.size())),
      engine_(world, options_of(place, deadline, name, stream)),
      experts_(engine_.allocate(f32, kTokens, 1)),
      x_(engine_.allocate(f32, kTokens, kHidden)) {
  std::vector<float> x;
  for (std::int64_t token = 0; token < kTokens; ++token) {
    route(token, static_cast<std::int32_t>(token % map_.num_experts()));
    x.insert(x.end(), kHidden, static_cast<float>(1 + token));
  }
  write(engine_, x, x_);
}

void SmallShuffle::route(std::int64_t token, std::int32_t expert) {
  Tensor entry = experts_;
  entry.data = experts_.row(token);
  entry.rows = 1;
  write(engine_, std::vector{expert}, entry);
}

void SmallShuffle::route_all_to(std::int32_t expert) {
  for (std::int64_t token = 0; token < kTokens; ++token) route(token, expert);
}

void SmallShuffle::plan(const PlanOptions& options) {
  const std::span<const std::int32_t> experts(reinterpret_cast<const std::int32_t*>(experts_.data), kTokens);
  plan_ = engine_.plan({.experts = experts, .topk = 1, .memory = engine_.memory()}, map_, options);
  rows_ = options.rows.data ? options.rows : engine_.expert_out(plan_);
}

Ticket<Rows> SmallShuffle::dispatch(Stream stream) {
  const bool has_rows_with_plan = plan_.data()->options.rows.data != nullptr;
  return engine_.dispatch(plan_, x_, {.out = has_rows_with_plan ? Tensor() : rows_, .stream = stream});
}

Ticket<Tensor> SmallShuffle::combine(const CombineOptions& options) { return engine_.combine(plan_, rows_, options); }

std::vector<float> SmallShuffle::sums() {
  (void)dispatch();
  const std::vector<float> values = floats_of(engine_, combine().wait());
  std::vector<float> first;
  for (std::size_t token = 0; token < kTokens; ++token) first.push_back(values[token * kHidden]);
  return first;
}

void SmallShuffle::round_trip() {
  plan();
  const std::vector<float> values = sums();
  for (std::size_t token = 0; token < kTokens; ++token)
    if (values[token] != static_cast<float>(1 + token)) throw std::runtime_error("a token came back changed");
}

}  // namespace shunt::test
