// The same cluster with something changed.
#pragma once

#include "sim/scenario.h"

namespace skein::advise {

// With another bandwidth of every host; links that are worse than that change in proportion.
sim::Scenario with_bandwidth(const sim::Scenario& cluster, double bytes_per_second);

// How many times faster the fastest worker is than the slowest.
double ratio_of(const sim::Scenario& cluster);

// With that ratio, and the same sum of speeds. Workers of unequal speeds keep their order, and the
// ratios of all move together (speeds to a power); equal ones get speeds from the slowest to the
// fastest, each as many times the one before it. Requires ratio >= 1.
sim::Scenario with_ratio(const sim::Scenario& cluster, double ratio);

}  // namespace skein::advise
