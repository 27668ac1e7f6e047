#include "transport/local/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/fail.hpp"

namespace shunt {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;
// A part of the 128 TiB that an x86-64 process can address, or of the 1.5 TiB that ThreadSanitizer leaves to mappings.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kAddressSpaceForSegments = 512 * kGiB;
#else
constexpr std::size_t kAddressSpaceForSegments = 32 * 1024 * kGiB;
#endif

// On many kernels a signal makes fallocate undo what it has done and give up. Small steps make headway even under a
// profiler's signals.
constexpr std::size_t kCommitStep = std::size_t{2} << 20;

std::byte* map(std::size_t bytes, int protection, int flags, int fd) {
  void* base = mmap(nullptr, bytes, protection, flags | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED)
    fail_errno("can't reserve {} bytes of address space for a segment, which `ulimit -v` may limit", bytes);
  // A core file needs none of this.
  madvise(base, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(base);
}

}  // namespace

std::size_t Segment::default_bytes(std::int32_t num_ranks) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const auto memory =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t rounded = (memory + kGiB - 1) / kGiB * kGiB;
  // Every rank maps the segments of all. Batch systems limit address space; half of it is left to the program.
  std::size_t address_space = kAddressSpaceForSegments;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    address_space = std::min<std::size_t>(address_space, limit.rlim_cur / 2);
  const std::size_t share = address_space / static_cast<std::size_t>(num_ranks) / kHugePage * kHugePage;
  return std::max(kHugePage, std::min(rounded, share));
}

void Segment::Unmap::operator()(std::byte* base) const { munmap(base, bytes); }

Segment::Segment(std::size_t bytes, int protection, int flags, Descriptor file)
    : file_(std::move(file)), memory_(map(bytes, protection, flags, file_.get()), Unmap{bytes}) {}

Segment Segment::anonymous(std::size_t bytes) {
  // Inaccessible until committed: where overcommit is forbidden, accessible pages count, touched or not.
  Segment segment(bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, {});
  madvise(segment.base(), bytes, MADV_HUGEPAGE);
  return segment;
}

Segment Segment::shareable(std::size_t bytes, const std::string& name) {
  Descriptor file(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) fail_errno("memfd_create");
  // The whole size at once: a sparse file costs nothing, and no peer can be hit by a page beyond its end. Sealed, so
  // that no peer can shorten it either.
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) fail_errno("can't size a segment to {} bytes", bytes);
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail_errno("can't seal a segment");
  Segment segment(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, std::move(file));
  madvise(segment.base(), bytes, MADV_HUGEPAGE);
  return segment;
}

Segment Segment::attach(Descriptor file) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_errno("can't read a peer's segment");
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) fail(ErrorCode::mismatch, "a peer's segment is not a sealed memfd");
  return {static_cast<std::size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, std::move(file)};
}

void Segment::commit(std::size_t offset, std::size_t bytes) {
  if (fd() < 0) {
    if (mprotect(base() + offset, bytes, PROT_READ | PROT_WRITE) != 0)
      fail_errno("no memory for a block of {} bytes", bytes);
    return;
  }
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t step = std::min(kCommitStep, bytes - done);
    if (fallocate(fd(), 0, static_cast<off_t>(offset + done), static_cast<off_t>(step)) == 0) {
      done += step;
    } else if (errno != EINTR) {
      const int cause = errno;
      if (done > 0) decommit(offset, done);
      errno = cause;
      fail_errno("no memory for a block of {} bytes", bytes);
    }
  }
}

bool Segment::decommit(std::size_t offset, std::size_t bytes) {
  if (fd() < 0) return madvise(base() + offset, bytes, MADV_DONTNEED) == 0;
  return fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(bytes)) == 0;
}

}  // namespace shunt
