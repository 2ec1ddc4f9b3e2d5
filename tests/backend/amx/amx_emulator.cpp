// SPDX-License-Identifier: Apache-2.0
#include "backend/amx/amx_emulator.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace epilogue::testing {
namespace {

constexpr int kTiles = 8;
constexpr int kMaxRows = 16;
constexpr int kRowBytes = 64;

// As ldtilecfg reads it.
struct Config {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(Config) == 64);

// One thread's tiles.
struct TileState {
  Config config;
  unsigned char tile[kTiles][kMaxRows][kRowBytes];
};
thread_local TileState state;
std::atomic<int64_t> products{0};
std::atomic<bool> is_installed{false};

// Only what a handler may call.
[[noreturn]] void refuse(const char* what) {
  constexpr char before[] = "amx emulator: ";
  [[maybe_unused]] ssize_t n = write(STDERR_FILENO, before, sizeof before - 1);
  n = write(STDERR_FILENO, what, std::strlen(what));
  n = write(STDERR_FILENO, "\n", 1);
  _exit(3);
}
void require(bool holds, const char* what) {
  if (!holds) refuse(what);
}

// Register r of an instruction's encoding.
uint64_t reg(const ucontext_t& context, int r) {
  constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[r]]);
}

// An instruction of the VEX map 0F38 without immediate.
struct Instruction {
  int opcode = 0;
  int prefix = 0;  // 0: none, 1: 66, 2: F3, 3: F2
  int mod = 0;     // 3: registers
  int reg = 0;     // the tile that is written or stored
  int rm = 0;      // the second tile
  int third = 0;   // the third
  bool has_index = false;
  uint64_t address = 0;  // without the index
  int64_t stride = 0;    // the index, scaled
  int length = 0;
};

