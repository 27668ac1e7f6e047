// What rank 0 and its guests have in common while ranks are missing, whoever carries the messages.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shunt {

// A rank that has found rank 0 waits a little longer than rank 0 does, so that it hears who is missing.
constexpr std::chrono::milliseconds kPatienceWithHost{1000};

inline std::string list_some(const std::vector<std::int32_t>& ranks) {
  constexpr std::size_t kMost = 16;
  const auto some = std::span(ranks).first(std::min(kMost, ranks.size()));
  return fmt::format("{}{}", fmt::join(some, ", "),
                     ranks.size() > kMost ? fmt::format(" and {} more", ranks.size() - kMost) : "");
}

}  // namespace shunt
