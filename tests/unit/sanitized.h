/* Whether a test was built with the sanitizers. They look at the code that runs and not at numbers, and it
 * takes three times as long: what has hundreds of cases has fewer there. */
#ifndef RANVIER_TESTS_UNIT_SANITIZED_H
#define RANVIER_TESTS_UNIT_SANITIZED_H

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
