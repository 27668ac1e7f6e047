// A caller's stream under stress: held up at random, with poison in its memory, and compared without waiting.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/stream.hpp"
#include "engine/cuda/events.hpp"
#include "shunt/engine.hpp"
#include "support/cuda/device.hpp"
#include "support/dice.hpp"

namespace shunt::test {

/// A rank's generator of delays, each other than its peers'.
class Delays {
 public:
  explicit Delays(std::size_t rank) : generator_(rank), dice_(generator_), crowd_(device::make_stream()) {}

  /// The stream goes on later, or finds the device crowded.
  void on(Stream stream);
  void of_host();
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
  StressedStream(std::size_t rank, Arena& arena, Delays& delays, const Engine& engine);

  [[nodiscard]] Stream get() const { return stream_.get(); }

  /// The operation's number. The host or one of the streams may be held up.
  std::uint32_t begin(std::string operation);
  void hold_up() { delays_.on(get()); }
  /// What the operation left behind; looked at by check().
  void expect(std::uint32_t operation, const std::byte* actual, const std::byte* expected, std::size_t bytes);
  /// Other than the peers.
  [[nodiscard]] bool now_and_then() { return delays_.now_and_then(); }

  // For what is put on the engine's stream without the engine.
  void engine_waits() { wait(engine_, get()); }
  void wait_for_engine() { wait(get(), engine_); }

  void fill_with_poison(const Tensor& tensor);
  void copy(const ConstTensor& from, const Tensor& to);
  /// A copy in device memory that peers don't see.
  ConstTensor keep(const ConstTensor& host);
  template <class T>
  std::span<const T> keep(const std::vector<T>& values) {
    return {arena_.put(values, get()), values.size()};
  }

  /// Throws if some operation left other bits. When all of them are complete.
  void check() const;

 private:
  void wait(Stream late, Stream early);

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
