/* Sums over MPI in which every member sums one part of the elements: the others send it theirs in pieces, and
 * it adds one piece while the next arrives. runtime/net/mpi.c makes reduce-scatters with it, and large
 * all-reduces, whose parts it gathers afterwards. It exists because Open MPI's MPI_Iallreduce in place
 * (libnbc) goes up and down a binomial tree with the whole buffer in each message, while half of the members
 * wait, and needs as much memory again.
 *
 * Terms are added in the order of that tree: members next to each other, then pairs next to each other,
 * and so on. So the order is the same for every element, whatever the pieces and parts, and the bits are
 * those of MPI_Iallreduce. */
#ifndef RANVIER_RUNTIME_NET_SHARED_SUM_H
#define RANVIER_RUNTIME_NET_SHARED_SUM_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns how many elements are in the part of `member`, and stores where they begin. Parts have
 * ceil(elements / members) elements; the last ones have less, or none. */
int64_t shared_sum_part(int64_t elements, int members, int member, int64_t *offset);

/* What is summed, and how. */
struct shared_sum_terms {
        /* This member's terms, which make room for the sums (see shared_sum_test); and where the sums of its
         * own part are copied to as well, or NULL. */
        char *buffer, *own;
        int64_t elements; /* of the buffer, the same on every member */
        int element_bytes;
        /* Adds `elements` elements of `with` to those of `sum`. */
        void (*add)(void *sum, const void *with, int64_t elements);
};

/* A sum under way; there can be one at a time. Begins as all zeros. Memory for pieces and requests is
 * allocated by the first sum and kept for the next ones, so all sums of one object must have the same number
 * of members. */
struct shared_sum {
        struct shared_sum_terms what;
        MPI_Comm comm;
        int members, me;
        bool busy;
        int64_t pieces, piece_elements; /* of a part */
        int64_t begun, summed;          /* how many pieces were, of this member's part */
        /* What arrives: for each piece that is under way, one from each other member. */
        char *room;
        char **terms; /* [members]: where the terms of one piece lie */
        MPI_Request *requests;
};

/* Begins a sum. Every member of `comm` must call it, with the same number of elements, and no message of the
 * caller's may be under way in `comm`. The buffers must stay until the sum is complete. The program ends
 * (abort) if there is no memory. */
void shared_sum_begin(struct shared_sum *, MPI_Comm comm, const struct shared_sum_terms *what);

/* Makes progress, and never blocks. Returns true, once, when the sum is complete for this member: its part of
 * the buffer holds the sums, and the other parts, whose content is then undefined, are no longer read. Else,
 * or if no sum is under way, returns false. */
bool shared_sum_test(struct shared_sum *);

/* Frees the memory; no sum may be under way. */
void shared_sum_free(struct shared_sum *);

#endif
