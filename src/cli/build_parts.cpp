#include "cli/build_parts.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/backend.hpp"
#include "core/build.hpp"
#include "core/fail.hpp"

namespace shunt::cli {
namespace {

enum class Kind {
  linked,   ///< or left out
  backend,  ///< a library of shunt's, loaded when it is used
};

struct Known {
  const char* name;
  bool built_in;
  const char* note;
  Kind kind = Kind::linked;
};

constexpr Known kKnown[] = {
    {"inproc", true, "ranks as threads"},
    {"shm", true, "ranks as processes of one host"},
    {"tcp", true, "ranks of several hosts"},
    {"ucx", SHUNT_HAVE_UCX, "ranks of several hosts with RDMA", Kind::backend},
    {"pmix", SHUNT_HAVE_PMIX, "how mpirun and srun tell ranks of several hosts where rank 0 is", Kind::backend},
    {"cuda", SHUNT_HAVE_CUDA, "ranks on GPUs", Kind::backend},
    {"nccl", SHUNT_HAVE_NCCL, "ranks on GPUs of several nodes, where libnccl is installed"},
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

}  // namespace shunt::cli
