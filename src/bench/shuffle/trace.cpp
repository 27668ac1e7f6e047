#include "bench/shuffle/routing_model.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "core/fail.hpp"
#include "shunt/routing_trace.hpp"

namespace shunt::bench {
namespace {

constexpr std::int32_t kDropped = -1;

/// Assigns consecutive runs of a file's tokens to ranks, starting over at the end.
class Runs {
 public:
  Runs(const std::string& path, const ShuffleConfig& config, std::int64_t num_tokens)
      : first_(config.first_token), tokens_per_rank_(config.tokens), num_tokens_(num_tokens) {
    if (first_ >= num_tokens)
      fail(ErrorCode::invalid_argument, "--first-token {}: {} has tokens 0 to {}", first_, path, num_tokens - 1);
  }

  /// The index in the file of a rank's token.
  [[nodiscard]] std::int64_t file_token(std::int64_t rank, std::int64_t token) const {
    return (first_ + rank * tokens_per_rank_ + token) % num_tokens_;
  }

 private:
  std::int64_t first_;
  std::int64_t tokens_per_rank_;
  std::int64_t num_tokens_;
};

class TextTrace final : public RoutingModel {
 public:
  TextTrace(const std::string& path, const ShuffleConfig& config) : topk_(static_cast<std::size_t>(config.topk)) {
    std::ifstream file(path);
    if (!file) fail(ErrorCode::invalid_argument, "--routing trace: {} can't be opened: {}", path, std::strerror(errno));
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      if (file.eof())
        fail(ErrorCode::invalid_argument, "{}:{}: the line has no line break; is the file truncated?", path, number);
      if (line.empty() || line.front() == '#') continue;
      add(path, number, line, config.experts);
    }
    if (file.bad()) fail(ErrorCode::system, "{}: can't be read", path);
    if (experts_.empty()) fail(ErrorCode::invalid_argument, "{}: holds no tokens", path);
    runs_.emplace(path, config, static_cast<std::int64_t>(experts_.size() / topk_));
  }

  void draw(std::mt19937_64&, std::int64_t rank, std::int64_t token, std::span<std::int32_t> experts) const override {
    const auto line = static_cast<std::size_t>(runs_->file_token(rank, token));
    std::copy_n(experts_.begin() + static_cast<std::ptrdiff_t>(line * topk_), topk_, experts.begin());
  }

 private:
  void add(const std::string& path, int number, const std::string& line, std::int32_t num_experts) {
    std::istringstream words(line);
    std::vector<std::int32_t> experts;
    for (std::int32_t expert = 0; words >> expert;) {
      if (expert < kDropped || expert >= num_experts)
        fail(ErrorCode::invalid_argument, "{}:{}: expert {} is not in 0 to {}, nor -1 (dropped)", path, number, expert,
             num_experts - 1);
      if (expert != kDropped && std::find(experts.begin(), experts.end(), expert) != experts.end())
        fail(ErrorCode::invalid_argument, "{}:{}: expert {} is listed twice", path, number, expert);
      experts.push_back(expert);
    }
    if (!words.eof())
      fail(ErrorCode::invalid_argument, "{}:{}: expected expert numbers separated by spaces", path, number);
    if (experts.size() < topk_)
      fail(ErrorCode::invalid_argument, "{}:{}: {} experts, expected at least {}", path, number, experts.size(), topk_);
    experts_.insert(experts_.end(), experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(topk_));
  }

  std::size_t topk_;
  std::optional<Runs> runs_;
  std::vector<std::int32_t> experts_;  // [lines, topk]
};

/// Reads tokens from the mapped file when they are drawn.
class LayerTrace final : public RoutingModel {
 public:
  LayerTrace(const std::string& path, const ShuffleConfig& config)
      : trace_(RoutingTrace::open(path)),
        layer_(checked(path, config)),
        num_experts_(static_cast<std::size_t>(config.experts)),
        runs_(path, config, layer_.num_tokens()) {
    if (trace_.shape().sources) sort_by_source(config);
  }

  void draw(std::mt19937_64&, std::int64_t rank, std::int64_t token, std::span<std::int32_t> experts) const override {
    std::array<std::int32_t, Routing::kMaxTopK> all{};
    layer_.read_experts(file_token(rank, token), std::span(all).first(topk()));
    std::copy_n(all.begin(), experts.size(), experts.begin());
  }

  bool read_weights(std::int64_t rank, std::int64_t token, std::span<float> weights) const override {
    if (!trace_.shape().weights) return false;
    std::array<float, Routing::kMaxTopK> all{};
    layer_.read_weights(file_token(rank, token), std::span(all).first(topk()));
    std::copy_n(all.begin(), weights.size(), weights.begin());
    return true;
  }

