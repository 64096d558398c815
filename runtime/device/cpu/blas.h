/* OpenBLAS, set up for this device. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_BLAS_H
#define RANVIER_RUNTIME_DEVICE_CPU_BLAS_H

/* BLAS's own threads are off: the team splits products. A program that links this has besides restarted
 * itself before its main(), if OpenBLAS took kernels for processors much older than this one (blas.c). */
void cpu_blas_open(void);

#endif
