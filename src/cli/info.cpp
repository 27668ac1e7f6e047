#include <fmt/format.h>

#include "cli/verbs.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {

void add_info(CLI::App& app) {
  CLI::App* info = app.add_subcommand("info", "What is in this build and what this machine offers");
  info->callback([] { fmt::print("{}\n", Machine::detect().hostname); });
}

}  // namespace shunt::cli
