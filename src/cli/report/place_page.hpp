// The page made from a report of `shunt place`.
#pragma once

#include <string>

#include "cli/report/place_report.hpp"

namespace shunt::cli {

/// Returns an HTML page. `source` is the name of the report's file.
std::string make_place_page(const PlaceReport& report, const std::string& source);

}  // namespace shunt::cli
