// One source, one machine code per generation of processors.
#pragma once

#include <cstddef>  // defines __GLIBC__ where there is one

// SKEIN_CLONES before a function makes the compiler emit it for AVX-512, AVX2 and the baseline, and
// the loader pick one. Nothing on processors and C libraries that cannot, nor under the sanitizers
// whose run-time is not up yet when the loader asks.
// All clones give the same bits as long as the file is compiled with -ffp-contract=off.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define SKEIN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SKEIN_CLONES
#endif