template <class T>
T read_as(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// ModRM's memory operand.
void decode_memory(const ucontext_t& context, const uint8_t* code, int x, int b, Instruction& i) {
  int at = 5;
  uint64_t base = 0;
  bool has_base = true;
  if ((i.rm & 7) == 4) {
    const uint8_t sib = code[at++];
    const int index = ((sib >> 3) & 7) | x << 3;
    i.has_index = index != 4;
    if (i.has_index) i.stride = static_cast<int64_t>(reg(context, index)) << (sib >> 6);
    has_base = !((sib & 7) == 5 && i.mod == 0);
    if (has_base) base = reg(context, (sib & 7) | b << 3);
  } else if (i.mod == 0 && (i.rm & 7) == 5) {  // relative to the next instruction
    base = reinterpret_cast<uint64_t>(code) + 9;
    has_base = false;
  } else {
    base = reg(context, i.rm);
  }
  if (i.mod == 1) {
    base += static_cast<uint64_t>(int64_t{read_as<int8_t>(code + at)});
    at += 1;
  } else if (i.mod == 2 || !has_base) {
    base += static_cast<uint64_t>(int64_t{read_as<int32_t>(code + at)});
    at += 4;
  }
  i.address = base;
  i.length = at;
}

bool decode(const ucontext_t& context, Instruction& i) {
  const auto* const start = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  const uint8_t* code = start;
  // With these the assembler lengthens instructions, so that no branch touches the end of 32 bytes.
  constexpr uint8_t kPadding = 0x2E;  // the prefix of segment CS
  while (*code == kPadding) ++code;
  // C4, inverted R X B and the map, W vvvv L pp.
  if (code[0] != 0xC4 || (code[1] & 0x1F) != 2 || (code[2] & 0x84) != 0) return false;
  const int r = (code[1] >> 7 & 1) ^ 1;
  const int x = (code[1] >> 6 & 1) ^ 1;
  const int b = (code[1] >> 5 & 1) ^ 1;
  i.prefix = code[2] & 3;
  i.third = ~(code[2] >> 3) & 15;
  i.opcode = code[3];
  i.mod = code[4] >> 6;
  i.reg = (code[4] >> 3 & 7) | r << 3;
  i.rm = (code[4] & 7) | b << 3;
  i.length = 5;
  if (i.mod != 3) decode_memory(context, code, x, b, i);
  i.length += static_cast<int>(code - start);
  return true;
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  return read_as<float>(reinterpret_cast<const uint8_t*>(&wide));
}

void configure(const Instruction& i) {
  std::memcpy(&state.config, reinterpret_cast<const void*>(i.address), sizeof(Config));
  require(state.config.palette == 1, "ldtilecfg: palette 1");
  for (const uint8_t byte : state.config.reserved)
    require(byte == 0, "ldtilecfg: reserved bytes 0");
  for (int t = 0; t < 16; ++t) {
    const bool is_used = state.config.rows[t] != 0;
    require(state.config.rows[t] <= kMaxRows && state.config.row_bytes[t] <= kRowBytes,
            "ldtilecfg: at most 16 rows of 64 bytes");
    require(is_used == (state.config.row_bytes[t] != 0), "ldtilecfg: rows and bytes, or neither");
    require(t < kTiles || !is_used, "ldtilecfg: eight tiles");
  }
  std::memset(state.tile, 0, sizeof state.tile);
}

void require_tile(int t) {
  require(t < kTiles && state.config.palette == 1 && state.config.rows[t] != 0,
          "a tile that is configured");
}

void move(const Instruction& i, bool is_load) {
  require_tile(i.reg);
  require(i.has_index, "tileloadd, tileloaddt1, tilestored: an index register");
  for (int row = 0; row < state.config.rows[i.reg]; ++row) {
    auto* memory =
        reinterpret_cast<unsigned char*>(i.address + static_cast<uint64_t>(row * i.stride));
    unsigned char* tile = state.tile[i.reg][row];
    const size_t bytes = state.config.row_bytes[i.reg];
    if (is_load) {
      std::memset(tile, 0, kRowBytes);
      std::memcpy(tile, memory, bytes);
    } else {
      std::memcpy(memory, tile, bytes);
    }
  }
  if (!is_load) return;
  for (int row = state.config.rows[i.reg]; row < kMaxRows; ++row)
    std::memset(state.tile[i.reg][row], 0, kRowBytes);
}

// Even and odd elements of k are summed apart, then both are added to what is there.
void multiply(const Instruction& i) {
  const int c = i.reg;
  const int a = i.rm;
  const int b = i.third;
  for (const int t : {c, a, b}) require_tile(t);
  require(c != a && c != b && a != b, "tdpbf16ps: three tiles");
  const Config& config = state.config;
  const int columns = config.row_bytes[c] / 4;
  const int depth = config.row_bytes[a] / 4;
  require(config.rows[c] == config.rows[a] && config.row_bytes[c] == config.row_bytes[b] &&
              config.rows[b] == depth,
          "tdpbf16ps: tiles that fit");
  for (int row = 0; row < config.rows[c]; ++row) {
    float even[kRowBytes / 4] = {};
    float odd[kRowBytes / 4] = {};
    for (int k = 0; k < depth; ++k) {
      uint16_t pair[2];
      std::memcpy(pair, state.tile[a][row] + 4 * k, sizeof pair);
      uint16_t values[kRowBytes / 2];
      std::memcpy(values, state.tile[b][k], sizeof values);
      for (int j = 0; j < columns; ++j) {
        even[j] += from_bf16(pair[0]) * from_bf16(values[2 * j]);
        odd[j] += from_bf16(pair[1]) * from_bf16(values[2 * j + 1]);
      }
    }
    float sums[kRowBytes / 4];
    std::memcpy(sums, state.tile[c][row], sizeof sums);
    for (int j = 0; j < columns; ++j) sums[j] += even[j] + odd[j];
    std::memcpy(state.tile[c][row], sums, sizeof sums);
  }
  products.fetch_add(1, std::memory_order_relaxed);
}

// Four 8-bit integers at a time, in 32 bits that wrap around.
void multiply_i8(const Instruction& i) {
  const int c = i.reg;
  const int a = i.rm;
  const int b = i.third;
  for (const int t : {c, a, b}) require_tile(t);
  require(c != a && c != b && a != b, "tdpbssd: three tiles");
  const Config& config = state.config;
  const int columns = config.row_bytes[c] / 4;
  const int depth = config.row_bytes[a] / 4;
  require(config.rows[c] == config.rows[a] && config.row_bytes[c] == config.row_bytes[b] &&
              config.rows[b] == depth,
          "tdpbssd: tiles that fit");
  for (int row = 0; row < config.rows[c]; ++row)
    for (int j = 0; j < columns; ++j) {
      uint32_t sum = 0;
      std::memcpy(&sum, state.tile[c][row] + 4 * j, sizeof sum);
      for (int k = 0; k < 4 * depth; ++k) {
        const auto x = static_cast<int8_t>(state.tile[a][row][k]);
        const auto w = static_cast<int8_t>(state.tile[b][k / 4][4 * j + k % 4]);
        sum += static_cast<uint32_t>(int32_t{x} * w);
      }
      std::memcpy(state.tile[c][row] + 4 * j, &sum, sizeof sum);
    }
  products.fetch_add(1, std::memory_order_relaxed);
}

// False for what is no AMX instruction of ours.
bool carry_out(const Instruction& i) {
  enum : int { none = 0, p66 = 1, f3 = 2, f2 = 3 };
  const bool is_register = i.mod == 3;
  if (i.opcode == 0x49 && i.prefix == none && !is_register) {
    configure(i);
  } else if (i.opcode == 0x49 && i.prefix == none) {
    state.config = {};
  } else if (i.opcode == 0x49 && i.prefix == f2 && is_register) {
    require_tile(i.reg);
    std::memset(state.tile[i.reg], 0, sizeof state.tile[i.reg]);
  } else if (i.opcode == 0x4B && !is_register && i.prefix != none) {
    move(i, i.prefix != f3);
  } else if (i.opcode == 0x5C && i.prefix == f3 && is_register) {
    multiply(i);
  } else if (i.opcode == 0x5E && i.prefix == f2 && is_register) {
    multiply_i8(i);
  } else {
    return false;
  }
  return true;
}

void on_illegal_instruction(int, siginfo_t*, void* where) {
  auto& context = *static_cast<ucontext_t*>(where);
  Instruction instruction;
  if (decode(context, instruction) && carry_out(instruction)) {
    context.uc_mcontext.gregs[REG_RIP] += instruction.length;
    return;
  }
  signal(SIGILL, SIG_DFL);  // and again, for good
}

}  // namespace

void install_amx_emulator() {
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGILL, &action, nullptr);
  is_installed = true;
}

bool amx_is_emulated() { return is_installed; }

int64_t emulated_amx_products() { return products.load(); }

}  // namespace epilogue::testing
