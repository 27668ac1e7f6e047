// The example of docs/tutorials/on-gpus.md: four ranks as threads that share a GPU, one shuffle there and back.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <shunt/device_engine.hpp>
#include <shunt/shunt.hpp>
#include <vector>

namespace {

template <class T>
shunt::Tensor upload(const shunt::DeviceHeap& heap, shunt::DType dtype, const std::vector<T>& values, std::int64_t rows,
                     std::int64_t cols) {
  auto tensor = heap.allocate(dtype, rows, cols);
  cudaMemcpy(tensor.data, values.data(), tensor.bytes(), cudaMemcpyHostToDevice);
  return tensor;
}

void shuffle_once(shunt::World& world) {
  auto heap = shunt::DeviceHeap(world, {.bytes = 16 << 20});
  auto engine = shunt::DeviceEngine(world, heap, {.hidden = 8, .dtype = shunt::f32, .max_tokens = 2});
  auto map = shunt::ExpertMap::contiguous(16, world.size());

  auto x = upload(heap, shunt::f32, std::vector<float>(2 * 8, 1.0f), 2, 8);  // two tokens of this rank
  // Words of four bytes: there is no integer dtype.
  auto experts = upload(heap, shunt::f32, std::vector<std::int32_t>{0, 5, 15, -1}, 2, 2);
  auto weights = upload(heap, shunt::f32, std::vector<float>{0.25f, 0.75f, 0.5f, 0.0f}, 2, 2);

  auto plan = engine.plan({.experts = reinterpret_cast<const std::int32_t*>(experts.data),
                           .weights = reinterpret_cast<const float*>(weights.data),
                           .num_tokens = 2,
                           .topk = 2},
                          map);
  auto rows = engine.dispatch(plan, x).wait();           // grouped by expert
  auto result = engine.combine(plan, rows.rows).wait();  // [tokens, hidden]

  std::vector<float> out(2 * 8);
  cudaMemcpy(out.data(), result.data, result.bytes(), cudaMemcpyDeviceToHost);
  if (world.rank().value == 0)
    std::printf("rows here: %d, out: %.2f %.2f\n", static_cast<int>(plan.num_rows()), out[0], out[8]);
}

}  // namespace

int main() {
  try {
    shunt::World::spawn(4, shuffle_once);
  } catch (const shunt::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
