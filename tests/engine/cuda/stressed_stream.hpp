// A rank's stream under stress: held up at random, with poison in its memory, and compared without waiting.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "shunt/device_heap.hpp"
#include "support/cuda/device.hpp"
#include "support/dice.hpp"

namespace shunt::test {

/// A rank's generator of delays, each other than its peers'.
class Delays {
 public:
  explicit Delays(std::size_t rank);
  ~Delays() { (void)cudaStreamDestroy(crowd_); }
  Delays(const Delays&) = delete;
  Delays& operator=(const Delays&) = delete;

  /// The stream goes on later, or finds the device crowded.
  void on(Stream stream);
  void of_host();
  bool now_and_then() { return dice_.one_in(4); }

 private:
  std::chrono::microseconds some_time() { return std::chrono::microseconds(dice_.between(1, 80)); }

  std::mt19937_64 generator_;
  Dice dice_;
  cudaStream_t crowd_ = nullptr;
};

class StressedStream {
 public:
  /// Before ranks wait for each other: loading kernels may wait for the device.
  StressedStream(std::size_t rank, Arena& arena, Delays& delays, Stream stream);

  /// The operation's number. The host or the stream may be held up.
  std::uint32_t begin(std::string operation);
  void hold_up() { delays_.on(stream_); }
  /// What the operation left behind; looked at by check().
  void expect(std::uint32_t operation, const std::byte* actual, const std::byte* expected, std::size_t bytes);
  /// Other than the peers.
  [[nodiscard]] bool now_and_then() { return delays_.now_and_then(); }

  void fill_with_poison(const Tensor& tensor);
  void copy(const ConstTensor& from, const Tensor& to);
  /// A copy in device memory that peers don't see.
  ConstTensor keep(const ConstTensor& host);
  template <class T>
  const T* keep(const std::vector<T>& values) {
    return arena_.put(values, stream_);
  }

  /// Throws if some operation left other bits. When all of them are complete.
  void check() const;

 private:
  std::size_t rank_;
  Arena& arena_;
  const std::byte* poison_;
  std::uint32_t* first_bad_;
  Delays& delays_;
  Stream stream_;
  std::vector<std::string> log_;
};

}  // namespace shunt::test
