// Comma-separated lists in environment variables.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace shunt {

/// The items of "a,b,c"; no items for "".
inline std::vector<std::string> items_of(const std::string& comma_list) {
  std::vector<std::string> items;
  std::istringstream list(comma_list);
  for (std::string item; std::getline(list, item, ',');) items.push_back(item);
  return items;
}

}  // namespace shunt
