// In a build without cpp-httplib.
#include "page/server.h"
#include "skein/error.h"

namespace skein {

std::string why_no_page() {
  return "this skein was built without cpp-httplib, which serves the page (Debian: "
         "libcpp-httplib-dev)";
}

class PageServer::Impl {};

PageServer::PageServer(const std::string& option, const PageAddress&,
                       const std::filesystem::path&) {
  throw ConfigError(option + ": " + why_no_page());
}
PageServer::~PageServer() = default;
std::string PageServer::url() const { return ""; }

}  // namespace skein
