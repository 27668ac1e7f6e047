#include "core/json_fields.hpp"

#include <algorithm>
#include <cmath>

#include "core/fail.hpp"

namespace shunt {

using nlohmann::json;

json parse_json(const std::string& source, const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    const auto* at = dynamic_cast<const json::parse_error*>(&error);
    const std::size_t byte = at ? std::min(at->byte, text.size()) : 0;
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
    fail(ErrorCode::invalid_argument, "{}:{}: no JSON at byte {}", source, line, byte);
  }
}

JsonFields::JsonFields(std::string source, std::string path, json object)
    : source_(std::move(source)), path_(std::move(path)), object_(std::move(object)) {
  if (!object_.is_object())
    fail(ErrorCode::invalid_argument, "{}: {}expected an object", source_, path_.empty() ? "" : path_ + ": ");
}

void JsonFields::refuse(const std::string& key, const std::string& what) const {
  fail(ErrorCode::invalid_argument, "{}: {}{}: {}", source_, path_.empty() ? "" : path_ + ".", key, what);
}

const json* JsonFields::find(const std::string& key, bool must) {
  asked_.insert(key);
  const auto found = object_.find(key);
  if (found != object_.end()) return &*found;
  if (must) refuse(key, "is missing");
  return nullptr;
}

bool JsonFields::has(const std::string& key) { return find(key, false) != nullptr; }

std::string JsonFields::text(const std::string& key, std::optional<std::string> fallback) {
  const json* value = find(key, !fallback);
  if (!value) return *fallback;
  if (!value->is_string()) refuse(key, "expected a string");
  return value->get<std::string>();
}

std::string JsonFields::choice(const std::string& key, std::initializer_list<const char*> known,
                               std::optional<std::string> fallback) {
  const std::string value = text(key, std::move(fallback));
  if (std::find(known.begin(), known.end(), value) == known.end())
    refuse(key, fmt::format("\"{}\", expected {}", value, fmt::join(known, ", ")));
  return value;
}

std::int64_t JsonFields::integer(const std::string& key, std::int64_t least, std::int64_t most,
                                 std::optional<std::int64_t> fallback) {
  const json* value = find(key, !fallback);
  if (!value) return *fallback;
  const bool fits =
      value->is_number_integer() && !(value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX);
  if (!fits || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most)
    refuse(key, fmt::format("expected a whole number from {} to {}", least, most));
  return value->get<std::int64_t>();
}

double JsonFields::real(const std::string& key, double least, double most, std::optional<double> fallback) {
  const json* value = find(key, !fallback);
  if (!value) return *fallback;
  if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most))
    refuse(key, fmt::format("expected a number from {} to {}", least, most));
  return value->get<double>();
}

std::optional<double> JsonFields::optional_real(const std::string& key, double least, double most) {
  const json* value = find(key, false);
  if (!value || value->is_null()) return std::nullopt;
  return real(key, least, most);
}

bool JsonFields::boolean(const std::string& key, bool fallback) {
  const json* value = find(key, false);
  if (!value) return fallback;
  if (!value->is_boolean()) refuse(key, "expected true or false");
  return value->get<bool>();
}

JsonFields JsonFields::object(const std::string& key) {
  const json* value = find(key, true);
  return {source_, path_.empty() ? key : path_ + "." + key, *value};
}

std::vector<JsonFields> JsonFields::objects(const std::string& key) {
  std::vector<JsonFields> objects;
  const std::string path = path_.empty() ? key : path_ + "." + key;
  for (const json& object : list(key))
    objects.emplace_back(source_, fmt::format("{}[{}]", path, objects.size()), object);
  return objects;
}

const json& JsonFields::list(const std::string& key) {
  const json* value = find(key, true);
  if (!value->is_array()) refuse(key, "expected a list");
  return *value;
}

std::vector<std::pair<double, double>> JsonFields::points(const std::string& key) {
  const json* value = find(key, false);
  std::vector<std::pair<double, double>> points;
  if (!value) return points;
  const auto is_point = [](const json& point) {
    return point.is_array() && point.size() == 2 && point[0].is_number() && point[1].is_number();
  };
  if (!value->is_array() || value->size() < 2 || !std::all_of(value->begin(), value->end(), is_point))
    refuse(key, "expected at least two pairs of numbers");
  for (const json& point : *value) {
    points.emplace_back(point[0].get<double>(), point[1].get<double>());
    const auto& [x, y] = points.back();
    if (!(x >= 0 && y >= 0 && std::isfinite(x) && std::isfinite(y)) ||
        (points.size() > 1 && (points[points.size() - 2].first >= x || points[points.size() - 2].second > y)))
      refuse(key, "expected pairs of numbers from 0 on that ascend in the first and don't fall in the second");
  }
  return points;
}

void JsonFields::end() const {
  for (const auto& [key, value] : object_.items())
    if (!asked_.contains(key)) refuse(key, "means nothing here");
}

}  // namespace shunt
