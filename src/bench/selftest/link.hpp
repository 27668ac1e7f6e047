// What joins the ranks of a check, and where their rows are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/selftest/check.hpp"
#include "shunt/world.hpp"

namespace shunt::bench::selftest {

enum class Way : std::uint8_t {
  threads,    ///< of one process
  processes,  ///< that map each other's memory
  islands,    ///< threads of nodes that share no memory
  tcp,        ///< processes of nodes that share no memory, over the loopback interface
  ucx,        ///< the same by UCX: over this machine's RDMA devices, or over the loopback interface where it has none
};

inline constexpr std::array kWays = {Way::threads, Way::processes, Way::islands, Way::tcp, Way::ucx};

std::string_view to_string(Way way);
std::string_view explain(Way way);

struct Link {
  Way way = Way::threads;
  /// Rank r has its rows on the r-th of these, counted round; none: in host memory.
  std::vector<std::int32_t> devices = {};
  std::vector<std::int32_t> rank_counts = {};

  /// "tcp", "gpu 0, tcp", "gpus 0-3, tcp", "gpus 0,2, tcp".
  [[nodiscard]] std::string name() const;
  /// Its nodes share no memory.
  [[nodiscard]] bool is_far() const { return way == Way::islands || way == Way::tcp || way == Way::ucx; }
  [[nodiscard]] EngineKind kind() const;
  /// One for two ranks that are near, so that sums without nodes are checked too; else two.
  [[nodiscard]] std::int32_t nodes_of(std::int32_t ranks) const { return ranks > 2 || (ranks > 1 && is_far()) ? 2 : 1; }
  [[nodiscard]] Place place_of(RankId rank) const;
};

/// Runs body(world) on so many ranks of the link. Throws as World::spawn does. A rank that does not come or answer is
/// given up after `deadline`.
void spawn(const Link& link, std::int32_t ranks, std::chrono::milliseconds deadline,
           const std::function<void(World&)>& body);

/// All (layout, dtype, variant, ranks) that the link is checked with, in the order in which they are: layouts in turn.
[[nodiscard]] std::vector<CaseKey> cases_of(const Link& link);

/// What the link's kind can't do in a layout, which is not checked, as the table of docs/errors.md calls it.
[[nodiscard]] std::vector<std::string> not_offered(const Link& link, Layout layout);
/// False: nothing of the layout.
[[nodiscard]] bool offers(const Link& link, Layout layout);

}  // namespace shunt::bench::selftest
