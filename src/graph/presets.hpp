// Descriptions by name: those of presets/, compiled in, and files.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace shunt::graph {

struct Preset {
  std::string_view kind;  ///< "model" or "cluster"
  std::string_view name;
  std::string_view text;
};

/// Generated from presets/<kind>s/*.json.
std::span<const Preset> presets();

struct Description {
  std::string source;  ///< for messages
  std::string text;
};

/// A preset of this kind, or else the file of this name. Throws Error(invalid_argument) with the names of presets where
/// there is neither.
Description load_description(std::string_view kind, const std::string& name_or_file);

}  // namespace shunt::graph
