// Any text is a file of expert maps that is written and read back the same, or gives one Error(invalid_argument).
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "shunt/error.hpp"
#include "shunt/expert_map_file.hpp"

namespace {

using shunt::PlacedLayers;

/// A fuzzer can't guess hashes, but error messages contain the expected ones.
std::string with_right_hash(const std::string& text) {
  try {
    (void)PlacedLayers::from_json("fuzz", text);
  } catch (const shunt::Error& error) {
    const std::string message = error.what(), before = "these maps have \"";
    const auto at = message.rfind(before);
    if (at == std::string::npos) return text;
    auto json = nlohmann::json::parse(text);
    json["hash"] = message.substr(at + before.size(), 16);
    return json.dump();
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string text = with_right_hash({reinterpret_cast<const char*>(data), size});
    const std::string written = PlacedLayers::from_json("fuzz", text).to_json();
    if (PlacedLayers::from_json("written", written).to_json() != written) std::abort();
  } catch (const shunt::Error& error) {
    if (error.code() != shunt::ErrorCode::invalid_argument) std::abort();
  }
  return 0;
}
