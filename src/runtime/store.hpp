// Values that outlive a step: parameters, states and inputs, by name. Graphs of one model share them.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "core/fail.hpp"
#include "layer/aligned_buffer.hpp"

namespace shunt::runtime {

class Store {
 public:
  /// The memory of a value of this many elements, zero when it is new. Its address never changes.
  std::byte* memory(const std::string& name, std::size_t count) {
    Value& value = values_[name];
    if (!value.count) value = {count, {}};
    if (value.count != count)
      fail(ErrorCode::invalid_argument, "%{} has {} elements, not {}", name, value.count, count);
    value.memory.reserve(count * sizeof(float));
    return value.memory.data();
  }

 private:
  struct Value {
    std::size_t count = 0;
    AlignedBuffer memory;
  };
  std::map<std::string, Value> values_;
};

}  // namespace shunt::runtime
