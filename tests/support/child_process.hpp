// A forked process of the test's own, and memory that it shares with the test.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "shunt/error.hpp"

namespace shunt::test {

/// One T that this process and all it forks later share. T must be trivial to destroy.
template <class T>
class SharedAcrossForks {
 public:
  SharedAcrossForks()
      : value_(new (mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}) {}

  T* operator->() const { return value_.get(); }
  T& operator*() const { return *value_; }

 private:
  struct Unmap {
    void operator()(T* value) const { munmap(value, sizeof(T)); }
  };
  std::unique_ptr<T, Unmap> value_;
};

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
  ChildProcess(ChildProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), report_(std::move(other.report_)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  /// Kills and reaps a child that still runs.
  ~ChildProcess();

  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill(int signal) const;
  /// Waits for the end; nothing if the child still runs after the limit, which is a hang.
  std::optional<ChildEnd> wait(std::chrono::seconds limit = std::chrono::seconds(20));

 private:
  struct Report {
    bool returned = false;
    ErrorCode code = ErrorCode::internal;
    std::array<char, 1024> text = {};
  };
  [[noreturn]] void run(const std::function<void()>& body) const noexcept;

  pid_t pid_ = -1;
  SharedAcrossForks<Report> report_;
};

/// Fail the test unless the child's body returns, or throws an Error with this code and these words.
void expect_returned(ChildProcess& child, std::chrono::seconds limit = std::chrono::seconds(40));
void expect_error(ChildProcess& child, ErrorCode code, const std::string& words);

}  // namespace shunt::test
