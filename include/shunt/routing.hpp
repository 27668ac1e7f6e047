// The router's decision: top-k experts and weights per token.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>

#include "shunt/language.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// A view of logical experts, of 32 or of 64 bits each.
class ExpertIds {
 public:
  constexpr ExpertIds() = default;
  template <std::ranges::contiguous_range Range>
  requires std::ranges::sized_range<Range> &&
      (std::same_as<std::ranges::range_value_t<Range>, std::int32_t> ||
       std::same_as<std::ranges::range_value_t<Range>,
                    std::int64_t>)constexpr ExpertIds(const Range& ids)  // NOLINT: a view, as std::span
      : data_(std::ranges::data(ids)),
        size_(std::ranges::size(ids)),
        is_wide_(std::same_as<std::ranges::range_value_t<Range>, std::int64_t>) {}

  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
  /// 64 bits each.
  [[nodiscard]] constexpr bool is_wide() const { return is_wide_; }
  [[nodiscard]] constexpr const void* data() const { return data_; }
  [[nodiscard]] constexpr std::size_t size_bytes() const {
    return size_ * (is_wide_ ? sizeof(std::int64_t) : sizeof(std::int32_t));
  }
  /// The same view over other memory.
  [[nodiscard]] constexpr ExpertIds at(const void* data) const {
    ExpertIds copy = *this;
    copy.data_ = data;
    return copy;
  }

  /// Each demands that the ids have that width.
  [[nodiscard]] std::span<const std::int32_t> narrow() const {
    return {static_cast<const std::int32_t*>(data_), is_wide_ ? 0 : size_};
  }
  [[nodiscard]] std::span<const std::int64_t> wide() const {
    return {static_cast<const std::int64_t*>(data_), is_wide_ ? size_ : 0};
  }

 private:
  const void* data_ = nullptr;
  std::size_t size_ = 0;
  bool is_wide_ = false;
};

/// A view. Engines on host memory read the arrays while the plan is made, and don't keep them. Engines on devices read
/// them when the stream executes the plan or, in layout `padded`, the dispatch.
struct Routing {
  /// [tokens, topk] logical experts; −1 = dropped. A token names an expert at most once.
  ExpertIds experts = {};
  /// [tokens, topk], finite, or empty for all ones. The weight of a dropped entry is ignored. Engines on devices of one
  /// node do not check that weights are finite.
  std::span<const float> weights = {};
  /// 1 to kMaxTopK.
  std::int32_t topk = 1;
  /// The memory that holds both arrays. An engine on a device copies arrays in other memory, and its host waits for
  /// that.
  Memory memory = Memory::host();

  static constexpr std::int32_t kMaxTopK = 64;

  [[nodiscard]] std::size_t num_tokens() const {
    return topk > 0 ? experts.size() / static_cast<std::size_t>(topk) : 0;
  }
  [[nodiscard]] float weight(std::size_t entry) const { return weights.empty() ? 1.0f : weights[entry]; }
};

}  // namespace shunt
