#include "support/traces.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "support/eventually.hpp"

namespace shunt::test {
namespace {

void add_children(std::set<std::string>& traces) {
  std::ifstream children(fmt::format("/proc/self/task/{}/children", getpid()));
  for (int pid = 0; children >> pid;) traces.insert(fmt::format("child process {}", pid));
}

void add_descriptors(std::set<std::string>& traces) {
  std::error_code ignored;  // the descriptor that reads the folder is gone by the time its link is read
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const auto target = std::filesystem::read_symlink(entry.path(), ignored);
    if (!target.empty() && target.string().find("/fd") == std::string::npos)
      traces.insert(fmt::format("descriptor {} → {}", entry.path().filename().string(), target.string()));
  }
}

void add_files(const char* folder, std::set<std::string>& traces) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().find("shunt") != std::string::npos) traces.insert(entry.path().string());
}

void add_abstract_sockets(std::set<std::string>& traces) {
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream columns(line);
    const std::vector<std::string> column{std::istream_iterator<std::string>(columns), {}};
    if (column.size() == 8 && column[7].starts_with("@shunt/"))
      traces.insert(fmt::format("abstract socket {} ({})", column[7], column[6]));
  }
}

}  // namespace

std::set<std::string> find_traces() {
  std::set<std::string> traces;
  add_children(traces);
  add_descriptors(traces);
  add_files("/dev/shm", traces);
  add_files("/tmp", traces);
  add_abstract_sockets(traces);
  return traces;
}

void expect_no_new_traces(const std::set<std::string>& before) {
  std::set<std::string> left = find_traces();
  std::erase_if(left, [&](const std::string& trace) { return before.contains(trace); });
  // A trace counts if it is there each time one looks.
  const auto are_gone = [&] {
    std::erase_if(left, [now = find_traces()](const std::string& trace) { return !now.contains(trace); });
    return left.empty();
  };
  (void)eventually(are_gone, std::chrono::seconds(10));
  for (const auto& trace : left) ADD_FAILURE() << "left behind: " << trace;
}

void LeavesNoTrace::SetUp() { before_ = find_traces(); }
void LeavesNoTrace::TearDown() { expect_no_new_traces(before_); }

}  // namespace shunt::test
