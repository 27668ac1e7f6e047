// A world in which nothing happens costs nothing.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "shunt/world.hpp"
#include "support/require.hpp"
#include "support/round_trip.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

/// The CPU time of all threads of this process.
std::chrono::microseconds cpu_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// One wake-up, to see whether there is memory to give back, is all that may happen.
void require_idle(World& world) {
  round_trip(world);
  world.barrier();
  std::this_thread::sleep_for(200ms);  // until all ranks are idle
  const auto before = cpu_time();
  std::this_thread::sleep_for(1500ms);
  const auto used = cpu_time() - before;
  require(used < 10ms, fmt::format("an idle rank uses no CPU time, not {} us", used.count()));
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
