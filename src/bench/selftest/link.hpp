// Links: how the ranks of a check are joined and where their rows are; which links this machine has; verdicts on links.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/selftest/check.hpp"
#include "bench/selftest/facts.hpp"
#include "shunt/world.hpp"

namespace shunt::bench::selftest {

enum class LinkType : std::uint8_t {
  threads,    ///< threads of one process
  processes,  ///< processes that map each other's memory
  islands,    ///< threads of nodes that share no memory
  tcp,        ///< processes of nodes that share no memory, over the loopback interface
  ucx,        ///< the same by UCX: over this machine's RDMA devices, or the loopback interface if it has none
};

inline constexpr std::array kLinkTypes = {LinkType::threads, LinkType::processes, LinkType::islands, LinkType::tcp,
                                          LinkType::ucx};

std::string_view to_string(LinkType type);
std::string_view explain(LinkType type);

struct Link {
  LinkType type = LinkType::threads;
  /// Rank r has its rows on device r modulo the number of devices; empty: in host memory.
  std::vector<std::int32_t> devices = {};
  std::vector<std::int32_t> rank_counts = {};

  /// "tcp", "gpu 0, tcp", "gpus 0-3, tcp", "gpus 0,2, tcp".
  [[nodiscard]] std::string name() const;
  /// True if nodes share no memory.
  [[nodiscard]] bool is_far() const {
    return type == LinkType::islands || type == LinkType::tcp || type == LinkType::ucx;
  }
  [[nodiscard]] EngineKind engine_kind() const;
  /// One node for two ranks that share memory, so that sums within a node are checked too; otherwise two.
  [[nodiscard]] std::int32_t nodes_of(std::int32_t ranks) const { return ranks > 2 || (ranks > 1 && is_far()) ? 2 : 1; }
  [[nodiscard]] Place place_of(RankId rank) const;
};

/// Runs body(world) on that many ranks of the link. Throws like World::spawn. `deadline` limits joining and operations.
void spawn(const Link& link, std::int32_t ranks, std::chrono::milliseconds deadline,
           const std::function<void(World&)>& body);

/// All (layout, dtype, variant, ranks) that the link is checked with, in order; layouts alternate.
[[nodiscard]] std::vector<CaseKey> cases_of(const Link& link);

/// Features of a layout that the link's kind of engine lacks, which are not checked; named as in docs/errors.md.
[[nodiscard]] std::vector<std::string> not_offered(const Link& link, Layout layout);
/// False if the kind of engine lacks the layout.
[[nodiscard]] bool offers(const Link& link, Layout layout);

enum class Status : std::uint8_t {
  ok,           ///< all cases agree with the reference
  failed,       ///< a case differs, or an Error ended it
  incomplete,   ///< no case differs, but the time was not sufficient for all
  not_offered,  ///< this kind of engine can't do it, as documented
  skipped,      ///< the machine lacks what it needs
};

std::string_view to_string(Status status);

/// The result of one layout on one link, or of a whole link.
struct Verdict {
  std::string link;
  std::string layout = {};  ///< empty: the whole link
  Status status = Status::ok;
  std::int32_t num_cases = 0;  ///< in total
  std::int32_t num_ok = 0;
  std::int32_t num_failed = 0;
  std::int32_t num_comparisons = 0;
  double seconds = 0;
  std::string why = {};                       ///< the first difference or Error, or why it was not checked
  std::vector<std::string> not_offered = {};  ///< features that this kind of engine lacks
};

/// True if no verdict is failed or incomplete.
[[nodiscard]] bool is_fine(const std::vector<Verdict>& verdicts);

struct LinkRequest {
  std::vector<LinkType> types = {kLinkTypes.begin(), kLinkTypes.end()};
  std::vector<std::int32_t> rank_counts = {2, 4};
  std::string devices = "first";  ///< "none", "first", "all", or indices: "0,2"
};

struct Obstacles {
  std::string far_processes = {};  ///< why spawn_far_processes() can't work; empty: it can
  std::string ucx = {};            ///< why UCX can't be used; empty: it can
};

struct LinkChoice {
  std::vector<Link> links = {};
  std::vector<Verdict> verdicts =
      {};  ///< on links that can't be checked: skipped, or failed if a GPU exists but can't be used
};

/// Returns links in host memory, then for each requested device links with all ranks on it, then, with several devices,
/// links with one rank per device. Throws Error(invalid_argument) if `devices` is malformed or names a missing device.
[[nodiscard]] LinkChoice choose_links(const LinkRequest& request, const BusFacts& bus, const Obstacles& obstacles);

}  // namespace shunt::bench::selftest
