// Experts with small random weights, on the device and on the host, and rows for them.
#pragma once

#include <random>
#include <span>
#include <vector>

#include "bench/reference/expert.hpp"
#include "bench/reference/rows.hpp"
#include "kernels/cuda/mlp/expert_mlp.hpp"
#include "support/cuda/device.hpp"

namespace shunt::test {

class SmallExperts {
 public:
  SmallExperts(std::mt19937& random, DType dtype, std::int64_t hidden, std::int64_t ffn, std::int32_t num_experts);

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::int64_t hidden() const { return hidden_; }
  [[nodiscard]] std::int64_t ffn() const { return ffn_; }
  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(host_.size()); }
  [[nodiscard]] const ReferenceExpert& host(std::size_t expert) const { return host_[expert]; }
  [[nodiscard]] device::ExpertWeights weights() const { return {gate_up_, down_}; }
  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(hidden_) * size_of(dtype_); }

  /// Random values that the dtype represents exactly.
  [[nodiscard]] std::vector<float> random_rows(std::mt19937& random, std::int64_t rows) const;

  /// Device memory, freed with this object.
  [[nodiscard]] std::byte* upload_values(std::span<const float> values);
  template <class T>
  [[nodiscard]] T* upload_as(std::span<const T> values) {
    std::byte* const data = arena_.take(values.size_bytes());
    upload(data, std::as_bytes(values), nullptr);
    return reinterpret_cast<T*>(data);
  }
  /// Device memory that is not zeroed.
  [[nodiscard]] std::byte* take_rows(std::int64_t rows);
  [[nodiscard]] std::vector<float> download_row(const std::byte* rows, std::int64_t row) const;

 private:
  DType dtype_;
  std::int64_t hidden_;
  std::int64_t ffn_;
  Arena arena_{std::size_t{256} << 20};
  std::vector<ReferenceExpert> host_;
  std::byte* gate_up_ = nullptr;
  std::byte* down_ = nullptr;
};

}  // namespace shunt::test
