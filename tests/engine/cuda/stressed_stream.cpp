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

Delays::Delays(std::size_t rank) : generator_(rank), dice_(generator_) {
  device::check(cudaStreamCreateWithFlags(&crowd_, cudaStreamNonBlocking), "make a stream");
}

void Delays::on(Stream stream) {
  if (dice_.one_in(3)) delay(some_time(), 1, stream);
  if (dice_.one_in(4)) delay(some_time(), static_cast<unsigned>(dice_.between(30, 300)), crowd_);
}

void Delays::of_host() {
  if (dice_.one_in(6)) std::this_thread::sleep_for(some_time());
}

StressedStream::StressedStream(std::size_t rank, Arena& arena, Delays& delays, Stream stream)
    : rank_(rank),
      arena_(arena),
      poison_(put_poison(arena, stream)),
      first_bad_(arena.put(std::vector{kNoneBad}, stream)),
      delays_(delays),
      stream_(stream) {
  preload_stream_work();
}

std::uint32_t StressedStream::begin(std::string operation) {
  delays_.of_host();
  delays_.on(stream_);
  log_.push_back(std::move(operation));
  return static_cast<std::uint32_t>(log_.size() - 1);
}

void StressedStream::expect(std::uint32_t operation, const std::byte* actual, const std::byte* expected,
                            std::size_t bytes) {
  compare_later(actual, expected, bytes, operation, first_bad_, stream_);
}

void StressedStream::fill_with_poison(const Tensor& tensor) {
  if (tensor.bytes() > kPoisonBytes) throw std::runtime_error("there is too little poison");
  device::launch(device::CopyBytes{poison_, tensor.data, tensor.bytes()}, stream_);
}

void StressedStream::copy(const ConstTensor& from, const Tensor& to) {
  device::launch(device::CopyBytes{from.data, to.data, from.bytes()}, stream_);
}

ConstTensor StressedStream::keep(const ConstTensor& host) {
  ConstTensor kept = host;
  std::byte* const place = arena_.take(host.bytes());
  upload(place, {host.data, host.bytes()}, stream_);
  kept.data = place;
  return kept;
}

void StressedStream::check() const {
  const std::uint32_t bad = download_as(first_bad_, 1, stream_).front();
  if (bad != kNoneBad)
    throw std::runtime_error(fmt::format("rank {}: other bits in operation {}, {}", rank_, bad, log_.at(bad)));
}

}  // namespace shunt::test
