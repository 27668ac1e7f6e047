// A self-contained HTML page: text, tables and the styles of charts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shunt::cli {

/// Series differ by colour and shape: classes "s0", "s1", …, symbols "m0", "m1", …. Style 0 is prominent, 1 is subdued.
inline constexpr std::size_t kNumStyles = 8;

/// Escapes markup and replaces characters that HTML forbids.
std::string escape(std::string_view text);

/// escape(), with C_T set as a formula.
std::string prose(std::string_view text);

/// Title and description of a chart: printed above it, and read by screen readers instead of it.
struct Caption {
  std::string id;  ///< letters, digits and '-'; unique on the page
  std::string title;
  std::string description;
};

/// Columns have names; adjacent columns may share a heading. All strings are plain text.
struct Table {
  struct Column {
    std::string name;
    std::string group;  ///< empty: none
  };
  std::string caption;
  std::vector<Column> columns;
  /// The first cell of each row is its name.
  std::vector<std::vector<std::string>> rows;
  std::size_t marked_row = SIZE_MAX;
};
std::string to_html(const Table& table);

/// Wraps html in a region that scrolls if it is wider than the page, by keyboard too. `what` names the region.
std::string scrolled(std::string_view what, std::string_view html);

/// `title` is text, `body` HTML.
std::string make_page(std::string_view title, std::string_view body);

}  // namespace shunt::cli
