#include <algorithm>
#include <charconv>

#include "core/fail.hpp"
#include "graph/text.hpp"
#include "graph/text_line.hpp"

namespace shunt::graph {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Graph parse() {
    Line first = next("'graph NAME ranks N'");
    first.keyword("graph");
    const std::string name(first.word("the graph's name"));
    first.keyword("ranks");
    const std::size_t at = first.position();
    const std::int64_t ranks = first.integer("a number of ranks");
    if (ranks < 1 || ranks > INT32_MAX) {
      first.return_to(at);
      first.fail_here("expected 1 to {} ranks", INT32_MAX);
    }
    first.end();
    Graph graph(name, static_cast<std::int32_t>(ranks));
    for (;;) {
      Line line = next("an op or 'return'");
      if (statement(graph, line)) break;
    }
    if (skip_to_statement()) Line(source_, number_ + 1, rest_of_line()).fail_here("expected nothing after 'return'");
    return graph;
  }

 private:
  std::string_view rest_of_line() const { return text_.substr(at_, text_.find('\n', at_) - at_); }

  /// False at the end of the text.
  bool skip_to_statement() {
    while (at_ < text_.size()) {
      const std::string_view line = rest_of_line();
      const auto first = line.find_first_not_of(' ');
      if (first != std::string_view::npos && line[first] != '#') return true;
      at_ += line.size() + 1;
      ++number_;
    }
    return false;
  }

  Line next(std::string_view expected) {
    if (!skip_to_statement())
      fail(ErrorCode::invalid_argument, "{}:{}:1: expected {} but found the end of the text", source_, number_ + 1,
           expected);
    const std::string_view line = rest_of_line();
    at_ += line.size() + 1;
    return {source_, ++number_, line};
  }

  /// True after 'return'. Errors of the graph are reported at the line's position.
  static bool statement(Graph& graph, Line& line) {
    const std::size_t begin = line.position();
    if (line.accept('%')) {
      line.return_to(begin);
      op(graph, line);
      return false;
    }
    const std::string_view first = line.word("'dim', an op or 'return'");
    if (first == "dim") {
      dim(graph, line);
    } else if (first == "return") {
      if (!line.at_end()) do
          graph.outputs.push_back(value(graph, line));
        while (line.accept(','));
      line.end();
      return true;
    } else {
      line.return_to(begin);
      op(graph, line);
    }
    return false;
  }

  template <class Do>
  static auto refusing_at(Line& line, std::size_t position, const Do& work) {
    try {
      return work();
    } catch (const Error& error) {
      line.return_to(position);
      line.fail_here("{}", error.what());
    }
  }

  static DimId declared_dim(Graph& graph, Line& line) {
    const std::size_t at = line.position();
    const std::string_view name = line.word("a dimension");
    const auto dim = refusing_at(line, at, [&] { return graph.dims.find(name); });
    if (!dim) {
      line.return_to(at);
      line.fail_here("expected a declared dimension but found '{}'", name);
    }
    return *dim;
  }

  static void dim(Graph& graph, Line& line) {
    const std::size_t at = line.position();
    const std::string name(line.word("a dimension's name"));
    if (name.find_first_of("./+-") != std::string::npos) {
      line.return_to(at);
      line.fail_here("expected a name of letters, digits and '_'");
    }
    line.expect('=');
    const std::size_t size_at = line.position();
    if (graph.dims.find(line.word("a size or a product"))) {
      line.return_to(size_at);
      Product product{name, {declared_dim(graph, line)}};
      while (line.accept('*')) product.factors.push_back(declared_dim(graph, line));
      line.end();
      refusing_at(line, at, [&] { graph.dims.add_product(std::move(product)); });
      return;
    }
    line.return_to(size_at);
    Dim dim;
    dim.name = name;
    dim.size = line.integer("a size or a declared dimension");
    const std::size_t role_at = line.position();
    const std::string_view role = line.word("a role");
    if (const auto found = find_role(role)) {
      dim.role = *found;
    } else {
      line.return_to(role_at);
      line.fail_here("expected a role (batch, sequence, …) but found '{}'", role);
    }
    if (!line.at_end()) {
      line.keyword("of");
      dim.groups = declared_dim(graph, line);
    }
    line.end();
    refusing_at(line, at, [&] { graph.dims.add(std::move(dim)); });
  }

  static std::string value_name(Line& line) {
    line.expect('%');
    return std::string(line.word("a value's name"));
  }

  static ValueId value(const Graph& graph, Line& line) {
    const std::size_t at = line.position();
    const std::string name = value_name(line);
    const auto found = graph.find(name);
    if (!found) {
      line.return_to(at);
      line.fail_here("%{} is not defined above", name);
    }
    return *found;
  }

  static std::vector<DimId> dim_list(Graph& graph, Line& line) {
    std::vector<DimId> dims;
    line.expect('[');
    if (line.accept(']')) return dims;
    do {
      const std::size_t at = line.position();
      const Product* product = graph.dims.find_product(line.word("a dimension"));
      if (product) {
        dims.insert(dims.end(), product->factors.begin(), product->factors.end());
      } else {
        line.return_to(at);
        dims.push_back(declared_dim(graph, line));
      }
    } while (line.accept(','));
    line.expect(']');
    return dims;
  }

