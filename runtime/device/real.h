/* `real`, the element type that kernels compute with and that tensors have unless they are stored in 16
 * bits: float; double in the build that is checked against finite differences (RANVIER_DOUBLE,
 * tests/mk/nn.mk). */
#ifndef RANVIER_RUNTIME_DEVICE_REAL_H
#define RANVIER_RUNTIME_DEVICE_REAL_H

#ifdef RANVIER_DOUBLE
typedef double real;
#else
typedef float real;
#endif

#endif
