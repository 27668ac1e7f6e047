// What lanes execute over time, as a canvas that a script draws and zooms (timeline.js).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/report/page.hpp"

namespace shunt::cli {

struct Span {
  std::string op;
  std::int64_t layer = -1;  ///< −1: none
  std::size_t kind = 0;     ///< index of TimelineChart::kinds
  double begin_ms = 0, end_ms = 0;
};

struct Lane {
  std::string name;
  std::vector<Span> spans;
};

struct TimelineChart {
  struct Kind {
    std::string name;
    std::size_t style = 0;  ///< below kNumStyles
  };
  /// Lanes of one execution; times of each group are drawn from its first span on.
  struct Group {
    std::string name;
    std::vector<Lane> lanes;
  };

  Caption caption;
  std::vector<Kind> kinds;
  std::vector<Group> groups;
};
/// The page needs timeline_script().
std::string to_html(const TimelineChart& chart);

Script timeline_script();

}  // namespace shunt::cli
