// Whether the processor is played by a program.
#pragma once

namespace softhca {

// QEMU's emulator without hardware below it, which names itself where hypervisors do. What a real
// processor does by an instruction made for it, it does step by step: carry-less multiplication bit
// by bit, "rep movsb" byte by byte.
bool runs_in_emulator();

}  // namespace softhca
