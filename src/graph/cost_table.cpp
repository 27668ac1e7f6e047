#include "graph/cost_table.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/fail.hpp"

namespace shunt::graph {
namespace {

constexpr int kVersion = 1;

}  // namespace

std::string cost_key(const Graph& graph, const Op& op) {
  std::string key(info(op.kind).name);
  const auto add = [&](ValueId value) {
    key += fmt::format(" {}", to_string(graph.type(value).element));
    for (const DimId dim : graph.type(value).dims) key += fmt::format(",{}", graph.dims[dim].size);
  };
  for (const ValueId operand : op.operands) add(operand);
  key += " ->";
  for (const ValueId result : op.results) add(result);
  return key;
}

std::optional<double> CostTable::find(const std::string& key) const {
  const auto found = seconds_.find(key);
  return found == seconds_.end() ? std::nullopt : std::optional(found->second);
}

CostTable CostTable::load(const std::string& path, const std::string& device,
                          const std::function<void(const std::string&)>& warn) {
  CostTable table(device);
  std::ifstream file(path, std::ios::binary);
  if (!file) return table;
  std::ostringstream text;
  text << file.rdbuf();
  try {
    const auto json = nlohmann::json::parse(text.str());
    if (json.at("version").get<int>() != kVersion || json.at("device").get<std::string>() != device)
      fail(ErrorCode::invalid_argument, "another version or device");
    table.origin_ = json.value("origin", "");
    for (const auto& [key, seconds] : json.at("seconds").items()) {
      table.seconds_[key] = seconds.get<double>();
      if (!(table.seconds_[key] >= 0 && std::isfinite(table.seconds_[key])))
        fail(ErrorCode::invalid_argument, "a time that is none");
    }
  } catch (const std::exception& error) {
    warn(fmt::format("{}: measured times are ignored: {}", path, error.what()));
    return CostTable(device);
  }
  return table;
}

void CostTable::save(const std::string& path) const {
  const nlohmann::ordered_json json = {
      {"version", kVersion}, {"device", device_}, {"origin", origin_}, {"seconds", seconds_}};
  const std::string partial = fmt::format("{}.{}.partial", path, getpid());
  std::ofstream file(partial, std::ios::binary);
  file << json.dump(1) << "\n";
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    const int cause = errno;
    std::remove(partial.c_str());
    errno = cause;
    fail_errno("can't write {}", path);
  }
}

}  // namespace shunt::graph
