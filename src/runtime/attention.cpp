// Causal attention without keeping its scores, block by block of queries (as FlashAttention, arXiv 2205.14135).
#include <algorithm>
#include <cmath>

#include "runtime/contraction.hpp"
#include "runtime/kernels.hpp"
#include "runtime/rows.hpp"
#include "runtime/vector_math.hpp"

namespace shunt::runtime::kernels {
namespace {

using graph::DimId;

/// Queries whose scores are computed at a time; keys behind the last of them are left out.
constexpr std::int64_t kQueries = 64;

/// What one head of one sequence has of views: an element of each of the `outer` dimensions that they have.
std::vector<View> of_head(std::span<const View> views, const std::vector<Axis>& outer,
                          std::span<const std::int64_t> index) {
  std::vector<View> all(views.begin(), views.end());
  for (View& view : all)
    for (std::size_t i = 0; i < outer.size(); ++i)
      if (view.find(outer[i].dim)) view = element(view, outer[i].dim, index[i]);
  return all;
}

/// A block of queries and the keys that they see, with memory for two matrices of them: scores and their gradients.
class Block {
 public:
  explicit Block(const OpCall& call) : call_(call), sequence_(call.dim("sequence")), key_(call.dim("key")) {}

  /// Calls visit() for each block of a sequence; what follows is about the block that is visited.
  template <class Visit>
  void for_each(std::int64_t num_queries, std::int64_t num_keys, const Visit& visit) {
    const std::int64_t first = call_.begin_of(sequence_);
    for (begin_ = 0; begin_ < num_queries; begin_ += kQueries) {
      size_ = std::min(kQueries, num_queries - begin_);
      num_keys_ = std::min(num_keys, first + begin_ + size_);
      for (std::vector<float>* memory : {&scores_, &gradients_})
        memory->resize(static_cast<std::size_t>(size_ * num_keys_));
      visit();
    }
  }
  [[nodiscard]] View queries(const View& view) const { return slice(view, sequence_, begin_, size_); }
  [[nodiscard]] View keys(const View& view) const { return slice(view, key_, 0, num_keys_); }
  [[nodiscard]] View scores() { return matrix(scores_); }
  [[nodiscard]] View gradients() { return matrix(gradients_); }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::size_t num_keys() const { return static_cast<std::size_t>(num_keys_); }
  /// Keys that a query of the block sees.
  [[nodiscard]] std::size_t num_seen(std::int64_t query) const {
    return static_cast<std::size_t>(std::min(num_keys_, call_.begin_of(sequence_) + begin_ + query + 1));
  }
  [[nodiscard]] float* row(std::vector<float>& of, std::int64_t query) const {
    return &of[static_cast<std::size_t>(query * num_keys_)];
  }
  [[nodiscard]] float* score_row(std::int64_t query) { return row(scores_, query); }
  [[nodiscard]] float* gradient_row(std::int64_t query) { return row(gradients_, query); }

  void compute_scores(std::span<const View> pairs) {
    Result result = Result::overwritten;
    for (std::size_t pair = 0; pair + 1 < pairs.size(); pair += 2) {
      contract(queries(pairs[pair]), keys(pairs[pair + 1]), call_.op.attributes.dims("over"), scores(), result);
      result = Result::added_to;
    }
  }

 private:
  [[nodiscard]] View matrix(std::vector<float>& memory) const {
    return contiguous(reinterpret_cast<std::byte*>(memory.data()), graph::Element::f32,
                      {{sequence_, size_, 0}, {key_, num_keys_, 0}});
  }

