// Measures shuffles between nodes of GPUs. Ranks are those of the launcher or, without one, threads that share a GPU
// and whose nodes are islands. A round trip is checked first. Times are medians over iterations of the slowest rank.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <random>

#include "shunt/engine.hpp"

namespace shunt {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::int32_t ranks = 4;
  std::int32_t nodes = 2;
  std::int64_t tokens = 4096;
  std::int64_t hidden = 7168;
  std::int32_t experts = 64;
  std::int32_t topk = 8;
  int iterations = 10;
  std::size_t batch_bytes = std::size_t{1} << 20;
  std::int32_t batches = 16;
  bool nccl = false;
  bool host = false;
  std::int32_t device = -1;  // as DeviceOptions::index
};

double slowest(World& world, double mine) {
  double most = 0;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    double theirs = 0;
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    most = std::max(most, theirs);
  }
  return most;
}

template <class Work>
double median_ms(World& world, int iterations, const Work& work) {
  std::vector<double> times;
  work();
  for (int i = 0; i < iterations; ++i) {
    world.barrier();
    const auto begin = Clock::now();
    work();
    times.push_back(slowest(world, std::chrono::duration<double, std::milli>(Clock::now() - begin).count()));
  }
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

std::vector<std::int32_t> uniform_routing(const Arguments& arguments, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<std::int32_t> all(static_cast<std::size_t>(arguments.experts)), experts;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
  for (std::int64_t token = 0; token < arguments.tokens; ++token)
    std::sample(all.begin(), all.end(), std::back_inserter(experts), arguments.topk, generator);
  return experts;
}

/// A rank's tokens, multiplied by `factor`. Small integers, so that sums of topk equal values are exact in bf16.
std::vector<std::uint16_t> tokens_of(const Arguments& arguments, RankId rank, std::int32_t factor) {
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(arguments.tokens * arguments.hidden));
  const std::size_t num_values = static_cast<std::size_t>(256 / arguments.topk);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const std::size_t token = i / static_cast<std::size_t>(arguments.hidden);
    const auto value = static_cast<float>((i + 3 * token + 7 * rank.index()) % num_values) * static_cast<float>(factor);
    bits[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
  return bits;
}

/// Checks the result of experts that return their input, without weights: topk times the token.
void check_sums(const Arguments& arguments, RankId rank, const std::vector<std::uint16_t>& sums) {
  if (sums != tokens_of(arguments, rank, arguments.topk))
    throw Error(ErrorCode::internal, fmt::format("rank {}: the sums are wrong", rank.value));
}

struct Times {
  double plan_ms;
  double dispatch_ms;
  double combine_ms;
};

void report(World& world, const Arguments& arguments, const Plan& plan, const Times& times) {
  const auto bytes =
      static_cast<double>(plan.traffic(static_cast<std::size_t>(arguments.hidden) * size_of(bf16)).between_nodes_bytes);
  const auto rate = [&](double ms) { return bytes / ms / 1e6; };
  if (world.rank().value == 0)
    fmt::print(
        "{} ranks on {} nodes, {} tokens each, {:.0f} MB between nodes: plan {:.1f} ms, dispatch {:.2f} ms "
        "({:.2f} GB/s), combine {:.2f} ms ({:.2f} GB/s)\n",
        world.size(), world.topology().num_nodes(), arguments.tokens, bytes / 1e6, times.plan_ms, times.dispatch_ms,
        rate(times.dispatch_ms), times.combine_ms, rate(times.combine_ms));
  world.barrier();
}

Engine make_engine(World& world, const Arguments& arguments) {
  EngineOptions options{.hidden = arguments.hidden, .dtype = bf16};
  if (!arguments.host)
    options.device = DeviceOptions{.index = arguments.device,
                                   .heap_bytes = std::size_t{8} << 30,
                                   .max_tokens = arguments.tokens,
                                   .max_experts = arguments.experts,
                                   .network = arguments.nccl ? DeviceNetwork::nccl : DeviceNetwork::world,
                                   .batch_bytes = arguments.batch_bytes,
                                   .num_batches = arguments.batches};
  return {world, options};
}

void measure(World& world, const Arguments& arguments) {
  if (!arguments.host && world.topology().num_nodes() == 1)
    throw Error(ErrorCode::invalid_argument, "--nodes 1: use `shunt bench shuffle --device cuda` for GPUs of one node");
  Engine engine = make_engine(world, arguments);
  const auto experts = uniform_routing(arguments, world.rank().index());
  const auto tokens = tokens_of(arguments, world.rank(), 1);
  const Tensor routing =
      engine.allocate(f32, arguments.tokens, arguments.topk);  // there is no integer dtype of the same size
  const Tensor x = engine.allocate(bf16, arguments.tokens, arguments.hidden);
  engine.copy(borrow(experts.data(), routing.dtype, routing.rows, routing.cols), routing);
  engine.copy(borrow(tokens.data(), x.dtype, x.rows, x.cols), x);
  const ExpertMap map = ExpertMap::contiguous(arguments.experts, world.size());

  Times times{};
  Plan plan;
  times.plan_ms = median_ms(world, 3, [&] {
    plan = engine.plan({.experts = routing.as<const std::int32_t>(), .topk = arguments.topk, .memory = engine.memory()},
                       map);
  });
  Tensor rows = engine.dispatch(plan, x).wait().data;
  Tensor out = engine.combine(plan, rows).wait();
  std::vector<std::uint16_t> sums(out.bytes() / sizeof(std::uint16_t));
  engine.copy(out, borrow(sums.data(), out.dtype, out.rows, out.cols));
  check_sums(arguments, world.rank(), sums);
  times.dispatch_ms =
      median_ms(world, arguments.iterations, [&] { rows = engine.dispatch(plan, x, {.out = rows}).wait().data; });
  times.combine_ms =
      median_ms(world, arguments.iterations, [&] { out = engine.combine(plan, rows, {.out = out}).wait(); });
  report(world, arguments, plan, times);
}

}  // namespace
}  // namespace shunt

