#include "cli/info.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/machine_limits.hpp"
#include "bench/machine_speed.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "core/backend.hpp"
#include "core/build.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {
namespace {

enum class Kind {
  linked,   ///< into the program, if the build has it
  backend,  ///< a library of shunt's, loaded on first use
};

struct Known {
  const char* name;
  bool built_in;
  const char* note;
  Kind kind = Kind::linked;
};

constexpr Known kKnown[] = {
    {"inproc", true, "ranks as threads"},
    {"shm", true, "ranks as processes of one machine"},
    {"tcp", true, "ranks of several machines"},
    {"ucx", SHUNT_HAVE_UCX, "ranks of several machines with RDMA", Kind::backend},
    {"pmix", SHUNT_HAVE_PMIX, "joins ranks of several machines under mpirun and srun", Kind::backend},
    {"cuda", SHUNT_HAVE_CUDA, "ranks on GPUs", Kind::backend},
    {"nccl", SHUNT_HAVE_NCCL, "ranks on GPUs of several nodes, if libnccl is installed"},
    {"onednn", SHUNT_HAVE_ONEDNN, "experts on the CPU in `bench layer`; OpenBLAS otherwise"},
    {"mpi", SHUNT_HAVE_MPI, "the baseline of `bench shuffle`, and a launcher"},
};

/// The library that Machine::detect looks for.
BuildPart find_hwloc() {
  BuildPart part{.name = "hwloc", .note = "caches and packages in `shunt info`"};
  part.is_there = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL) != nullptr;
  if (!part.is_there) part.why_not = dlerror();
  return part;
}

}  // namespace

std::vector<BuildPart> find_build_parts() {
  std::vector<BuildPart> parts;
  for (const Known& known : kKnown) {
    BuildPart part{.name = known.name, .note = known.note, .is_there = known.built_in};
    if (known.built_in && known.kind == Kind::backend) part.why_not = load_backend(known.name).why_not;
    part.is_there = part.is_there && part.why_not.empty();
    parts.push_back(std::move(part));
  }
  parts.push_back(find_hwloc());
  return parts;
}

const BuildPart& part_of(const std::vector<BuildPart>& parts, const std::string& name) {
  const auto found = std::ranges::find(parts, name, &BuildPart::name);
  SHUNT_CHECK(found != parts.end());
  return *found;
}

void print_build(const std::vector<BuildPart>& parts) {
  fmt::print("shunt {} (build {})\n\nin this build\n", SHUNT_VERSION, build_id());
  for (const BuildPart& part : parts)
    fmt::print("  {:<8}{:<5}{}{}{}\n", part.name, part.is_there ? "yes" : "no", part.note,
               part.why_not.empty() ? "" : ": ", part.why_not);
}

nlohmann::ordered_json build_report(const std::vector<BuildPart>& parts) {
  nlohmann::ordered_json report;
  report["version"] = SHUNT_VERSION;
  report["build_id"] = build_id();
  for (const BuildPart& part : parts) report["build"][part.name] = part.is_there;
  return report;
}

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
  CLI::App* info = app.add_subcommand("info", "The parts of this build and the properties of this machine");
  info->add_flag("--measure", arguments->measure,
                 "Also measure copy rates and the time of a barrier between ranks (takes seconds)");
  info->add_option("--ranks", arguments->ranks, "Ranks that measure at the same time")->capture_default_str();
  info->add_option("--json", arguments->json, "Write the results to this file");
  info->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
