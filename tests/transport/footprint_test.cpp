// What a world costs: memory for its live outputs plus 64 MiB, by its own count and by the kernel's, and no CPU time
// while nothing happens.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "shunt/engine.hpp"
#include "shunt/world.hpp"
#include "support/eventually.hpp"
#include "support/require.hpp"
#include "support/round_trip.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kReserve = 64 * kMiB;

/// What the kernel holds for this rank's own segment.
std::size_t bytes_in_kernel(RankId rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const auto target = std::filesystem::read_symlink(entry.path(), ignored).string();
    struct stat status {};
    if (target.starts_with(fmt::format("/memfd:shunt-rank-{} ", rank.value)) &&
        stat(entry.path().c_str(), &status) == 0)
      return static_cast<std::size_t>(status.st_blocks) * 512;
  }
  throw std::runtime_error("this rank has no segment");
}

void require_within_bounds(const World& world, bool in_kernel) {
  require(world.committed_bytes() <= world.live_bytes() + kReserve,
          fmt::format("{} committed for {} live", world.committed_bytes(), world.live_bytes()));
  if (!in_kernel) return;
  const std::size_t real = bytes_in_kernel(world.rank());
  require(real == world.committed_bytes(),
          fmt::format("the kernel holds {} bytes, the world counts {}", real, world.committed_bytes()));
}

void hold_and_release(World& world, bool in_kernel) {
  constexpr std::int64_t kTokens = 2049;  // as many for each of three ranks
  constexpr std::int64_t kHidden = 2048;  // a shuffle brings 16 MiB
  Engine engine(world, {.hidden = kHidden, .dtype = f32});
  std::vector<std::int32_t> experts(kTokens);
  for (std::size_t token = 0; token < experts.size(); ++token)
    experts[token] = static_cast<std::int32_t>(token) % world.size();
  const Plan plan = engine.plan({experts, {}, 1}, ExpertMap::contiguous(world.size(), world.size()));
  const std::vector<float> x(kTokens * kHidden, 1.0f);

  std::vector<Rows> held;
  for (int i = 0; i < 10; ++i) {
    held.push_back(engine.dispatch(plan, borrow(x.data(), f32, kTokens, kHidden)).wait());
    require(world.live_bytes() >= held.size() * 16 * kMiB, "outputs that are held are live");
    require_within_bounds(world, in_kernel);
  }
  while (!held.empty()) {
    held.pop_back();
    if (held.size() % 5 != 0) continue;
    world.barrier();
    // Freed memory stays warm for a moment.
    (void)eventually([&] { return world.committed_bytes() <= world.live_bytes() + kReserve; });
    require_within_bounds(world, in_kernel);
  }
  require(world.live_bytes() < kMiB, "nothing is live once all is released");
}

TEST(Footprint, OfThreadsIsTheLiveOutputsPlusTheReserve) {
  World::spawn(3, [](World& world) { hold_and_release(world, false); });
}

TEST(Footprint, OfProcessesIsTheLiveOutputsPlusTheReserveAlsoByTheKernelsCount) {
  World::spawn(3, [](World& world) { hold_and_release(world, true); }, {.kind = WorldKind::shm});
}

// One wake-up, to see whether there is memory to give back, is all that may happen.
void require_idle(World& world) {
  round_trip(world);
  world.barrier();
  std::this_thread::sleep_for(200ms);        // until all ranks are idle
  const std::clock_t before = std::clock();  // CPU time of all threads of this process
  std::this_thread::sleep_for(1500ms);
  const double used_ms = 1e3 * static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  require(used_ms < 10, fmt::format("an idle rank uses no CPU time, not {} ms", used_ms));
}

/// Libraries that this process has loaded, of these.
std::vector<std::string> loaded(const std::vector<std::string>& names) {
  std::vector<std::string> found;
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  for (const std::string& name : names)
    if (text.find("/" + name + ".so") != std::string::npos) found.push_back(name);
  return found;
}

TEST(World, OfOneMachineLoadsNoLibraryOfANetworkOrALauncher) {
  World::spawn(
      2,
      [](World& world) {
        round_trip(world);
        // hwloc is loaded, as it gives the sizes of caches.
        const auto found = loaded({"libucp", "libucs", "libpmix", "libfmt", "libcrypto", "libcuda", "libnccl"});
        require(found.empty(), fmt::format("what is not used is not loaded: {}", fmt::join(found, ", ")));
      },
      {.kind = WorldKind::shm});
}

TEST(IdleWorld, OfThreadsUsesNoCpuTime) { World::spawn(3, require_idle); }

TEST(IdleWorld, OfProcessesUsesNoCpuTime) { World::spawn(3, require_idle, {.kind = WorldKind::shm}); }

}  // namespace
}  // namespace shunt::test
