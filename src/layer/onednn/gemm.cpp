#include "layer/gemm.hpp"

#include <fmt/format.h>

#include <dnnl.hpp>
#include <unordered_map>

#include "core/fail.hpp"
#include "layer/one_thread.hpp"

namespace shunt {
namespace {

using dnnl::memory;

memory::data_type type_of(DType dtype) { return dtype == bf16 ? memory::data_type::bf16 : memory::data_type::f32; }

}  // namespace

struct Gemm::Impl {
  /// A kernel for one number of rows, which oneDNN compiles in a tenth of a millisecond.
  struct Kernel {
    dnnl::matmul::primitive_desc description;
    dnnl::matmul matmul;
  };

  Impl(DType element, std::int64_t num_inputs, std::int64_t num_outputs)
      : dtype(type_of(element)), inputs(num_inputs), outputs(num_outputs) {}

  const Kernel& kernel_for(std::int64_t rows) {
    if (const auto found = kernels.find(rows); found != kernels.end()) return found->second;
    const memory::desc x({rows, inputs}, dtype, memory::format_tag::ab);
    const memory::desc w({inputs, outputs}, dtype, memory::format_tag::ba);
    const memory::desc y({rows, outputs}, dtype, memory::format_tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(x, w, y), attributes, engine);
    return kernels.emplace(rows, Kernel{description, dnnl::matmul(description)}).first->second;
  }

  memory::data_type dtype;
  std::int64_t inputs;
  std::int64_t outputs;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<std::int64_t, Kernel> kernels;  // by number of rows
  memory scratchpad;
};

std::string Gemm::library() {
  const dnnl_version_t* const version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

// Without the instructions, oneDNN emulates bf16, which is slower than f32.
bool Gemm::has(DType dtype) {
  if (dtype == f32) return true;
  const int isa = static_cast<int>(dnnl::get_effective_cpu_isa());
  const int needed = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return dtype == bf16 && (isa & needed) == needed;
}

Gemm::Gemm(DType dtype, std::int64_t inputs, std::int64_t outputs) {
  SHUNT_CHECK(has(dtype));
  impl_ = std::make_unique<Impl>(dtype, inputs, outputs);
}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::run(const std::byte* x, const std::byte* w, std::byte* y, std::int64_t rows) {
  const OneThread one_thread;  // a kernel keeps the number of threads with which it was made
  try {
    const Impl::Kernel& kernel = impl_->kernel_for(rows);
    const auto memory_of = [&](const memory::desc& description, const std::byte* data) {
      return memory(description, impl_->engine, const_cast<std::byte*>(data));
    };
    const memory::desc scratchpad = kernel.description.scratchpad_desc();
    if (!impl_->scratchpad || impl_->scratchpad.get_desc().get_size() < scratchpad.get_size())
      impl_->scratchpad = memory(scratchpad, impl_->engine);
    kernel.matmul.execute(
        impl_->stream, {{DNNL_ARG_SRC, memory_of(kernel.description.src_desc(), x)},
                        {DNNL_ARG_WEIGHTS, memory_of(kernel.description.weights_desc(), w)},
                        {DNNL_ARG_DST, memory_of(kernel.description.dst_desc(), y)},
                        {DNNL_ARG_SCRATCHPAD, memory(scratchpad, impl_->engine, impl_->scratchpad.get_data_handle())}});
    impl_->stream.wait();
  } catch (const dnnl::error& error) {
    fail(ErrorCode::internal, "oneDNN can't multiply [{}, {}] by [{}, {}]: {}", rows, impl_->inputs, impl_->inputs,
         impl_->outputs, error.what());
  }
}

void run(const Sgemm& product) {
  const OneThread one_thread;
  const auto flag = [](bool is_transposed) { return is_transposed ? 'T' : 'N'; };
  const dnnl_status_t status = dnnl_sgemm(flag(product.transposed_a), flag(product.transposed_b), product.rows,
                                          product.cols, product.inner, 1.0f, product.a, product.leading_a, product.b,
                                          product.leading_b, product.adds ? 1.0f : 0.0f, product.c, product.leading_c);
  if (status != dnnl_success)
    fail(ErrorCode::internal, "oneDNN can't multiply [{}, {}] by [{}, {}]: status {}", product.rows, product.inner,
         product.inner, product.cols, static_cast<int>(status));
}

}  // namespace shunt
