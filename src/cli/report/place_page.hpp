// The page about a placement.
#pragma once

#include <string>

#include "cli/report/place_report.hpp"

namespace shunt::cli {

/// A whole HTML page. `source` is the file that the report was read from.
std::string make_place_page(const PlaceReport& report, const std::string& source);

}  // namespace shunt::cli
