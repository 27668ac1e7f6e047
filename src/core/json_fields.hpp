// Reads JSON descriptions. Every key is requested by name, and a key that was not requested is an error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace shunt {

/// Throws Error(invalid_argument) with source and line if the text is not JSON.
nlohmann::json parse_json(const std::string& source, const std::string& text);

/// The keys of one object. Every message names the source and the key with its path ("tiny.json: moe.topk: …").
class JsonFields {
 public:
  JsonFields(std::string source, std::string path, nlohmann::json object);

  [[nodiscard]] bool has(const std::string& key);
  std::string text(const std::string& key, std::optional<std::string> fallback = {});
  std::string choice(const std::string& key, std::initializer_list<const char*> known,
                     std::optional<std::string> fallback = {});
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most,
                       std::optional<std::int64_t> fallback = {});
  double real(const std::string& key, double least, double most, std::optional<double> fallback = {});
  /// None if the key is missing or null.
  std::optional<double> optional_real(const std::string& key, double least, double most);
  bool boolean(const std::string& key, bool fallback);
  JsonFields object(const std::string& key);
  /// The objects of a list; their paths are "layers[0]", …
  std::vector<JsonFields> objects(const std::string& key);
  /// A list; valid as long as this object.
  const nlohmann::json& list(const std::string& key);
  /// Pairs of numbers, [[size, time], …]: the first ascend, the second don't decrease. Empty if the key is missing.
  std::vector<std::pair<double, double>> points(const std::string& key);

  /// Throws if there is a key that was not requested.
  void end() const;

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const;

 private:
  const nlohmann::json* find(const std::string& key, bool must);

  std::string source_, path_;
  nlohmann::json object_;
  std::set<std::string> asked_;
};

}  // namespace shunt