  const OpCall& call_;
  DimId sequence_, key_;
  std::int64_t begin_ = 0, size_ = 0, num_keys_ = 0;
  std::vector<float> scores_, gradients_;
};

}  // namespace

void attention(const OpCall& call) {
  const std::array sequence = {call.dim("sequence")}, key = {call.dim("key")};
  const auto by = static_cast<float>(call.real("scale"));
  const View& log_sums = call.out(1);
  const std::vector<Axis> outer = axes_without(log_sums, sequence);
  Block block(call);
  for_each_index<1>(outer, {&log_sums}, [&](const auto& index, const auto&) {
    const std::vector<View> inputs = of_head(call.operands, outer, index),
                            results = of_head(call.results, outer, index);
    const View &out = results[0], &log_sum = results[1];
    block.for_each(log_sum.count(), inputs.back().find(key[0])->size, [&] {
      block.compute_scores(std::span(inputs).first(inputs.size() - 1));
      const View sums = block.queries(log_sum);
      for (std::int64_t query = 0; query < block.size(); ++query) {
        float* const row = block.score_row(query);
        const std::size_t seen = block.num_seen(query);
        const float most = by * largest(row, seen);
        const float total = exponentials(row, by, most, row, seen);
        runtime::scale(row, 1 / total, row, seen);
        std::fill(row + seen, row + block.num_keys(), 0.0f);
        sums.f32()[query * sums.stride(sequence[0])] = most + std::log(total);
      }
      contract(block.scores(), block.keys(inputs.back()), key, block.queries(out));
    });
  });
}

void attention_dx(const OpCall& call) {
  const std::array sequence = {call.dim("sequence")}, key = {call.dim("key")};
  const auto by = static_cast<float>(call.real("scale"));
  const View& log_sums = call.in(2);
  const std::vector<Axis> outer = axes_without(log_sums, sequence);
  const std::size_t num_pairs = (call.operands.size() - 4) / 2;
  std::vector<DimId> of_values;  // dimensions of a value's elements
  for (const Axis& axis : axes_without(call.in(0), std::vector<DimId>()))
    if (!log_sums.find(axis.dim)) of_values.push_back(axis.dim);
  for (const View& gradient : call.results) clear(gradient);  // what several heads share adds up
  Block block(call);
  for_each_index<1>(outer, {&log_sums}, [&](const auto& index, const auto&) {
    const std::vector<View> inputs = of_head(call.operands, outer, index);
    const std::vector<View> gradients = of_head(call.results, outer, index);
    const View &dout = inputs[0], &out = inputs[1], &log_sum = inputs[2], &values = inputs.back();
    const auto pairs = std::span(inputs).subspan(3, 2 * num_pairs);
    block.for_each(log_sum.count(), values.find(key[0])->size, [&] {
      const View dout_here = block.queries(dout), out_here = block.queries(out), sums = block.queries(log_sum);
      block.compute_scores(pairs);
      for (std::int64_t query = 0; query < block.size(); ++query) {
        float* const row = block.score_row(query);
        const std::size_t seen = block.num_seen(query);
        (void)exponentials(row, by, sums.f32()[query * sums.stride(sequence[0])], row, seen);
        std::fill(row + seen, row + block.num_keys(), 0.0f);
      }
      contract(block.scores(), dout_here, sequence, block.keys(gradients.back()), Result::added_to);
      contract(dout_here, block.keys(values), of_values, block.gradients());
      Row douts(dout_here, of_values), outs(out_here, of_values);
      for (std::int64_t query = 0; query < block.size(); ++query) {
        const auto at = [&](const View& view) { return view.data + query * view.stride(sequence[0]) * 4; };
        const float along = dot(douts.load(at(dout_here)), outs.load(at(out_here)), douts.size());
        const float* const shares = block.score_row(query);
        float* const row = block.gradient_row(query);
        for (std::size_t i = 0; i < block.num_keys(); ++i) row[i] = by * shares[i] * (row[i] - along);
      }
      for (std::size_t pair = 0; pair < num_pairs; ++pair) {
        contract(block.gradients(), block.keys(pairs[2 * pair + 1]), key, block.queries(gradients[2 * pair]),
                 Result::added_to);
        contract(block.gradients(), block.queries(pairs[2 * pair]), sequence, block.keys(gradients[2 * pair + 1]),
                 Result::added_to);
      }
    });
  });
}

}  // namespace shunt::runtime::kernels
