#include "core/atomic_file.h"
