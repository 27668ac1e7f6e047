#include "cli/machine_speed.hpp"

#include <sys/mman.h>

#include "cli/ceilings.hpp"
#include "cli/timings.hpp"
#include "core/fail.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {
namespace {

constexpr int kRepetitions = 9;
constexpr int kBarriers = 200;

MachineSpeed measure_rank(World& world) {
  Ceilings ceilings(world.size());
  Timings timings;
  std::size_t copied = 0;
  std::size_t written = 0;
  std::size_t read = 0;
  for (int i = 0; i <= kRepetitions; ++i) {
    if (i == 1) timings.clear();  // the first touches the pages
    timings.time_together(world, "memcpy", [&] { copied = ceilings.copy_with_memcpy(); });
    timings.time_together(world, "streaming", [&] { ceilings.copy_streaming(); });
    timings.time_together(world, "write", [&] { written = ceilings.write_streaming(); });
    timings.time_together(world, "read", [&] { read = ceilings.read(); });
  }
  for (int i = 0; i < kBarriers; ++i) timings.time(world, "barrier", [&] { world.barrier(); });
  timings.take_slowest(world);
  const auto gbps = [&](std::size_t bytes, const char* name) {
    return static_cast<double>(bytes) * world.size() / timings.median(name) / 1e6;
  };
  return {gbps(copied, "memcpy"), gbps(copied, "streaming"), gbps(written, "write"), gbps(read, "read"),
          timings.median("barrier") * 1e3};
}

}  // namespace

MachineSpeed measure_machine(std::int32_t num_ranks) {
  // The ranks are children of this process; their result comes back through memory that they share with it.
  void* memory = mmap(nullptr, sizeof(MachineSpeed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_errno("mmap");
  auto* shared = new (memory) MachineSpeed;
  World::spawn(num_ranks,
               [&](World& world) {
                 const MachineSpeed speed = measure_rank(world);
                 if (world.rank().value == 0) *shared = speed;
               },
               {.kind = WorldKind::shm});
  const MachineSpeed result = *shared;
  munmap(memory, sizeof(MachineSpeed));
  return result;
}

}  // namespace shunt::cli
