/* Measures what a checkpoint takes: the copy of a rank's state to host memory, and the file that this is
 * written to, in the folder of the profile, as training writes it. The samples become the lines `snapshot`,
 * `file` and `file_work` of a profile. */
#ifndef RANVIER_CALIBRATE_FILES_H
#define RANVIER_CALIBRATE_FILES_H

#include "calibrate/bench.h"

/* Copies 1, 16 and, unless less than ten seconds were asked for, 256 MiB from a device to host memory, and
 * writes each to a file beside the profile that `request` names, until it is on the disk; then removes it.
 * Samples are the seconds of the copy, of the file, and of a processor in the latter. To be called by one
 * rank, with nothing else going on. It opens and closes a device of its own. Returns false if a file could
 * not be written, or there is no memory for it: then it has no samples, and `err` has the sentence. */
bool files_write(struct net *net, const struct request *request, struct samples *samples,
                 struct rv_error_info *err);

#endif
