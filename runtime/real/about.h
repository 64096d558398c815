/* What `ranvier doctor` asks ranvier-train: the libraries that it runs with. */
#ifndef RANVIER_RUNTIME_REAL_ABOUT_H
#define RANVIER_RUNTIME_REAL_ABOUT_H

/* Prints one JSON object: "mpi" and "blas" (versions), "blas_kernels" (those that OpenBLAS chose),
 * "processor", and "cpu_kernels", those of --cpu-kernels that run here, from the slowest to the fastest. MPI
 * is not started for it. Returns the exit status. */
int about_main(void);

#endif
