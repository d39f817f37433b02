#include "cli/json_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "cli/options.h"
#include "core/atomic_file.h"
#include "skein/error.h"

namespace skein {

void prepare_file(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("{} {}: {}", option, path, why));
  };
  if (path == "-") return;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) refuse("this is a folder: expected the name of a file");
  if (const int own = own_descriptor(path); own >= 0) {
    const int flags = ::fcntl(own, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) refuse("it is not open for writing");
    return;
  }
  if (!appears_by_rename(path)) {
    if (access(path.c_str(), W_OK) != 0)
      refuse(fmt::format("cannot write to it: {}", std::strerror(errno)));
    return;
  }
  const fs::path parent = followed(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) refuse(fmt::format("cannot make the folder '{}': {}", folder, code.message()));
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    refuse(fmt::format("cannot write in '{}': {}", folder, std::strerror(errno)));
}

JsonOutput::JsonOutput(CommandOptions& options, std::string command, bool here)
    : command_(std::move(command)) {
  options.open_documents(here);
  path_ = options.json();
  if (!path_.empty()) prepare_file("--json", path_);
}

void JsonOutput::write(nlohmann::json figures, std::uint64_t seed, nlohmann::json config) const {
  if (path_.empty()) return;
  figures["command"] = command_;
  figures["version"] = SKEIN_VERSION;
  figures["seed"] = seed;
  figures["config"] = std::move(config);
  // Paths and what other programs said need not be UTF-8, which is no reason to lose all figures.
  write_whole(path_, figures.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace skein
