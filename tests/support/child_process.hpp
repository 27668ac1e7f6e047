// A forked process of the test's own, and memory that it shares with the test.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "core/descriptor.hpp"
#include "shunt/error.hpp"

namespace shunt::test {

/// How a child ended; `error` and `code` are what its body threw.
struct ChildEnd {
  int signal = 0;
  bool returned = false;
  ErrorCode code = ErrorCode::internal;
  std::string error;
};

class ChildProcess {
 public:
  explicit ChildProcess(const std::function<void()>& body);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)), pipe_(std::move(other.pipe_)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  /// Kills and reaps a child that still runs.
  ~ChildProcess();

  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill(int signal) const;
  /// Waits for the end; nothing if the child still runs after the limit, which is a hang.
  std::optional<ChildEnd> wait(std::chrono::seconds limit = std::chrono::seconds(20));

 private:
  pid_t pid_ = -1;
  Descriptor pipe_;
};

/// Fail the test unless the child's body returns, or throws an Error with this code and these words.
void expect_returned(ChildProcess& child, std::chrono::seconds limit = std::chrono::seconds(40));
void expect_error(ChildProcess& child, ErrorCode code, const std::string& words);

/// One T that this process and all it forks later share. T must be trivial to destroy.
template <class T>
class SharedAcrossForks {
 public:
  SharedAcrossForks()
      : value_(new (mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}) {}
  SharedAcrossForks(const SharedAcrossForks&) = delete;
  SharedAcrossForks& operator=(const SharedAcrossForks&) = delete;
  ~SharedAcrossForks() { munmap(value_, sizeof(T)); }

  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

}  // namespace shunt::test
