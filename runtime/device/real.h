/* The element type of the kernels: float; double in the build that is checked against finite differences. */
#ifndef RANVIER_RUNTIME_DEVICE_REAL_H
#define RANVIER_RUNTIME_DEVICE_REAL_H

#ifdef RANVIER_DOUBLE
typedef double real;
#else
typedef float real;
#endif

#endif
