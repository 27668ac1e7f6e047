// Trains a byte-level model on this rank: batches, rates, steps, evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "graph/model.hpp"
#include "runtime/checkpoint.hpp"
#include "runtime/corpus.hpp"
#include "runtime/executor.hpp"

namespace shunt::runtime {

struct TrainerOptions {
  std::uint64_t seed = 1;
  std::int64_t steps = 200;  ///< of the whole training, for the rate's course
  double rate = 2e-3;        ///< at its highest
  std::int64_t warmup = 50;  ///< steps in which it rises
  double last_rate = 0.1;    ///< at the end, over the highest
  ExecutorOptions executor = {};
};

/// The rate of a step, the first being 0: rises evenly, then falls along half a cosine.
[[nodiscard]] double rate_of(const TrainerOptions& options, std::int64_t step);

/// Random values of a model's parameters and zeros for its states, by name and logical expert: the same whatever the
/// number of ranks and the map. `experts`: this rank's logical experts, ascending.
void initialise(const graph::Graph& graph, Store& store, std::span<const ExpertId> experts, std::uint64_t seed);

/// Functions that are not const are collective.
class Trainer {
 public:
  /// step: a graph of the model's training step, in any order. The corpus, which is the same on all ranks, and the
  /// world outlive the trainer.
  Trainer(World& world, const graph::Model& model, graph::Graph step, const Corpus& corpus,
          const TrainerOptions& options);

  struct Step {
    double bits_per_byte = 0;          ///< of the batch, before the step
    double step_s = 0, exposed_s = 0;  ///< of the slowest rank
    bool stops = false;                ///< some rank wants to stop
  };
  Step step(bool wants_to_stop = false);

  /// Bits per byte of the held-out text: of as many whole batches as it has, or as `most_bytes` of it have (0: all),
  /// but at least one, in which sequences of a short text occur again. A byte is predicted from those before it in its
  /// sequence.
  [[nodiscard]] double evaluate(std::int64_t most_bytes = 0);

  /// As save_checkpoint.
  void save(const std::string& path);
  /// Continues a training as if it had not been interrupted; steps and rates are those of the options. Throws on all
  /// ranks: as load_checkpoint, and if the checkpoint is of another batch, seed or text, or another one on some rank.
  void resume(const std::string& path);
  /// Whether `mine` is true on any rank.
  [[nodiscard]] bool any(bool mine);

  [[nodiscard]] std::int64_t steps_done() const { return state_.steps; }
  [[nodiscard]] const Executor& executor() const { return *executor_; }

 private:
  void check_same_training(const TrainingState& found, const std::string& path) const;
  /// Throws Error(mismatch) that names a rank whose value differs from rank 0's.
  void demand_equal(std::string_view what, std::uint64_t mine);
  void load(const std::vector<std::uint8_t>& text, std::span<const std::size_t> begins);
  [[nodiscard]] double output(const Executor& executor) const;
  /// By rank.
  template <class Value>
  [[nodiscard]] std::vector<Value> gather(const Value& mine);

  World& world_;
  graph::Model model_;
  const Corpus& corpus_;
  TrainerOptions options_;
  ExpertMap map_;
  TrainingState state_;
  Store store_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Executor> forward_;  // made when first needed
};

}  // namespace shunt::runtime
