// Values as bfloat16 on their way: the upper half of a float32, rounded to nearest, ties to even.
//
// Infinities stay, what is too large becomes one, NaN stays NaN, subnormal numbers are rounded like
// others. The relative error of a normal number is at most 2^-8. Spans do not overlap.
#pragma once

#include "core/span.h"

namespace skein {

// `packed` is of Type::bf16 and has as many elements as the values.
void to_bf16(Span packed, Span values);
void from_bf16(Span values, Span packed);
void add_bf16(Span values, Span packed);  // values += packed

// What to_bf16 and from_bf16 would make of them.
void round_to_bf16(Span values);

// Puts back the full precision that rounding took: a value that is its exact one rounded becomes
// the exact one. Others were written since and stay.
void restore_rounded(Span values, Span exact);

}  // namespace skein
