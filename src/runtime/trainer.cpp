#include "runtime/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt::runtime {
namespace {

using graph::DimId;
using graph::DimRole;
using graph::Op;
using graph::OpKind;
using graph::ValueId;

constexpr double kNatsPerBit = std::numbers::ln2;

/// Uniform in (0, 1].
double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 1) * 0x1p-53; }

/// Normally distributed, a pure function of its arguments (Box and Muller, 1958).
float normal(std::uint64_t seed, std::uint64_t name, std::uint64_t element) {
  const std::uint64_t bits = Hasher().add(seed, name, element).value();
  const double radius = std::sqrt(-2 * std::log(uniform(bits)));
  return static_cast<float>(radius * std::cos(2 * std::numbers::pi * uniform(Hasher().add(bits).value())));
}

std::uint64_t hash_of_name(const std::string& name) {
  Hasher hasher;
  for (const char c : name) hasher.add(static_cast<unsigned char>(c));
  return hasher.value();
}

/// Elements over which a forward product with this parameter sums; 0 if there is no such product.
std::int64_t fan_in_of(const graph::Graph& graph, ValueId param) {
  for (const Op& op : graph.ops())
    if ((op.kind == OpKind::matmul || op.kind == OpKind::grouped_matmul) && op.operands[1] == param &&
        op.origin.phase == graph::Phase::forward)
      return graph.dims.count(op.attributes.dims("over"));
  return 0;
}

}  // namespace

double rate_of(const TrainerOptions& options, std::int64_t step) {
  if (step < options.warmup) return options.rate * static_cast<double>(step + 1) / static_cast<double>(options.warmup);
  const double course =
      std::min(1.0, static_cast<double>(step - options.warmup) /
                        static_cast<double>(std::max<std::int64_t>(options.steps - options.warmup, 1)));
  const double least = options.rate * options.last_rate;
  return least + (options.rate - least) * (1 + std::cos(std::numbers::pi * course)) / 2;
}

void initialise(const graph::Graph& graph, Store& store, std::span<const ExpertId> experts, std::uint64_t seed) {
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::param) continue;
    const ValueId param = op.results[0];
    const std::string& name = graph.value(param).name;
    const graph::Type& type = graph.type(param);
    const std::int64_t count = graph.dims.count(type.dims);
    auto* const values = reinterpret_cast<float*>(store.memory(name, static_cast<std::size_t>(count)));
    if (type.dims.size() == 1) {  // of a norm
      std::fill_n(values, count, name.find("gain.") != std::string::npos ? 1.0f : 0.0f);
      continue;
    }
    const std::int64_t fan_in = fan_in_of(graph, param);
    const float scale = fan_in > 0 ? 1 / std::sqrt(static_cast<float>(fan_in)) : 1.0f;
    const bool is_of_experts = graph.dims[type.dims[0]].role == DimRole::local_expert;
    const std::int64_t size = is_of_experts ? count / static_cast<std::int64_t>(experts.size()) : count;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t expert = is_of_experts ? experts[static_cast<std::size_t>(i / size)].value : 0;
      values[i] = scale * normal(seed, hash_of_name(name), static_cast<std::uint64_t>(expert * size + i % size));
    }
  }
}

namespace {

/// The experts of the model's layers; one where there are none.
std::int32_t num_experts_of(const graph::Graph& graph) {
  for (const Op& op : graph.ops())
    if (op.kind == OpKind::plan) return static_cast<std::int32_t>(graph.dims[op.attributes.dims("expert")[0]].size);
  return 1;
}

}  // namespace

template <class Value>
std::vector<Value> Trainer::gather(const Value& mine) {
  std::vector<Value> values;
  for (const auto& bytes : world_.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    if (bytes.size() != sizeof(Value))
      fail(ErrorCode::mismatch, "rank {} published {} bytes of its figures, expected {}", values.size(), bytes.size(),
           sizeof(Value));
    std::memcpy(&values.emplace_back(), bytes.data(), sizeof(Value));
  }
  return values;
}

Trainer::Trainer(World& world, const graph::Model& model, graph::Graph step, const Corpus& corpus,
                 const TrainerOptions& options)
    : world_(world),
      model_(model),
      corpus_(corpus),
      options_(options),
      map_(ExpertMap::contiguous(num_experts_of(step), world.size())),
      state_{.model = model.name,
             .sequences = model.sequences_per_rank * world.size(),
             .sequence = model.sequence,
             .seed = options.seed,
             .corpus = hash_of(corpus)} {
  if (!options.executor.transfers.maps.empty())
    fail(ErrorCode::unsupported, "trainings place experts in order so far, so they take no maps");
  demand_equal("text", state_.corpus);
  initialise(step, store_, experts_of(map_, world.rank()), options.seed);
  executor_ = std::make_unique<Executor>(world, std::move(step), store_, options.executor);
}

