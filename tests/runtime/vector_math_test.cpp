// Vectors compute what the C library computes in double precision, for runs of every length and in place.
#include "runtime/vector_math.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace shunt::runtime::test {
namespace {

using Values = std::vector<float>;

Values random_values(std::size_t count, std::uint32_t seed, float most = 6) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-most, most);
  Values all(count);
  for (float& value : all) value = values(random);
  return all;
}

double normal_integral(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

struct Reference {
  Function function;
  std::function<double(double)> value, slope;
};

const Reference kFunctions[] = {
    {Function::gelu, [](double x) { return x * normal_integral(x); },
     [](double x) { return normal_integral(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0)); }},
    {Function::silu, [](double x) { return x * logistic(x); },
     [](double x) { return logistic(x) * (1 + x * (1 - logistic(x))); }},
    {Function::relu, [](double x) { return std::max(x, 0.0); }, [](double x) { return x > 0 ? 1.0 : 0.0; }},
    {Function::sigmoid, logistic, [](double x) { return logistic(x) * (1 - logistic(x)); }}};

TEST(VectorMath, AppliesFunctionsAndTheirDerivatives) {
  for (const Reference& reference : kFunctions)
    for (const std::size_t count : {0u, 1u, 7u, 16u, 33u, 200u}) {
      const Values x = random_values(count, 1, 12), dy = random_values(count, 2);
      Values y(x), dx(dy);
      apply(reference.function, y.data(), y.data(), count);
      apply_derivative(reference.function, dx.data(), x.data(), dx.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_NEAR(y[i], reference.value(x[i]), 2e-6) << x[i];
        EXPECT_NEAR(dx[i], dy[i] * reference.slope(x[i]), 1e-5) << x[i];
      }
    }
}

TEST(VectorMath, KeepsWhatIsNoNumber) {
  for (const Reference& reference : kFunctions) {
    Values x = random_values(40, 1);
    x[3] = x[37] = NAN;
    Values y(x.size());
    apply(reference.function, x.data(), y.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(y[i]), std::isnan(x[i])) << i;
  }
  Values x = random_values(20, 2), y(x.size());
  x[5] = NAN;
  EXPECT_TRUE(std::isnan(exponentials(x.data(), 1, 0, y.data(), x.size())));
}

TEST(VectorMath, SumsUpRuns) {
  for (std::size_t count = 0; count < 70; ++count) {
    const Values a = random_values(count, 3), b = random_values(count, 4);
    double sums = 0, products = 0;
    float most = -INFINITY;
    for (std::size_t i = 0; i < count; ++i) {
      sums += a[i];
      products += static_cast<double>(a[i]) * b[i];
      most = std::max(most, a[i]);
    }
    EXPECT_NEAR(sum(a.data(), count), sums, 1e-4);
    EXPECT_NEAR(dot(a.data(), b.data(), count), products, 1e-3);
    EXPECT_EQ(largest(a.data(), count), most);
  }
}

TEST(VectorMath, ExponentialsOfScoresAddUp) {
  const Values x = random_values(37, 5, 40);
  const float most = 0.5f * largest(x.data(), x.size());
  Values y(x);
  double expected = 0;
  for (const float each : x) expected += std::exp(0.5 * each - most);
  EXPECT_NEAR(exponentials(y.data(), 0.5f, most, y.data(), y.size()), expected, 1e-5);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], std::exp(0.5 * x[i] - most), 1e-6);
}

TEST(VectorMath, SwigluAndItsGradients) {
  const Values gate = random_values(53, 6), up = random_values(53, 7), dy = random_values(53, 8);
  Values y(53), dgate(53), dup(53);
  swiglu(gate.data(), up.data(), y.data(), 53);
  swiglu_dx(dy.data(), gate.data(), up.data(), dgate.data(), dup.data(), 53);
  for (std::size_t i = 0; i < 53; ++i) {
    EXPECT_NEAR(y[i], kFunctions[1].value(gate[i]) * up[i], 1e-4);
    EXPECT_NEAR(dgate[i], dy[i] * up[i] * kFunctions[1].slope(gate[i]), 1e-4);
    EXPECT_NEAR(dup[i], dy[i] * kFunctions[1].value(gate[i]), 1e-4);
  }
}

TEST(VectorMath, SumsOfTwoRuns) {
  const Values a = random_values(29, 9), b = random_values(29, 10);
  Values sums(29), products(29), scaled(29), added(b);
  add(a.data(), b.data(), sums.data(), 29);
  multiply(a.data(), b.data(), products.data(), 29);
  scale(a.data(), 3, scaled.data(), 29);
  add_scaled(a.data(), 3, added.data(), 29);
  for (std::size_t i = 0; i < 29; ++i) {
    EXPECT_EQ(sums[i], a[i] + b[i]);
    EXPECT_EQ(products[i], a[i] * b[i]);
    EXPECT_EQ(scaled[i], a[i] * 3);
    EXPECT_NEAR(added[i], a[i] * 3 + b[i], 1e-5);
  }
}

// Two steps by the definition, in double precision; the first one moves each parameter by the rate.
TEST(VectorMath, AdamCorrectsTheBiasOfItsMoments) {
  constexpr std::size_t kCount = 21;
  Values param = random_values(kCount, 11), first(kCount), second(kCount);
  std::vector<double> expected(param.begin(), param.end()), m(kCount), v(kCount);
  for (const int number : {1, 2}) {
    const Values gradient = random_values(kCount, 12 + static_cast<std::uint32_t>(number));
    const double correction1 = 1 / (1 - std::pow(0.9, number)), correction2 = 1 / (1 - std::pow(0.95, number));
    adam({0.9f, 0.95f, 1e-8f, 0.01f, static_cast<float>(correction1), static_cast<float>(correction2)}, gradient.data(),
         param.data(), first.data(), second.data(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      m[i] = 0.9 * m[i] + 0.1 * gradient[i];
      v[i] = 0.95 * v[i] + 0.05 * gradient[i] * gradient[i];
      const double change = 0.01 * m[i] * correction1 / (std::sqrt(v[i] * correction2) + 1e-8);
      if (number == 1) {
        EXPECT_NEAR(std::abs(change), 0.01, 1e-6);
      }
      expected[i] -= change;
      EXPECT_NEAR(param[i], expected[i], 1e-5);
    }
  }
}

}  // namespace
}  // namespace shunt::runtime::test
