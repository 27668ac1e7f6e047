// What is in this build, and of what is loaded when it is used, what loads here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shunt::cli {

struct BuildPart {
  std::string name;
  std::string note;
  bool is_there = false;
  std::string why_not = {};  ///< of what was built, but does not load
};

std::vector<BuildPart> find_build_parts();

/// Of find_build_parts().
const BuildPart& part_of(const std::vector<BuildPart>& parts, const std::string& name);

/// Prints "shunt VERSION (build ID)" and the parts, one per line.
void print_build(const std::vector<BuildPart>& parts);

/// "version", "build_id", and in "build" for each part whether it is there.
nlohmann::ordered_json build_report(const std::vector<BuildPart>& parts);

}  // namespace shunt::cli
