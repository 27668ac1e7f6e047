// Reads one line of a graph's text, and reports the position of unexpected input.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/fail.hpp"

namespace shunt::graph {

/// A statement is always a single line.
class Line {
 public:
  Line(std::string_view source, std::size_t number, std::string_view text)
      : source_(source), number_(number), text_(text) {
    skip_blanks();
  }

  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> text, Args&&... args) const {
    fail(ErrorCode::invalid_argument, "{}:{}:{}: {}", source_, number_, at_ + 1,
         fmt::format(text, std::forward<Args>(args)...));
  }

  [[nodiscard]] bool at_end() const { return at_ == text_.size() || text_[at_] == '#'; }
  [[nodiscard]] std::size_t position() const { return at_; }
  void return_to(std::size_t position) { at_ = position; }

  bool accept(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    skip_blanks();
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail_here("expected '{}' but found {}", c, found());
  }
  std::string_view word(std::string_view expected) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == begin) fail_here("expected {} but found {}", expected, found());
    const std::string_view taken = text_.substr(begin, at_ - begin);
    skip_blanks();
    return taken;
  }
  void keyword(std::string_view wanted) {
    const std::size_t begin = at_;
    if (word(fmt::format("'{}'", wanted)) != wanted) {
      at_ = begin;
      fail_here("expected '{}' but found {}", wanted, found());
    }
  }
  std::int64_t integer(std::string_view expected) {
    const std::size_t begin = at_;
    const std::string_view text = word(expected);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
      at_ = begin;
      fail_here("expected {} but found '{}'", expected, text);
    }
    return value;
  }
  std::string quoted() {
    expect('"');
    std::string value;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && ++at_ == text_.size()) break;
      value += text_[at_++];
    }
    expect('"');
    return value;
  }
  void end() const {
    if (!at_end()) fail_here("expected the end of the line but found {}", found());
  }
  [[nodiscard]] std::string found() const { return at_end() ? "the end of the line" : fmt::format("'{}'", text_[at_]); }

 private:
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '/' || c == '-' || c == '+';
  }
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  std::string_view source_;
  std::size_t number_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace shunt::graph
