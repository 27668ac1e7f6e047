#include "core/presets.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/fail.hpp"

namespace shunt {
namespace {

constexpr std::uintmax_t kMostBytes = 16 << 20;

std::string read(const std::string& path) {
  std::error_code error;
  if (const auto size = std::filesystem::file_size(path, error); error || size > kMostBytes)
    fail(ErrorCode::invalid_argument, "{}: expected a file of at most {} bytes", path, kMostBytes);
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) fail(ErrorCode::system, "{}: can't be read", path);
  return text.str();
}

}  // namespace

Description load_description(std::string_view kind, std::span<const Preset> presets, const std::string& name_or_file) {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets) {
    if (preset.name == name_or_file) return {fmt::format("{} {}", kind, preset.name), std::string(preset.text)};
    names.push_back(preset.name);
  }
  std::error_code ignored;
  if (std::filesystem::is_regular_file(name_or_file, ignored)) return {name_or_file, read(name_or_file)};
  fail(ErrorCode::invalid_argument, "no {} '{}': expected a file or one of {}", kind, name_or_file,
       fmt::join(names, ", "));
}

}  // namespace shunt
