// SPDX-License-Identifier: Apache-2.0
// epilogue._core: the native half of the package. Private; python/epilogue has what users call.
#include "module.h"

NB_MODULE(_core, m) {
  m.doc() = "Native half of epilogue. Private: use the package's own functions.";
  m.attr("version") = EPILOGUE_VERSION;
  epilogue::python::bind_errors(m);
  epilogue::python::bind_trace(m);
  epilogue::python::bind_engine(m);
}
