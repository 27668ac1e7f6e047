// Recorded routings, replayed: a layer of a routing trace (shunt/routing_trace.hpp), or a text file with one token per
// line, its experts separated by spaces, −1 for a choice that was dropped. Empty lines and lines that start with # are
// skipped; every line has an end, so that a file that was cut shows.
#pragma once

#include <memory>
#include <string>

#include "cli/shuffle/routing_model.hpp"

namespace shunt::cli {

/// Of every token the first config.topk choices are used. Ranks take consecutive runs of tokens from
/// config.first_token on and start over at the end of the file; but where a routing trace says that its tokens came
/// from just these ranks, each takes its own. Text has no layers and no weights. Throws Error(invalid_argument) with
/// file, and line or cause.
std::unique_ptr<RoutingModel> read_trace(const std::string& path, const ShuffleConfig& config);

}  // namespace shunt::cli
