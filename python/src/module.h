// SPDX-License-Identifier: Apache-2.0
// The parts of the extension module epilogue._core. Each file defines one.
#pragma once

#include <nanobind/nanobind.h>

namespace epilogue::python {

void bind_errors(nanobind::module_& m);
void bind_trace(nanobind::module_& m);
void bind_tables(nanobind::module_& m);
// Empty in a build of the trace half alone.
void bind_engine(nanobind::module_& m);

}  // namespace epilogue::python
