// The fixed cost of an operation: dispatches of one short row per pair of ranks, with 1, 100 and 4,000 tickets
// outstanding. Usage: bench_operations [ranks [inproc|shm]]. Compare figures of one run only.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "shunt/engine.hpp"
#include "shunt/world.hpp"

namespace {

using namespace shunt;

constexpr int kOutstanding[] = {1, 100, 4000};
constexpr int kOperations = 8000;  // per figure and round
constexpr int kTurns = 5;          // every round measures all figures; the median is reported

/// Time in µs; the ranks begin together.
double time_per_operation(World& world, Engine& engine, const Plan& plan, const Tensor& x, int outstanding,
                          int operations) {
  std::vector<Ticket<Rows>> tickets;
  tickets.reserve(static_cast<std::size_t>(outstanding));
  world.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int issued = 0; issued < operations; issued += outstanding) {
    for (int i = 0; i < outstanding; ++i) tickets.push_back(engine.dispatch(plan, x));
    for (auto& ticket : tickets) (void)ticket.wait();
    tickets.clear();
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / operations;
}

void run(World& world) {
  const std::int32_t ranks = world.size();
  Engine engine(world, {.hidden = 16, .dtype = f32});
  std::vector<std::int32_t> experts;
  for (std::int32_t rank = 0; rank < ranks; ++rank) experts.push_back(rank);
  const Plan plan = engine.plan({experts, {}, 1}, ExpertMap::contiguous(ranks, ranks));
  const Tensor x = world.allocate(f32, ranks, 16);
  std::fill_n(x.data, x.bytes(), std::byte{});
  const int operations = ranks > 8 ? kOperations / 2 : kOperations;
  std::vector<double> us[std::size(kOutstanding)];
  for (int turn = 0; turn <= kTurns; ++turn)
    for (std::size_t i = 0; i < std::size(kOutstanding); ++i) {
      const double took = time_per_operation(world, engine, plan, x, kOutstanding[i], operations);
      if (turn > 0) us[i].push_back(took);  // the first one warms up
    }
  if (world.rank() != RankId(0)) return;
  std::printf("%12s %12s\n", "outstanding", "us/operation");
  for (std::size_t i = 0; i < std::size(kOutstanding); ++i) {
    std::ranges::nth_element(us[i], us[i].begin() + kTurns / 2);
    std::printf("%12d %12.2f\n", kOutstanding[i], us[i][kTurns / 2]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const bool processes = argc > 2 && std::string_view(argv[2]) == "shm";
  shunt::World::spawn(ranks, run, {.kind = processes ? shunt::WorldKind::shm : shunt::WorldKind::inproc});
}
