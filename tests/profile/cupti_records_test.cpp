// SPDX-License-Identifier: Apache-2.0
// CUPTI's records, made by hand: no library, no device.
#include "profile/cupti/cupti_records.h"
#include "support/test.h"

namespace epilogue::profiler::cupti_records_test {

constexpr CUpti_CallbackId kQuery = 7;

CuptiRecords make_records() {
  return CuptiRecords([](CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    const bool is_runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
    if (id == kQuery) return std::string(is_runtime ? "cudaGetDevice" : "cuCtxGetDevice");
    return (is_runtime ? "cuda" : "cuLaunchKernel") + std::to_string(id);
  });
}

template <class Record>
void add(CuptiRecords& records, const Record& r) {
  records.add(reinterpret_cast<const CUpti_Activity&>(r));
}

TEST(CuptiRecords, AKernelWithItsLaunchConfiguration) {
  CUpti_ActivityKernel10 r{};
  r.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  r.start = 1000;
  r.end = 4500;
  r.queued = CUPTI_TIMESTAMP_UNKNOWN;
  r.deviceId = 0;
  r.contextId = 1;
  r.streamId = 13;
  r.correlationId = 42;
  r.name = "_Z1fIiEvPf";
  r.registersPerThread = 168;
  r.staticSharedMemory = 1024;
  r.dynamicSharedMemory = 200 << 10;
  r.gridX = 66;
  r.gridY = 2;
  r.gridZ = 1;
  r.blockX = 384;
  r.blockY = 1;
  r.blockZ = 1;
  r.graphId = 3;
  r.graphNodeId = 12884901889;
  CuptiRecords records = make_records();
  add(records, r);
  const auto list = records.take();
  ASSERT_EQ(list.size(), 1U);
  const DeviceActivity& a = list[0];
  EXPECT_EQ(a.kind, ActivityKind::kernel);
  EXPECT_EQ(a.name, "void f<int>(float*)");
  EXPECT_EQ(a.begin_ns, 1000);
  EXPECT_EQ(a.end_ns, 4500);
  EXPECT_EQ(a.queued_ns, 0);
  EXPECT_EQ(a.context, 1);
  EXPECT_EQ(a.stream, 13);
  EXPECT_EQ(a.correlation, 42U);
  EXPECT_EQ(a.registers, 168);
  EXPECT_EQ(a.shared_bytes, 1024 + (200 << 10));
  EXPECT_EQ(a.grid, (std::array<int64_t, 3>{66, 2, 1}));
  EXPECT_EQ(a.block, (std::array<int64_t, 3>{384, 1, 1}));
  EXPECT_EQ(a.graph_id, 3);
  EXPECT_EQ(a.graph_node_id, 12884901889);
}

TEST(CuptiRecords, AKernelOutsideAGraphHasNoGraph) {
  CUpti_ActivityKernel10 r{};
  r.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  CuptiRecords records = make_records();
  add(records, r);
  const auto list = records.take();
  EXPECT_EQ(list.at(0).graph_id, -1);
  EXPECT_EQ(list.at(0).graph_node_id, -1);
  EXPECT_EQ(list.at(0).name, "<unknown>");
}

TEST(CuptiRecords, CopiesAndFillsHaveKinetosNames) {
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  copy.bytes = 4096;
  CUpti_ActivityMemset4 fill{};
  fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  fill.bytes = 512;
  CuptiRecords records = make_records();
  add(records, copy);
  add(records, fill);
  const auto list = records.take();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].name, "Memcpy HtoD (Pageable -> Device)");
  EXPECT_EQ(list[0].bytes, 4096);
  EXPECT_EQ(list[1].name, "Memset (Device)");
  EXPECT_EQ(list[1].bytes, 512);
}

TEST(CuptiRecords, CallsHaveTheirThreadAndTheFunctionsName) {
  CUpti_ActivityAPI r{};
  r.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  r.cbid = 211;
  r.threadId = 4711;
  r.correlationId = 9;
  CUpti_ActivityAPI driver = r;
  driver.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  CuptiRecords records = make_records();
  add(records, r);
  add(records, driver);
  const auto list = records.take();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].kind, ActivityKind::runtime_call);
  EXPECT_EQ(list[0].name, "cuda211");
  EXPECT_EQ(list[0].thread_id, 4711U);
  EXPECT_EQ(list[0].cbid, 211);
  EXPECT_EQ(list[1].kind, ActivityKind::driver_call);
  EXPECT_EQ(list[1].name, "cuLaunchKernel211");
}

TEST(CuptiRecords, QueriesAreLeftOutAsKinetoLeavesThemOut) {
  CUpti_ActivityAPI r{};
  r.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  r.cbid = kQuery;
  CUpti_ActivityAPI driver = r;
  driver.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  CuptiRecords records = make_records();
  add(records, r);
  add(records, driver);
  EXPECT_TRUE(records.take().empty());
}

TEST(CuptiRecords, AnOpIsJoinedWhateverTheOrderOfTheRecords) {
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.correlationId = 7;
  CUpti_ActivityExternalCorrelation link{};
  link.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  link.correlationId = 7;
  link.externalId = (uint64_t{77} << 32) | 3;
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.correlationId = 7;
  CUpti_ActivityAPI other = call;
  other.correlationId = 8;
  CuptiRecords records = make_records();
  add(records, kernel);
  add(records, link);
  add(records, call);
  add(records, other);
  const auto list = records.take();
  ASSERT_EQ(list.size(), 3U);  // the link is no activity
  EXPECT_EQ(list[0].op, link.externalId);
  EXPECT_EQ(list[1].op, link.externalId);
  EXPECT_EQ(list[2].op, 0U);
  EXPECT_TRUE(records.take().empty());
}

TEST(CuptiRecords, SynchronisationAndOverheadAreNamed) {
  CUpti_ActivitySynchronization2 sync{};
  sync.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  sync.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  sync.streamId = 13;
  CUpti_ActivitySynchronization2 context = sync;
  context.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE;
  context.streamId = UINT32_MAX;  // all streams
  CUpti_ActivityOverhead3 overhead{};
  overhead.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  overhead.overheadKind = CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING;
  overhead.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  overhead.objectId.pt.threadId = 4711;
  CuptiRecords records = make_records();
  add(records, sync);
  add(records, context);
  add(records, overhead);
  const auto list = records.take();
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].name, "Stream Sync");
  EXPECT_EQ(list[0].stream, 13);
  EXPECT_EQ(list[1].name, "Context Sync");
  EXPECT_EQ(list[1].stream, -1);
  EXPECT_EQ(list[2].name, "Lazy Function Loading");
  EXPECT_EQ(list[2].thread_id, 4711U);
}

TEST(CuptiRecords, KindsThatAreNotKnownAreLeftOut) {
  CUpti_Activity r{};
  r.kind = CUPTI_ACTIVITY_KIND_MARKER;
  CuptiRecords records = make_records();
  records.add(r);
  EXPECT_TRUE(records.take().empty());
}

TEST(Demangled, NamesThatAreNotMangledStay) {
  EXPECT_EQ(demangled("epi_cuda_fused_add_bf16"), "epi_cuda_fused_add_bf16");
  EXPECT_EQ(demangled("ampere_sgemm_128x64_tn"), "ampere_sgemm_128x64_tn");
}

}  // namespace epilogue::profiler::cupti_records_test
