// Descriptions by name: presets, compiled in, and files.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace shunt {

/// One file of a module's presets/<kind>s (cmake/presets.cmake).
struct Preset {
  std::string_view name;
  std::string_view text;
};

struct Description {
  std::string source;  ///< for messages
  std::string text;
};

/// The preset or else the file of this name. Throws Error(invalid_argument) with the names of the presets where there
/// is neither, and as read_file. For messages: `kind` is what was looked for ("model"), `also` what else the caller
/// accepts (", or this").
Description load_description(std::string_view kind, std::span<const Preset> presets, const std::string& name_or_file,
                             std::string_view also = "");

}  // namespace shunt