void Trainer::save(const std::string& path) { save_checkpoint(world_, executor_->graph(), store_, map_, state_, path); }

void Trainer::resume(const std::string& path) {
  std::string failure;
  TrainingState found;
  try {
    check_same_training(read_training_state(path), path);
    found = load_checkpoint(executor_->graph(), store_, experts_of(map_, world_.rank()), path);
  } catch (const Error& error) {
    failure = error.what();
  }
  agree(world_, failure, ErrorCode::invalid_argument);
  // Ranks of several machines may have read files of their own.
  demand_equal("checkpoint", found.checksum);
  state_ = found;
}

void Trainer::check_same_training(const TrainingState& found, const std::string& path) const {
  const auto demand = [&](std::string_view what, const auto& there, const auto& here) {
    if (there != here)
      fail(ErrorCode::invalid_argument, "{}: its training has {} {}, this one {}", path, what, there, here);
  };
  demand("model", found.model, state_.model);
  demand("sequences per step:", found.sequences, state_.sequences);
  demand("bytes per sequence:", found.sequence, state_.sequence);
  demand("seed", found.seed, state_.seed);
  demand("a corpus of hash", found.corpus, state_.corpus);
}

void Trainer::demand_equal(std::string_view what, std::uint64_t mine) {
  const std::vector<std::uint64_t> all = gather(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) fail(ErrorCode::mismatch, "rank {} has another {} than rank 0", rank, what);
}

bool Trainer::any(bool mine) {
  const std::vector<int> all = gather(mine ? 1 : 0);
  return std::ranges::find(all, 1) != all.end();
}

void Trainer::load(const std::vector<std::uint8_t>& text, std::span<const std::size_t> begins) {
  const auto sequence = static_cast<std::size_t>(model_.sequence);
  const std::size_t count = begins.size() * sequence;
  auto* const tokens = reinterpret_cast<std::int32_t*>(store_.memory("tokens", count));
  auto* const targets = reinterpret_cast<std::int32_t*>(store_.memory("targets", count));
  for (std::size_t i = 0; i < begins.size(); ++i)
    for (std::size_t j = 0; j < sequence; ++j) {
      tokens[i * sequence + j] = text[begins[i] + j];
      targets[i * sequence + j] = text[begins[i] + j + 1];
    }
}

double Trainer::output(const Executor& executor) const {
  // The cross entropy; the first output also has the losses that balance experts.
  return *executor.view(executor.graph().outputs.back()).f32();
}

Trainer::Step Trainer::step(bool wants_to_stop) {
  const std::int64_t here = model_.sequences_per_rank;
  load(corpus_.training, draw_sequences(corpus_.training.size(), model_.sequence, options_.seed, state_.steps,
                                        here * world_.rank().value, here));
  *reinterpret_cast<float*>(store_.memory("rate", 1)) = static_cast<float>(rate_of(options_, state_.steps));
  *reinterpret_cast<float*>(store_.memory("step", 1)) = static_cast<float>(++state_.steps);
  executor_->step();
  const StepTimes& times = executor_->times();
  Step all;
  for (const Step& each :
       gather(Step{output(*executor_) / kNatsPerBit, times.step_s, times.exposed_s, wants_to_stop})) {
    all.bits_per_byte += each.bits_per_byte;
    all.step_s = std::max(all.step_s, each.step_s);
    all.exposed_s = std::max(all.exposed_s, each.exposed_s);
    all.stops |= each.stops;
  }
  return all;
}

double Trainer::evaluate(std::int64_t most_bytes) {
  if (!forward_)
    forward_ =
        std::make_unique<Executor>(world_, graph::build_forward(model_, world_.size()), store_, options_.executor);
  const auto sequence = static_cast<std::size_t>(model_.sequence);
  const auto here = static_cast<std::size_t>(model_.sequences_per_rank);
  const auto all = static_cast<std::size_t>(world_.size()) * here;  // sequences of a batch
  const std::size_t text = corpus_.held_out.size() - 1;             // bytes that have one after them
  const std::size_t used = most_bytes > 0 ? std::min(text, static_cast<std::size_t>(most_bytes)) : text;
  const std::size_t batches = std::max<std::size_t>(1, used / (all * sequence));
  double nats = 0;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    std::vector<std::size_t> begins;
    for (std::size_t i = 0; i < here; ++i) {
      const std::size_t number = batch * all + world_.rank().index() * here + i;
      begins.push_back(number % (text / sequence) * sequence);
    }
    load(corpus_.held_out, begins);
    forward_->step();
    nats += output(*forward_);
  }
  const std::vector<double> of_ranks = gather(nats);
  return std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) / static_cast<double>(batches) / kNatsPerBit;
}

}  // namespace shunt::runtime
