// SPDX-License-Identifier: Apache-2.0
// The tables of a trace: epilogue/trace/tables.h, as PyCapsules.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "epilogue/trace/memory_snapshot.h"
#include "epilogue/trace/tables.h"
#include "trace_source.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace epilogue::python {
namespace {

using trace::TraceTables;

// Frees the struct; releases what it holds unless a consumer took it over.
template <class Struct>
nb::capsule capsule_of(std::unique_ptr<Struct> held, const char* name) {
  return nb::capsule(held.release(), name, [](void* pointer) noexcept {
    const std::unique_ptr<Struct> owned(static_cast<Struct*>(pointer));
    if (owned->release != nullptr) owned->release(owned.get());
  });
}

template <class Tables>
nb::capsule schema(const Tables& tables, const std::string& table) {
  auto made = std::make_unique<ArrowSchema>();
  tables.export_schema(table, made.get());
  return capsule_of(std::move(made), "arrow_schema");
}

template <class Tables>
nb::capsule stream(const Tables& tables, const std::string& table) {
  auto made = std::make_unique<ArrowArrayStream>();
  tables.export_stream(table, made.get());
  return capsule_of(std::move(made), "arrow_array_stream");
}

// [("id", "int64"), ("name", "text")]
template <class Tables>
std::vector<std::pair<std::string, std::string>> columns(const Tables& tables,
                                                         const std::string& table) {
  ArrowSchema made;
  tables.export_schema(table, &made);
  std::vector<std::pair<std::string, std::string>> list;
  for (int64_t i = 0; i < made.n_children; ++i) {
    const ArrowSchema& child = *made.children[i];
    const char* type = child.dictionary != nullptr ? "text"
                       : *child.format == 'l'      ? "int64"
                       : *child.format == 'g'      ? "float64"
                                                   : "bool";
    list.emplace_back(child.name, type);
  }
  made.release(&made);
  return list;
}

std::vector<std::string> table_names() {
  const auto names = TraceTables::names();
  return {names.begin(), names.end()};
}

auto memory_tables(const Source& source) {
  return unlocked([&](const trace::AnswerHooks& hooks) -> Result<trace::SnapshotTables> {
    const auto poll = [&](int64_t, int64_t) { hooks.poll(); };
    const trace::TraceInput& input = source.input;
    Result<trace::MemorySnapshot> read =
        input.bytes ? trace::read_memory_snapshot_bytes(*input.bytes, input.name, poll)
                    : trace::read_memory_snapshot(input.path, poll);
    if (!read) return read.failure();
    return trace::SnapshotTables(std::move(read).value());
  });
}

auto tables(const Source& source, bool python_frames) {
  return unlocked([&](const trace::AnswerHooks& hooks) -> Result<TraceTables> {
    Result<trace::Trace> read = trace::load_trace(
        source.input, python_frames ? trace::PythonFrames::events : trace::PythonFrames::counted,
        hooks);
    if (!read) return read.failure();
    return TraceTables(std::move(read).value());
  });
}

}  // namespace

void bind_tables(nb::module_& m) {
  nb::class_<TraceTables>(m, "TraceTables")
      .def("row_count", &TraceTables::row_count, "table"_a)
      .def("columns", columns<TraceTables>, "table"_a)
      .def("schema", schema<TraceTables>, "table"_a)
      .def("stream", stream<TraceTables>, "table"_a)
      .def("base_time_ns", [](const TraceTables& t) { return t.trace().base_time_ns; })
      .def("metadata", [](const TraceTables& t) { return t.trace().metadata; });
  using trace::SnapshotTables;
  nb::class_<SnapshotTables>(m, "SnapshotTables")
      .def("row_count", &SnapshotTables::row_count, "table"_a)
      .def("columns", columns<SnapshotTables>, "table"_a)
      .def("schema", schema<SnapshotTables>, "table"_a)
      .def("stream", stream<SnapshotTables>, "table"_a);
  m.def("memory_tables", memory_tables, "source"_a);
  m.def("memory_table_names", [] {
    const auto names = SnapshotTables::names();
    return std::vector<std::string>(names.begin(), names.end());
  });
  m.def("tables", tables, "source"_a, "python_frames"_a);
  m.def("table_names", table_names);
}

}  // namespace epilogue::python
