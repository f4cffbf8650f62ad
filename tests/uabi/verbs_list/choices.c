// The generator is SplitMix64: what the C library has is not the same everywhere.
#include "choices.h"

static uint64_t position;

void choose_by(uint64_t seed) { position = seed; }

static uint64_t draw(void) {
  position += 0x9e3779b97f4a7c15u;
  uint64_t mixed = position;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

uint32_t below(uint32_t bound) { return (uint32_t)(draw() % bound); }

int once_in(uint32_t times) { return below(times) == 0; }

uint64_t one_of(const uint64_t* list, uint32_t count) { return list[below(count)]; }
