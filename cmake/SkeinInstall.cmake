# `cmake --install`: the libraries, their public headers, the command line and a package that
# `find_package(skein CONFIG)` finds.
