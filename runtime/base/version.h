/* The version, as `--version` prints it and as reports, traces and profiles carry it. */
#ifndef RANVIER_RUNTIME_BASE_VERSION_H
#define RANVIER_RUNTIME_BASE_VERSION_H

#define RANVIER_VERSION "0.1.0"

#endif
