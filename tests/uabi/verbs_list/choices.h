// Choices that follow from a seed, the same on every system.
#pragma once

#include <stdint.h>

void choose_by(uint64_t seed);
uint32_t below(uint32_t bound);
int once_in(uint32_t times);
uint64_t one_of(const uint64_t* list, uint32_t count);

#define ONE_OF(...) \
  one_of((const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / 8)
