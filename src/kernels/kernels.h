// The vector operations that strategies, fabrics and optimizers are made of.
//
// Each makes one pass over memory and gives the same bits on every processor, on however many
// threads (kernels/threads.h). Spans of one call have the same count and lie in the same memory
// (checked), any alignment, and do not overlap unless said otherwise. On memory of the host a
// kernel has done its work when it returns; on that of a device it has put it on this thread's
// queue.
#pragma once

#include <span>

#include "core/queue.h"

namespace skein {

void copy(Span dst, Span src);  // of any type; also between the host and a device
void copy_to_both(Span one, Span two, Span src);
void copy_scaled(Span dst, float a, Span src);  // dst = a src
void fill(Span dst, float value);
void scale(Span y, float a);         // y = a y
void add(Span y, Span x);            // y += x
void axpy(Span y, float a, Span x);  // y += a x
void raise_to(Span y, float least);  // y = max(y, least)

// dst = ((s0 + s1) + s2) + … , the same order for every element. Each source has dst.count
// elements; dst may be one of them. At least one source. The first form is for the host alone.
void sum(Span dst, std::span<const float* const> sources);
void sum(Span dst, std::span<const Span> sources);

// x += a − s: applies what a round of averaging changed to a vector that moved on meanwhile.
void add_difference(Span x, Span a, Span s);

// What the two ends of a round of averaging need, in one pass, with the bits of several: m = a sum,
// rounded, is the mean. Both return ‖s − m‖² as squared_distance does.
Figure move_by_mean(Span x, float a, Span sum, Span s);  // x += m − s
Figure become_mean(Span x, float a, Span sum);           // x = m, s being the old x

// x' = c x + s y and y' = s x + c y, both from the old values.
void mix(Span x, Span y, float c, float s);

// Accumulated in double precision, so accurate for any length; the order is fixed, so that equal
// vectors have equal norms everywhere.
Figure squared_norm(Span x);
Figure squared_distance(Span x, Span y);  // of x − y

}  // namespace skein
