// SPDX-License-Identifier: Apache-2.0
// epilogue._core: the native half of the package. Private; python/epilogue has what users call.
#include "module.h"

NB_MODULE(_core, m) {
  // A compiled function may refer to the module whose globals hold it. The collector does not see
  // that through the library, so that at the interpreter's end such objects are left: no fault.
  nanobind::set_leak_warnings(false);
  m.doc() = "Native half of epilogue. Private: use the package's own functions.";
  m.attr("version") = EPILOGUE_VERSION;
  epilogue::python::bind_errors(m);
  epilogue::python::bind_trace(m);
  epilogue::python::bind_tables(m);
  epilogue::python::bind_engine(m);
}