  [[nodiscard]] bool has_scores() const override { return layer_.has_scores(); }
  [[nodiscard]] bool has_scores(std::int64_t rank, std::int64_t token) const override {
    return file_token(rank, token) < layer_.num_scored_tokens();
  }
  void read_scores(std::int64_t rank, std::int64_t token, std::span<float> scores) const override {
    read_scores_at(file_token(rank, token), scores);
  }
  [[nodiscard]] std::optional<ExpertSimilarity> similarity() const override {
    constexpr std::int64_t kMostTokens = 16'384;  // a table takes tokens x experts x experts operations
    const std::int64_t num_tokens = std::min(layer_.num_scored_tokens(), kMostTokens);
    std::vector<float> scores(static_cast<std::size_t>(num_tokens) * num_experts_);
    for (std::int64_t token = 0; token < num_tokens; ++token)
      read_scores_at(token, std::span(scores).subspan(static_cast<std::size_t>(token) * num_experts_, num_experts_));
    return ExpertSimilarity::from_scores(scores, num_tokens, static_cast<std::int32_t>(num_experts_));
  }

 private:
  [[nodiscard]] TraceLayer checked(const std::string& path, const ShuffleConfig& config) const {
    const TraceShape& shape = trace_.shape();
    if (shape.experts > config.experts)
      fail(ErrorCode::invalid_argument, "--experts {}: {} has {} experts", config.experts, path, shape.experts);
    if (shape.topk < config.topk)
      fail(ErrorCode::invalid_argument, "--topk {}: {} has {} choices per token", config.topk, path, shape.topk);
    if (config.layer >= shape.layers)
      fail(ErrorCode::invalid_argument, "--layer {}: {} has layers 0 to {}", config.layer, path, shape.layers - 1);
    TraceLayer layer = trace_.layer(config.layer);
    if (layer.num_tokens() == 0) fail(ErrorCode::invalid_argument, "{}: layer {} holds no tokens", path, config.layer);
    return layer;
  }

  /// Experts that the trace does not have get score 0.
  void read_scores_at(std::int64_t token, std::span<float> scores) const {
    const auto known = static_cast<std::size_t>(trace_.shape().experts);
    layer_.read_scores(token, scores.first(known));
    std::fill(scores.begin() + static_cast<std::ptrdiff_t>(known), scores.end(), 0.0f);
  }

  /// Lists the tokens of each source, rotated to begin with first_token.
  void sort_by_source(const ShuffleConfig& config) {
    const std::int32_t num_ranks = config.ranks;
    std::vector<std::int32_t> sources(static_cast<std::size_t>(layer_.num_tokens()));
    layer_.read_sources(0, sources);
    tokens_of_.resize(static_cast<std::size_t>(num_ranks));
    bool match_ranks = true;
    for (std::size_t token = 0; token < sources.size() && match_ranks; ++token) {
      match_ranks = sources[token] < num_ranks;
      if (match_ranks) tokens_of_[static_cast<std::size_t>(sources[token])].push_back(static_cast<std::int64_t>(token));
    }
    for (auto& tokens : tokens_of_) {
      match_ranks &= !tokens.empty();
      std::rotate(tokens.begin(), std::lower_bound(tokens.begin(), tokens.end(), config.first_token), tokens.end());
    }
    if (!match_ranks) tokens_of_.clear();
  }

  [[nodiscard]] std::int64_t file_token(std::int64_t rank, std::int64_t token) const {
    if (tokens_of_.empty()) return runs_.file_token(rank, token);
    const auto& own = tokens_of_[static_cast<std::size_t>(rank)];
    return own[static_cast<std::size_t>(token) % own.size()];
  }
  [[nodiscard]] std::size_t topk() const { return static_cast<std::size_t>(trace_.shape().topk); }

  RoutingTrace trace_;
  TraceLayer layer_;
  std::size_t num_experts_;
  Runs runs_;
  std::vector<std::vector<std::int64_t>> tokens_of_;  // by source; empty: ranks use runs
};

}  // namespace

std::unique_ptr<RoutingModel> read_trace(const std::string& path, const ShuffleConfig& config) {
  if (path.empty()) fail(ErrorCode::invalid_argument, "--routing trace: expected a file after the colon");
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    fail(ErrorCode::invalid_argument, "--routing trace: {} is no regular file", path);
  if (RoutingTrace::recognise(path)) return std::make_unique<LayerTrace>(path, config);
  if (config.layer > 0 && config.map_file.empty())
    fail(ErrorCode::invalid_argument, "--layer {}: {} is a text trace, which has layer 0 only", config.layer, path);
  return std::make_unique<TextTrace>(path, config);
}

}  // namespace shunt::bench
