// SPDX-License-Identifier: Apache-2.0
// Hopper's asynchronous machinery, one function per PTX instruction: mbarriers, bulk tensor copies
// (TMA) and warpgroup products (wgmma). PTX ISA, sections "mbarrier", "cp.async.bulk.tensor" and
// "wgmma". sm_90a only.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace epilogue::cuda::sm90 {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// --- Barriers -----------------------------------------------------------------------------------

__device__ inline void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals));
}
// Makes initialised barriers visible to the cluster and to the copy engine.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// One arrival, after which the phase also waits for `bytes` of copies.
__device__ inline void arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// One arrival at the same barrier of a block of the cluster. Its order is that of a block, not of
// the cluster, which would be a fence of the whole device: what the barrier guards is read by
// products and written by copies, which have an order of their own.
__device__ inline void arrive_at(uint64_t* barrier, uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(block)
      : "memory");
}
// Returns when the phase of this parity is over. A fresh barrier is in the phase of parity 0; that
// of parity 1, before it, counts as over.
__device__ inline void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// One lane of a full warp, the same every time; the compiler knows that it is one.
__device__ inline bool elect_one() {
  uint32_t is_elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}\n"
      : "=r"(is_elected));
  return is_elected != 0;
}

__device__ inline uint32_t block_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all blocks of the cluster.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;\n" ::
          : "memory");
}

// --- Copies -------------------------------------------------------------------------------------

__device__ inline void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}
// A box of a matrix to shared memory; what lies outside the matrix is zero. The barrier is told of
// the bytes.
__device__ inline void copy_box(const CUtensorMap* map, void* to, int32_t column, int32_t row,
                                uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}
// The same to the blocks of the cluster that `mask` names, each with its own barrier.
__device__ inline void copy_box_to_cluster(const CUtensorMap* map, void* to, int32_t column,
                                           int32_t row, uint64_t* barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "h"(mask), "r"(column),
      "r"(row)
      : "memory");
}

// --- Products -----------------------------------------------------------------------------------

// A tile in shared memory whose rows are 128 bytes of the summed dimension, swizzled by 128 bytes
// and aligned to 1024: start address, 1024 bytes from one group of 8 rows to the next, swizzle mode
// 1; addresses in units of 16 bytes.
__device__ inline uint64_t descriptor(const void* tile) {
  constexpr uint64_t kLeading = uint64_t{1} << 16;  // not used by swizzled tiles
  constexpr uint64_t kStride = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return ((shared_address(tile) & 0x3ffff) >> 4) | kLeading | kStride | kSwizzle128;
}

__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kLeft committed groups are under way.
template <int kLeft>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace epilogue::cuda::sm90
