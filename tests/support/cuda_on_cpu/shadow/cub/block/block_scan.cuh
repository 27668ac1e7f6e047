// Stands for CUB's header. Values are added in the order of threads, as CUB does.
#pragma once

namespace cub {

template <class T, int kThreads>
class BlockScan {
 public:
  /// Of kThreads values, and of the sum of all.
  struct TempStorage {
    alignas(T) unsigned char values[kThreads + 1][sizeof(T)];
  };

  explicit BlockScan(TempStorage& storage) : values_(reinterpret_cast<T*>(storage.values)) {}

  template <class Add>
  void ExclusiveScan(T input, T& output, T initial, Add add) {
    scan(input, output, initial, add);
  }
  template <class Add>
  void ExclusiveScan(T input, T& output, T initial, Add add, T& all) {
    all = scan(input, output, initial, add);
  }
  void ExclusiveSum(T input, T& output) { scan(input, output, T{}, Plus()); }
  void ExclusiveSum(T input, T& output, T& all) { all = scan(input, output, T{}, Plus()); }

 private:
  struct Plus {
    T operator()(const T& a, const T& b) const { return a + b; }
  };

  template <class Add>
  T scan(const T& input, T& output, const T& initial, Add add) {
    const unsigned self = ::cuda_on_cpu::thread_of_block();
    values_[self] = input;
    __syncthreads();
    if (self == 0) {
      values_[kThreads] = initial;
      for (int i = 0; i < kThreads; ++i) {
        const T before = values_[kThreads];
        values_[kThreads] = add(before, values_[i]);
        values_[i] = before;
      }
    }
    __syncthreads();
    output = values_[self];
    return values_[kThreads];
  }

  T* values_;
};

}  // namespace cub
