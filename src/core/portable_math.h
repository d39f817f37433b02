// Logarithm and exponential with the same bits on every machine: those of the C library differ
// between its versions and between processors.
#pragma once

namespace skein {

// Natural logarithm, within 1 ulp. Minus infinity for ±0, NaN for negative numbers and NaN.
double portable_log(double x);

// e to the power of x, within 2 ulp where the result is normal. Infinity above about 709.78, 0
// below about −745.13, NaN for NaN.
double portable_exp(double x);

}  // namespace skein
