// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <nanobind/stl/string.h>

#include "epilogue/autograd.h"
#include "epilogue/runtime.h"
#include "module.h"

namespace nb = nanobind;

namespace epilogue::python {
namespace {

// `with no_grad():`
class NoGradScope {
 public:
  void enter() { mode_ = std::make_unique<NoGrad>(); }
  void exit(const nb::args&) { mode_.reset(); }

 private:
  std::unique_ptr<NoGrad> mode_;
};

}  // namespace

void bind_engine(nb::module_& m) {
  m.attr("has_engine") = true;
  bind_tensors(m);
  bind_ops(m);
  bind_modules(m);
  bind_predictor(m);
  bind_profiler(m);
  nb::class_<NoGradScope>(m, "no_grad",
                          "Ops of this thread are not recorded for gradients in this ``with``.")
      .def(nb::init<>())
      .def("__enter__", &NoGradScope::enter)
      .def("__exit__", &NoGradScope::exit);
  m.def("num_threads", &num_threads, "Threads that kernels may use, the caller included.");
  m.def("set_num_threads", &set_num_threads, nb::arg("n"),
        "Not while kernels run. Raises Error outside [1, 4096].");
}

}  // namespace epilogue::python
