#include "bench/selftest/choose.hpp"

#include <algorithm>
#include <numeric>

#include "bench/selftest/system_files.hpp"
#include "core/comma_list.hpp"
#include "core/fail.hpp"

namespace shunt::bench::selftest {
namespace {

std::vector<std::int32_t> chosen_devices(const std::string& words, const BusFacts& bus) {
  const auto count = static_cast<std::int32_t>(bus.gpus.size());
  if (words == "none") return {};
  if (words == "first") return count > 0 ? std::vector<std::int32_t>{0} : std::vector<std::int32_t>{};
  std::vector<std::int32_t> chosen;
  if (words == "all") {
    chosen.resize(bus.gpus.size());
    std::iota(chosen.begin(), chosen.end(), 0);
    return chosen;
  }
  for (const std::string& item : items_of(words)) {
    const auto index = number_in(item);
    if (!index || std::to_string(*index) != item)
      fail(ErrorCode::invalid_argument, "--devices {}: expected none, first, all, or indices such as 0,2", words);
    if (*index < 0 || *index >= count)
      fail(ErrorCode::invalid_argument, "--devices {}: there is no GPU {}, only {}{}{}", words, *index, count,
           bus.why_no_gpus.empty() ? "" : ": ", bus.why_no_gpus);
    if (std::ranges::find(chosen, *index) == chosen.end()) chosen.push_back(*index);
  }
  if (chosen.empty())
    fail(ErrorCode::invalid_argument, "--devices '{}': expected none, first, all, or indices such as 0,2", words);
  return chosen;
}

bool has_several_processes(Way way) { return way == Way::processes || way == Way::tcp || way == Way::ucx; }

/// Empty if the ranks can be joined so.
std::string why_not(Way way, const Obstacles& obstacles) {
  if (way == Way::tcp || way == Way::ucx)
    if (!obstacles.far_processes.empty()) return obstacles.far_processes;
  return way == Way::ucx ? obstacles.ucx : "";
}

std::string why_not_on(const std::vector<std::int32_t>& devices, Way way, std::int32_t most_ranks,
                       const BusFacts& bus) {
  const auto gpu = [&](std::int32_t index) -> const DeviceFacts& {
    return bus.gpus[static_cast<std::size_t>(index)].facts;
  };
  const bool is_shared = most_ranks > static_cast<std::int32_t>(devices.size());
  for (const std::int32_t device : devices)
    if (is_shared && has_several_processes(way) && gpu(device).compute_mode == "exclusive_process")
      return fmt::format("GPU {} is in compute mode exclusive_process, in which processes can't share it", device);
  if (way != Way::threads && way != Way::processes) return "";
  for (const std::int32_t a : devices)
    for (const std::int32_t b : devices)
      if (a != b && std::ranges::find(gpu(a).peers, b) == gpu(a).peers.end())
        return fmt::format("GPU {} can't reach the memory of GPU {}", a, b);
  return "";
}

Verdict without(const std::string& link, Status status, const std::string& why) {
  return {.link = link, .status = status, .why = why};
}

}  // namespace

Choice choose_links(const Wanted& wanted, const BusFacts& bus, const Obstacles& obstacles) {
  const std::vector<std::int32_t> devices = chosen_devices(wanted.devices, bus);
  Choice choice;
  std::vector<Way> ways;
  for (const Way way : wanted.ways) {
    Link link{.way = way, .rank_counts = wanted.rank_counts};
    if (const std::string why = why_not(way, obstacles); !why.empty()) {
      choice.without.push_back(without(link.name(), Status::skipped, why));
      continue;
    }
    ways.push_back(way);
    choice.links.push_back(std::move(link));
  }
  const auto add = [&](const std::vector<std::int32_t>& chosen, const std::vector<std::int32_t>& rank_counts) {
    for (const Way way : ways) {
      Link link{.way = way, .devices = chosen, .rank_counts = rank_counts};
      const std::string why = why_not_on(chosen, way, std::ranges::max(rank_counts), bus);
      if (why.empty())
        choice.links.push_back(std::move(link));
      else
        choice.without.push_back(without(link.name(), Status::skipped, why));
    }
  };
  for (const std::int32_t device : devices) add({device}, wanted.rank_counts);
  if (devices.size() > 1) add(devices, {static_cast<std::int32_t>(devices.size())});

  if (wanted.devices == "none" || !devices.empty()) return choice;
  const std::string why = bus.why_no_gpus.empty() ? "CUDA finds none" : bus.why_no_gpus;
  if (bus.has_gpu())
    choice.without.push_back(
        without("gpus", Status::failed, fmt::format("{} here, but can't be used: {}", bus.gpu_files, why)));
  else
    choice.without.push_back(without("gpus", Status::skipped, fmt::format("no GPU was found: {}", why)));
  return choice;
}

}  // namespace shunt::bench::selftest
