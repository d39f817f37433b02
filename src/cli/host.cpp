#include "cli/host.h"

#include <dlfcn.h>
#include <link.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "core/file_descriptor.h"

namespace skein {
namespace {

std::string contents(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The number of kB after `name` in /proc/meminfo, in bytes; 0 where there is none.
std::int64_t meminfo(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name + ":");
  if (at == std::string::npos) return 0;
  const std::size_t digits = text.find_first_of("0123456789", at);
  std::int64_t value = 0;
  if (digits != std::string::npos)
    std::from_chars(text.data() + digits, text.data() + text.size(), value);
  return value * 1024;
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

// "always [madvise] never": the one in brackets.
std::string huge_pages() {
  const std::string text = contents("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::size_t open = text.find('['), close = text.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "unknown";
  return text.substr(open + 1, close - open - 1);
}

std::string canonical(const char* path) {
  std::error_code code;
  const auto found = std::filesystem::canonical(path, code);
  return code ? path : found.string();
}

// The library from which this program has `symbol`; empty when nothing that is loaded has it.
std::string library_with(const char* symbol) {
  void* address = dlsym(RTLD_DEFAULT, symbol);
  Dl_info info{};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return canonical(info.dli_fname);
}

// LibTorch's largest part, as it was loaded.
std::string torch_path() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        if (std::string_view(info->dlpi_name).find("/libtorch_cpu.so") == std::string_view::npos)
          return 0;
        *static_cast<std::string*>(out) = canonical(info->dlpi_name);
        return 1;
      },
      &path);
  return path;
}

}  // namespace

std::string blas_name(const std::string& path) {
  if (path.empty()) return "built into torch";
  std::string lower = path;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto has = [&](const char* word) { return lower.find(word) != std::string::npos; };
  if (has("openblas")) return "OpenBLAS";
  if (has("mkl")) return "MKL";
  if (has("blis")) return "BLIS";
  if (has("atlas")) return "ATLAS";
  if (has("libtorch")) return "built into torch";
  if (has("libblas")) return "reference BLAS";
  return "unknown";
}

HostFacts inspect_host() {
  HostFacts out;
  out.cores = usable_cores();
  const std::string memory = contents("/proc/meminfo");
  out.memory_bytes = meminfo(memory, "MemTotal");
  out.available_bytes = meminfo(memory, "MemAvailable");
  const std::string limit = contents("/sys/fs/cgroup/memory.max");  // a number or "max"
  std::int64_t bytes = 0;
  if (std::from_chars(limit.data(), limit.data() + limit.size(), bytes).ec == std::errc() &&
      bytes > 0)
    out.memory_bytes = std::min(out.memory_bytes, bytes);
  out.huge_pages = huge_pages();
  out.memfd = FileDescriptor(memfd_create("skein-doctor", MFD_CLOEXEC)).valid();
  out.pidfd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))).valid();
  int word = 0;
  out.futex = syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0) == 0;
  out.blas_path = library_with("sgemm_");
  out.blas = blas_name(out.blas_path);
  out.torch_path = torch_path();
  out.filesystem_path = library_with("_ZNSt10filesystem12current_pathB5cxx11Ev");
  return out;
}

}  // namespace skein
