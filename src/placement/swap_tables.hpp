// The number of tokens that touch each group of experts, and its exact change for every possible swap of two experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "placement/routed_tokens.hpp"

namespace shunt::placement {

/// Items are experts and, after them, vacancies: items without tokens, so that moving an expert to a free place is a
/// swap too. A group is a rank or a node. The tables hold the effect of each item's leaving and entering; a swap
/// updates them for the tokens of its two items only.
class SwapTables {
 public:
  SwapTables(const RoutedTokens& tokens, std::size_t num_items, std::size_t num_groups);

  /// group_of: [items].
  void assign(std::span<const std::int32_t> group_of);
  [[nodiscard]] std::span<const std::int32_t> groups() const { return group_of_; }
  [[nodiscard]] std::int32_t group(std::size_t item) const { return group_of_[item]; }

  /// Tokens that touch each group; the sum over groups is C_T times the number of tokens.
  [[nodiscard]] std::span<const std::int64_t> touching() const { return touching_; }
  [[nodiscard]] std::int64_t total() const { return total_; }

  /// The change of touching(), at a's group and at b's, if items a and b of different groups are swapped.
  struct Change {
    std::int32_t at_a, at_b;
  };
  [[nodiscard]] Change change(std::size_t a, std::size_t b) const {
    // A token that needs both continues to touch both groups; if one of them is alone there, it was counted as leaving.
    return {entering_[b * num_groups_ + index(group_of_[a])] - leaving_[a] + alone_[a * num_items_ + b],
            entering_[a * num_groups_ + index(group_of_[b])] - leaving_[b] + alone_[b * num_items_ + a]};
  }

  void swap(std::size_t a, std::size_t b);

 private:
  static std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }
  [[nodiscard]] std::span<const std::uint16_t> items_of(std::size_t token) const {
    return std::span(items_).subspan(first_item_[token], first_item_[token + 1] - first_item_[token]);
  }
  void move(std::size_t item, std::int32_t to);
  void set_alone(std::span<const std::uint16_t> of_token, std::size_t item, std::int32_t sign);

  std::size_t num_items_, num_groups_;
  std::vector<std::uint32_t> first_item_;   // [tokens + 1]
  std::vector<std::uint16_t> items_;        // of each token
  std::vector<std::uint32_t> first_token_;  // [items + 1]
  std::vector<std::uint32_t> tokens_;       // of each item

  std::vector<std::int32_t> group_of_;  // [items]
  std::vector<std::uint8_t> count_;     // [tokens, groups]: the token's items there
  std::vector<std::int32_t> entering_;  // [items, groups]: the item's tokens that don't touch the group
  std::vector<std::int32_t> leaving_;   // [items]: the item's tokens that touch its group only through it
  std::vector<std::int32_t> alone_;     // [items, items]: … and that need the second item too
  std::vector<std::int64_t> touching_;  // [groups]
  std::int64_t total_ = 0;
};

}  // namespace shunt::placement
