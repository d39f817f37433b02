#include "data/open.h"

#include <fmt/format.h>

#include "data/cifar10.h"
#include "data/glyphs.h"
#include "data/image_folder.h"
#include "data/mnist.h"
#include "data/text.h"
#include "skein/error.h"

namespace skein {
namespace {

[[noreturn]] void refuse(const std::string& spec, const std::string& reason) {
  throw ConfigError(
      fmt::format("data '{}': {}; expected glyphs, mnist:DIR, cifar10:DIR, images:DIR or text:FILE",
                  spec, reason));
}

}  // namespace

DataSets open_data(const std::string& spec, const Settings& settings, std::uint64_t run_seed) {
  const std::size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  const std::string path = colon == std::string::npos ? "" : spec.substr(colon + 1);
  if (kind == "glyphs") {
    if (colon != std::string::npos) refuse(spec, "glyphs takes no path");
    return open_glyphs(settings, run_seed);
  }
  if (kind != "mnist" && kind != "cifar10" && kind != "images" && kind != "text")
    refuse(spec, "unknown kind of data");
  if (path.empty()) refuse(spec, "no path given");
  if (kind == "images") return open_images(path, settings, run_seed);
  if (kind == "text") return open_text(path, settings);
  SettingsReader("data", settings).finish(fmt::format("data '{}'", kind));
  return kind == "mnist" ? open_mnist(path) : open_cifar10(path);
}

}  // namespace skein
