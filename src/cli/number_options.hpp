// What options that take a number accept.
#pragma once

#include <CLI/CLI.hpp>

namespace shunt::cli {

/// Of all verbs below: an option's value must be a whole number that its type holds, or a finite one. CLI11 takes ''
/// for 0, -1 for the largest number without a sign, 010 for 8, and the nearest number for one that is too large.
void check_numbers(CLI::App& app);

}  // namespace shunt::cli
