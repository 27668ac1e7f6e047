#include "runtime/corpus.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/fail.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"

namespace shunt::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFileBytes = std::size_t{1} << 32;
constexpr std::uint64_t kOneHeldOutOf = 10;
constexpr std::string_view kSuffixes[] = {".cpp", ".hpp", ".cu", ".cuh", ".py", ".md"};

std::uint64_t hash_of_text(std::string_view text) {
  Hasher hasher;
  for (const char c : text) hasher.add(static_cast<unsigned char>(c));
  return hasher.value();
}

void append(std::vector<std::uint8_t>& to, std::string_view text) {
  to.push_back(0);
  to.insert(to.end(), text.begin(), text.end());
}

/// Paths are relative to the folder, ascending.
Corpus read_files(const fs::path& folder, const std::vector<std::string>& paths) {
  Corpus corpus;
  for (const std::string& path : paths) {
    const std::string text = read_file(folder / path, kMostFileBytes);
    if (text.find('\0') != std::string::npos) continue;
    append(hash_of_text(path) % kOneHeldOutOf == 0 ? corpus.held_out : corpus.training, text);
    ++corpus.num_files;
  }
  return corpus;
}

std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> paths;
  const auto options = fs::directory_options::skip_permission_denied;
  for (auto at = fs::recursive_directory_iterator(folder, options); at != fs::recursive_directory_iterator(); ++at) {
    const bool is_hidden = at->path().filename().native().starts_with('.');
    if (is_hidden && at->is_directory()) at.disable_recursion_pending();
    if (!is_hidden && at->is_regular_file()) paths.push_back(at->path().lexically_relative(folder));
  }
  std::ranges::sort(paths);
  return paths;
}

Corpus checked(Corpus corpus, const std::string& source, std::size_t least_bytes) {
  for (const auto& [part, bytes] :
       {std::pair("to train on", corpus.training.size()), std::pair("held out", corpus.held_out.size())})
    if (bytes < least_bytes)
      fail(ErrorCode::invalid_argument, "{}: {} bytes of {} files are {}, and a sequence needs {}; give more text",
           source, bytes, corpus.num_files, part, least_bytes);
  return corpus;
}

/// The paths that git tracks in a repository; empty if there is no git or no repository.
std::vector<std::string> tracked_files(const fs::path& root) {
  std::string quoted;
  for (const char c : root.native()) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const std::string command = fmt::format("git -C '{}' ls-files -z 2>/dev/null", quoted);
  const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> paths;
  if (!output) return paths;
  std::string path;
  for (int c = 0; (c = std::fgetc(output.get())) != EOF;) {
    if (c != 0) {
      path.push_back(static_cast<char>(c));
      continue;
    }
    const bool is_text =
        std::ranges::any_of(kSuffixes, [&](std::string_view suffix) { return path.ends_with(suffix); });
    if (is_text && fs::is_regular_file(root / path)) paths.push_back(path);
    path.clear();
  }
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

Corpus read_corpus(const std::string& file_or_folder, std::size_t least_bytes) {
  if (fs::is_directory(file_or_folder))
    return checked(read_files(file_or_folder, files_below(file_or_folder)), file_or_folder, least_bytes);
  const std::string text = read_file(file_or_folder, kMostFileBytes);
  const std::string_view all = text;
  const std::size_t held_out = all.size() / kOneHeldOutOf;
  Corpus corpus;
  append(corpus.training, all.substr(0, all.size() - held_out));
  append(corpus.held_out, all.substr(all.size() - held_out));
  corpus.num_files = 1;
  return checked(std::move(corpus), file_or_folder, least_bytes);
}

Corpus read_own_repository(std::size_t least_bytes) {
  for (fs::path folder = fs::read_symlink("/proc/self/exe").parent_path(); folder != folder.parent_path();
       folder = folder.parent_path()) {
    if (!fs::exists(folder / ".git") || !fs::exists(folder / "include/shunt")) continue;
    if (const auto paths = tracked_files(folder); !paths.empty())
      return checked(read_files(folder, paths), folder.native(), least_bytes);
  }
  fail(ErrorCode::invalid_argument,
       "no text to train on: this program is not in a clone of its repository (or there is no git); give some with "
       "--corpus FILE or --corpus FOLDER");
}

std::uint64_t hash_of(const Corpus& corpus) {
  return Hasher().add_all(std::span(corpus.training)).add_all(std::span(corpus.held_out)).value();
}

std::vector<std::size_t> draw_sequences(std::size_t corpus_bytes, std::int64_t sequence, std::uint64_t seed,
                                        std::int64_t step, std::int64_t first, std::int64_t count) {
  // The last byte of a sequence is predicted only.
  const std::size_t begins = corpus_bytes - static_cast<std::size_t>(sequence);
  std::vector<std::size_t> drawn;
  for (std::int64_t i = first; i < first + count; ++i) drawn.push_back(Hasher().add(seed, step, i).value() % begins);
  return drawn;
}

}  // namespace shunt::runtime
