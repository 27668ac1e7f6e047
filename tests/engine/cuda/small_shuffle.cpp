#include "engine/cuda/small_shuffle.hpp"

#include <stdexcept>

namespace shunt::test {

SmallShuffle::SmallShuffle(World& world, const DeviceHeap& heap, std::chrono::milliseconds deadline)
    : map_(ExpertMap::contiguous(2 * world.size(), world.size())),
      heap_(heap),
      engine_(world, heap, {.hidden = kHidden, .dtype = f32, .max_tokens = kTokens, .deadline = deadline}),
      experts_(heap.allocate(f32, kTokens, 1)),
      x_(heap.allocate(f32, kTokens, kHidden)) {
  std::vector<float> x;
  for (std::int64_t token = 0; token < kTokens; ++token) {
    route(token, static_cast<std::int32_t>(token % map_.num_experts()));
    x.insert(x.end(), kHidden, static_cast<float>(1 + token));
  }
  upload(x_.data, std::as_bytes(std::span(x)), engine_.stream());
}

void SmallShuffle::poison_heap(int pattern) {
  const Tensor most = heap_.allocate(f32, 1, std::int64_t{2} << 20);
  poison(most.data, most.bytes(), engine_.stream(), pattern);
}

void SmallShuffle::route(std::int64_t token, std::int32_t expert) {
  upload(experts_.row(token), std::as_bytes(std::span(&expert, 1)), engine_.stream());
}

void SmallShuffle::route_all_to(std::int32_t expert) {
  for (std::int64_t token = 0; token < kTokens; ++token) route(token, expert);
}

void SmallShuffle::plan(const DevicePlanOptions& options) {
  plan_ =
      engine_.plan({.experts = reinterpret_cast<const std::int32_t*>(experts_.data), .num_tokens = kTokens, .topk = 1},
                   map_, options);
  plan_has_rows_ = options.rows.data != nullptr;
  rows_ = plan_has_rows_ ? options.rows : engine_.expert_out(plan_);
}

DeviceTicket<DeviceRows> SmallShuffle::dispatch() {
  return engine_.dispatch(plan_, x_, {.out = plan_has_rows_ ? Tensor() : rows_});
}

DeviceTicket<DeviceRows> SmallShuffle::dispatch_wrong_rows() {
  Tensor fewer = x_;
  --fewer.rows;
  return engine_.dispatch(plan_, fewer);
}

DeviceTicket<Tensor> SmallShuffle::combine() { return engine_.combine(plan_, rows_); }

std::vector<float> SmallShuffle::sums() {
  (void)dispatch();
  const Tensor result = combine().wait();
  const auto values = download_as(reinterpret_cast<const float*>(result.data), kTokens * kHidden, engine_.stream());
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
