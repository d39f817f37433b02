// Shows a run's folder to browsers, and to Prometheus.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "page/address.h"

namespace skein {

// Why this build has no live page, as one sentence without its full stop; empty: it has one.
std::string why_no_page();

// A page is served from construction to destruction, by a few threads of its own, which get no
// signals and end within about a second. Reads the folder only when somebody asks, and changes
// nothing. Whoever asks must show the token: ?token=… in the address or "Authorization: Bearer …".
//
//   /            the page, which needs no other file
//   /api/state, /api/usage, /api/timeline   what it asks for (page/watched_run.h)
//   /metrics     for Prometheus
class PageServer {
 public:
  // `option` is what the user has asked by: a ConfigError names it when the address cannot be had,
  // or when this build has no page.
  PageServer(const std::string& option, const PageAddress& address,
             const std::filesystem::path& folder);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  std::string url() const;  // with the token

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein
