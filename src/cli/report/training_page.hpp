// The page made from reports of training runs.
#pragma once

#include <string>
#include <vector>

#include "cli/report/training_report.hpp"

namespace shunt::cli {

/// Returns an HTML page that compares all runs of all reports. At least one report.
std::string make_training_page(const std::vector<TrainingReport>& reports);

}  // namespace shunt::cli
