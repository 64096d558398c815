/* Sums over MPI, of which every member makes its part: the others send it theirs, in pieces, and it
 * adds one while the next arrive. Open MPI's MPI_Iallreduce in place (libnbc) goes up and down a binomial
 * tree with the whole buffer in each message, while half of the members wait, and needs as much memory again.
 *
 * The order of a sum is the tree's: members next to each other, then pairs next to each other, ... So it is
 * the same for every element, whatever the pieces and parts, and its bits are those of MPI_Iallreduce. */
#ifndef RANVIER_RUNTIME_NET_SHARED_SUM_H
#define RANVIER_RUNTIME_NET_SHARED_SUM_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* Of a member's part, how many elements; `offset` says where they begin. Parts are of ceil(elements /
 * members), the last ones less or none. */
int64_t shared_sum_part(int64_t elements, int members, int member, int64_t *offset);

/* What is summed, and how. */
struct shared_sum_terms {
        char *buffer, *own; /* own: where sums go besides, or NULL */
        int64_t elements;
        int element_bytes;
        void (*add)(void *sum, const void *with, int64_t elements);
};

/* One at a time; begins as zeros. Room and requests stay until it is freed. */
struct shared_sum {
        struct shared_sum_terms what;
        MPI_Comm comm;
        int members, me;
        bool busy;
        int64_t pieces, piece_elements; /* of a part */
        int64_t begun, summed;          /* pieces */
        char *room; /* what arrives: for each piece under way one from each other member */
        char **terms;
        MPI_Request *requests;
};

/* Every member of `comm` calls it with the same number of elements. */
void shared_sum_begin(struct shared_sum *, MPI_Comm comm, const struct shared_sum_terms *what);

/* Makes progress; true, once, when this member's part of the buffer holds its sums and the other parts, of
 * which nothing is kept, are no longer read. */
bool shared_sum_test(struct shared_sum *);

void shared_sum_free(struct shared_sum *);

#endif
