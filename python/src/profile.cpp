// SPDX-License-Identifier: Apache-2.0
// The profiler. python/epilogue/_profile.py has its public face.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "engine.h"
#include "epilogue/profiler.h"
#include "errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace epilogue::python {
namespace {

using profiler::Profile;

struct Recording {
  bool record_shapes;
  bool profile_memory;
  bool with_flops;
};

std::unique_ptr<Profile> make_profile(const Recording& what, nb::object schedule,
                                      nb::object ready) {
  profiler::ProfileOptions options = {.record_shapes = what.record_shapes,
                                      .profile_memory = what.profile_memory,
                                      .with_flops = what.with_flops};
  if (!schedule.is_none()) {
    const auto n = nb::cast<std::vector<int64_t>>(schedule);
    options.schedule = profiler::schedule({.wait = n.at(0),
                                           .warmup = n.at(1),
                                           .active = n.at(2),
                                           .repeat = n.at(3),
                                           .skip_first = n.at(4)});
  }
  if (!ready.is_none())
    options.on_trace_ready = [f = held(std::move(ready))](Profile&) {
      const nb::gil_scoped_acquire locked;
      (*f)();
    };
  return std::make_unique<Profile>(std::move(options));
}

// `with record_function("forward"):`
class Range {
 public:
  explicit Range(std::string name) : name_(std::move(name)) {}
  void enter() { range_ = std::make_unique<profiler::RecordFunction>(name_); }
  void exit(const nb::args&) { range_.reset(); }

 private:
  std::string name_;
  std::unique_ptr<profiler::RecordFunction> range_;
};

}  // namespace

void bind_profiler(nb::module_& m) {
  nb::class_<Profile>(m, "Profile")
      .def("start", &Profile::start)
      .def("step", &Profile::step)
      .def("stop", &Profile::stop)
      .def_prop_ro("step_num", &Profile::step_num)
      .def("warnings", &Profile::warnings)
      .def("export_chrome_trace", [](const Profile& self, const std::string& path) {
        const nb::gil_scoped_release free;
        value_or_raise(self.export_chrome_trace(path));
      });
  m.def(
      "make_profile",
      [](bool shapes, bool memory, bool flops, nb::object schedule, nb::object ready) {
        return make_profile({shapes, memory, flops}, std::move(schedule), std::move(ready));
      },
      "record_shapes"_a, "profile_memory"_a, "with_flops"_a, "schedule"_a.none(), "ready"_a.none());
  nb::class_<Range>(
      m, "record_function",
      "A labelled range of this thread, for profiles: ``with record_function('x'):``.")
      .def(nb::init<std::string>(), "name"_a)
      .def("__enter__", &Range::enter)
      .def("__exit__", &Range::exit);
}

}  // namespace epilogue::python
