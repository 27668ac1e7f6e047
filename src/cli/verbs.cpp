#include "cli/verbs.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace shunt::cli {
namespace {

template <class Number>
std::optional<Number> number_in(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stopped == end ? std::optional(number) : std::nullopt;
}

/// Rewrites the number without leading zeros, which CLI11 reads as another base.
template <class Number>
std::string check_whole(std::string& text) {
  using Limits = std::numeric_limits<Number>;
  const auto number = number_in<Number>(text);
  if (!number) return fmt::format("'{}', expected a whole number from {} to {}", text, Limits::min(), Limits::max());
  text = std::to_string(*number);
  return "";
}

std::string check_real(const std::string& text) {
  const auto number = number_in<double>(text);
  return number && std::isfinite(*number) ? "" : fmt::format("'{}', expected a number", text);
}

}  // namespace

void check_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    // transform() adds these checks before the option's own checks; check() would add them after.
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) option->transform(CLI::Validator(check_whole<std::int64_t>, ""));
    if (type.starts_with("UINT")) option->transform(CLI::Validator(check_whole<std::uint64_t>, ""));
    if (type.starts_with("FLOAT")) option->transform(CLI::Validator(check_real, ""));
  }
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) check_numbers(*verb);
}

void add_routing_options(CLI::App& verb, bench::ShuffleConfig& config) {
  verb.add_option("--routing", config.routing, "How tokens choose experts; see `shunt bench shuffle --help`");
  verb.add_option("--first-token", config.first_token, "With a trace: the first rank's first token");
  verb.add_option("--map", config.map_file,
                  "Place experts as in this file of expert maps, written by `shunt place`, instead of in order");
  verb.add_option("--layer", config.layer, "Layer of --map, and of a trace of several layers");
  verb.add_option("--prune", config.prune.limit,
                  "Most ranks per token: experts on other ranks are replaced or dropped before planning "
                  "(docs/concepts/pruning.md)");
  verb.add_option("--prune-by", config.prune.by,
                  "How replacements are chosen: by score, or by similarity, which needs a trace with scores. By score, "
                  "an expert "
                  "can be replaced by any other if the trace has scores of all tokens; otherwise it is dropped")
      ->check(CLI::IsMember({"score", "similarity"}));
  verb.add_option("--prune-level", config.prune.level, "What --prune counts: ranks or nodes")
      ->check(CLI::IsMember({"ranks", "nodes"}));
}

}  // namespace shunt::cli
