#include "kernels/reduce.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <utility>

#include "kernels/every_target.hpp"
#include "kernels/rows.hpp"
#include "shunt/error.hpp"

namespace shunt::test {
namespace {

// A sum that starts from its first term.
class Sum {
 public:
  void add(float term) { value_ = std::exchange(has_terms_, true) ? value_ + term : term; }
  float take() {
    has_terms_ = false;
    return value_;
  }

 private:
  float value_ = 0;
  bool has_terms_ = false;
};

float reference_element(const std::vector<Term>& terms, const ReduceFormat& format, std::size_t i) {
  if (terms.empty()) return 0.0f;
  Sum rank;
  Sum node;
  Sum total;
  for (const Term& term : terms) {
    rank.add(term.weight * element(term.row, format.terms, i));
    if (term.closes == Closes::nothing) continue;
    node.add(rank.take());
    if (term.closes == Closes::rank) continue;
    const float sum = node.take();
    total.add(term.closes == Closes::remote_node ? rounded_to(sum, format.wire) : sum);
  }
  return rounded_to(total.take(), format.result);
}

std::vector<Term> random_terms(std::mt19937& random, const std::vector<GuardedBytes>& rows) {
  std::vector<Term> terms;
  for (const GuardedBytes& row : rows) {
    const float weight = random() % 4 == 0 ? 1.0f : moderate(random);
    terms.push_back({row.data(), weight, static_cast<Closes>(random() % 4)});
  }
  if (!terms.empty()) terms.back().closes = random() % 2 == 0 ? Closes::node : Closes::remote_node;
  return terms;
}

void check_reduce(DType terms_dtype, DType result_dtype, Store store) {
  EXPECT_TRUE(rc::check([=] {
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    const auto hidden = *rc::gen::inRange<std::size_t>(1, 300);
    const auto num_terms = *rc::gen::oneOf(rc::gen::inRange(0, 12), rc::gen::inRange(0, 100));
    const auto odd_every = *rc::gen::element(0u, 4u, 100u);
    const ReduceFormat format{terms_dtype, *rc::gen::elementOf(kFloatTypes), result_dtype};
    std::vector<GuardedBytes> rows;
    for (int t = 0; t < num_terms; ++t) rows.push_back(random_row(random, format.terms, hidden, odd_every));
    const std::vector<Term> terms = random_terms(random, rows);
    GuardedBytes result(hidden * size_of(format.result), random());
    reduce_row(terms, hidden, format, result.data(), store);
    flush_streaming();
    for (std::size_t i = 0; i < hidden; ++i)
      RC_ASSERT(same(element(result.data(), format.result, i), reference_element(terms, format, i)));
    RC_ASSERT(result.guards_intact());
  })) << to_string(terms_dtype)
      << " to " << to_string(result_dtype);
}

TEST(Reduce, EveryTargetGivesTheScalarResult) {
  on_every_target([] {
    for (const DType terms : kFloatTypes)
      for (const DType result : kFloatTypes)
        for (const Store store : {Store::cached, Store::streaming}) check_reduce(terms, result, store);
  });
}

TEST(Reduce, ASumOfNegativeZerosIsNegativeZeroAndAnEmptyOneIsPositive) {
  const std::vector<float> zeros(70, -0.0f);
  const auto* const row = reinterpret_cast<const std::byte*>(zeros.data());
  const std::vector<Term> terms = {{row, 1.0f, Closes::rank},
                                   {row, 1.0f, Closes::remote_node},
                                   {row, 1.0f, Closes::nothing},
                                   {row, 1.0f, Closes::node}};
  on_every_target([&] {
    for (const std::size_t num_terms : {std::size_t{0}, terms.size()}) {
      std::vector<float> result(zeros.size(), 1.0f);
      reduce_row(std::span(terms).first(num_terms), zeros.size(), {f32, bf16, f32},
                 reinterpret_cast<std::byte*>(result.data()), Store::cached);
      for (const float value : result) EXPECT_TRUE(same(value, num_terms == 0 ? 0.0f : -0.0f));
    }
  });
}

TEST(Reduce, RefusesTermsThatCloseNoNode) {
  const float value = 1.0f;
  float result = 0.0f;
  const std::vector<Term> terms = {{reinterpret_cast<const std::byte*>(&value), 1.0f, Closes::rank}};
  EXPECT_THROW(reduce_row(terms, 1, {f32, f32, f32}, reinterpret_cast<std::byte*>(&result), Store::cached), Error);
}

}  // namespace
}  // namespace shunt::test
