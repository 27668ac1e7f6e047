// The parts of this build, and whether those that are loaded on first use can be loaded here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shunt::cli {

struct BuildPart {
  std::string name;
  std::string note;
  bool is_there = false;
  std::string why_not = {};  ///< why a part that was built does not load
};

std::vector<BuildPart> find_build_parts();

/// The part with that name, one of find_build_parts().
const BuildPart& part_of(const std::vector<BuildPart>& parts, const std::string& name);

/// Prints "shunt VERSION (build ID)" and the parts, one per line.
void print_build(const std::vector<BuildPart>& parts);

/// "version", "build_id", and "build" with a boolean for each part.
nlohmann::ordered_json build_report(const std::vector<BuildPart>& parts);

}  // namespace shunt::cli
