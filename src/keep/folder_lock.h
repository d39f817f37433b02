// Whose a folder is: that of one run at a time, for as long as any of its workers lives.
//
//   FOLDER/run.lock      of the workers: who writes for all of them
//   FOLDER/launch.lock   of the launcher, which writes logs and events
//
// A lock file says as JSON who has it, or had it last: {"run", "host", "pid", "since"}. It stays
// when the run has ended; what counts is the kernel's lock on it, which goes with the processes.
//
// Locks are of open files (F_OFD_SETLK). The first byte belongs to the worker that leads; the
// second is shared by all workers, so that nobody else takes the folder between the death of one
// leader and the next one's first write. On NFS they are the server's, which all hosts ask; a mount
// with `nolock` or `local_lock` keeps them on its own host.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/file_descriptor.h"

namespace skein {

struct LockHolder {
  std::string run;   // its id; empty where none was known
  std::string host;  // empty: the file does not say
  long pid = 0;
  std::string since;  // "2026-11-15 16:20:11 UTC"

  std::string text() const;  // "process 12 on host a, since 2026-11-15 16:20:11 UTC"
};

class FolderLock {
 public:
  // Holds nothing.
  FolderLock() = default;

  // Takes `file`, which is made where there is none, for a run of its own, as its leader. Nullopt:
  // it is taken. Otherwise who holds it, and nothing has changed. Throws Error where the file
  // cannot be written.
  std::optional<LockHolder> take(const std::filesystem::path& file, const std::string& run);

  // Joins a run whose leader has taken `file`: it stays taken while this object lives.
  void join(const std::filesystem::path& file);

  // A worker that has joined leads from now on. Where the one that led before holds its part still,
  // as a process that was stopped and left behind does, only what the file says changes.
  void lead(const std::string& run);

  // Says in the file which run this is.
  void name(const std::string& run);

  // Why the file system has no locks; empty: it has.
  const std::string& missing() const { return missing_; }

  bool leads() const { return leads_; }

 private:
  bool set(short type, long from, long count);

  FileDescriptor file_;
  bool leads_ = false;
  std::string missing_;
};

// Whether anybody holds `file` now. Takes nothing, and needs no right to write.
bool is_held(const std::filesystem::path& file);

// Who holds `file` now, likewise. Waits for up to 100 ms where the file does not name its new
// holder yet.
std::optional<LockHolder> holder_of(const std::filesystem::path& file);

}  // namespace skein
