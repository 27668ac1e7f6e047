#include "engine/cuda/stressed_stream.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <thread>

#include "core/cuda/check.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "support/cuda/stream_work.hpp"

namespace shunt::test {
namespace {

constexpr std::size_t kPoisonBytes = 8 << 20;
constexpr std::uint32_t kNoneBad = 0xffff'ffffu;

const std::byte* put_poison(Arena& arena, Stream stream) {
  std::byte* const place = arena.take(kPoisonBytes);
  poison(place, kPoisonBytes, stream);
  return place;
}

}  // namespace

void Delays::on(Stream stream) {
  if (dice_.one_in(3)) delay(some_time(), 1, stream);
  if (dice_.one_in(4)) delay(some_time(), static_cast<unsigned>(dice_.between(30, 300)), crowd_.get());
}

void Delays::of_host() {
  if (dice_.one_in(6)) std::this_thread::sleep_for(some_time());
}

StressedStream::StressedStream(std::size_t rank, Arena& arena, Delays& delays, const Engine& engine)
    : rank_(rank),
      arena_(arena),
      delays_(delays),
      engine_(engine.stream()),
      memory_(engine.memory()),
      poison_(put_poison(arena, get())),
      first_bad_(arena.put(std::vector{kNoneBad}, get())) {
  preload_stream_work();
  device::preload_copy_bytes();
}

std::uint32_t StressedStream::begin(std::string operation) {
  delays_.of_host();
  delays_.on(get());
  delays_.on(engine_);
  log_.push_back(std::move(operation));
  return static_cast<std::uint32_t>(log_.size() - 1);
}

void StressedStream::wait(Stream late, Stream early) {
  device::check(cudaStreamWaitEvent(late, events_->record(early).get(), 0), "wait for a stream");
}

void StressedStream::expect(std::uint32_t operation, const std::byte* actual, const std::byte* expected,
                            std::size_t bytes) {
  compare_later(actual, expected, bytes, operation, first_bad_, get());
}

void StressedStream::fill_with_poison(const Tensor& tensor) {
  if (tensor.bytes() > kPoisonBytes) throw std::runtime_error("there is too little poison");
  device::launch(device::CopyBytes{.from = poison_, .to = tensor.data, .row_bytes = tensor.bytes()}, get());
}

void StressedStream::copy(const ConstTensor& from, const Tensor& to) {
  device::launch(device::CopyBytes{.from = from.data, .to = to.data, .row_bytes = from.bytes()}, get());
}

ConstTensor StressedStream::keep(const ConstTensor& host) {
  ConstTensor kept = host;
  std::byte* const place = arena_.take(host.bytes());
  upload(place, {host.data, host.bytes()}, get());
  kept.data = place;
  kept.memory = memory_;
  return kept;
}

void StressedStream::check() const {
  const std::uint32_t bad = download_as(first_bad_, 1, get()).front();
  if (bad != kNoneBad)
    throw std::runtime_error(fmt::format("rank {}: other bits in operation {}, {}", rank_, bad, log_.at(bad)));
}

}  // namespace shunt::test
