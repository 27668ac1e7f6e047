// Lists of numbers in reports, each of which is checked.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <limits>
#include <string>
#include <vector>

#include "core/json_fields.hpp"

namespace shunt::cli {

inline constexpr double kMostFigure = 1e9;
inline constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();

/// Throws Error(invalid_argument) with `key`, and the index of a wrong number, unless `list` consists of `size` numbers
/// from `least` to `most`.
template <class Number>
std::vector<Number> read_numbers(const JsonFields& fields, const std::string& key, const nlohmann::json& list,
                                 std::size_t size, Number least, Number most) {
  if (!list.is_array()) fields.refuse(key, "expected a list");
  if (size != kAnySize && list.size() != size)
    fields.refuse(key, fmt::format("{} numbers, expected {}", list.size(), size));
  std::vector<Number> numbers;
  numbers.reserve(list.size());
  for (const nlohmann::json& number : list) {
    const bool is_kind = std::integral<Number> ? number.is_number_unsigned() : number.is_number();
    if (!is_kind || !(number.get<Number>() >= least && number.get<Number>() <= most))
      fields.refuse(
          fmt::format("{}[{}]", key, numbers.size()),
          fmt::format("expected a {}number from {} to {}", std::integral<Number> ? "whole " : "", least, most));
    numbers.push_back(number.get<Number>());
  }
  return numbers;
}

}  // namespace shunt::cli
