/* The version, as commands print it and as their files carry it. */
#ifndef RANVIER_RUNTIME_BASE_VERSION_H
#define RANVIER_RUNTIME_BASE_VERSION_H

#define RANVIER_VERSION "0.1.0"

#endif