int main(int argc, char** argv) {
  shunt::Arguments arguments;
  CLI::App app("Shuffles between nodes of GPUs");
  app.option_defaults()->always_capture_default();
  app.add_option("--ranks", arguments.ranks, "Threads that share the GPU; ignored under a launcher")
      ->check(CLI::PositiveNumber);
  app.add_option("--nodes", arguments.nodes, "Nodes that the ranks are spread over")->check(CLI::PositiveNumber);
  app.add_option("--tokens", arguments.tokens, "Tokens per rank")->check(CLI::PositiveNumber);
  app.add_option("--hidden", arguments.hidden, "Elements per row, bf16")->check(CLI::PositiveNumber);
  app.add_option("--experts", arguments.experts, "Experts, spread evenly over the ranks")->check(CLI::PositiveNumber);
  app.add_option("--topk", arguments.topk, "Experts per token")->check(CLI::Range(1, shunt::Routing::kMaxTopK));
  app.add_option("--iterations", arguments.iterations, "Timed repetitions")->check(CLI::PositiveNumber);
  app.add_option("--batch-bytes", arguments.batch_bytes, "DeviceOptions::batch_bytes");
  app.add_option("--batches", arguments.batches, "DeviceOptions::num_batches");
  auto* const nccl = app.add_flag("--nccl", arguments.nccl, "Use NCCL instead of the world's network");
  app.add_flag("--host", arguments.host, "Keep rows in host memory, with the same network")->excludes(nccl);
  CLI11_PARSE(app, argc, argv);
  try {
    if (arguments.topk > arguments.experts)
      throw shunt::Error(shunt::ErrorCode::invalid_argument,
                         fmt::format("--topk {}: expected at most --experts {}", arguments.topk, arguments.experts));
    if (shunt::Environment::read().launch) {
      shunt::World world = shunt::World::from_environment();
      shunt::measure(world, arguments);
      return 0;
    }
    arguments.device = 0;
    shunt::World::spawn(arguments.ranks, [&](shunt::World& world) { shunt::measure(world, arguments); },
                        {.kind = shunt::WorldKind::islands,
                         .topology = shunt::Topology::virtual_nodes(arguments.ranks, arguments.nodes)});
  } catch (const shunt::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
