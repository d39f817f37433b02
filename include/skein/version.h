// Which version of Skein this is, for programs that build with more than one. Versions are
// semantic: docs/library.md says what is promised between them.
#pragma once

// The version of these headers. CMakeLists.txt reads it from here: this is the only place.
#define SKEIN_VERSION_MAJOR 0
#define SKEIN_VERSION_MINOR 1  // of the interface; before 1.0 a new one may change it
#define SKEIN_VERSION_PATCH 0  // of what changes no interface

// The version of these headers as one number that grows: 10203 is 1.2.3. For the preprocessor:
//   #if SKEIN_VERSION_NUMBER >= 200   // 0.2.0 or later
#define SKEIN_VERSION_NUMBER \
  (SKEIN_VERSION_MAJOR * 10000 + SKEIN_VERSION_MINOR * 100 + SKEIN_VERSION_PATCH)

namespace skein {

// The version of the library that the program is linked with, such as "0.1.0". All workers of a run
// have the same: distribute() compares it. Never fails; any thread may call it.
const char* version() noexcept;

}  // namespace skein
