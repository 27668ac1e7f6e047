// shunt info: what is in this build, what this machine offers and, if asked, how fast it is.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "bench/host_limits.hpp"
#include "bench/machine_speed.hpp"
#include "cli/build_parts.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "core/file.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {
namespace {

struct Arguments {
  bool measure = false;
  std::int32_t ranks = 2;
  std::string json;
};

void run(const Arguments& arguments) {
  bench::check_ranks(arguments.ranks);
  if (!arguments.json.empty()) check_writable(arguments.json);
  const Machine machine = Machine::detect();
  const std::vector<BuildPart> parts = find_build_parts();
  print_build(parts);
  nlohmann::ordered_json report = build_report(parts);
  constexpr double kMiB = 1 << 20;
  const auto cache_mib = static_cast<double>(machine.last_level_cache_bytes) / kMiB;
  const auto memory_gib = static_cast<double>(machine.memory_bytes) / kMiB / 1024;
  fmt::print(
      "\nthis machine\n  host    {}\n  cpu     {}\n  cores   {} in {}, {}\n  cache   {:.0f} "
      "MiB (last level)\n  memory  {:.1f} GiB\n",
      machine.hostname, machine.cpu, machine.cores, plural(machine.packages, "package"),
      plural(machine.numa_nodes, "NUMA node"), cache_mib, memory_gib);
  report["machine"] = {{"host", machine.hostname},
                       {"cpu", machine.cpu},
                       {"cores", machine.cores},
                       {"packages", machine.packages},
                       {"numa_nodes", machine.numa_nodes},
                       {"last_level_cache_bytes", machine.last_level_cache_bytes},
                       {"last_level_caches", machine.last_level_caches},
                       {"memory_bytes", machine.memory_bytes}};

  if (arguments.measure) {
    flush_stdout();
    const bench::MachineSpeed speed = bench::measure_machine(arguments.ranks);
    fmt::print(
        "\nmeasured with {} as processes, all at once\n  copy    {:.1f} GB/s read + written ({:.1f} memcpy, "
        "{:.1f} streaming)\n"
        "  write   {:.1f} GB/s\n  read    {:.1f} GB/s\n  barrier {:.1f} µs between the ranks\n",
        plural(arguments.ranks, "rank"), std::max(speed.memcpy_gbps, speed.streaming_gbps), speed.memcpy_gbps,
        speed.streaming_gbps, speed.write_gbps, speed.read_gbps, speed.barrier_us);
    report["measured"] = {
        {"ranks", arguments.ranks},       {"memcpy_gbps", speed.memcpy_gbps}, {"streaming_gbps", speed.streaming_gbps},
        {"write_gbps", speed.write_gbps}, {"read_gbps", speed.read_gbps},     {"barrier_us", speed.barrier_us}};
  }
  if (!arguments.json.empty()) write_file(arguments.json, report.dump(2) + "\n");
}

}  // namespace

void add_info(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* info = app.add_subcommand("info", "What is in this build and what this machine offers");
  info->add_flag("--measure", arguments->measure,
                 "Also measure copy rates and the time of a barrier between ranks (takes seconds)");
  info->add_option("--ranks", arguments->ranks, "Ranks that measure at once")->capture_default_str();
  info->add_option("--json", arguments->json, "Write all of it to this file");
  info->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
