// Where the programs under test are. Only paths.cpp is compiled with the names of folders: all
// other files are the same in every build folder, and ccache knows them.
#pragma once

namespace skein::testing {

extern const char* const kSkein;        // the program
extern const char* const kDearProgram;  // programs/, workers with modules of their own
extern const char* const kSource;       // the folder of the project

}  // namespace skein::testing
