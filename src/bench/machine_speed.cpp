#include "bench/machine_speed.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "core/fail.hpp"
#include "kernels/copy.hpp"
#include "shunt/machine.hpp"

namespace shunt::bench {
namespace {

constexpr std::size_t kRow = 4096;

/// Three times a last-level cache per rank; many ranks share twelve times all caches.
std::size_t buffer_bytes(std::int32_t num_ranks) {
  const Machine machine = Machine::detect();
  const std::size_t most = std::max<std::size_t>(64 << 20, 3 * machine.last_level_cache_bytes);
  const std::size_t share =
      4 * most * static_cast<std::size_t>(machine.last_level_caches) / static_cast<std::size_t>(num_ranks);
  return std::max(std::min(most, share) / kRow, std::size_t{1}) * kRow;
}

constexpr int kRepetitions = 9;
constexpr int kBarriers = 200;

MachineSpeed measure_rank(World& world) {
  Ceilings ceilings(world.size());
  Timings timings;
  for (int i = 0; i <= kRepetitions; ++i) {
    if (i == 1) timings.clear();  // the first repetition touches the pages
    ceilings.measure_once(world, timings);
  }
  for (int i = 0; i < kBarriers; ++i) timings.time(world, "barrier", [&] { world.barrier(); });
  timings.take_slowest(world);
  MachineSpeed speed = ceilings.speed(timings);
  speed.barrier_us = timings.median("barrier") * 1e3;
  return speed;
}

constexpr double kMicrosecond = 1e-6, kGiga = 1e9;

/// FLOP/s of a plain matrix product that fits the caches; libraries are faster.
double measure_flops() {
  constexpr std::size_t kSize = 256;
  std::vector<float> a(kSize * kSize, 1.0f), b(kSize * kSize, 0.5f), c(kSize * kSize, 0.0f);
  using Clock = std::chrono::steady_clock;
  double best_s = 1e9;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < kSize; ++i)
      for (std::size_t k = 0; k < kSize; ++k) {
        const float factor = a[i * kSize + k];
        for (std::size_t j = 0; j < kSize; ++j) c[i * kSize + j] += factor * b[k * kSize + j];
      }
    best_s = std::min(best_s, std::chrono::duration<double>(Clock::now() - start).count());
    a[static_cast<std::size_t>(repeat)] = c[0];  // so that the compiler can't remove a repetition
  }
  return 2.0 * kSize * kSize * kSize / best_s;
}

}  // namespace

Ceilings::Ceilings(std::int32_t num_ranks)
    : num_ranks_(num_ranks), bytes_(buffer_bytes(num_ranks)), from_(bytes_, std::byte{1}), to_(bytes_, std::byte{2}) {}

std::size_t Ceilings::bytes_per_rank(std::int32_t num_ranks) { return 2 * buffer_bytes(num_ranks); }

void Ceilings::measure_once(World& world, Timings& timings) {
  timings.time_together(world, "memcpy", [&] { std::memcpy(to_.data(), from_.data(), bytes_); });
  timings.time_together(world, "streaming copy", [&] { copy_streaming(); });
  timings.time_together(world, "write", [&] { write_streaming(); });
  timings.time_together(world, "read", [&] { read(); });
}

MachineSpeed Ceilings::speed(const Timings& timings) const {
  const auto gbps = [&](std::size_t bytes_per_rank, const char* name) {
    return static_cast<double>(bytes_per_rank) * num_ranks_ / timings.median(name) / 1e6;
  };
  return {.memcpy_gbps = gbps(2 * bytes_, "memcpy"),
          .streaming_gbps = gbps(2 * bytes_, "streaming copy"),
          .write_gbps = gbps(bytes_, "write"),
          .read_gbps = gbps(bytes_, "read")};
}

void Ceilings::copy_streaming() {
  std::byte* target = to_.data();
  copy_row(from_.data(), bytes_, std::span(&target, 1), Store::streaming);
  flush_streaming();
}

void Ceilings::write_streaming() {
  for (std::size_t offset = 0; offset < bytes_; offset += kRow) {
    std::byte* target = to_.data() + offset;
    copy_row(from_.data(), kRow, std::span(&target, 1), Store::streaming);
  }
  flush_streaming();
}

void Ceilings::read() {
  // Several accumulators, so that loads, not additions, are the limit.
  std::uint64_t sums[8] = {};
  std::uint64_t words[8];
  for (std::size_t offset = 0; offset < bytes_; offset += sizeof(words)) {
    std::memcpy(words, from_.data() + offset, sizeof(words));
    for (std::size_t i = 0; i < 8; ++i) sums[i] += words[i];
  }
  for (const std::uint64_t sum : sums) sink_ += sum;
}

MachineSpeed measure_machine(std::int32_t num_ranks) {
  // The ranks are child processes; they return their result through shared memory.
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

Cluster measure_this_cluster() {
  const Machine machine = Machine::detect();
  Cluster cluster;
  cluster.name = "this";
  cluster.origin = "measured on " + machine.cpu;
  cluster.device = "cpu";
  cluster.ranks_per_node = std::clamp(machine.cores, 1, 8);
  const MachineSpeed speed = measure_machine(cluster.ranks_per_node);
  const double copied = std::max(speed.memcpy_gbps, speed.streaming_gbps) * kGiga / cluster.ranks_per_node;
  cluster.memory_bytes_per_s = copied;
  cluster.near_bytes_per_s = cluster.far_bytes_per_s = copied / 2;  // moving a row reads and writes it
  cluster.f32_flops = cluster.half_flops = measure_flops();
  cluster.all_to_all_s = cluster.all_reduce_s = speed.barrier_us * kMicrosecond;
  cluster.comm_workers = 1;
  return cluster;
}

}  // namespace shunt::bench
