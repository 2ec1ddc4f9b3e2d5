// SPDX-License-Identifier: Apache-2.0
// Trained models: what `epilogue predict` computes, from Python.
#include "epilogue/predictor.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "engine.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace epilogue::python {
namespace {

// What the command prints of a file, in the same pieces, so that no digit differs.
struct Predicted {
  std::vector<std::string> classes;  // of classification, by row
  Tensor probabilities;              // likewise, [n, classes]
  std::vector<double> values;        // of regression
};

Predicted predict(const train::Predictor& model, const std::string& path) {
  const train::ModelDescription& d = model.description();
  const CsvTable rows =
      CsvTable::read(path, {.delimiter = d.delimiter, .header = d.has_header}).value();
  train::Predictions p = model.predict(rows).value();
  const std::vector<std::string> names = d.class_names();
  Predicted result{{}, p.probabilities, std::move(p.values)};
  for (const int64_t c : p.classes) result.classes.push_back(names[static_cast<size_t>(c)]);
  return result;
}

}  // namespace

void bind_predictor(nb::module_& m) {
  nb::class_<Predicted>(m, "Predicted", "What a model says of the rows of a table.")
      .def_ro("classes", &Predicted::classes,
              "The most likely class of each row; of regression [].")
      .def_prop_ro(
          "probabilities", [](const Predicted& p) { return if_defined(p.probabilities); },
          "Of each row and class, [n, classes]; of regression None.")
      .def_ro("values", &Predicted::values, "Numbers in the target's unit; of classification [].");
  nb::class_<train::Predictor>(m, "Predictor", "A model.safetensors of ``epilogue train``.")
      .def(
          "__init__",
          [](train::Predictor* self, const std::string& path,
             const std::optional<std::string>& weights,
             const std::optional<std::string>& activations, int group, bool zero_points) {
            const Quantisation bits = bits_of({weights, activations, group, zero_points, false});
            new (self) train::Predictor(train::Predictor::open(path, bits).value());
          },
          "path"_a, nb::kw_only(), "weights"_a.none() = nb::none(),
          "activations"_a.none() = nb::none(), "group"_a = 128, "zero_points"_a = false,
          "Fewer bits as compile()'s, which change predictions.")
      .def("predict", &predict, "path"_a, Unlocked(),
           "Predictions for a CSV file, to the last digit those of ``epilogue predict``. Raises "
           "Error on a file that the model cannot use.")
      .def_prop_ro(
          "class_names",
          [](const train::Predictor& self) { return self.description().class_names(); },
          "The classes, in the order of the probabilities; of regression [].");
}

}  // namespace epilogue::python
