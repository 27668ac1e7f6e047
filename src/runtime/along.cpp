// Ops that process the elements along a dimension together: one row for each element of the other dimensions.
#include <algorithm>
#include <cmath>

#include "runtime/kernels.hpp"
#include "runtime/rows.hpp"
#include "runtime/vector_math.hpp"

namespace shunt::runtime::kernels {
namespace {

using Dims = std::vector<graph::DimId>;

/// The id of a token. Throws Error(invalid_argument) if it is not in the vocabulary.
std::int64_t checked_id(const std::byte* at, std::int64_t vocabulary) {
  const std::int32_t id = *reinterpret_cast<const std::int32_t*>(at);
  if (id < 0 || id >= vocabulary)
    fail(ErrorCode::invalid_argument, "there is no token {} in a vocabulary of {}", id, vocabulary);
  return id;
}

}  // namespace

void softmax(const OpCall& call) {
  const View &x = call.in(0), &y = call.out();
  const Dims& over = call.op.attributes.dims("over");
  const Dims& causal = call.op.attributes.dims("causal");
  const auto by = static_cast<float>(call.real("scale", 1));
  const std::vector<Axis> outer = axes_without(x, over);
  const std::size_t query = causal.empty() ? outer.size() : place_of(outer, causal.front());
  const std::int64_t first = causal.empty() ? 0 : call.begin_of(causal.front());
  Row scores(x, over), shares(y, over);
  for_each_index<2>(outer, {&x, &y}, [&](const auto& index, const std::array<std::byte*, 2>& at) {
    const float* const from = scores.load(at[0]);
    float* const to = shares.memory(at[1]);
    const std::size_t seen =
        causal.empty() ? scores.size() : std::min(scores.size(), static_cast<std::size_t>(index[query] + first + 1));
    const float total = exponentials(from, by, by * largest(from, seen), to, seen);
    runtime::scale(to, 1 / total, to, seen);
    std::fill(to + seen, to + shares.size(), 0.0f);
    shares.store(at[1]);
  });
}

void softmax_dx(const OpCall& call) {
  const View &dy = call.in(0), &y = call.in(1), &dx = call.out();
  const Dims& over = call.op.attributes.dims("over");
  const auto by = static_cast<float>(call.real("scale", 1));
  Row gradients(dy, over), shares(y, over), results(dx, over);
  for_each_index<3>(axes_without(y, over), {&dy, &y, &dx}, [&](const auto&, const std::array<std::byte*, 3>& at) {
    const float *const g = gradients.load(at[0]), *const s = shares.load(at[1]);
    float* const to = results.memory(at[2]);
    const float mean = dot(g, s, shares.size());
    for (std::size_t i = 0; i < shares.size(); ++i) to[i] = by * s[i] * (g[i] - mean);
    results.store(at[2]);
  });
}

namespace {

/// What normalising a row subtracts and multiplies with.
struct Moments {
  float mean, scale;

