/* The numbers that decide what a real device leaves open. */
#ifndef RANVIER_TESTS_EMULATED_RANDOM_HPP
#define RANVIER_TESTS_EMULATED_RANDOM_HPP

#include <cstdint>

namespace emulated
{

/* Marsaglia's xorshift64*. */
struct random_numbers {
        uint64_t state = 0x9e3779b97f4a7c15U;
        void seed(uint64_t seed)
        {
                state = seed * 0x9e3779b97f4a7c15U + 0x632be59bd9b4e019U;
                if (state == 0)
                        state = 1;
        }
        uint64_t bits(void)
        {
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                return state * 2685821657736338717U;
        }
        uint64_t below(uint64_t end)
        {
                return (bits() >> 33) % end;
        }
};

/* Visits 0 .. count - 1 in an order that begins anywhere and goes in steps that have no factor with count. */
struct order {
        uint64_t count, at, step;
        order(uint64_t count_, random_numbers &random) : count(count_), at(random.below(count_)), step(1)
        {
                const uint64_t wanted = 1 + random.below(count);
                for (uint64_t s = wanted; s < wanted + count; s++)
                        if (coprime(s, count)) {
                                step = s % count;
                                break;
                        }
        }
        uint64_t next(void)
        {
                const uint64_t now = at;
                at = (at + step) % count;
                return now;
        }
        static bool coprime(uint64_t a, uint64_t b)
        {
                while (b != 0) {
                        const uint64_t rest = a % b;
                        a = b;
                        b = rest;
                }
                return a == 1;
        }
};

} // namespace emulated

#endif
