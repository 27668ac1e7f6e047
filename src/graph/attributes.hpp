// An op's constants, by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "graph/type.hpp"

namespace shunt::graph {

using Attribute = std::variant<std::int64_t, double, std::string, std::vector<DimId>>;

class Attributes {
 public:
  using Entry = std::pair<std::string, Attribute>;

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries);

  void set(std::string name, Attribute value);
  [[nodiscard]] const Attribute* find(std::string_view name) const;
  /// Sorted by name.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  // The verifier has checked that the attributes that an op's table row requires exist and have the right kind.
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t fallback = 0) const;
  [[nodiscard]] double real(std::string_view name, double fallback = 0) const;
  [[nodiscard]] std::string_view text(std::string_view name) const;
  [[nodiscard]] const std::vector<DimId>& dims(std::string_view name) const;

  bool operator==(const Attributes&) const = default;

 private:
  std::vector<Entry> entries_;
};

}  // namespace shunt::graph