  Moments(const OpCall& call, const float* row, std::size_t size) {
    const auto count = static_cast<float>(size);
    mean = call.op.attributes.text("kind") == "layer" ? sum(row, size) / count : 0.0f;
    float square = 0;
    for (std::size_t i = 0; i < size; ++i) square += (row[i] - mean) * (row[i] - mean);
    scale = 1 / std::sqrt(square / count + static_cast<float>(call.real("eps")));
  }
};

}  // namespace

void norm(const OpCall& call) {
  const View &x = call.in(0), &y = call.out();
  const Dims& over = call.op.attributes.dims("over");
  Row rows(x, over), results(y, over), gains(call.in(1), over);
  const float* const gain = gains.load(call.in(1).data);
  std::vector<float> shift(rows.size());
  if (call.operands.size() == 3) {
    Row shifts(call.in(2), over);
    std::copy_n(shifts.load(call.in(2).data), shift.size(), shift.begin());
  }
  for_each_index<2>(axes_without(x, over), {&x, &y}, [&](const auto&, const std::array<std::byte*, 2>& at) {
    const float* const row = rows.load(at[0]);
    float* const to = results.memory(at[1]);
    const Moments moments(call, row, rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) to[i] = (row[i] - moments.mean) * moments.scale * gain[i] + shift[i];
    results.store(at[1]);
  });
}

void norm_dx(const OpCall& call) {
  const View &dy = call.in(0), &x = call.in(1), &dx = call.out();
  const Dims& over = call.op.attributes.dims("over");
  const bool is_layer = call.op.attributes.text("kind") == "layer";
  Row gradients(dy, over), rows(x, over), results(dx, over), gains(call.in(2), over);
  const float* const gain = gains.load(call.in(2).data);
  std::vector<float> scaled(rows.size());
  for_each_index<3>(axes_without(x, over), {&dy, &x, &dx}, [&](const auto&, const std::array<std::byte*, 3>& at) {
    const float *const g = gradients.load(at[0]), *const row = rows.load(at[1]);
    float* const to = results.memory(at[2]);
    const std::size_t size = rows.size();
    const Moments moments(call, row, size);
    runtime::multiply(g, gain, scaled.data(), size);
    const auto count = static_cast<float>(size);
    const float mean = sum(scaled.data(), size) / count;
    const float along = (dot(scaled.data(), row, size) - moments.mean * mean * count) * moments.scale / count;
    for (std::size_t i = 0; i < size; ++i) {
      const float normalised = (row[i] - moments.mean) * moments.scale;
      to[i] = moments.scale * (scaled[i] - (is_layer ? mean : 0.0f) - normalised * along);
    }
    results.store(at[2]);
  });
}

void norm_dw(const OpCall& call) {
  const View &dy = call.in(0), &x = call.in(1), &dw = call.out();
  const Dims& over = call.op.attributes.dims("over");
  Row gradients(dy, over), rows(x, over), results(dw, over);
  std::vector<float> sums(rows.size());
  for_each_index<2>(axes_without(x, over), {&dy, &x}, [&](const auto&, const std::array<std::byte*, 2>& at) {
    const float *const g = gradients.load(at[0]), *const row = rows.load(at[1]);
    const Moments moments(call, row, rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) sums[i] += g[i] * (row[i] - moments.mean) * moments.scale;
  });
  std::ranges::copy(sums, results.memory(dw.data));
  results.store(dw.data);
}

// The halves of a row are rotated against each other, as in GPT-NeoX (arXiv 2104.09864 pairs neighbours instead).
void rope(const OpCall& call) {
  const View &x = call.in(0), &y = call.out();
  const Dims& over = call.op.attributes.dims("over");
  const graph::DimId sequence = call.dim("sequence");
  const std::vector<Axis> outer = axes_without(x, over);
  const std::size_t position = place_of(outer, sequence);
  const std::int64_t first = call.begin_of(sequence);
  Row rows(x, over), results(y, over);
  const std::size_t half = rows.size() / 2;
  const double sign = call.integer("inverse") != 0 ? -1 : 1;
  // Angles of a position are those of all its rows.
  std::vector<float> cosines, sines;
  for (std::int64_t p = 0; p < x.find(sequence)->size; ++p)
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = sign * static_cast<double>(p + first) *
                           std::pow(call.real("base"), -static_cast<double>(i) / static_cast<double>(half));
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  for_each_index<2>(outer, {&x, &y}, [&](const auto& index, const std::array<std::byte*, 2>& at) {
    const float* const from = rows.load(at[0]);
    float* const to = results.memory(at[1]);
    const std::size_t begin = static_cast<std::size_t>(index[position]) * half;
    for (std::size_t i = 0; i < half; ++i) {
      const float low = from[i], high = from[i + half];
      to[i] = low * cosines[begin + i] - high * sines[begin + i];
      to[i + half] = high * cosines[begin + i] + low * sines[begin + i];
    }
    if (rows.size() % 2 != 0) to[2 * half] = from[2 * half];
    results.store(at[1]);
  });
}

void cross_entropy(const OpCall& call) {
  const View &logits = call.in(0), &targets = call.in(1);
  const Dims& over = call.op.attributes.dims("over");
  Row rows(logits, over);
  std::vector<float> exps(rows.size());
  double total = 0;
  for_each_index<2>(targets.axes, {&logits, &targets}, [&](const auto&, const std::array<std::byte*, 2>& at) {
    const float* const row = rows.load(at[0]);
    const float most = largest(row, rows.size());
    const float sum = exponentials(row, 1, most, exps.data(), rows.size());
    total += std::log(sum) + most - row[checked_id(at[1], static_cast<std::int64_t>(rows.size()))];
  });
  *call.out().f32() = static_cast<float>(total / static_cast<double>(call.integer("tokens")));
}

void cross_entropy_dx(const OpCall& call) {
  const View &logits = call.in(1), &targets = call.in(2), &result = call.out();
  const Dims& over = call.op.attributes.dims("over");
  const float by = *call.in(0).f32() / static_cast<float>(call.integer("tokens"));
  Row rows(logits, over), results(result, over);
  for_each_index<3>(targets.axes, {&logits, &targets, &result}, [&](const auto&, const std::array<std::byte*, 3>& at) {
    const float* const row = rows.load(at[0]);
    float* const to = results.memory(at[2]);
    const float sum = exponentials(row, 1, largest(row, rows.size()), to, rows.size());
    runtime::scale(to, by / sum, to, rows.size());
    to[*reinterpret_cast<const std::int32_t*>(at[1])] -= by;
    results.store(at[2]);
  });
}

void embedding(const OpCall& call) {
  const View &ids = call.in(0), &table = call.in(1), &y = call.out();
  const Axis& vocabulary = call.axis_of_role(table, graph::DimRole::vocabulary);
  std::vector<Axis> features = axes_without(table, std::array{vocabulary.dim});
  for_each_index<2>(ids.axes, {&ids, &y}, [&](const auto&, const std::array<std::byte*, 2>& at) {
    View from = table, to = y;
    from.data += checked_id(at[0], vocabulary.size) * vocabulary.stride * 4;
    to.data = at[1];
    for_each_run<2>(features, {&from, &to}, [](const Run<2>& run, const std::array<std::byte*, 2>& begin) {
      for (std::int64_t i = 0; i < run.count; ++i)
        reinterpret_cast<float*>(begin[1])[i * run.strides[1]] =
            reinterpret_cast<const float*>(begin[0])[i * run.strides[0]];
    });
  });
}

void embedding_dw(const OpCall& call) {
  const View &ids = call.in(0), &dy = call.in(1), &table = call.out();
  const Axis& vocabulary = call.axis_of_role(table, graph::DimRole::vocabulary);
  const std::vector<Axis> features = axes_without(table, std::array{vocabulary.dim});
  clear(table);
  for_each_index<2>(ids.axes, {&ids, &dy}, [&](const auto&, const std::array<std::byte*, 2>& at) {
    View from = dy, to = table;
    from.data = at[1];
    to.data += *reinterpret_cast<const std::int32_t*>(at[0]) * vocabulary.stride * 4;
    for_each_run<2>(features, {&from, &to}, [](const Run<2>& run, const std::array<std::byte*, 2>& begin) {
      for (std::int64_t i = 0; i < run.count; ++i)
        reinterpret_cast<float*>(begin[1])[i * run.strides[1]] +=
            reinterpret_cast<const float*>(begin[0])[i * run.strides[0]];
    });
  });
}

}  // namespace shunt::runtime::kernels
