// A caller's stream under stress: held up at random, with poison in its memory, and compared without waiting.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/cuda/check.hpp"
#include "core/cuda/stream.hpp"
#include "engine/cuda/events.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "shunt/engine.hpp"
#include "support/cuda/device.hpp"
#include "support/cuda/stream_work.hpp"
#include "support/dice.hpp"

namespace shunt::test {

/// A rank's generator of delays, each other than its peers'.
class Delays {
 public:
  explicit Delays(std::size_t rank) : generator_(rank), dice_(generator_), crowd_(device::make_stream()) {}

  /// The stream goes on later, or finds the device crowded.
  void on(Stream stream) {
    if (dice_.one_in(3)) delay(some_time(), 1, stream);
    if (dice_.one_in(4)) delay(some_time(), static_cast<unsigned>(dice_.between(30, 300)), crowd_.get());
  }
  void of_host() {
    if (dice_.one_in(6)) std::this_thread::sleep_for(some_time());
  }
  bool now_and_then() { return dice_.one_in(4); }

 private:
  std::chrono::microseconds some_time() { return std::chrono::microseconds(dice_.between(1, 80)); }

  std::mt19937_64 generator_;
  Dice dice_;
  std::shared_ptr<CUstream_st> crowd_;
};

/// Brings inputs, and takes outputs as soon as it may.
class StressedStream {
 public:
  /// Before ranks wait for each other: loading kernels may wait for the device. engine: what is stressed.
  StressedStream(std::size_t rank, Arena& arena, Delays& delays, const Engine& engine)
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

  [[nodiscard]] Stream get() const { return stream_.get(); }

  /// The operation's number. The host or one of the streams may be held up.
  std::uint32_t begin(std::string operation) {
    delays_.of_host();
    delays_.on(get());
    delays_.on(engine_);
    log_.push_back(std::move(operation));
    return static_cast<std::uint32_t>(log_.size() - 1);
  }
  void hold_up() { delays_.on(get()); }
  /// What the operation left behind; looked at by check().
  void expect(std::uint32_t operation, const std::byte* actual, const std::byte* expected, std::size_t bytes) {
    compare_later(actual, expected, bytes, operation, first_bad_, get());
  }
  /// Other than the peers.
  [[nodiscard]] bool now_and_then() { return delays_.now_and_then(); }

  // For what is put on the engine's stream without the engine.
  void engine_waits() { wait(engine_, get()); }
  void wait_for_engine() { wait(get(), engine_); }

  void fill_with_poison(const Tensor& tensor) {
    if (tensor.bytes() > kPoisonBytes) throw std::runtime_error("there is too little poison");
    device::launch(device::CopyBytes{.from = poison_, .to = tensor.data, .row_bytes = tensor.bytes()}, get());
  }
  void copy(const ConstTensor& from, const Tensor& to) {
    device::launch(device::CopyBytes{.from = from.data, .to = to.data, .row_bytes = from.bytes()}, get());
  }
  /// A copy in device memory that peers don't see.
  ConstTensor keep(const ConstTensor& host) {
    ConstTensor kept = host;
    std::byte* const place = arena_.take(host.bytes());
    upload(place, {host.data, host.bytes()}, get());
    kept.data = place;
    kept.memory = memory_;
    return kept;
  }
  template <class T>
  std::span<const T> keep(const std::vector<T>& values) {
    return {arena_.put(values, get()), values.size()};
  }

  /// Throws if some operation left other bits. When all of them are complete.
  void check() const {
    const std::uint32_t bad = download_as(first_bad_, 1, get()).front();
    if (bad != kNoneBad)
      throw std::runtime_error(fmt::format("rank {}: other bits in operation {}, {}", rank_, bad, log_.at(bad)));
  }

 private:
  static constexpr std::size_t kPoisonBytes = 8 << 20;
  static constexpr std::uint32_t kNoneBad = 0xffff'ffffu;

  static const std::byte* put_poison(Arena& arena, Stream stream) {
    std::byte* const place = arena.take(kPoisonBytes);
    poison(place, kPoisonBytes, stream);
    return place;
  }

  void wait(Stream late, Stream early) {
    device::check(cudaStreamWaitEvent(late, events_->record(early).get(), 0), "wait for a stream");
  }

  std::size_t rank_;
  Arena& arena_;
  Delays& delays_;
  Stream engine_;
  Memory memory_;
  std::shared_ptr<CUstream_st> stream_ = device::make_stream();
  std::shared_ptr<device::Events> events_ = std::make_shared<device::Events>();
  const std::byte* poison_;
  std::uint32_t* first_bad_;
  std::vector<std::string> log_;
};

}  // namespace shunt::test
