#include "placement/swap_tables.hpp"

#include <algorithm>

namespace shunt::placement {

SwapTables::SwapTables(const RoutedTokens& tokens, std::size_t num_items, std::size_t num_groups)
    : num_items_(num_items), num_groups_(num_groups), first_item_{0}, first_token_(num_items + 1) {
  for (std::size_t token = 0; token < tokens.num_tokens(); ++token) {
    for (const std::uint16_t expert : tokens.experts_of(token))
      if (expert != RoutedTokens::kDropped) items_.push_back(expert);
    first_item_.push_back(static_cast<std::uint32_t>(items_.size()));
  }
  for (const std::uint16_t item : items_) ++first_token_[item + 1u];
  for (std::size_t item = 0; item < num_items; ++item) first_token_[item + 1] += first_token_[item];
  tokens_.resize(items_.size());
  std::vector<std::uint32_t> next(first_token_.begin(), first_token_.end() - 1);
  for (std::size_t token = 0; token + 1 < first_item_.size(); ++token)
    for (const std::uint16_t item : items_of(token)) tokens_[next[item]++] = static_cast<std::uint32_t>(token);
}

void SwapTables::assign(std::span<const std::int32_t> group_of) {
  const std::size_t num_tokens = first_item_.size() - 1;
  group_of_.assign(group_of.begin(), group_of.end());
  count_.assign(num_tokens * num_groups_, 0);
  entering_.assign(num_items_ * num_groups_, 0);
  leaving_.assign(num_items_, 0);
  alone_.assign(num_items_ * num_items_, 0);
  touching_.assign(num_groups_, 0);
  total_ = 0;
  for (std::size_t token = 0; token < num_tokens; ++token) {
    const auto items = items_of(token);
    std::uint8_t* const count = &count_[token * num_groups_];
    for (const std::uint16_t item : items) ++count[index(group_of_[item])];
    for (std::size_t group = 0; group < num_groups_; ++group) {
      if (count[group] == 0) {
        for (const std::uint16_t item : items) ++entering_[item * num_groups_ + group];
      } else {
        ++touching_[group];
        ++total_;
      }
    }
    for (const std::uint16_t item : items)
      if (count[index(group_of_[item])] == 1) set_alone(items, item, 1);
  }
}

void SwapTables::set_alone(std::span<const std::uint16_t> of_token, std::size_t item, std::int32_t sign) {
  leaving_[item] += sign;
  std::int32_t* const with = &alone_[item * num_items_];
  for (const std::uint16_t other : of_token) with[other] += sign;
}

void SwapTables::move(std::size_t item, std::int32_t to) {
  const std::size_t from_group = index(group_of_[item]);
  const std::size_t to_group = index(to);
  const auto other_in = [&](std::span<const std::uint16_t> items, std::size_t group) {
    return *std::find_if(items.begin(), items.end(),
                         [&](std::uint16_t each) { return each != item && index(group_of_[each]) == group; });
  };
  for (std::uint32_t i = first_token_[item]; i < first_token_[item + 1]; ++i) {
    const std::uint32_t token = tokens_[i];
    const auto items = items_of(token);
    std::uint8_t* const count = &count_[token * num_groups_];
    if (count[from_group] == 1) {
      set_alone(items, item, -1);
      --touching_[from_group];
      --total_;
      for (const std::uint16_t each : items) ++entering_[each * num_groups_ + from_group];
    } else if (count[from_group] == 2) {
      set_alone(items, other_in(items, from_group), 1);
    }
    --count[from_group];
    if (count[to_group] == 0) {
      set_alone(items, item, 1);
      ++touching_[to_group];
      ++total_;
      for (const std::uint16_t each : items) --entering_[each * num_groups_ + to_group];
    } else if (count[to_group] == 1) {
      set_alone(items, other_in(items, to_group), -1);
    }
    ++count[to_group];
  }
  group_of_[item] = to;
}

void SwapTables::swap(std::size_t a, std::size_t b) {
  const std::int32_t group_of_a = group_of_[a];
  move(a, group_of_[b]);
  move(b, group_of_a);
}

}  // namespace shunt::placement
