// What the verbs that train share: model, text, ranks.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/trainer.hpp"

namespace shunt::cli {

struct TrainingArguments {
  std::string model = "bytes", corpus, world = "shm";
  std::int32_t ranks = 2;
  std::int64_t batch = 0;
  double rate = 0;       ///< 0: the model's
  double link_mbit = 0;  ///< 0: ranks share memory
  runtime::TrainerOptions options;
};

void add_training_options(CLI::App& verb, TrainingArguments& arguments);

/// Reads model and text, starts or joins the ranks, and runs `body` on each; fills in arguments.options.rate.
void run_training(TrainingArguments& arguments,
                  const std::function<void(World&, const graph::Model&, const runtime::Corpus&)>& body);

/// A step's lanes: what each op took.
nlohmann::ordered_json timeline_json(const graph::Graph& graph, const std::vector<graph::Timeline::Span>& ops);

/// The "config" of reports.
nlohmann::ordered_json config_json(const TrainingArguments& arguments, const graph::Model& model, std::int32_t ranks);

}  // namespace shunt::cli
