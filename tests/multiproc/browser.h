// A real browser, without a window.
#pragma once

#include "multiproc/process.h"

namespace skein::testing {

// Chromium's path, or empty where there is none.
inline std::string chromium() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    for (const char* folder : {"/usr/bin/", "/usr/local/bin/", "/snap/bin/"})
      if (std::filesystem::exists(std::string(folder) + name)) return std::string(folder) + name;
  return "";
}

// The page at `url` when its scripts have run, in a window of that width.
inline std::string dom_after_scripts(const std::string& url, int width) {
  const Folder profile;
  const Finished end =
      Process({chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
               "--no-first-run", "--disable-background-networking", "--disable-component-update",
               "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir=" + profile.path(),
               "--virtual-time-budget=4000", "--window-size=" + std::to_string(width) + ",900",
               "--dump-dom", url},
              {{"HOME", profile.path()}})
          .wait();
  EXPECT_EQ(end.code, 0) << end.err;
  return end.out;
}

// The value of attribute `name` of the first element whose text from `after` on has it.
inline std::string attribute_of(const std::string& dom, const std::string& after,
                                const std::string& name) {
  const std::size_t at = dom.find(after), key = dom.find(name + "=\"", at);
  if (at == std::string::npos || key == std::string::npos) return "none";
  const std::size_t begin = key + name.size() + 2;
  return dom.substr(begin, dom.find('"', begin) - begin);
}

}  // namespace skein::testing
