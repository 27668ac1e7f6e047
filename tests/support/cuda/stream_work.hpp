// Work for a stream that needs no host: while ranks wait for each other, tests neither copy nor wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "shunt/stream.hpp"

namespace shunt::test {

/// Before ranks wait for each other: loading a kernel may wait for the device.
void preload_stream_work();

/// Keeps so many blocks of 1024 threads busy for so long; on an H200, 264 leave no room for others.
void delay(std::chrono::microseconds time, unsigned blocks, Stream stream);

/// *first_bad = the smallest number of a comparison that found a difference.
void compare_later(const std::byte* actual, const std::byte* expected, std::size_t bytes, std::uint32_t number,
                   std::uint32_t* first_bad, Stream stream);

}  // namespace shunt::test
