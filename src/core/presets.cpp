#include "core/presets.hpp"

#include <filesystem>
#include <vector>

#include "core/fail.hpp"
#include "core/file.hpp"

namespace shunt {

Description load_description(std::string_view kind, std::span<const Preset> presets, const std::string& name_or_file,
                             std::string_view also) {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets) {
    if (preset.name == name_or_file) return {fmt::format("{} {}", kind, preset.name), std::string(preset.text)};
    names.push_back(preset.name);
  }
  // Checks the name itself: a broken or looping link is meant to be a file and gets read_file's error.
  std::error_code ignored;
  if (std::filesystem::symlink_status(name_or_file, ignored).type() != std::filesystem::file_type::not_found)
    return {name_or_file, read_file(name_or_file)};
  fail(ErrorCode::invalid_argument, "no {} '{}': expected a file, one of {}{}", kind, name_or_file,
       fmt::join(names, ", "), also);
}

}  // namespace shunt
