// Named descriptions: presets, which are compiled in, and files.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace shunt {

/// One file of a module's presets/<kind>s folder (cmake/presets.cmake).
struct Preset {
  std::string_view name;
  std::string_view text;
};

struct Description {
  std::string source;  ///< for messages
  std::string text;
};

/// The preset of this name, or else the file. Throws Error(invalid_argument) that lists the presets if neither exists,
/// and as read_file. For the messages: `kind` names what was requested ("model"), `also` what else the caller accepts
/// (", or this").
Description load_description(std::string_view kind, std::span<const Preset> presets, const std::string& name_or_file,
                             std::string_view also = "");

}  // namespace shunt
