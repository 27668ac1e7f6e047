// One HTML page that needs nothing beside itself: text, tables and the styles that pictures use.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shunt::cli {

/// Series are told apart by colour and shape: classes "s0" and on, symbols "m0" and on. 0 stands out, 1 recedes.
inline constexpr std::size_t kNumStyles = 8;

/// Text as HTML shows it: markup means nothing in it, characters that no page may hold are replaced.
std::string escape(std::string_view text);

/// escape(), with C_T set as a formula.
std::string prose(std::string_view text);

/// What a picture shows, in words: printed above it, and read out by screen readers in its place.
struct Caption {
  std::string id;  ///< of letters, digits and '-'; unique on the page
  std::string title;
  std::string description;
};

/// Columns have names; neighbours may share a heading above them. All of it is plain text.
struct Table {
  struct Column {
    std::string name;
    std::string group;  ///< empty: none
  };
  std::string caption;
  std::vector<Column> columns;
  /// The first cell of a row names it.
  std::vector<std::vector<std::string>> rows;
  std::size_t marked_row = SIZE_MAX;
};
std::string to_html(const Table& table);

/// What is wider than the page can be scrolled, by keyboard too. `what` names the region.
std::string scrolled(std::string_view what, std::string_view html);

/// `title` is text, `body` HTML.
std::string make_page(std::string_view title, std::string_view body);

}  // namespace shunt::cli
