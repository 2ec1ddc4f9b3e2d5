// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include "epilogue/base/error.h"
#include "epilogue/base/failure_code.h"
#include "module.h"

namespace nb = nanobind;

namespace epilogue::python {
namespace {

// Sets TraceError(message), with the failure's stable name as its attribute `code`.
void set_trace_error(PyObject* type, const Failure& failure) {
  const nb::object error = nb::borrow(type)(failure.message.c_str());
  const std::string_view code = failure_code_name(failure.code);
  error.attr("code") = nb::str(code.data(), code.size());
  PyErr_SetObject(type, error.ptr());
}

void translate_failure(const std::exception_ptr& raised, void* type) {
  try {
    std::rethrow_exception(raised);
  } catch (const FailureRaised& f) {
    set_trace_error(static_cast<PyObject*>(type), f.failure);
  }
}

}  // namespace

void bind_errors(nb::module_& m) {
  nb::exception<Error> error(m, "Error", PyExc_ValueError);
  error.attr("__doc__") = "The library was misused: ``[op] expected ..., got ...``.";
  error.attr("__module__") = "epilogue";
  const nb::object trace_error = nb::steal(PyErr_NewExceptionWithDoc(
      "epilogue.TraceError",
      "A trace cannot be used.\n\n``code`` is a stable name: ``NotATrace``, ``NoSuchStep``, ...",
      error.ptr(), nullptr));
  m.attr("TraceError") = trace_error;
  // The module lives as long as the process, and with it the type.
  nb::register_exception_translator(translate_failure, trace_error.ptr());
}

}  // namespace epilogue::python
