#include "cli/shuffle/trace.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/fail.hpp"

namespace shunt::cli {
namespace {

constexpr std::int32_t kDropped = -1;

}  // namespace

Trace Trace::read(const std::string& path, std::int32_t num_experts, std::int32_t topk, std::int64_t tokens_per_rank) {
  if (path.empty()) fail(ErrorCode::invalid_argument, "--routing trace: expected a file after the colon");
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    fail(ErrorCode::invalid_argument, "--routing trace: {} is no regular file, which every rank could read", path);
  std::ifstream file(path);
  if (!file) fail(ErrorCode::invalid_argument, "--routing trace: {} can't be opened", path);
  Trace trace;
  trace.tokens_per_rank_ = tokens_per_rank;
  trace.topk_ = static_cast<std::size_t>(topk);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (file.eof()) fail(ErrorCode::invalid_argument, "{}:{}: the line has no end, is the file whole?", path, number);
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::vector<std::int32_t> experts;
    for (std::int32_t expert = 0; words >> expert;) {
      if (expert < kDropped || expert >= num_experts)
        fail(ErrorCode::invalid_argument, "{}:{}: expert {} is not in 0 to {}, nor -1 (dropped)", path, number, expert,
             num_experts - 1);
      if (expert != kDropped && std::find(experts.begin(), experts.end(), expert) != experts.end())
        fail(ErrorCode::invalid_argument, "{}:{}: expert {} stands twice", path, number, expert);
      experts.push_back(expert);
    }
    if (!words.eof())
      fail(ErrorCode::invalid_argument, "{}:{}: expected expert numbers separated by spaces", path, number);
    if (experts.size() < trace.topk_)
      fail(ErrorCode::invalid_argument, "{}:{}: {} experts, expected at least {}", path, number, experts.size(), topk);
    trace.experts_.insert(trace.experts_.end(), experts.begin(), experts.begin() + topk);
  }
  if (file.bad()) fail(ErrorCode::system, "{}: can't be read", path);
  if (trace.experts_.empty()) fail(ErrorCode::invalid_argument, "{}: holds no tokens", path);
  return trace;
}

void Trace::draw(std::mt19937_64&, std::int64_t rank, std::int64_t token, std::span<std::int32_t> experts) const {
  const auto line = static_cast<std::size_t>(rank * tokens_per_rank_ + token) % (experts_.size() / topk_);
  std::copy_n(experts_.begin() + static_cast<std::ptrdiff_t>(line * topk_), topk_, experts.begin());
}

}  // namespace shunt::cli
