// Steps of decoding: what every rank brings, and what must come of it.
#pragma once

#include <chrono>
#include <vector>

#include "bench/reference/shuffle.hpp"
#include "shunt/device_decoder.hpp"
#include "support/cuda/device.hpp"
#include "support/random_case.hpp"

namespace shunt::test {

/// What all steps of a decoder share.
struct DecodeShape {
  ExpertMap map;
  std::int32_t topk = 4;
  std::int64_t max_tokens = 16;
  std::int64_t hidden = 40;
  DType dtype = f32;

  [[nodiscard]] EngineOptions options() const { return {.hidden = hidden, .dtype = dtype}; }
};

/// Vectors of what ranks have are [ranks].
struct DecodeStep {
  RandomCase routing;
  std::vector<HostRows> x, expert_out;
  std::vector<RankId> lost{};  ///< what is sent there is dropped
  std::vector<ReferenceRows> rows{};
  std::vector<HostRows> results{};
};

/// Equal arguments give equal steps. Some entries are dropped.
DecodeStep draw_decode_step(std::uint64_t seed, const DecodeShape& shape, const std::vector<std::int64_t>& num_tokens);

/// As if this rank had no tokens, and what others send to it were dropped.
DecodeStep without_rank(const DecodeStep& step, const DecodeShape& shape, RankId lost);

/// As if every second choice of a token were the one before, which changes nothing but that it is dropped.
DecodeStep naming_twice(const DecodeStep& step, const DecodeShape& shape);

/// One rank's decoder and buffers. Everything throws what differs from the reference.
class DecodingRank {
 public:
  enum class Calls { whole, halves };

  /// Collective.
  DecodingRank(World& world, const DeviceHeap& heap, const DecodeShape& shape,
               std::chrono::milliseconds deadline = std::chrono::seconds(20));

  /// The first half of dispatch; returns without waiting.
  void send(const DecodeStep& step);
  /// Compares what comes.
  void dispatch(const DecodeStep& step, Calls calls = Calls::whole);
  /// What the halves of combine need and give; compares the result.
  void load_expert_out(const DecodeStep& step);
  void receive(const DecodeStep& step);
  /// Dispatches and combines, and compares both.
  void take(const DecodeStep& step, Calls calls = Calls::whole);

  /// Dispatch and combine of so many tokens, for graphs; load() before replaying and compare() afterwards, both while
  /// no rank replays.
  void put_on_stream(std::int64_t num_tokens, Calls calls = Calls::whole);
  void load(const DecodeStep& step);
  void compare(const DecodeStep& step);
  void compare_rows(const DecodeStep& step);

  [[nodiscard]] DeviceDecoder& decoder() { return decoder_; }
  [[nodiscard]] Stream stream() const { return decoder_.stream(); }

 private:
  [[nodiscard]] Tensor first_rows(Tensor tensor, std::int64_t rows) const {
    tensor.rows = rows;
    return tensor;
  }
  [[nodiscard]] DeviceRouting routing(std::int64_t num_tokens) const;
  void load_tokens(const DecodeStep& step);
  void compare_result(const DecodeStep& step);
  void require(const char* what, const std::string& difference) const;

  std::size_t rank_;
  DecodeShape shape_;
  DeviceDecoder decoder_;
  Tensor experts_, weights_, x_, result_, scratch_;
};

}  // namespace shunt::test
