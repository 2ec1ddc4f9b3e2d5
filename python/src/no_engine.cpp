// SPDX-License-Identifier: Apache-2.0
// What a build of the trace half alone says of the engine.
#include "module.h"

namespace epilogue::python {

void bind_engine(nanobind::module_& m) { m.attr("has_engine") = false; }

}  // namespace epilogue::python
