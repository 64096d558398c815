/* The whole state of a training in files, for it to go on from: a folder with one safetensors file of each
 * rank that writes a part, and checkpoint.json, which says what the training is, lists the files with their
 * sizes and checksums (XXH3, 64 bits), and has a checksum of its own. A folder without a whole index is no
 * checkpoint: it is written last.
 *
 * A file has pieces: elements of a tensor, in fp32, and AdamW's two moments of the same ones. Where they are
 * in the whole tensor its metadata say ("pieces"), so that a rank of any plan finds its own part among pieces
 * of another. The entries are "NAME:KIND:N", KIND one of parameter, exp_avg and exp_avg_sq, for piece number
 * N of the file; "pieces" is a JSON object, by "NAME:N", of runs [first, count, stride, times]: `times` runs
 * of `count` elements of the whole tensor, row by row, of which the first begins at `first` and each
 * `stride` behind the one before.
 *
 * Beside training, runtime/real/keep.h decides when there is one, and which rank writes what. */
#ifndef RANVIER_RUNTIME_CHECKPOINT_STATE_H
#define RANVIER_RUNTIME_CHECKPOINT_STATE_H

#include "models/partition.h"
#include "runtime/checkpoint/stream.h"

#include <jansson.h>
#include <stdint.h>

enum state_kind { STATE_PARAMETER, STATE_MOMENT, STATE_SQUARE, STATE_KINDS };

/* The name of a folder's index. */
#define STATE_INDEX "checkpoint.json"

/* Elements [first, first + count) of a rank's part of a tensor, none of which pads the vocabulary. */
struct state_piece {
        const struct tensor *tensor;
        int64_t first, count;
};

/* Writes the file of one rank, and waits until it is on the disk. `elements` are those of all pieces, of the
 * first kind, then of the second and third; if they begin at a multiple of 4096 bytes, they go past the page
 * cache, where the file system lets them. The file must not be there. Returns 0, or RV_ESYSTEM with a
 * sentence; what was written then is removed. */
int state_write_part(const char *path, const struct state_piece *pieces, int count, const float *elements,
                     struct stream_end *written, struct rv_error_info *err);

/* Completes a checkpoint whose parts lie in `temporary`, named by folder_name_part: completes the index with
 * them and its checksum, writes it beside them, and gives all of it the name that the checkpoint of so many
 * steps has in `folder`, in the place of one that is there; waits until that is on the disk. `index`, an
 * object, is changed. Returns 0, or RV_ESYSTEM with a sentence, and then `temporary` is removed. */
int state_complete(const char *temporary, const char *folder, int64_t step, json_t *index,
                   const struct stream_end *files, int count, struct rv_error_info *err);

/* Reads the index of a folder and checks it: that it is whole, and that all its files are there with their
 * sizes, in the folder itself. Returns it, the caller's to free, or NULL with a sentence (RV_EINPUT). */
json_t *state_read_index(const char *folder, struct rv_error_info *err);

/* Returns how many files an index lists, and checks the checksum of one of them: RV_EINPUT names it. */
int state_files(const json_t *index);
int state_verify(const char *folder, const json_t *index, int file, struct rv_error_info *err);

/* Opens all files of a folder, whose index was read, for state_read. NULL with a sentence: RV_EINPUT where a
 * file is not what it should be. Files are mapped: of their elements only those are read that are asked for.
 * The caller ends it with state_close. */
struct state;
struct state *state_open(const char *folder, const json_t *index, struct rv_error_info *err);
void state_close(struct state *); /* NULL is fine */

/* Copies elements [first, first + count) of a rank's part of a tensor to `out`; those that pad the vocabulary
 * become 0. Quick if calls for one tensor follow each other. RV_EINPUT, with a sentence, if some are in no
 * file. */
int state_read(struct state *, enum state_kind kind, const struct tensor *tensor, int64_t first,
               int64_t count, float *out, struct rv_error_info *err);

/* Returns the bytes that state_read copied from the files so far. */
int64_t state_bytes_read(const struct state *);

#endif