  static Type type(Graph& graph, Line& line) {
    const std::size_t at = line.position();
    const std::string_view name = line.word("a type");
    const auto element = find_element(name);
    if (!element) {
      line.return_to(at);
      line.fail_here("expected an element type (f32, bf16, i32, …) but found '{}'", name);
    }
    const std::vector<DimId> dims = dim_list(graph, line);
    Type type{*element, graph.dims.ordered(dims)};
    if (type.dims.size() != dims.size()) {
      line.return_to(at);
      line.fail_here("a dimension stands twice");
    }
    return type;
  }

  static Attribute number(Line& line) {
    const std::size_t at = line.position();
    const std::string text(line.word("a number, a string or [dimensions]"));
    const char* const end = text.data() + text.size();
    std::int64_t whole = 0;
    if (const auto [stop, error] = std::from_chars(text.data(), end, whole); error == std::errc{} && stop == end)
      return whole;
    double real = 0;
    if (const auto [stop, error] = std::from_chars(text.data(), end, real); error == std::errc{} && stop == end)
      return real;
    line.return_to(at);
    line.fail_here("expected a number but found '{}'", text);
  }

  static Attributes attributes(Graph& graph, Line& line) {
    Attributes all;
    if (!line.accept('{')) return all;
    do {
      const std::size_t at = line.position();
      const std::string name(line.word("an attribute's name"));
      if (all.find(name)) {
        line.return_to(at);
        line.fail_here("attribute {} stands twice", name);
      }
      line.expect('=');
      const std::size_t value_at = line.position();
      if (line.accept('[')) {
        line.return_to(value_at);
        all.set(name, dim_list(graph, line));
      } else if (line.accept('"')) {
        line.return_to(value_at);
        all.set(name, line.quoted());
      } else {
        all.set(name, number(line));
      }
    } while (line.accept(','));
    line.expect('}');
    return all;
  }

  static Origin origin(Line& line) {
    line.expect('@');
    const std::size_t at = line.position();
    std::string_view text = line.word("a phase");
    Origin origin;
    const auto refuse = [&] {
      line.return_to(at);
      line.fail_here("expected [LAYER.]forward, backward or update[.mN] but found '{}'", text);
    };
    const auto number = [&](std::string_view digits) {
      std::int32_t value = -1;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc{} || end != digits.data() + digits.size() || value < 0) refuse();
      return value;
    };
    std::string_view rest = text;
    if (rest[0] >= '0' && rest[0] <= '9') {
      const auto dot = rest.find('.');
      if (dot == std::string_view::npos) refuse();
      origin.layer = number(rest.substr(0, dot));
      rest.remove_prefix(dot + 1);
    }
    const std::string_view phase = rest.substr(0, rest.find('.'));
    bool is_known = false;
    for (const Phase each : {Phase::forward, Phase::backward, Phase::update})
      if (phase == to_string(each)) {
        origin.phase = each;
        is_known = true;
      }
    if (!is_known) refuse();
    rest.remove_prefix(phase.size());
    if (!rest.empty()) {
      if (!rest.starts_with(".m")) refuse();
      origin.micro_batch = number(rest.substr(2));
    }
    return origin;
  }

  static void op(Graph& graph, Line& line) {
    const std::size_t begin = line.position();
    std::vector<std::string> names;
    if (line.accept('%')) {
      line.return_to(begin);
      do {
        const std::size_t at = line.position();
        names.push_back(value_name(line));
        if (graph.find(names.back()) || std::count(names.begin(), names.end(), names.back()) > 1) {
          line.return_to(at);
          line.fail_here("%{} is defined twice", names.back());
        }
      } while (line.accept(','));
      line.expect('=');
    }
    const std::size_t kind_at = line.position();
    const std::string_view kind_name = line.word("an op");
    const OpInfo* kind = find_op(kind_name);
    if (!kind) {
      line.return_to(kind_at);
      line.fail_here("expected an op but found '{}'", kind_name);
    }
    line.expect('(');
    std::vector<ValueId> operands;
    if (!line.accept(')')) {
      do operands.push_back(value(graph, line));
      while (line.accept(','));
      line.expect(')');
    }
    Attributes given = attributes(graph, line);
    std::vector<Type> types;
    std::vector<std::size_t> type_at;
    if (!names.empty()) {
      line.expect(':');
      do {
        type_at.push_back(line.position());
        types.push_back(type(graph, line));
      } while (line.accept(','));
    }
    if (types.size() != names.size()) {
      line.return_to(type_at.front());
      line.fail_here("{} types for {} results", types.size(), names.size());
    }
    const Origin from = origin(line);
    line.end();
    if (!kind->types) {
      refusing_at(line, kind_at, [&] { graph.declare(kind->kind, operands, std::move(given), names, types, from); });
      return;
    }
    const OpId made =
        refusing_at(line, kind_at, [&] { return graph.append(kind->kind, operands, std::move(given), names, from); });
    for (std::size_t i = 0; i < types.size(); ++i) {
      const Type& inferred = graph.type(graph.op(made).results[i]);
      if (inferred == types[i]) continue;
      line.return_to(type_at[i]);
      line.fail_here("expected {}, which {} gives, but found {}", print(graph.dims, inferred), kind->name,
                     print(graph.dims, types[i]));
    }
  }

  std::string_view text_, source_;
  std::size_t at_ = 0;
  std::size_t number_ = 0;
};

}  // namespace

Graph parse(std::string_view text, std::string_view source) { return Parser(text, source).parse(); }

}  // namespace shunt::graph
