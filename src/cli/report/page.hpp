// A self-contained HTML page: text, tables, the styles of charts, and what the page may run.
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

/// The end of a page; `sources` are the names of the files that it was made from.
std::string footer(const std::vector<std::string>& sources);

/// A script that is part of a page.
struct Script {
  std::string_view text;
  std::string_view sha256;  ///< of the text, hexadecimal
};

/// `title` is text, `body` HTML. The page can run no other script.
std::string make_page(std::string_view title, std::string_view body, const Script& script = {});

}  // namespace shunt::cli
